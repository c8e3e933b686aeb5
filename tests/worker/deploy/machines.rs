//! Images, compose and systemd units: referenced files exist, and variables are settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
};

use serde_json::Value;
use testkit::{deploy_linter, run, systemd_analyze, workspace};

use super::settings;

fn read(name: &str) -> String {
    fs::read_to_string(workspace().join("deploy").join(name)).unwrap()
}

#[test]
fn linter_accepts_the_dockerfile() {
    let file = workspace().join("deploy/docker/Dockerfile").display().to_string();
    let checked = run(&deploy_linter("hadolint"), workspace(), &["--failure-threshold", "info", &file], &[]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
}

/// Copied paths exist and are not ignored; the build uses the compiler of the workspace; nothing runs as root
/// but a node, which gives each job a user of its own; variables are settings.
#[test]
fn images_copy_existing_paths_and_do_not_run_as_root() {
    let text = read("docker/Dockerfile");
    let let_through = read("docker/Dockerfile.dockerignore");
    let copied =
        text.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.contains("--from="));
    for source in copied.flat_map(|line| line.split(' ').rev().skip(1)) {
        assert!(workspace().join(source).exists(), "{source} does not exist");
        assert!(
            let_through.lines().any(|line| line == format!("!{source}")),
            "{source} is ignored by Dockerfile.dockerignore"
        );
    }
    let toolchain = fs::read_to_string(workspace().join("rust-toolchain.toml")).unwrap();
    let channel = toolchain.split('"').nth(1).unwrap();
    assert!(text.contains(&format!("FROM rust:{channel}-slim")), "another compiler than {channel}");
    let stages: Vec<&str> = text.split("\nFROM ").skip(1).collect();
    let is_node = |stage: &str| stage.contains("ENTRYPOINT [\"/usr/local/bin/cynode-node\"]");
    let is_build = |stage: &str| stage.starts_with("rust:") || stage.starts_with("python:");
    for stage in stages.iter().filter(|stage| !is_build(stage) && !is_node(stage)) {
        assert!(stage.starts_with("gcr.io/distroless/") && stage.contains("\nUSER 65532:65532\n"), "{stage}");
    }
    for program in ["cynode-pma", "cynode-gateway", "cynode-orchestrator", "cynode-node"] {
        let check = format!("CMD [\"/usr/local/bin/{program}\", \"health\"]");
        let has_check = |stage: &str| stage.contains("HEALTHCHECK ") && stage.contains(&check);
        assert!(stages.iter().any(|stage| has_check(stage)), "the image of {program} has no health check");
    }
    let set = |program: &str| -> BTreeMap<String, String> {
        let stage = stages
            .iter()
            .find(|stage| stage.contains(&format!("ENTRYPOINT [\"/usr/local/bin/{program}\"]")))
            .unwrap();
        let words = stage.split_whitespace().filter(|word| word.contains('='));
        let prefixes = ["PMA_", "GATEWAY_", "ORCHESTRATOR_", "CYNODE_NODE_"];
        let ours = words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)));
        settings::lines(&ours.collect::<Vec<_>>().join("\n"))
    };
    settings::accepts("cynode-pma", &["--role=project_analyst"], &set("cynode-pma"));
    settings::accepts("cynode-gateway", &[], &set("cynode-gateway"));
    settings::accepts("cynode-orchestrator", &[], &set("cynode-orchestrator"));
    settings::accepts("cynode-node", &[], &set("cynode-node"));
}

/// The image of the runner has exactly the packages of its lock and the Python that they were fetched for.
#[test]
fn image_of_the_workflow_runner_is_locked() {
    let text = read("docker/Dockerfile");
    let stage = |name: &str| {
        let found = text.split("\nFROM ").find(|stage| stage.lines().next().unwrap().ends_with(name));
        found.unwrap_or_else(|| panic!("no stage{name}")).to_owned()
    };
    let packages = stage(" AS packages");
    for word in ["--require-hashes", "--only-binary :all:", "COPY workflow/requirements.lock"] {
        assert!(packages.contains(word), "{word}: {packages}");
    }
    // Debian 12 has Python 3.11.
    assert!(packages.starts_with("python:3.11.") && packages.contains("-bookworm AS"), "{packages}");
    let image = stage(" AS workflow");
    assert!(image.starts_with("gcr.io/distroless/python3-debian12:"), "{image}");
    let program = r#"["/usr/bin/python3", "-P", "-m", "cynode_workflow""#;
    assert!(image.contains(&format!("ENTRYPOINT {program}]")), "{image}");
    assert!(image.contains(&format!("CMD {program}, \"health\"]")), "{image}");
    let set = image.split_whitespace().filter(|word| word.starts_with("CYNODE_WORKFLOW_"));
    settings::accepts(settings::RUNNER, &[], &settings::lines(&set.collect::<Vec<_>>().join("\n")));
}

