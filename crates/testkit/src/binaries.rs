//! Paths of the programs that tests run.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Returns the root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the path of a program of this workspace: in the folder that `PROGRAMS` names, otherwise built with
/// the same profile as the running test.
pub fn binary(name: &str) -> PathBuf {
    let folder = env::var_os("PROGRAMS").map(PathBuf::from).unwrap_or_else(|| {
        let test = env::current_exe().expect("the test knows its own path");
        test.ancestors().nth(2).expect("tests are built into <profile>/deps").to_owned()
    });
    let path = folder.join(name);
    assert!(path.is_file(), "{} is not built; `make test` or `make bench` builds it", path.display());
    path
}

pub fn cynodectl() -> PathBuf {
    binary("cynodectl")
}

/// Returns the nats-server that `make tools` found or fetched.
pub fn nats_server() -> PathBuf {
    tool("NATS_SERVER", "nats-server")
}

/// Returns a nats-server that is older than the minimum version.
pub fn old_nats_server() -> PathBuf {
    tool("OLD_NATS_SERVER", "old-nats-server")
}

/// Returns Node and the script of the MCP conformance suite. Run it with [`loopback_preload`].
pub fn conformance_suite() -> (PathBuf, PathBuf) {
    node_peer("conformance/dist/index.js")
}

/// Returns Node and the script of the reference server `everything` (older era). With the argument
/// `streamableHttp` it serves `/mcp` on the port in `PORT`, otherwise stdio. Run it with
/// [`loopback_preload`].
pub fn server_everything() -> (PathBuf, PathBuf) {
    node_peer("server-everything/dist/index.js")
}

/// Returns Node and the script of the reference server `filesystem` (older era, stdio). Its arguments are the
/// folders that it may serve.
pub fn server_filesystem() -> (PathBuf, PathBuf) {
    node_peer("server-filesystem/dist/index.js")
}

/// Returns the script to pass to Node with `--require`, so that servers listen on loopback instead of all
/// interfaces.
pub fn loopback_preload() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/loopback.cjs"))
}

/// Returns a Python with the official SDK of the older era, `mcp` 1.
pub fn python() -> PathBuf {
    fetched("python").join("bin/python")
}

/// Returns a Python with FastMCP and the official SDK of the newer era, `mcp` 2.
pub fn python_newer() -> PathBuf {
    fetched("python-newer").join("bin/python")
}

/// Returns a Python with xgrammar and llguidance.
pub fn python_grammars() -> PathBuf {
    fetched("grammars").join("bin/python")
}

/// Returns a Python with OpenAI's SDK and LangChain.
pub fn python_api_clients() -> PathBuf {
    fetched("api-clients-python").join("bin/python")
}

/// Returns Node, and the folder of modules with OpenAI's SDK and the AI SDK.
pub fn node_api_clients() -> (PathBuf, PathBuf) {
    let folder = fetched("api-clients-node");
    (folder.join("node"), folder.join("node_modules"))
}

/// Returns `schemathesis`, which holds a server against its OpenAPI document.
pub fn schemathesis() -> PathBuf {
    fetched("schemathesis").join("bin/schemathesis")
}

/// Returns the folder with the modules of Open WebUI that make prompts.
pub fn open_webui() -> PathBuf {
    fetched("open-webui")
}

/// Returns `cynode-workflow`, the runner of workflows, which runs the source in `workflow/`.
pub fn workflow_runner() -> PathBuf {
    fetched("workflow").join("bin/cynode-workflow")
}

/// Returns a linter for files in `deploy/`: `hadolint` or `kubernetes-validate`.
pub fn deploy_linter(name: &str) -> PathBuf {
    fetched("deploy-linters").join("bin").join(name)
}

/// Returns Prometheus' `promtool`, which checks rules.
pub fn promtool() -> PathBuf {
    on_path("PROMTOOL", &["promtool"]).expect(
        "no promtool on this machine: `scripts/get_system_packages.py` installs it, or PROMTOOL names it",
    )
}

pub fn systemd_analyze() -> PathBuf {
    on_path("SYSTEMD_ANALYZE", &["systemd-analyze"]).expect(
        "no systemd-analyze on this machine: `scripts/get_system_packages.py` installs it, or \
         SYSTEMD_ANALYZE names it",
    )
}

fn node_peer(script: &str) -> (PathBuf, PathBuf) {
    let folder = fetched("mcp-peers");
    (folder.join("node"), folder.join("node_modules/@modelcontextprotocol").join(script))
}

/// Returns a folder that `make tools` filled.
fn fetched(name: &str) -> PathBuf {
    let folder = workspace().join(".tools").join(name);
    assert!(folder.join("stamp").is_file(), "{} is not complete; `make tools` gets it", folder.display());
    folder
}

/// Returns the folder of PostgreSQL's programs: `POSTGRES_BIN`, else the folder on PATH, else the newest
/// version that Debian's packages installed.
pub fn postgres_bin() -> PathBuf {
    find_postgres().expect(
        "no PostgreSQL server on this machine: `scripts/get_system_packages.py` installs it, or \
         POSTGRES_BIN names the folder that holds `postgres` and `initdb`",
    )
}

/// Returns whether a PostgreSQL server is installed.
pub fn postgres_available() -> bool {
    find_postgres().is_some()
}

/// Returns the first folder that contains the server, `initdb` and the client.
fn find_postgres() -> Option<PathBuf> {
    let complete =
        |folder: &PathBuf| ["postgres", "initdb", "psql"].iter().all(|name| folder.join(name).is_file());
    if let Some(named) = env::var_os("POSTGRES_BIN") {
        return Some(PathBuf::from(named)).filter(complete);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).find(complete);
    on_path.or_else(|| {
        let version = |folder: &PathBuf| folder.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
        let folders = fs::read_dir("/usr/lib/postgresql").ok()?;
        let folders = folders.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
        folders.filter(complete).max_by_key(version)
    })
}

/// Returns the program that a variable names, or that is on PATH under one of these names.
pub(crate) fn on_path(variable: &str, names: &[&str]) -> Option<PathBuf> {
    if let Some(named) = env::var_os(variable) {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    names
        .iter()
        .find_map(|name| env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file()))
}

fn tool(variable: &str, name: &str) -> PathBuf {
    let path = env::var_os(variable).map_or_else(|| workspace().join(".tools/bin").join(name), PathBuf::from);
    assert!(
        path.is_file(),
        "{} is not there; `make tools` gets it, {variable} names another",
        path.display()
    );
    path
}
