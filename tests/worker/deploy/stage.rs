//! NATS as deployed: the files of `deploy/nats`, the keys of `cynodectl nkeys`, and certificates of a test
//! authority. Only addresses and folders differ from a real node.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use async_nats::{Client, ConnectOptions, Event};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use subjects::{Role, streams::Layout};
use tempfile::TempDir;
use testkit::{
    Finished, Orchestrator, Process, Worker, WorkerBuilder, cynodectl, eventually, free_port, nats_server,
    run, workspace,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Published after everything else, so that its violation marks the end of the earlier ones.
const NOBODY_MAY: &str = "nobody.may";

/// The layout that everything in `deploy/` uses.
pub(crate) const LAYOUT: Layout = Layout::ByRole;

/// One or three servers as deployed. Stopped on drop.
pub(crate) struct Stage {
    folder: TempDir,
    nodes: Vec<(Process, u16)>,
}

impl Stage {
    /// One node, with streams created by the provisioner.
    pub(crate) async fn start() -> Self {
        let stage = Self::unprovisioned(1).await;
        let made = stage.ctl("provisioner", &["provision"]);
        assert_eq!(made.code, 0, "{made:?}");
        stage
    }

    pub(crate) async fn unprovisioned(count: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        lay_out(folder.path());
        let cluster: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let mut nodes = Vec::new();
        for number in 0..count {
            let text = node(folder.path(), number, &cluster);
            let file = folder.path().join(format!("nats-{number}.conf"));
            fs::write(&file, text).expect("written");
            let ports = folder.path().join(format!("ports-{number}"));
            fs::create_dir(&ports).expect("made");
            let name = format!("nats-{number}");
            let arguments = ["-c", &text_of(&file), "--name", &name, "--ports_file_dir", &text_of(&ports)]
                .map(str::to_owned);
            let process = Process::start(&nats_server(), &arguments, &[], &folder.path().join("nats.log"));
            let port = eventually(&format!("{name} to listen"), async || port_in(&ports)).await;
            nodes.push((process, port));
        }
        Self { folder, nodes }
    }

    pub(crate) fn url(&self) -> String {
        let urls: Vec<_> = self.nodes.iter().map(|(_, port)| format!("tls://localhost:{port}")).collect();
        urls.join(",")
    }

    /// SIGKILL for one node.
    pub(crate) fn kill(&mut self, number: usize) {
        self.nodes[number].0.kill();
    }

    /// A file of this deployment, such as `tls/ca.crt`.
    pub(crate) fn path(&self, name: &str) -> String {
        text_of(&self.folder.path().join(name))
    }

    /// A worker with the credentials of its role, which creates no streams.
    pub(crate) fn worker(&self, role: Role) -> WorkerBuilder {
        let (worker, prefix) = match role {
            Role::ProjectManager => (Worker::manager_at(&self.url()), "_INBOX_pma"),
            Role::ProjectAnalyst => (Worker::analyst_at(&self.url()), "_INBOX_pa"),
        };
        worker
            .laid_out(LAYOUT)
            .set("nats.provision", "verify")
            .set("nats.nkey_file", self.path(&format!("{role}.nk")))
            .set("nats.inbox_prefix", prefix)
            .set("nats.tls.required", "true")
            .set("nats.tls.ca_file", self.path("tls/ca.crt"))
            .set("nats.tls.cert_file", self.path("tls/tls.crt"))
            .set("nats.tls.key_file", self.path("tls/tls.key"))
    }

    /// `cynodectl` with the key of an identity.
    pub(crate) fn ctl(&self, who: &str, command: &[&str]) -> Finished {
        let link = [
            ("--server", self.url()),
            ("--nkey", self.path(&format!("{who}.nk"))),
            ("--inbox-prefix", inbox_prefix(who)),
            ("--layout", LAYOUT.to_string()),
            ("--tls-ca", self.path("tls/ca.crt")),
            ("--tls-cert", self.path("tls/tls.crt")),
            ("--tls-key", self.path("tls/tls.key")),
        ];
        let mut arguments: Vec<&str> =
            link.iter().flat_map(|(flag, value)| [*flag, value.as_str()]).collect();
        arguments.extend(command);
        run(&cynodectl(), workspace(), &arguments, &[])
    }

    pub(crate) async fn orchestrator(&self) -> Orchestrator {
        self.acts_as("orchestrator").await
    }

    /// A client with this key that does what an orchestrator does.
    pub(crate) async fn acts_as(&self, who: &str) -> Orchestrator {
        Orchestrator::over(self.identity(who).await.client).laid_out(LAYOUT)
    }

    pub(crate) async fn identity(&self, who: &str) -> Identity {
        let (said, hears) = unbounded_channel();
        let seed = fs::read_to_string(self.path(&format!("{who}.nk"))).expect("a seed");
        let options = ConnectOptions::with_nkey(seed)
            .custom_inbox_prefix(inbox_prefix(who))
            .add_root_certificates(self.path("tls/ca.crt").into())
            .add_client_certificate(self.path("tls/tls.crt").into(), self.path("tls/tls.key").into())
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    said.send(error.to_string()).ok();
                }
                std::future::ready(())
            });
        let servers: Vec<_> =
            self.url().split(',').map(|url| url.parse::<async_nats::ServerAddr>().unwrap()).collect();
        Identity { client: options.connect(servers).await.expect(who), hears }
    }
}

/// A client with the key of an identity.
pub(crate) struct Identity {
    pub(crate) client: Client,
    hears: UnboundedReceiver<String>,
}

