//! Nodes that cannot write the audit of what jobs call, as when their disk is full: other nodes run these
//! jobs, and no call is made twice.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use testkit::{Answer, Gateway, NodeBuilder, NodeProcess, Tool, eventually, run};

use crate::{stage::Stage, tools::CLIENT};

/// An MCP server that each node has as its own.
async fn server() -> Gateway {
    let echo = Tool::new("echo", "", json!({ "type": "object" }), |_| Answer::text("echoed"));
    Gateway::start(vec![echo]).await
}

async fn node(stage: &Stage, id: &str, server: &Gateway) -> NodeBuilder {
    let upstreams = format!("[{{ namespace = \"local\", url = \"{}\" }}]", server.url());
    stage.node(id).await.set("edge.upstreams", upstreams)
}

/// Creates a job with a tool of the node. It must not be repeated, since it calls tools.
async fn job(stage: &Stage, script: &str) -> String {
    let script = format!("call() {{ python3 client.py \"$1\" '{{}}'; }}\n{script}");
    let files = json!([{ "path": "client.py", "text": CLIENT }]);
    stage.script(&script, json!({ "files": files, "tools": ["local.echo"] })).await
}

/// Waits until a node takes no jobs because of its audit.
async fn wait_until_not_ready(node: &NodeProcess) {
    eventually("the node is not ready", async || {
        node.readiness().await.contains("cannot write the audit").then_some(())
    })
    .await;
}

async fn wait_until_ready(node: &NodeProcess) {
    eventually("the node is ready again", async || (node.readiness().await.trim() == "ok").then_some(()))
        .await;
}

/// The healthy node is busy at first, so the broken one is offered the job again and again.
#[tokio::test]
async fn job_is_left_to_others_by_a_node_that_cannot_begin_its_audit() {
    let (stage, server) = (Stage::start().await, server().await);
    let _healthy = node(&stage, "healthy", &server).await.set("node.slots", "1").start().await;
    let long = stage.script("echo started; sleep 120", json!({})).await;
    stage.wait_for_log(&long, "started").await;
    let builder = node(&stage, "broken", &server).await;
    let broken = builder.start().await;
    let (edge, away) = (builder.data().join("edge"), builder.data().join("away"));
    fs::rename(&edge, &away).unwrap();
    fs::write(&edge, "not a folder").unwrap();
    let id = job(&stage, "call local.echo | grep echoed").await;
    broken.wait_for_log("Job not run; handing it back.").await;
    wait_until_not_ready(&broken).await;
    stage.call("sandbox.job.cancel", json!({ "job_id": long })).await;
    let job = stage.ended(&id).await;
    let ended = (&job["exit_code"], &job["node_id"], &job["attempt"]);
    assert_eq!(ended, (&json!(0), &json!("healthy"), &json!(2)), "{job}");
    assert_eq!(broken.log().matches("Job not run").count(), 1, "{}", broken.log());
    assert_eq!(server.calls().len(), 1);
    fs::remove_file(&edge).unwrap();
    fs::rename(&away, &edge).unwrap();
    wait_until_ready(&broken).await;
}

/// A small disk of its own for the audit of a node.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(builder: &NodeBuilder) -> Self {
        let folder = builder.data().join("edge");
        fs::create_dir_all(&folder).unwrap();
        let text = folder.display().to_string();
        let arguments = ["-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", &text];
        let mounted = run(Path::new("mount"), Path::new("/"), &arguments, &[]);
        assert_eq!(mounted.code, 0, "this test mounts a file system, as root: {}", mounted.stderr);
        Self(folder)
    }

    /// Leaves no room but that at the end of files.
    fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run(Path::new("umount"), Path::new("/"), &["-l", &self.0.display().to_string()], &[]);
    }
}

async fn leases(stage: &Stage) -> Vec<Value> {
    let audit = stage.gateway.must("GET", "/api/v1/audit/nodes", None).await;
    assert_eq!(audit["alarms"], json!([]), "{audit:#}");
    audit["leases"].as_array().unwrap().clone()
}

/// The disk gets full while the job runs. Nothing that it called had an effect, so it is not too late.
#[tokio::test]
async fn job_moves_to_another_node_when_the_disk_is_full_before_its_first_call() {
    let (stage, server) = (Stage::start().await, server().await);
    let builders = [node(&stage, "n1", &server).await, node(&stage, "n2", &server).await];
    let disks = builders.each_ref().map(SmallDisk::mount);
    let nodes = [builders[0].start().await, builders[1].start().await];
    // What is denied has a line, too: they take what room there is at the end of the file.
    let refused = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do call local.none; done";
    let id = job(&stage, &format!("echo started; sleep 6; {refused}; call local.echo | grep echoed")).await;
    stage.wait_for_log(&id, "started").await;
    let first = stage.running_on(&id).await;
    let full = nodes.iter().position(|node| node.id == first).unwrap();
    disks[full].fill();
    wait_until_not_ready(&nodes[full]).await;
    let job = stage.ended(&id).await;
    let ended = (&job["exit_code"], &job["node_id"], &job["attempt"]);
    let other = nodes[1 - full].id.as_str();
    assert_eq!(ended, (&json!(0), &json!(other), &json!(2)), "{job} {}", stage.log(&id).await);
    assert_eq!((server.calls().len(), stage.results(&id).await), (1, 1));

    disks[full].make_room();
    wait_until_ready(&nodes[full]).await;
    eventually("both audits are closed", async || {
        let leases = leases(&stage).await;
        assert_eq!(leases.len(), 2, "{leases:#?}");
        leases.iter().all(|lease| !lease["closed_at"].is_null()).then_some(())
    })
    .await;
}

/// Its first call had its effect, so it runs on where it is, and gets its call when there is room.
#[tokio::test]
async fn job_that_has_made_a_call_stays_on_its_node_when_the_disk_is_full() {
    let (stage, server) = (Stage::start().await, server().await);
    let builders = [node(&stage, "n1", &server).await, node(&stage, "n2", &server).await];
    let disks = builders.each_ref().map(SmallDisk::mount);
    let nodes = [builders[0].start().await, builders[1].start().await];
    let script = "call local.echo; echo started; sleep 2; \
                  until call local.none | grep -q 'not writable'; do :; done; echo full; \
                  until call local.echo | grep echoed; do sleep 0.2; done";
    let id = job(&stage, script).await;
    stage.wait_for_log(&id, "started").await;
    let first = stage.running_on(&id).await;
    let full = nodes.iter().position(|node| node.id == first).unwrap();
    disks[full].fill();
    stage.wait_for_log(&id, "full").await;
    wait_until_not_ready(&nodes[full]).await;
    disks[full].make_room();
    let job = stage.ended(&id).await;
    let ended = (&job["exit_code"], &job["node_id"], &job["attempt"]);
    assert_eq!(ended, (&json!(0), &json!(first), &json!(1)), "{job} {}", stage.log(&id).await);
    assert_eq!((server.calls().len(), stage.results(&id).await), (2, 1));
    wait_until_ready(&nodes[full]).await;
}
