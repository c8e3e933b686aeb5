//! What jobs reach over the network of a node.

use std::net::Ipv4Addr;

use serde_json::json;
use testkit::{binary, run};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};

use crate::stage::Stage;

/// Answers each connection with a line.
async fn serve(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0, "the request arrives");
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nserved\n").await.unwrap();
    }
}

/// A caller cannot send jobs into the node's own network by naming it: the operator has to name the host too.
/// A refused connection is in the job's result, since many clients do not show the answer of a proxy.
#[tokio::test]
async fn internal_host_is_reached_only_if_the_node_names_it() {
    let stage = Stage::start().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let host = format!("localhost:{}", listener.local_addr().unwrap().port());
    let mut server = JoinSet::new();
    server.spawn(serve(listener));
    let _closed = stage.node("closed").await.start().await;
    let open = stage.node("open").await.set("sandbox.internal_hosts", format!("[{host:?}]"));
    let _open = open.start().await;
    let script = format!(
        "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(\"127.0.0.1:3128\") or die; \
         print $s \"GET http://{host}/ HTTP/1.1\\r\\n\\r\\n\"; print while <$s>'"
    );
    let ended_on = async |node: &str| {
        let id = stage.script(&script, json!({ "network": [host], "node_id": node })).await;
        (stage.ended(&id).await, stage.log(&id).await)
    };
    let (job, log) = ended_on("closed").await;
    assert!(log.starts_with("HTTP/1.1 403 Forbidden") && log.contains("sandbox.internal_hosts"), "{log}");
    let problem = job["problems"][0].as_str().unwrap_or_default();
    assert!(problem.starts_with(&format!("connection to {host} refused: ")), "{job}");
    let (job, log) = ended_on("open").await;
    assert!(log.starts_with("HTTP/1.0 200 OK") && log.ends_with("served\n"), "{log}");
    assert!(job["problems"].is_null(), "{job}");
}

#[test]
fn invalid_internal_host_is_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for entry in ["1.2", "*.internal", "http://db.internal", "db.internal:0", "::1"] {
        let setting = format!("sandbox.internal_hosts=[\"db.internal:5432\", {entry:?}]");
        let done =
            run(&binary("cynode-node"), folder.path(), &["check", "--engines", "--set", &setting], &[]);
        assert_eq!(done.code, 64, "{done:?}");
        let says = |text: &str| done.stderr.contains(text);
        assert!(says("sandbox.internal_hosts") && says(&format!("`{entry}`")), "{done:?}");
    }
}
