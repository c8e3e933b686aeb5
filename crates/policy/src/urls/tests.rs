use serde_json::json;

use super::*;

#[test]
fn internal_urls_are_not_public() {
    for text in [
        "http://169.254.169.254/latest/meta-data",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://①②⑦.0.0.1/",
        "http://127\u{ff0e}0\u{ff0e}0\u{ff0e}1/",
        "http://%31%32%37.0.0.1/",
        "HTTP://127.0.0.1/",
        " http://127.0.0.1/",
        "http:/127.0.0.1/",
        "http:\\\\127.0.0.1\\",
        "http://example.com\\@127.0.0.1/",
        "http:\\\\example.com\\x@127.0.0.1/",
        "http:/\t/example.com\\@127.0.0.1/",
        "http://printer.lan/",
        "http://kubernetes.default.svc/",
        "ht\ttp://127.0.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::1]/",
        "http://[fd00::1]/",
        "http://[fe80::1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[2001:2::1]/",
        "http://100.64.0.1/",
        "http://10.0.0.8/",
        "http://192.168.1.1/",
        "http://0.0.0.0/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://metadata.google.internal/",
        "http://gateway/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "http://user:password@example.com/",
        "http://example.com@127.0.0.1/",
        "not an address",
    ] {
        assert!(!is_public(text), "{text}");
    }
    for text in ["https://example.com/a?b=c", "http://93.184.216.34/", "https://[2606:4700::1111]/"] {
        assert!(is_public(text), "{text}");
    }
}

#[test]
fn an_internal_url_is_found_in_any_argument() {
    let internal = "http://10.0.0.8/x";
    for arguments in [
        json!({ "url": internal }),
        json!({ "URL": internal }),
        json!({ "urls": ["https://example.com/", internal] }),
        json!({ "anything": internal }),
        json!({ "a": { "b": [{ "c": internal }] } }),
        json!({ "a": { internal: 1 } }),
        json!({ internal: 1 }),
        json!({ "request": "{\"url\":\"http://10.0.0.8/\"}" }),
        json!({ "request": "[[\"\\\\\\\\10.0.0.8\\\\x\"]]" }),
        json!({ "note": "//10.0.0.8/x" }),
        json!({ "note": "\\\\10.0.0.8\\x" }),
        json!({ "note": "10.0.0.8/x" }),
        json!({ "note": "localhost:8791/api" }),
        json!({ "note": "[::1]:80" }),
        json!({ "note": "file:///etc/passwd" }),
        json!({ "note": "ftp://example.com/x" }),
        json!({ "url": 2_130_706_433 }),
        json!({ "image-URI": "example.com" }),
        json!({ "headers": { "Host": "intranet" } }),
        json!({ "proxy": "127.0.0.1:3128" }),
        json!({ "base_url": { "url": internal } }),
    ] {
        let Value::Object(map) = &arguments else { panic!() };
        assert!(find_forbidden("web.fetch", map).is_some(), "{arguments}");
        assert!(find_forbidden("api.call", map).is_some(), "{arguments}");
        assert!(find_forbidden("db.task.create", map).is_none(), "only fetchers fetch");
    }
    for arguments in [
        json!({ "url": "https://example.com/", "method": "GET", "timeout": 10, "follow": true }),
        json!({ "url": "https://example.com/", "body": null }),
        json!({ "query": "what is 10.0.0.8 for", "limit": "10", "page": "1.2" }),
        json!({ "query": "intranet", "note": "note: see below", "path": "/v1/users/localhost" }),
        json!({ "urls": ["https://example.com/", "http://example.org/a"], "include_url": true }),
        json!({ "headers": { "Host": "example.com", "Accept": "text/html" }, "body": "{\"a\":[1,\"b\"]}" }),
        json!({ "query": "http: the protocol", "time": "12:30" }),
    ] {
        let Value::Object(map) = &arguments else { panic!() };
        assert_eq!(find_forbidden("web.search", map), None, "{arguments}");
    }
}

