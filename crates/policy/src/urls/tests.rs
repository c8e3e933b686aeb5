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
