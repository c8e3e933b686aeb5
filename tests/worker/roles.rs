//! Roles and configuration: precedence, refused values and their messages.

use std::{fs, path::Path};

use subjects::{Answer, Kind};
use tempfile::TempDir;
use testkit::{Finished, Nats, Orchestrator, Worker, binary, chat, run, verify, workspace};

const USAGE: i32 = 64;

/// A temporary folder, with a `pma.toml` in it if given.
fn folder(file: Option<&str>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    if let Some(text) = file {
        fs::write(folder.path().join("pma.toml"), text).unwrap();
    }
    folder
}

fn pma(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Finished {
    run(&binary("cynode-pma"), folder, arguments, variables)
}

fn effective<'o>(finished: &'o Finished, key: &str) -> &'o str {
    finished.stdout.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap_or_else(|| {
        panic!("no {key} in:\n{}\n{}", finished.stdout, finished.stderr);
    })
}

/// P6: all combinations of flag, file and environment; the flag overrides the file, the file overrides the
/// environment.
#[test]
fn flag_overrides_file_overrides_environment() {
    const ROLES: [&str; 2] = ["project_manager", "project_analyst"];
    let choices = [None, Some(ROLES[0]), Some(ROLES[1])];
    for flag in choices {
        for file in choices {
            for environment in choices {
                let folder = folder(file.map(|role| format!("role = \"{role}\"\n")).as_deref());
                let flag_text = flag.map(|role| format!("--role={role}"));
                let arguments: Vec<&str> = ["config"].into_iter().chain(flag_text.as_deref()).collect();
                let variables: Vec<(&str, &str)> =
                    environment.map(|role| ("PMA_ROLE", role)).into_iter().collect();
                let finished = pma(folder.path(), &arguments, &variables);
                let case = format!("flag {flag:?}, file {file:?}, environment {environment:?}");
                let expected = match (flag, file, environment) {
                    (Some(role), _, _) => format!("role = \"{role}\"  # flag"),
                    (None, Some(role), _) => format!("role = \"{role}\"  # file pma.toml"),
                    (None, None, Some(role)) => format!("role = \"{role}\"  # environment PMA_ROLE"),
                    (None, None, None) => {
                        assert_eq!(finished.code, USAGE, "{case}");
                        assert!(finished.stderr.contains("no role"), "{case}: {}", finished.stderr);
                        continue;
                    }
                };
                assert_eq!(finished.code, 0, "{case}: {}", finished.stderr);
                assert_eq!(effective(&finished, "role"), expected, "{case}");
            }
        }
    }
}

/// P6: without a role nothing starts; an unknown role is refused with its source.
#[test]
fn no_role_and_wrong_roles_are_refused() {
    let none = folder(None);
    for command in ["run", "check", "config"] {
        assert_eq!(pma(none.path(), &[command], &[]).code, USAGE, "{command}");
    }
    for (arguments, variables, file, source) in [
        (vec!["config", "--role=manager"], vec![], None, "flag"),
        (vec!["config"], vec![("PMA_ROLE", "PROJECT_MANAGER")], None, "environment PMA_ROLE"),
        (vec!["config"], vec![], Some("role = \"\"\n"), "file pma.toml"),
    ] {
        let folder = folder(file);
        let finished = pma(folder.path(), &arguments, &variables);
        assert_eq!(finished.code, USAGE);
        assert!(finished.stderr.contains(&format!("role (from {source})")), "{}", finished.stderr);
        assert!(finished.stderr.contains("project_manager` or `project_analyst"), "{}", finished.stderr);
    }
}