impl Identity {
    pub(crate) async fn may_publish(&mut self, subject: &str) -> bool {
        // A request to a subject without a responder is checked too.
        self.client.publish_with_reply(subject.to_owned(), self.client.new_inbox(), "".into()).await.unwrap();
        !self.was_refused(&format!("Publish to \"{subject}\"")).await
    }

    pub(crate) async fn may_listen(&mut self, subject: &str) -> bool {
        let listening = self.client.subscribe(subject.to_owned()).await.unwrap();
        let told = self.was_refused(&format!("Subscription to \"{subject}\"")).await;
        drop(listening);
        !told
    }

    /// Whether the server reported a permissions violation. Violations arrive in order, so the last one marks
    /// the end.
    async fn was_refused(&mut self, what: &str) -> bool {
        self.client.publish(NOBODY_MAY, "".into()).await.unwrap();
        let mut told = false;
        loop {
            let said = tokio::time::timeout(Duration::from_secs(10), self.hears.recv());
            let said = said.await.expect("a violation in time").expect("an open connection").to_lowercase();
            assert!(said.contains("permissions violation"), "{said}");
            if said.contains(NOBODY_MAY) {
                return told;
            }
            told |= said.contains(&what.to_lowercase());
        }
    }
}

fn inbox_prefix(who: &str) -> String {
    match who {
        "orchestrator" => "_INBOX".to_owned(),
        "project_manager" => "_INBOX_pma".to_owned(),
        "project_analyst" => "_INBOX_pa".to_owned(),
        other => format!("_INBOX_{other}"),
    }
}

/// Writes what all nodes share: accounts, permissions, keys, certificates.
fn lay_out(folder: &Path) {
    let from = workspace().join("deploy/nats");
    fs::copy(from.join("accounts.conf"), folder.join("accounts.conf")).expect("copied");
    fs::create_dir(folder.join("permissions")).expect("made");
    for entry in fs::read_dir(from.join("permissions")).expect("there") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), folder.join("permissions").join(entry.file_name())).expect("copied");
    }
    let made = run(&cynodectl(), workspace(), &["nkeys", &text_of(folder), "--node", "build-2"], &[]);
    assert_eq!(made.code, 0, "{made:?}");
    add_a_node(folder);
    certificates(&folder.join("tls"));
}

/// Adds the node `build-2` of another pool, as docs/nodes.md says.
fn add_a_node(folder: &Path) {
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("there");
    let copied =
        read("permissions/node-build-1.conf").replace("build-1", "build-2").replace("default", "gpu");
    fs::write(folder.join("permissions/node-build-2.conf"), copied).expect("written");
    let accounts = read("accounts.conf");
    let line = accounts.lines().find(|line| line.contains("$NODE_BUILD_1_KEY")).expect("a node");
    let another = line.replace("BUILD_1", "BUILD_2").replace("build-1", "build-2");
    fs::write(folder.join("accounts.conf"), accounts.replace(line, &format!("{line}\n{another}")))
        .expect("written");
}

/// Writes a certificate authority and one certificate for everything on this machine.
pub(crate) fn certificates(folder: &Path) {
    fs::create_dir(folder).expect("made");
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL, and so the runner of workflows, wants an authority to have a name of its own and a purpose.
    authority.distinguished_name.push(DnType::CommonName, "cynode-ca");
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let mut certificate = CertificateParams::new(names).unwrap();
    certificate.use_authority_key_identifier_extension = true;
    let certificate = certificate.signed_by(&key, &authority).unwrap();
    fs::write(folder.join("ca.crt"), authority.pem()).expect("written");
    fs::write(folder.join("tls.crt"), certificate.pem()).expect("written");
    fs::write(folder.join("tls.key"), key.serialize_pem()).expect("written");
}

/// A node's configuration on this machine. A single node has no cluster to wait for.
fn node(folder: &Path, number: usize, cluster: &[u16]) -> String {
    let file = workspace().join("deploy/nats/nats.conf");
    let mut text = fs::read_to_string(file).expect("there");
    if cluster.len() == 1 {
        let from = text.find("\ncluster {").expect("a cluster");
        let to = from + text[from..].find("\n}\n").expect("its end") + 3;
        text.replace_range(from..to, "\n");
    } else {
        let of = |port: &u16| format!("\"tls://localhost:{port}\"");
        let routes = cluster.iter().map(of).collect::<Vec<_>>().join(", ");
        let here = format!("127.0.0.1:{}", cluster[number]);
        text = changed(&text, "0.0.0.0:6222", &here);
        let deployed = r#""tls://nats-0:6222", "tls://nats-1:6222", "tls://nats-2:6222""#;
        text = changed(&text, deployed, &routes);
    }
    text = changed(&text, "0.0.0.0:4222", "127.0.0.1:-1");
    text = changed(&text, "0.0.0.0:8222", "127.0.0.1:-1");
    text = changed(&text, "/data/jetstream", &text_of(&folder.join(format!("store-{number}"))));
    changed(&text, "/etc/nats/tls", &text_of(&folder.join("tls")))
}

#[track_caller]
fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is not in nats.conf");
    text.replace(from, to)
}

/// The server writes its ports file here once it listens.
fn port_in(folder: &Path) -> Option<u16> {
    let file = fs::read_dir(folder).ok()?.find_map(|entry| Some(entry.ok()?.path()))?;
    let ports: serde_json::Value = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
    ports["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

/// Writes a file that lives as long as the stage.
pub(crate) fn kept(stage: &Stage, name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(stage.path(name));
    fs::write(&path, text).expect("written");
    path
}