/// The compose file with YAML merges (`<<`) resolved.
fn compose() -> Value {
    let mut value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&read("compose.yaml")).unwrap();
    value.apply_merge().unwrap();
    serde_json::to_value(value).unwrap()
}

fn names(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Object(members) => members.keys().cloned().collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().or_else(|| item["source"].as_str()).unwrap().to_owned())
            .collect(),
        _ => BTreeSet::new(),
    }
}

/// Everything that a service references is declared, everything that it mounts exists, and its variables are
/// settings.
#[test]
fn compose_references_only_what_exists() {
    let compose = compose();
    let dockerfile = read("docker/Dockerfile");
    let services = compose["services"].as_object().unwrap();
    for (name, service) in services {
        assert!(names(&service["depends_on"]).is_subset(&names(&compose["services"])), "{name}");
        assert!(names(&service["secrets"]).is_subset(&names(&compose["secrets"])), "{name}");
        assert!(names(&service["networks"]).is_subset(&names(&compose["networks"])), "{name}");
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let source = volume.as_str().unwrap().split(':').next().unwrap();
            let there = match source.strip_prefix("./") {
                // Created before the first start.
                Some(folder) => {
                    folder.starts_with("secrets") || workspace().join("deploy").join(folder).is_dir()
                }
                None => names(&compose["volumes"]).contains(source),
            };
            assert!(there, "{name}: {source}");
        }
        // A sandbox is made of what only a privileged container has.
        let is_node = name == "node";
        assert_eq!(service["privileged"] == true, is_node, "{name}");
        assert_eq!(service["profiles"].is_array(), is_node, "{name} is started only if it is asked for");
        if let Some(target) = service["build"]["target"].as_str() {
            assert!(dockerfile.contains(&format!(" AS {target}\n")), "{name}: {target}");
            assert_eq!(service["read_only"], true, "{name}");
        }
        let variables: BTreeMap<String, String> = service["environment"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.as_str().expect("a text").to_owned()))
            .collect();
        match service["image"].as_str().unwrap().split(':').next().unwrap() {
            "cynode-pma" => settings::accepts("cynode-pma", &[], &variables),
            "cynode-gateway" => settings::accepts("cynode-gateway", &[], &variables),
            "cynode-orchestrator" => settings::accepts("cynode-orchestrator", &[], &variables),
            "cynode-node" => settings::accepts("cynode-node", &[], &variables),
            // Checked below, where the runner is there.
            settings::RUNNER => {}
            _ => assert!(variables.is_empty(), "{name}"),
        }
        let targets: BTreeSet<&str> = service["secrets"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|secret| secret.as_str().or_else(|| secret["target"].as_str()).unwrap())
            .collect();
        for (key, path) in variables.iter().filter(|(key, _)| key.ends_with("_FILE")) {
            let file = path.strip_prefix("/run/secrets/").unwrap();
            assert!(targets.contains(file), "{name}: no secret provides {key}");
        }
    }
    assert_eq!(services.len(), 10);
}

/// Longer than the grace, and the seconds in which a runner hands its workflows back.
fn assert_longer_than_grace(stop: &str, variables: &BTreeMap<String, String>) {
    let seconds = |text: &str| -> u64 { text.trim_end_matches('s').parse().unwrap() };
    let grace = seconds(&variables["CYNODE_WORKFLOW_RUNNER__GRACE"]);
    assert!(seconds(stop) >= grace + 15, "{stop} for a grace of {grace}s");
}