#[test]
fn an_unprintable_argument_name_is_not_reported() {
    let name = format!("{}\n", "x".repeat(80));
    let Value::Object(map) = json!({ name: "http://10.0.0.8/" }) else { panic!() };
    assert_eq!(find_forbidden("web.fetch", &map).as_deref(), Some("arguments"));
}

/// Hosts without a scheme are judged as the parser of fetchers reads them.
#[test]
fn internal_host_is_found_in_every_spelling() {
    for arguments in [
        // Under names that mean a host a number is an address.
        json!({ "host": "2130706433" }),
        json!({ "host": 2_130_706_433 }),
        json!({ "host": 2_130_706_433.0 }),
        json!({ "host": 127.1 }),
        json!({ "host": 0 }),
        json!({ "hosts": [2_130_706_433] }),
        json!({ "server": 2_130_706_433 }),
        json!({ "remote_ip": "017700000001" }),
        json!({ "targetHost": "127.1" }),
        json!({ "IPAddress": "10.8" }),
        json!({ "a": { "endpoint": "2130706433/x" } }),
        json!({ "proxy": { "value": 2_130_706_433, "port": 3128 } }),
        // Under any name if it cannot be a quantity.
        json!({ "note": "0x7f.1" }),
        json!({ "note": "0x7f000001" }),
        json!({ "note": "0x0" }),
        json!({ "note": "0177.0.0.1" }),
        json!({ "note": "127.1:8080" }),
        json!({ "note": "2130706433/latest" }),
        json!({ "note": "2130706433:80" }),
        json!({ "note": "user@10.0.0.8/x" }),
        json!({ "note": "user:word@10.0.0.8" }),
        json!({ "note": "example.com\\@10.0.0.8/x" }),
        json!({ "note": "%31%32%37.0.0.1" }),
        json!({ "note": "%6cocalhost:80/x" }),
        json!({ "note": "localhost%2e/x" }),
        json!({ "note": "127.0.\t0.1/x" }),
        json!({ "note": "loc\nalhost/x" }),
        json!({ "note": "\u{1}10.0.0.8" }),
        json!({ "note": "/\t/10.0.0.8/x" }),
        json!({ "note": "\\\n\\10.0.0.8\\x" }),
        json!({ "note": "ht\ttp://10.0.0.8/" }),
        json!({ "note": "http:\n//%6cocalhost/" }),
        json!({ "note": "①②⑦.0.0.1" }),
        json!({ "0x7f.1": true }),
        json!({ "a": { "%6cocalhost": 1 } }),
    ] {
        let Value::Object(map) = &arguments else { panic!() };
        assert!(find_forbidden("web.fetch", map).is_some(), "{arguments}");
    }
}

#[test]
fn quantities_versions_ports_and_public_hosts_are_no_internal_hosts() {
    for arguments in [
        json!({ "port": 8080 }),
        json!({ "port": "8080" }),
        json!({ "host": "example.com", "port": 8080 }),
        json!({ "host": { "name": "example.com", "port": 8080, "timeout": 10 } }),
        json!({ "server": { "port": "8080", "weight": "10" } }),
        json!({ "address": { "street": "Main Street 10", "zip": "10115", "number": "10" } }),
        json!({ "host": "93.184.216.34" }),
        json!({ "host": 1_572_395_042 }),
        json!({ "servers": ["eu-1", "example.com:443", 1_572_395_042] }),
        json!({ "limit": 10, "id": 2_130_706_433 }),
        json!({ "id": "2130706433", "version": "10.0.1", "ratio": "10.5", "flags": "0x10" }),
        json!({ "date": "10/12/2024", "time": "10:30", "share": "10%" }),
        json!({ "zip": "10115", "ships": "10", "description": "127.1" }),
        json!({ "path": "/10.0.0.8/x", "endpoint": "/v1/items" }),
        json!({ "mail": "ada@example.com", "note": "0x5db8d822" }),
        json!({ "note": "10.0.0.8 is internal" }),
    ] {
        let Value::Object(map) = &arguments else { panic!() };
        assert_eq!(find_forbidden("web.fetch", map), None, "{arguments}");
    }
}
