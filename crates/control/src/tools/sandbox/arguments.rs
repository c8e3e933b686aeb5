//! Checks the arguments of `sandbox.run`, each with a message of its own.

use std::collections::{BTreeMap, BTreeSet};

use contract::sandbox::{MAX_TOOLS, MAX_WAIT_SECONDS, Run, RunFile};
use data_encoding::BASE64;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use policy::{AgentKind, Lease, NetworkHost};
use subjects::job::Engine;

use crate::{
    ToolError,
    arguments::{check, path as artifact_path},
    tools::images,
};

const MAX_ARGUMENTS: usize = 256;
const MAX_ARGUMENT_BYTES: usize = 64 * 1024;
/// One argument of a program can have 128 KiB on Linux.
const MAX_SCRIPT_BYTES: usize = 64 * 1024;
const MAX_COMMAND_BYTES: usize = 128 * 1024;
const MAX_FILES: usize = 64;
/// The contents of files that are part of the job's message.
const MAX_INLINE_BYTES: usize = 512 * 1024;
const MAX_VARIABLES: usize = 64;
const MAX_NAME_BYTES: usize = 128;
const MAX_VALUE_BYTES: usize = 8 * 1024;
const MAX_HOSTS: usize = 32;
const MAX_PATTERNS: usize = 32;
const MAX_LABELS: usize = 16;

fn invalid<T>(why: impl Into<String>) -> Result<T, ToolError> {
    Err(ToolError::Invalid(why.into()))
}

/// Returns the command of a job.
pub(super) fn command(input: &Run) -> Result<Vec<String>, ToolError> {
    let command = match (&input.command[..], &input.script) {
        ([], None) => return invalid("name what to run: `command` or `script`"),
        ([_, ..], Some(_)) => return invalid("name either `command` or `script`, not both"),
        ([], Some(script)) => {
            check::non_blank("script", script, MAX_SCRIPT_BYTES)?;
            vec!["/bin/sh".to_owned(), "-c".to_owned(), script.clone()]
        }
        (command, None) => command.to_vec(),
    };
    check::count("arguments of the command", command.len(), MAX_ARGUMENTS)?;
    for argument in &command {
        check::text("an argument of the command", argument, MAX_ARGUMENT_BYTES)?;
    }
    if command[0].trim().is_empty() {
        return invalid("the program, which is the first part of `command`, is empty");
    }
    let size = command.iter().map(String::len).sum();
    if size > MAX_COMMAND_BYTES {
        return Err(ToolError::TooLarge { what: "command", size, limit: MAX_COMMAND_BYTES });
    }
    Ok(command)
}

/// Checks the paths and contents of files, except that artifacts exist.
pub(super) fn files(files: &[RunFile]) -> Result<(), ToolError> {
    check::count("files", files.len(), MAX_FILES)?;
    let (mut paths, mut inline) = (BTreeSet::new(), 0);
    for file in files {
        path("files", &file.path)?;
        if !paths.insert(&*file.path) {
            return invalid(format!("`files` names {} twice", file.path));
        }
        let sources = [
            file.text.is_some(),
            file.base64.is_some(),
            file.artifact_id.is_some(),
            file.artifact_path.is_some(),
        ];
        if sources.into_iter().filter(|is_given| *is_given).count() != 1 {
            let why = "needs exactly one of `text`, `base64`, `artifact_id` and `artifact_path`";
            return invalid(format!("the file {} {why}", file.path));
        }
        if let Some(base64) = &file.base64
            && let Err(error) = BASE64.decode(base64.as_bytes())
        {
            return invalid(format!("the content of {} is not base64: {error}", file.path));
        }
        inline += file.text.as_ref().or(file.base64.as_ref()).map_or(0, String::len);
    }
    // One file cannot be the folder of another.
    for path in &paths {
        let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        if let Some(folder) = folders.into_iter().find(|folder| paths.contains(folder)) {
            return invalid(format!("{folder} is both a file and the folder of {path}"));
        }
    }
    if inline > MAX_INLINE_BYTES {
        return invalid(format!(
            "the contents of `files` have {inline} bytes; at most {MAX_INLINE_BYTES} are taken: store larger \
             files with artifact.put and name them by `artifact_path`"
        ));
    }
    Ok(())
}

fn path(what: &str, path: &str) -> Result<(), ToolError> {
    artifact_path::check(path).map_err(|error| match error {
        ToolError::Invalid(why) => ToolError::Invalid(format!("`{what}` has {path:?}: {why}")),
        other => other,
    })
}

