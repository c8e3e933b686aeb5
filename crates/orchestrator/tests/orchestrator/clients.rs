//! Clients of other makers, as they are, against the running stack. Their programs are in `tests/clients`;
//! they check what they receive and end with a traceback if it is wrong.

mod documents;
mod front_ends;
mod programs;
mod responses;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use testkit::{Model, ModelRequest, Script, node_api_clients, python_api_clients, run, workspace};

use crate::stage::{Stage, say_and_call};

const ANSWER: &str = "Nothing is left to do:\n\n- the *fence* is painted,\n- the größte Tür is shut. 🎉";
const DIRECT_ANSWER: &str = "I am a llama, not a manager.";
/// Longer than the clients' timeouts.
const SLOW: Duration = Duration::from_secs(3);

/// A stack whose model does what a message says: the last mark of the form `[kind:name]` in a conversation
/// decides.
pub(crate) struct ClientStage {
    pub(crate) stage: Stage,
    _direct: Model,
    /// A key of the user `erin` whose work is cancelled when a client leaves.
    stop_key: String,
}

impl ClientStage {
    pub(crate) async fn start() -> Self {
        let direct = Model::start_answering(
            |asked| match asked.body["stream"].as_bool() {
                Some(true) => Script::say(DIRECT_ANSWER),
                _ => Script::Whole(DIRECT_ANSWER.to_owned()),
            },
            |_| Script::Status(500, None),
        )
        .await;
        let model = Model::start_answering(follow_mark, |_| Script::Status(500, None)).await;
        let models = format!(r#"[{{ id = "llama", url = "{}" }}]"#, direct.url());
        let stage = Stage::start_with_worker(
            model,
            // A model that hangs is not asked again while a client waits for it.
            |worker| worker.set("inference.timeout", "5m"),
            |builder| builder.set("direct.models", &models).set("rate_limits.concurrent_turns", "2"),
        )
        .await;
        let stop_key = stage.gateway.api_key_with("erin", &[("on_disconnect", json!("cancel"))]).await.1;
        Self { stage, _direct: direct, stop_key }
    }

    /// Runs a program of a client to its end. Panics with its output if it fails.
    pub(crate) async fn run(&self, language: Language, program: &str) {
        self.run_with(language, program, &[]).await;
    }

    /// As [`Self::run`], with more variables.
    pub(crate) async fn run_with(&self, language: Language, program: &str, more: &[(&str, &str)]) {
        let text = fs::read_to_string(programs_folder().join(program)).expect("the program is there");
        self.run_text(language, program, &text, more).await;
    }

    /// As [`Self::run_with`], with the text of a program. Returns what it printed.
    pub(crate) async fn run_text(
        &self,
        language: Language,
        name: &str,
        text: &str,
        more: &[(&str, &str)],
    ) -> String {
        let folder = tempfile::tempdir().expect("a folder for the program");
        fs::write(folder.path().join(name), text).expect("the program can be written");
        let (program, url) = (language.prepare(folder.path()), self.stage.orchestrator.url());
        let variables = [
            ("BASE_URL", url.as_str()),
            ("API_KEY", &self.stage.key),
            ("CYNODE_KEY", &self.stage.key),
            ("STOP_KEY", &self.stop_key),
            ("ANSWER", ANSWER),
            ("DIRECT_ANSWER", DIRECT_ANSWER),
            // A proxy of the machine is not for the stack.
            ("NO_PROXY", "127.0.0.1"),
            ("no_proxy", "127.0.0.1"),
            ("LANGSMITH_TRACING", "false"),
        ];
        let variables: Vec<(String, String)> = variables
            .iter()
            .chain(more)
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let arguments = vec![name.to_owned()];
        let finished = tokio::task::spawn_blocking(move || {
            let variables: Vec<(&str, &str)> =
                variables.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            run(&program, folder.path(), &arguments, &variables)
        })
        .await
        .expect("the program can be run");
        assert_eq!(finished.code, 0, "{name} failed:\n{}\n{}", finished.stdout, finished.stderr);
        finished.stdout
    }

    /// Checks that the model was asked once for each message, however often clients repeated it, and never
    /// for one that was refused.
    pub(crate) fn assert_asked_once(&self) {
        let mut asked = BTreeMap::<String, usize>::new();
        for turn in self.stage.model.turns() {
            *asked.entry(mark(&turn)).or_default() += 1;
        }
        for (mark, count) in &asked {
            let expected = match mark.split(':').next().unwrap_or_default() {
                // A call of a tool, and the answer.
                "tools" => 2,
                // The worker itself tries again.
                "fail" => continue,
                _ => 1,
            };
            assert_eq!(*count, expected, "{mark} of {asked:?}");
        }
        assert!(!asked.keys().any(|mark| mark.ends_with(":never")), "{asked:?}");
    }
}

/// What a client's program is written in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
    Node,
    Shell,
}

impl Language {
    /// Returns what runs a program in this folder.
    fn prepare(self, folder: &Path) -> PathBuf {
        match self {
            Self::Python => python_api_clients(),
            Self::Shell => PathBuf::from("/bin/sh"),
            Self::Node => {
                let (node, modules) = node_api_clients();
                std::os::unix::fs::symlink(modules, folder.join("node_modules")).expect("a link");
                node
            }
        }
    }
}

fn programs_folder() -> PathBuf {
    workspace().join("crates/orchestrator/tests/clients")
}

/// Returns the last mark of a conversation, such as `plain:hello`.
fn mark(asked: &ModelRequest) -> String {
    let said = serde_json::to_string(asked.messages()).expect("JSON");
    let kinds = ["plain", "slow", "hang", "fail", "question", "tools"];
    let last = kinds.iter().filter_map(|kind| said.rfind(&format!("[{kind}:"))).max();
    let after = last.map_or("plain:unmarked]", |at| &said[at + 1..]);
    after.split(']').next().unwrap_or_default().to_owned()
}

fn follow_mark(asked: &ModelRequest) -> Script {
    let last_role = asked.messages().last().and_then(|message| message["role"].as_str());
    match mark(asked).split(':').next().unwrap_or_default() {
        "slow" => Script::After(SLOW, Box::new(Script::say(ANSWER))),
        "hang" => Script::Hang,
        "fail" => Script::Refuse(400, "as scripted".to_owned()),
        "question" => Script::call("ask_user", &json!({ "question": "Which site is meant?" })),
        "tools" if last_role != Some("tool") => say_and_call("Let me look. ", "db__task__list", &json!({})),
        _ => Script::say(ANSWER),
    }
}