/// A wrong value is reported with its key, its source and the accepted values, before anything connects.
#[test]
fn wrong_values_are_reported_with_key_and_source() {
    let check = |setting: &str, parts: &[&str]| {
        let folder = folder(None);
        let finished = pma(folder.path(), &["run", "--role=project_manager", "--set", setting], &[]);
        assert_eq!(finished.code, USAGE, "{setting}: {}", finished.stderr);
        for part in parts {
            assert!(finished.stderr.contains(part), "{setting}: {}", finished.stderr);
        }
    };
    check("worker.ack_wait=soon", &["worker.ack_wait (from flag)", "`soon`", "from 1s to 1h"]);
    check("worker.ack_wait=30", &["worker.ack_wait", "as in 30s"]);
    check("worker.ack_wait=10ms", &["from 1s to 1h"]);
    check("worker.concurrency.chat=0", &["worker.concurrency.chat", "from 1 to 65536"]);
    check("worker.max_attempts=101", &["from 1 to 100"]);
    check("nats.provision=maybe", &["create, verify or none"]);
    check("nats.layout=per_role", &["nats.layout (from flag)", "`per_role`", "shared or by_role"]);
    check("nats.creds_file=/nowhere", &["nats.creds_file", "an existing file"]);
    check("nats.url=", &["nats.url"]);
    check("nats.inbox_prefix=_INBOX.>", &["nats.inbox_prefix", "words between dots"]);
    check("http.listen=everywhere", &["http.listen", "127.0.0.1:9180"]);
    check("inference.backend=magic", &["inference.backend", "offline"]);
    check("telemetry.log_format=xml", &["json or text"]);
    check("telemetry.otlp_endpoint=collector:4317", &["http://127.0.0.1:4318"]);
    check("security.trusted_producers=[\"SUAFAKESEED\"]", &["security.trusted_producers", "public nkey"]);
    check("security.reply_prefixes=[\"pma.handoff.\"]", &["security.reply_prefixes", "outside"]);
    check("gateway.url=ftp://x", &["gateway.url", "http://"]);
    check("memory.profile=team a", &["memory.profile (from flag)", "`team a`", "1 to 64 letters"]);
    check("worker.unknown=1", &["unknown", "is not a setting"]);
    check("nonsense", &["--set takes key=value"]);
}

/// Unknown settings are refused in every source: a mistyped security setting must not go unnoticed.
#[test]
fn unknown_settings_are_refused_in_file_and_environment() {
    let folder_with_typo = folder(Some("role = \"project_manager\"\n[security]\ntrusted_producer = []\n"));
    let finished = pma(folder_with_typo.path(), &["config"], &[]);
    assert_eq!(finished.code, USAGE);
    assert!(
        finished.stderr.contains("trusted_producer") && finished.stderr.contains("pma.toml"),
        "{}",
        finished.stderr
    );
    let empty = folder(None);
    let finished = pma(empty.path(), &["config", "--role=project_manager"], &[("PMA_NATS__ULR", "x")]);
    assert_eq!(finished.code, USAGE);
    assert!(finished.stderr.contains("PMA_NATS__ULR"), "{}", finished.stderr);
    let finished = pma(empty.path(), &["config", "--role=project_manager", "--config", "absent.toml"], &[]);
    assert_eq!(finished.code, USAGE);
    assert!(finished.stderr.contains("absent.toml"), "{}", finished.stderr);
}

/// G7: steps and temperature are clamped or fall back to the default, with a warning, and never prevent the
/// start.
#[test]
fn steps_and_temperature_are_clamped_with_a_warning() {
    let check = |name: &str, value: &str, key: &str, expected: &str, warns: bool| {
        let folder = folder(None);
        let finished = pma(folder.path(), &["config", "--role=project_manager"], &[(name, value)]);
        assert_eq!(finished.code, 0, "{}", finished.stderr);
        let line = effective(&finished, key);
        assert!(
            line.starts_with(&format!("{key} = {expected}  # environment {name}")),
            "{name}={value}: {line}"
        );
        assert_eq!(finished.stdout.contains("# warning: "), warns, "{name}={value}: {}", finished.stdout);
    };
    check("PLANNER_MAX_STEPS", "7", "agent.max_steps", "7", false);
    check("PLANNER_MAX_STEPS", "0", "agent.max_steps", "1", true);
    check("PLANNER_MAX_STEPS", "51", "agent.max_steps", "50", true);
    check("PLANNER_MAX_STEPS", "-3", "agent.max_steps", "12", true);
    check("PLANNER_MAX_STEPS", "many", "agent.max_steps", "12", true);
    check("PLANNER_MAX_STEPS", "", "agent.max_steps", "12", true);
    check("MODEL_TEMPERATURE", "1.5", "agent.temperature", "1.5", false);
    check("MODEL_TEMPERATURE", "-1", "agent.temperature", "0", true);
    check("MODEL_TEMPERATURE", "99", "agent.temperature", "2", true);
    check("MODEL_TEMPERATURE", "NaN", "agent.temperature", "0.2", true);
    check("MODEL_TEMPERATURE", "hot", "agent.temperature", "0.2", true);
}

