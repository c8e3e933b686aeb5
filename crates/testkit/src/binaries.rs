use std::{
    env,
    path::{Path, PathBuf},
};

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A binary of this workspace, built with the same profile as the running test.
pub fn binary(name: &str) -> PathBuf {
    let test = env::current_exe().expect("the test knows its own path");
    let folder = test.ancestors().nth(2).expect("tests are built into <profile>/deps");
    let path = folder.join(name);
    assert!(path.is_file(), "{} is not built; `make test` builds it", path.display());
    path
}

pub fn cynodectl() -> PathBuf {
    binary("cynodectl")
}

/// The server that `make tools` found or fetched.
pub fn nats_server() -> PathBuf {
    tool("NATS_SERVER", "nats-server")
}

/// A server that is too old for us.
pub fn old_nats_server() -> PathBuf {
    tool("OLD_NATS_SERVER", "old-nats-server")
}

/// The MCP conformance suite that `make tools` fetched: Node, and the script that it runs.
pub fn conformance_suite() -> (PathBuf, PathBuf) {
    let folder = workspace().join(".tools/conformance");
    assert!(folder.join("stamp").is_file(), "{} is not complete; `make tools` gets it", folder.display());
    (folder.join("node"), folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
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
