//! Runs jobs as Jobs of Kubernetes, in pods with a RuntimeClass, through `kubectl`.
//!
//! The manifest and the command lines are tested; whether a cluster does what they say is not. The self-test
//! of the engine decides whether a node offers it. Inputs are a Secret, so together they stay under one MiB.
//! Outputs are not collected: a pod that has ended has no files.

use std::{ffi::OsString, io, path::PathBuf, sync::Arc};

use data_encoding::BASE64;
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};
use tokio::{net::unix::pipe, task::JoinSet};

use super::{Checked, Closed, EngineFacts, EngineKind, StartError, environment, record, refuse};
use crate::{
    host::{Host, find_program},
    process::{Exit, Launch, Monitor},
    running::{Leftovers, Remote, Sandbox},
    spec::{End, Spec},
};

/// The size limit of a Secret, less the overhead of its JSON.
const MAX_INPUT_BYTES: usize = 900 * 1024;
/// How long a pod may take to start.
const START_TIMEOUT: &str = "--timeout=120s";

#[derive(Debug)]
pub(super) struct Kubernetes {
    program: PathBuf,
}

impl Kubernetes {
    pub(super) async fn open(host: &Arc<Host>) -> Result<(Self, EngineFacts), Closed> {
        let program = find_program(&host.settings.tools.kubectl)
            .ok_or_else(|| ("kubectl not found".to_owned(), "install kubectl".to_owned()))?;
        let class = &host.settings.kubernetes.runtime_class;
        let asked = host.spawner.run(kubectl(&program, host, &["get", "runtimeclass", class]), &[]).await;
        match asked {
            Ok((Exit::Code(0), _)) => {
                let notes = vec![
                    "outputs are not collected".to_owned(),
                    "processes per job are limited by the kubelet".into(),
                ];
                Ok((Self { program }, EngineFacts { version: format!("RuntimeClass {class}"), notes }))
            }
            Ok((exit, text)) => {
                let remedy = format!("give the node a kubeconfig, and the cluster a RuntimeClass {class}");
                Err((format!("kubectl: {exit}: {}", text.trim()), remedy))
            }
            Err(error) => Err((error.to_string(), "install kubectl".into())),
        }
    }

    pub(super) async fn start(&self, host: &Arc<Host>, spec: Spec) -> Result<Sandbox, StartError> {
        let checked = Checked::new(host, &spec)?;
        let image = spec.image.clone().filter(|it| it.contains("@sha256:"));
        let image = image.ok_or_else(|| StartError::NoImage(spec.image.clone().unwrap_or_default()))?;
        let size: usize = spec.inputs.iter().map(|it| it.content.len() + it.path.len()).sum();
        if checked.allowed.is_some()
            || !spec.sockets.is_empty()
            || !spec.outputs.is_empty()
            || size > MAX_INPUT_BYTES
        {
            return Err(refuse(
                EngineKind::Kubernetes,
                "proxy, no sockets, no outputs, and inputs up to 900 KiB",
            ));
        }
        let mut leftovers = record(host, &spec.id, EngineKind::Kubernetes, None)?;
        match self.run(host, &spec, &image, &mut leftovers).await {
            Ok((monitor, output)) => Ok(Sandbox {
                monitor,
                reports_by_code: true,
                output,
                volumes: Vec::new(),
                helpers: JoinSet::new(),
                leftovers,
                limits: spec.limits,
                term_grace: spec.term_grace,
                globs: checked.globs,
                allowed: checked.allowed,
            }),
            Err(error) => {
                leftovers.clear().await;
                Err(StartError::Engine(error))
            }
        }
    }