/// What compose and systemd tell the runner are its settings, and it has the time that it takes to stop.
#[test]
fn workflow_runner_accepts_its_variables() {
    let service = &compose()["services"]["workflow"];
    let variables: BTreeMap<String, String> = service["environment"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    settings::accepts(settings::RUNNER, &[], &variables);
    assert_longer_than_grace(service["stop_grace_period"].as_str().unwrap(), &variables);

    let mut variables = settings::lines(&read("systemd/workflow.env"));
    variables.extend(of_unit("systemd/cynode-workflow.service", ""));
    settings::accepts(settings::RUNNER, &[], &variables);
    let unit = read("systemd/cynode-workflow.service");
    let stop = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    assert_longer_than_grace(stop, &variables);
    let prefix = &variables["CYNODE_WORKFLOW_NATS__INBOX_PREFIX"];
    assert!(read("nats/permissions/workflow.conf").contains(&format!("{prefix}.>")), "{prefix}");
}

/// systemd accepts the units without warnings; their variables are settings.
#[test]
fn systemd_accepts_the_units() {
    // A temporary root that contains the programs.
    let root = tempfile::tempdir().unwrap();
    let units = root.path().join("etc/systemd/system");
    fs::create_dir_all(&units).unwrap();
    let programs = ["cynode-pma", "cynode-gateway", "cynode-orchestrator", "cynode-node", "cynode-workflow"];
    let programs = programs.map(|program| format!("usr/local/bin/{program}"));
    for program in programs.iter().map(String::as_str).chain(["bin/kill"]) {
        let path = root.path().join(program);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for target in ["sysinit", "basic", "shutdown", "network-online", "multi-user"] {
        fs::write(units.join(format!("{target}.target")), format!("[Unit]\nDescription={target}\n")).unwrap();
    }
    let written = [
        "cynode-pma@.service",
        "cynode-gateway.service",
        "cynode-orchestrator.service",
        "cynode-node.service",
        "cynode-workflow.service",
    ];
    for unit in written {
        fs::write(units.join(unit), read(&format!("systemd/{unit}"))).unwrap();
    }
    let place = format!("--root={}", root.path().display());
    let verified = [
        "cynode-pma@project_manager.service",
        "cynode-pma@project_analyst.service",
        "cynode-gateway.service",
        "cynode-orchestrator.service",
        "cynode-node.service",
        "cynode-workflow.service",
    ];
    let mut arguments = vec!["verify", &place, "--man=no"];
    arguments.extend(verified);
    let checked = run(&systemd_analyze(), root.path(), &arguments, &[]);
    assert_eq!((checked.code, checked.stderr.as_str()), (0, ""), "{}", checked.stdout);
}

/// Returns the variables that a unit sets itself; credentials provide the files that they name.
fn of_unit(unit: &str, name: &str) -> BTreeMap<String, String> {
    let text = read(unit);
    let line = text.lines().find_map(|line| line.strip_prefix("Environment=")).unwrap();
    let set = line.split(' ').collect::<Vec<_>>().join("\n").replace("%i", name);
    let brought: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("LoadCredential=")?.split(':').next()).collect();
    let set = settings::lines(&set);
    for file in set.values().filter_map(|value| value.strip_prefix("%d/")) {
        assert!(brought.contains(file), "{unit}: no credential provides {file}");
    }
    set
}

#[test]
fn units_set_only_settings() {
    for role in ["project_manager", "project_analyst"] {
        let mut variables = settings::lines(&read(&format!("systemd/{role}.env")));
        variables.extend(of_unit("systemd/cynode-pma@.service", role));
        settings::accepts("cynode-pma", &[&format!("--role={role}")], &variables);
    }
    for program in ["gateway", "orchestrator", "node"] {
        let mut variables = settings::lines(&read(&format!("systemd/{program}.env")));
        variables.extend(of_unit(&format!("systemd/cynode-{program}.service"), ""));
        settings::accepts(&format!("cynode-{program}"), &[], &variables);
    }
}

/// A job that runs out of memory or a node that stops must not take other jobs with it.
#[test]
fn unit_of_the_node_leaves_jobs_to_the_node() {
    let unit = read("systemd/cynode-node.service");
    let has = |line: &str| unit.lines().any(|known| known == line);
    for line in ["KillMode=mixed", "OOMPolicy=continue", "Delegate=cpu memory pids", "NoNewPrivileges=yes"] {
        assert!(has(line), "{line}");
    }
    let set = settings::lines(&read("systemd/node.env"));
    let id = &set["CYNODE_NODE_NODE__ID"];
    assert_eq!(set["CYNODE_NODE_NATS__INBOX_PREFIX"], format!("_INBOX_node-{id}"), "as in the permissions");
    assert!(read(&format!("nats/permissions/node-{id}.conf")).contains(&format!("_INBOX_node-{id}.>")));
}