pub(super) fn env(env: &BTreeMap<String, String>) -> Result<(), ToolError> {
    check::count("variables in `env`", env.len(), MAX_VARIABLES)?;
    for (name, value) in env {
        let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_name = name.bytes().next().is_some_and(is_first)
            && name.len() <= MAX_NAME_BYTES
            && name.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit());
        if !is_name {
            return invalid(format!(
                "`env` has the name {name:?}; a name has 1 to {MAX_NAME_BYTES} letters, digits and `_`, and \
                 does not begin with a digit"
            ));
        }
        check::text("a value in `env`", value, MAX_VALUE_BYTES)?;
    }
    Ok(())
}

/// Returns the hosts of a job in the form that nodes compare. Whether a node connects to an internal one is
/// the decision of its operator.
pub(super) fn network(hosts: &[String]) -> Result<Vec<String>, ToolError> {
    check::count("hosts in `network`", hosts.len(), MAX_HOSTS)?;
    let parse = |host: &String| match host.parse::<NetworkHost>() {
        Ok(parsed) => Ok(parsed.to_string()),
        Err(why) => invalid(format!("`network` has {host:?}: {why}")),
    };
    hosts.iter().map(parse).collect()
}

/// Reads the patterns of an argument.
pub(super) fn patterns(name: &str, patterns: &[String]) -> Result<GlobSet, ToolError> {
    check::count(&format!("patterns in `{name}`"), patterns.len(), MAX_PATTERNS)?;
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        path(name, pattern)?;
        match GlobBuilder::new(pattern).literal_separator(true).build() {
            Ok(glob) => set.add(glob),
            Err(error) => {
                return invalid(format!(
                    "`{name}` has {pattern:?}, which is not a pattern: {}",
                    error.kind()
                ));
            }
        };
    }
    set.build().map_err(|error| ToolError::Invalid(format!("`{name}` cannot be used: {error}")))
}

/// Checks the tools of a job: such as a sandbox may call, and within the caller's own lease.
pub(super) fn tools(tools: &[String], lease: Option<&Lease>) -> Result<(), ToolError> {
    check::count("tools", tools.len(), MAX_TOOLS)?;
    let mut names = BTreeSet::new();
    for tool in tools {
        check::non_blank("a name in `tools`", tool, MAX_NAME_BYTES)?;
        if !names.insert(tool) {
            return invalid(format!("`tools` names {tool} twice"));
        }
        if tool.contains('*') {
            return invalid(format!("`tools` has {tool}; name each tool, patterns are not taken"));
        }
        let is_own = tool.starts_with("sandbox.") || tool.starts_with("lease.");
        if is_own || !policy::may_call(AgentKind::Sandbox, tool) {
            return invalid(format!("`tools` has {tool}, which a job may not call"));
        }
        if lease.is_some_and(|lease| !lease.includes_tool(tool)) {
            return invalid(format!("`tools` has {tool}, which goes beyond the caller's own lease"));
        }
    }
    Ok(())
}

pub(super) fn labels(labels: &BTreeMap<String, String>) -> Result<(), ToolError> {
    check::count("labels", labels.len(), MAX_LABELS)?;
    for (name, value) in labels {
        check::non_blank("the name of a label", name, MAX_NAME_BYTES)?;
        check::text("the value of a label", value, MAX_NAME_BYTES)?;
    }
    Ok(())
}

pub(super) fn wait(seconds: Option<u64>) -> Result<(), ToolError> {
    match seconds {
        Some(seconds) if seconds > MAX_WAIT_SECONDS => invalid(format!(
            "`wait_seconds` is {seconds}; at most {MAX_WAIT_SECONDS} are waited for, then ask with \
             sandbox.job.get"
        )),
        _ => Ok(()),
    }
}

/// Returns the engine of a job.
pub(super) fn engine(wanted: Option<Engine>, has_image: bool) -> Result<Engine, ToolError> {
    match (wanted, has_image) {
        (None, true) => Ok(Engine::Container),
        (None, false) => Ok(Engine::Bwrap),
        (Some(engine @ (Engine::Container | Engine::Kubernetes)), false) => {
            invalid(format!("the engine {engine} runs images: name an `image` by its digest"))
        }
        (Some(engine), _) => Ok(engine),
    }
}

/// Returns the digest of an image: `sha256:` and 64 hexadecimal digits.
pub(super) fn digest(image: &str) -> Result<&str, ToolError> {
    images::check_reference(image).map_err(|why| ToolError::Invalid(format!("`image`: {why}")))?;
    match image.split_once('@') {
        Some((_, digest)) => Ok(digest),
        None => invalid(format!(
            "`image` is {image}, which has no digest; what a tag means can change, so write it as \
             `name@sha256:…`"
        )),
    }
}