    async fn run(
        &self,
        host: &Arc<Host>,
        spec: &Spec,
        image: &str,
        leftovers: &mut Leftovers,
    ) -> io::Result<(Monitor, pipe::Receiver)> {
        let name = host.name_of(&spec.id);
        let manifest = manifest(spec, &name, image, &host.settings.kubernetes.runtime_class).to_string();
        let run = async |arguments: &[&str], input: &str| match host
            .spawner
            .run(kubectl(&self.program, host, arguments), input.as_bytes())
            .await?
        {
            (Exit::Code(0), _) => Ok(()),
            (exit, text) => {
                Err(io::Error::other(format!("kubectl {}: {exit}: {}", arguments.join(" "), text.trim())))
            }
        };
        run(&["create", "-f", "-"], &manifest).await?;
        let selector = format!("job-name={name}");
        run(&["wait", "pod", "-l", &selector, "--for=jsonpath={.status.startTime}", START_TIMEOUT], "")
            .await?;
        leftovers.control_by(Remote {
            term: delete(host, &name),
            kill: delete(host, &name),
            status: command(&self.program, host, &["get", "pod", "-l", &selector, "-o", "json"]),
            read: read_status,
        });
        let (output, output_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let logs = kubectl(
            &self.program,
            host,
            &["logs", "--follow", "--pod-running-timeout=2m", "-l", &selector, "--tail=-1"],
        );
        let monitor = host.spawner.spawn(logs.output(output_write)).await?;
        Ok((monitor, pipe::Receiver::from_owned_fd(output)?))
    }
}

fn command(program: &std::path::Path, host: &Host, arguments: &[&str]) -> Vec<OsString> {
    let namespace = ["--namespace", &host.settings.kubernetes.namespace];
    let words = namespace.iter().chain(arguments).map(OsString::from);
    [program.as_os_str().to_owned()].into_iter().chain(words).collect()
}

fn kubectl(program: &std::path::Path, host: &Host, arguments: &[&str]) -> Launch {
    let launch = Launch::new(program).args(command(program, host, arguments).into_iter().skip(1));
    // Where kubectl finds its cluster; a pod has neither.
    ["HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"]
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
        .fold(launch, |launch, (name, value)| launch.env(name, value))
}

/// Returns the command that removes a Job, its pod and its Secret.
pub(super) fn delete(host: &Host, name: &str) -> Vec<OsString> {
    let program = find_program(&host.settings.tools.kubectl).unwrap_or_else(|| "kubectl".into());
    let selector = format!("cynode/job={name}");
    command(
        &program,
        host,
        &["delete", "job,pod,secret", "-l", &selector, "--ignore-not-found", "--grace-period=0", "--force"],
    )
}

fn read_status(text: &str) -> Option<End> {
    let pods: Value = serde_json::from_str(text).ok()?;
    let ended = pods.pointer("/items/0/status/containerStatuses/0/state/terminated")?;
    if ended["reason"] == "OOMKilled" {
        return Some(End::Oom);
    }
    match i32::try_from(ended["exitCode"].as_i64()?).ok()? {
        code @ 129..=159 => Some(End::Signalled { signal: code - 128 }),
        code => Some(End::Exited { code }),
    }
}

/// Describes the Job and the Secret with its inputs.
fn manifest(spec: &Spec, name: &str, image: &str, runtime_class: &str) -> Value {
    let limits = &spec.limits;
    let labels = json!({ "cynode/job": name });
    let memory = |bytes: u64| json!({ "emptyDir": { "medium": "Memory", "sizeLimit": bytes.to_string() } });
    let volume = |name: &str, mut source: Value| {
        source["name"] = json!(name);
        source
    };
    let keys: Vec<_> = (0..spec.inputs.len()).map(|number| format!("input-{number}")).collect();
    let items: Vec<_> = keys.iter().zip(&spec.inputs).map(|(key, input)| {
        json!({ "key": key, "path": input.path, "mode": if input.executable { 0o755 } else { 0o644 } })
    }).collect();
    let data: serde_json::Map<_, _> = keys
        .iter()
        .zip(&spec.inputs)
        .map(|(key, input)| (key.clone(), json!(BASE64.encode(&input.content))))
        .collect();
    let env: Vec<_> =
        environment(spec).into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let cpu = format!("{}m", (limits.cpu * 1000.0).ceil());
    let used = json!({ "cpu": cpu, "memory": limits.memory.to_string(),
                       "ephemeral-storage": limits.disk.to_string() });
    let container = json!({
        "name": "job",
        "image": image,
        // Copies the inputs to where the job may change them, and becomes the command.
        "command": ["sh", "-c", "cp -RL /run/inputs/. /work/ && exec \"$@\"", "sh"],
        "args": spec.command,
        "workingDir": "/work",
        "env": env,
        "resources": { "limits": used, "requests": used },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumeMounts": [
            { "name": "work", "mountPath": "/work" },
            { "name": "tmp", "mountPath": "/tmp" },
            { "name": "inputs", "mountPath": "/run/inputs", "readOnly": true },
        ],
    });
    let pod = json!({
        "runtimeClassName": runtime_class,
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": spec.term_grace.as_secs().max(1),
        "securityContext": { "fsGroup": 1000 },
        "containers": [container],
        "volumes": [
            volume("work", memory(limits.disk)),
            volume("tmp", memory(limits.disk)),
            volume("inputs", json!({ "secret": { "secretName": name, "items": items, "optional": false } })),
        ],
    });
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": limits.time.as_secs() + 180,
            "ttlSecondsAfterFinished": 3600,
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    });
    let metadata = json!({ "name": name, "labels": labels });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data });
    json!({ "apiVersion": "v1", "kind": "List", "items": [secret, job] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::InputFile;

    #[test]
    fn pod_is_confined_by_its_class_and_has_no_token() {
        let mut spec = Spec::new("a", ["sh", "-c", "x"]);
        spec.inputs = vec![InputFile { path: "d/in.txt".into(), content: "hi".into(), executable: true }];
        let manifest = manifest(&spec, "cynode-1-a", "debian@sha256:0", "gvisor");
        let pod = manifest.pointer("/items/1/spec/template/spec").unwrap();
        assert_eq!(pod["runtimeClassName"], "gvisor");
        assert_eq!(
            (&pod["automountServiceAccountToken"], &pod["restartPolicy"]),
            (&json!(false), &json!("Never"))
        );
        let container = &pod["containers"][0];
        assert_eq!(container["args"], json!(["sh", "-c", "x"]));
        assert_eq!(container["resources"]["limits"]["memory"], "536870912");
        assert_eq!(container["resources"]["limits"]["cpu"], "1000m");
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(manifest.pointer("/items/0/data/input-0").unwrap(), "aGk=");
        let item = pod.pointer("/volumes/2/secret/items/0").unwrap();
        assert_eq!(item, &json!({ "key": "input-0", "path": "d/in.txt", "mode": 0o755 }));
    }

    #[test]
    fn end_is_read_from_the_state_of_the_pod() {
        let pods = |terminated: Value| {
            let state = json!({ "state": { "terminated": terminated } });
            json!({ "items": [{ "status": { "containerStatuses": [state] } }] }).to_string()
        };
        assert_eq!(
            read_status(&pods(json!({ "exitCode": 3, "reason": "Error" }))),
            Some(End::Exited { code: 3 })
        );
        assert_eq!(read_status(&pods(json!({ "exitCode": 137, "reason": "OOMKilled" }))), Some(End::Oom));
        assert_eq!(read_status(&pods(json!({ "exitCode": 143 }))), Some(End::Signalled { signal: 15 }));
        assert_eq!(read_status(r#"{ "items": [] }"#), None);
    }
}