/// The address of a collector may contain a password, which is not printed.
#[test]
fn collector_is_printed_without_its_password() {
    let folder = folder(Some(
        "role = \"project_manager\"\n[telemetry]\notlp_endpoint = \"http://me:s3cret@127.0.0.1:4318\"\n",
    ));
    let finished = pma(folder.path(), &["config"], &[]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert!(
        finished.stdout.contains("telemetry.otlp_endpoint = \"http://***@127.0.0.1:4318\""),
        "{}",
        finished.stdout
    );
}

/// Every setting is printed with its value and source, without secrets.
#[test]
fn effective_configuration_is_printed() {
    let folder =
        folder(Some("role = \"project_analyst\"\n[nats]\nurl = \"nats://me:s3cret@127.0.0.1:4222\"\n"));
    let variables = [("PMA_WORKER__GRACE", "5s"), ("PMA_INSTANCE", "analyst-1")];
    let finished = pma(folder.path(), &["config"], &variables);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert!(!finished.stdout.contains("s3cret"));
    insta::assert_snapshot!(finished.stdout);
}

/// P7, P8: an analyst with the manager's bundle is refused, and so is a missing bundle.
#[test]
fn wrong_bundle_prevents_the_start() {
    let empty = folder(None);
    let manager = workspace().join("instructions/project_manager").display().to_string();
    let root = workspace().join("instructions").display().to_string();
    let analyst =
        ["run", "--role=project_analyst", "--instructions-root", &root, "--project-analyst-bundle", &manager];
    let finished = pma(empty.path(), &analyst, &[]);
    assert_eq!(finished.code, USAGE);
    assert!(finished.stderr.contains("is the bundle of the project_manager"), "{}", finished.stderr);
    let finished =
        pma(empty.path(), &["run", "--role=project_manager", "--instructions-root", "nowhere"], &[]);
    assert_eq!(finished.code, USAGE);
    assert!(finished.stderr.contains("nowhere/project_manager"), "{}", finished.stderr);
    let finished =
        pma(empty.path(), &["run", "--role=project_manager"], &[("PMA_INSTRUCTIONS__ROOT", "elsewhere")]);
    assert!(finished.stderr.contains("elsewhere/project_manager"), "{}", finished.stderr);
}

/// P5, P6: instances of both roles run side by side, and each takes only its own handoffs.
#[tokio::test]
async fn both_roles_run_side_by_side() {
    let nats = Nats::start();
    let manager = Worker::manager(&nats).start().await;
    let analyst = Worker::analyst(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let chat = orchestrator.publish(&chat("hello")).await;
    let verify = orchestrator.publish(&verify("task-1")).await;
    assert!(matches!(orchestrator.wait_for_answer(Kind::Chat, chat).await, Answer::Completion(_)));
    assert!(matches!(orchestrator.wait_for_answer(Kind::Verify, verify).await, Answer::Findings(_)));
    let received = |worker: &Worker, kind: Kind| {
        let name = format!("pma_handoffs_received_total{{kind=\"{kind}\"}}");
        let text = worker.log();
        assert!(!text.contains("panicked"));
        name
    };
    assert_eq!(manager.metric(&received(&manager, Kind::Chat)).await, Some(1.0));
    assert_eq!(manager.metric(&received(&manager, Kind::Verify)).await, Some(0.0));
    assert_eq!(analyst.metric(&received(&analyst, Kind::Verify)).await, Some(1.0));
    assert_eq!(analyst.metric(&received(&analyst, Kind::Chat)).await, Some(0.0));
}

/// P20: role, bundle, model and readiness are logged.
#[tokio::test]
async fn startup_decisions_are_logged() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).start().await;
    let log = worker.log();
    for part in [
        "Instructions loaded.",
        "\"role\":\"project_manager\"",
        "\"hash\":",
        "\"model\":\"offline\"",
        "Ready.",
    ] {
        assert!(log.contains(part), "{part} is not in:\n{log}");
    }
}
