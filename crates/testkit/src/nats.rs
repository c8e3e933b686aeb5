//! A nats-server process.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use async_nats::jetstream;
use tempfile::TempDir;

use crate::{Process, nats_server};

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A nats-server with its own port and store. Killed when it is dropped.
#[derive(Debug)]
pub struct Nats {
    process: Process,
    folder: TempDir,
    program: PathBuf,
    port: u16,
    extra: String,
}

impl Nats {
    /// Deletes a stream and creates it again, empty. A server confirms a deletion before it has removed the
    /// files: a stream that is created meanwhile has the old messages again.
    pub async fn lose_stream(&self, stream: jetstream::stream::Config) {
        let jetstream = jetstream::new(self.client().await);
        crate::eventually("the stream is empty", async || {
            jetstream.delete_stream(&stream.name).await.expect("deleted");
            let created = jetstream.get_or_create_stream(stream.clone()).await.expect("created");
            (created.cached_info().state.messages == 0).then_some(())
        })
        .await;
    }

    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Starts with additional lines in the configuration file.
    pub fn start_with(extra: &str) -> Self {
        Self::start_program(nats_server(), extra)
    }

    pub fn start_program(program: PathBuf, extra: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the server");
        let process = spawn(&program, folder.path(), -1, extra);
        let port = wait_for_port(folder.path(), &process);
        Self { process, folder, program, port, extra: extra.to_owned() }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts on the same port with the same store.
    pub fn start_again(&mut self) {
        self.process = spawn(&self.program, self.folder.path(), i32::from(self.port), &self.extra);
        wait_for_port(self.folder.path(), &self.process);
    }

    /// Copies the files of a stream while the server is stopped, and starts it again.
    pub fn back_up(&mut self, stream: &str) -> TempDir {
        let backup = tempfile::tempdir().expect("a folder for the backup");
        self.kill();
        copy_files(&self.stream_folder(stream), backup.path());
        self.start_again();
        backup
    }

    /// Replaces the files of a stream with those of a backup while the server is stopped, and starts it
    /// again.
    pub fn restore(&mut self, stream: &str, backup: &TempDir) {
        self.kill();
        let folder = self.stream_folder(stream);
        fs::remove_dir_all(&folder).expect("the stream is there");
        copy_files(backup.path(), &folder);
        self.start_again();
    }

    fn stream_folder(&self, stream: &str) -> PathBuf {
        self.folder().join("store/jetstream/$G/streams").join(stream)
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    pub async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.url()).await.expect("the server takes connections")
    }
}

fn spawn(program: &Path, folder: &Path, port: i32, extra: &str) -> Process {
    let config = folder.join("nats.conf");
    let store = folder.join("store");
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\nports_file_dir: {:?}\njetstream {{ store_dir: {:?} }}\n{extra}\n",
        folder.display().to_string(),
        store.display().to_string(),
    );
    fs::write(&config, text).expect("a configuration file");
    for old in ports_files(folder) {
        fs::remove_file(old).expect("the last server's file can go");
    }
    let arguments = ["-c".to_owned(), config.display().to_string()];
    Process::start(program, &arguments, &[], &folder.join("nats.log"))
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder for the copy");
    for entry in fs::read_dir(from).expect("the folder is there").map(|entry| entry.unwrap().path()) {
        let copy = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy_files(&entry, &copy);
        } else {
            fs::copy(&entry, &copy).expect("the file can be copied");
        }
    }
}

fn ports_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "ports"))
        .collect()
}

/// Waits for the ports file, which the server writes once it listens, and returns the port.
fn wait_for_port(folder: &Path, process: &Process) -> u16 {
    let until = Instant::now() + START_TIMEOUT;
    loop {
        for path in ports_files(folder) {
            let text = fs::read_to_string(path).unwrap_or_default();
            let url = serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|ports| {
                ports["nats"].as_array()?.iter().find_map(|url| Some(url.as_str()?.to_owned()))
            });
            if let Some(port) = url.and_then(|url| url.rsplit(':').next()?.parse().ok()) {
                return port;
            }
        }
        let log = || fs::read_to_string(folder.join("nats.log")).unwrap_or_default();
        assert!(Instant::now() < until, "nats-server {} did not start:\n{}", process.id(), log());
        thread::sleep(Duration::from_millis(5));
    }
}
