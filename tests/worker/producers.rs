//! The example orchestrators in other languages hand off to a real worker.

use std::{fs, path::Path, time::Duration};

use testkit::{Finished, GatewayProcess, Nats, Orchestrator, Worker, eventually_within, run, workspace};

const ID: &str = "7f2c1f6e-8f0b-4c53-9d39-0e6a5e1b7a11";

async fn answered(nats: &Nats, program: &Path, arguments: &[&str], more: &[(&str, &str)]) -> Finished {
    let folder = workspace().join("subjects/examples");
    let (program, url) = (program.to_owned(), nats.url());
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let mut variables = vec![("NATS_URL".to_owned(), url), ("HANDOFF_ID".to_owned(), ID.to_owned())];
    variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    tokio::task::spawn_blocking(move || {
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        run(&program, &folder, &arguments, &variables)
    })
    .await
    .unwrap()
}

/// Run twice with one id, the example gets the same answer. The manager acts on behalf of the user.
async fn assert_answered_once(program: &Path, arguments: &[&str], more: &[(&str, &str)]) {
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("leases.mode", "required")]).await;
    let file = |name: &str| gateway.folder().join(name).display().to_string();
    let (own, of_manager) = (file("orchestrator.token"), file("manager.token"));
    fs::write(&own, gateway.unbound("orchestrator").await).unwrap();
    fs::write(&of_manager, gateway.manager().await).unwrap();
    let worker = Worker::manager(&nats).set("gateway.url", gateway.url());
    let _worker = worker.set("gateway.token_file", of_manager).start().await;
    let url = gateway.url();
    let leased = [("USER_ID", "ada"), ("GATEWAY_URL", &*url), ("GATEWAY_TOKEN_FILE", &*own)];
    let more: &[(&str, &str)] = &[more, &leased].concat();
    let first = answered(&nats, program, arguments, more).await;
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.stdout.contains("db.task.list"), "{first:?}");
    let rows = gateway.audit("tool=db.task.list").await;
    assert!(rows.len() == 1 && rows[0]["user_id"] == "ada" && rows[0]["decision"] == "allow", "{rows:?}");
    let again = answered(&nats, program, arguments, more).await;
    assert_eq!((again.code, &again.stdout), (0, &first.stdout), "{again:?}");
    let orchestrator = Orchestrator::connect(&nats).await;
    assert_eq!(orchestrator.answers().await.len(), 1);
    eventually_within(Duration::from_secs(10), "an empty queue", async || {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_python_peer_hands_off_as_the_example_shows() {
    let python = workspace().join(".tools/python/bin/python");
    assert_answered_once(&python, &["orchestrator.py", "What is left to do?"], &[]).await;
}

/// Debian's Go client has no module, so it is found through GOPATH.
#[tokio::test]
async fn a_go_producer_hands_off_as_the_example_shows() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().display().to_string();
    let variables = [
        ("GO111MODULE", "off"),
        ("GOPATH", "/usr/share/gocode"),
        ("GOCACHE", cache.as_str()),
        ("GOFLAGS", ""),
    ];
    let arguments = ["run", "orchestrator.go", "What is left to do?"];
    assert_answered_once(Path::new("/usr/bin/go"), &arguments, &variables).await;
}
