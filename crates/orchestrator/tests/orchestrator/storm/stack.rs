//! What is killed: three orchestrators, two gateways on one PostgreSQL, and NATS. Workers live on.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::TryStreamExt;
use rand::{Rng, rngs::StdRng};
use subjects::{HandoffId, Pattern, Role, Subject, streams};
use testkit::{
    GatewayProcess, Model, ModelRequest, Nats, OrchestratorBuilder, OrchestratorProcess, Postgres, Script,
    Worker, eventually_within, typical,
};

use super::answer;

const ORCHESTRATORS: usize = 3;
const WORKERS: usize = 2;

/// Counts of injected failures.
#[derive(Debug, Default)]
pub(super) struct Failures {
    orchestrators: usize,
    freezes: usize,
    gateways: usize,
    servers: usize,
}

pub(super) struct Stack {
    /// Where clients reach the orchestrators.
    pub(super) urls: Arc<Mutex<Vec<String>>>,
    pub(super) failures: Failures,
    model: Model,
    orchestrators: Vec<OrchestratorProcess>,
    builders: Vec<OrchestratorBuilder>,
    _workers: Vec<Worker>,
    gateways: Vec<GatewayProcess>,
    nats: Nats,
    _postgres: Postgres,
}

impl Stack {
    pub(super) async fn start() -> Self {
        let (postgres, nats) = (Postgres::start(), Nats::start());
        let model = Model::start_answering(
            |asked| {
                let say = Script::Say(answer(last_question(asked)));
                Script::After(Duration::from_millis(rand::rng().random_range(20..400)), Box::new(say))
            },
            |asked| Script::Say(typical(asked.form().unwrap_or_default()).to_string()),
        )
        .await;
        let (database, nats_url) = (postgres.database(), nats.url());
        let settings = [("store.url", database.as_str()), ("nats.url", &nats_url), ("leases.lifetime", "5s")];
        let gateways =
            vec![GatewayProcess::start_with(&settings).await, GatewayProcess::start_with(&settings).await];
        let (mut workers, mut builders, mut orchestrators) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..WORKERS {
            let manager = Worker::manager(&nats).asking(&model).set("agent.assess_input", "false");
            let manager = manager.calling_process(&gateways[number % 2]).await;
            workers.push(manager.set("worker.concurrency.chat", "8").start().await);
        }
        for number in 0..ORCHESTRATORS {
            let builder = OrchestratorBuilder::new(&nats, &gateways[number % 2]).await;
            let builder = builder.set("chat.sweep_every", "2s");
            orchestrators.push(builder.start().await);
            builders.push(builder);
        }
        let urls = orchestrators.iter().map(OrchestratorProcess::url).collect();
        Self {
            urls: Arc::new(Mutex::new(urls)),
            failures: Failures::default(),
            model,
            orchestrators,
            builders,
            _workers: workers,
            gateways,
            nats,
            _postgres: postgres,
        }
    }

    /// Returns an API key of a user.
    pub(super) async fn key(&self, user: usize) -> String {
        self.gateways[0].api_key(&format!("user-{user}")).await.1
    }

    /// Waits a moment and makes something fail.
    pub(super) async fn fail(&mut self, rng: &mut StdRng) {
        tokio::time::sleep(Duration::from_millis(rng.random_range(100..900))).await;
        let at = rng.random_range(0..ORCHESTRATORS);
        match rng.random_range(0..20) {
            0..=10 => {
                self.orchestrators[at].process.kill();
                self.replace(at).await;
                self.failures.orchestrators += 1;
            }
            11..=14 => {
                self.orchestrators[at].process.freeze();
                tokio::time::sleep(Duration::from_millis(rng.random_range(200..3_000))).await;
                self.orchestrators[at].process.thaw();
                self.failures.freezes += 1;
            }
            15..=17 => {
                self.gateways[at % 2].start_again().await;
                self.failures.gateways += 1;
            }
            _ => {
                self.nats.kill();
                self.nats.start_again();
                self.failures.servers += 1;
            }
        }
    }

    async fn replace(&mut self, at: usize) {
        self.orchestrators[at] = self.builders[at].start().await;
        self.urls.lock().unwrap()[at] = self.orchestrators[at].url();
    }

    /// Repairs what a failure that was cut short left behind, and waits until no handoff is left.
    pub(super) async fn settle(&mut self) {
        self.gateways[0].start_again().await;
        self.gateways[1].start_again().await;
        for at in 0..ORCHESTRATORS {
            self.orchestrators[at].process.kill();
            self.replace(at).await;
        }
        eventually_within(Duration::from_secs(120), "all handoffs are done", || async {
            let stream = self.stream().await;
            (stream.state.messages == 0).then_some(())
        })
        .await;
    }

    /// Returns the number of answers, by handoff.
    pub(super) async fn answers(&self) -> BTreeMap<HandoffId, usize> {
        let jetstream = async_nats::jetstream::new(self.nats.client().await);
        let stream = jetstream.get_stream(streams::RUNS).await.unwrap();
        let pattern = Pattern::Answers(Role::ProjectManager).to_string();
        let mut counted = stream.info_with_subjects(pattern).await.unwrap();
        let mut answers = BTreeMap::new();
        while let Some((subject, count)) = counted.try_next().await.unwrap() {
            let Ok(Subject::Completion(id)) = subject.parse() else { panic!("no answer: {subject}") };
            *answers.entry(id).or_default() += count;
        }
        answers
    }

    async fn stream(&self) -> async_nats::jetstream::stream::Info {
        let jetstream = async_nats::jetstream::new(self.nats.client().await);
        let stream = jetstream.get_stream(streams::HANDOFFS).await.unwrap();
        stream.get_info().await.unwrap()
    }

    /// Returns how often the model was asked each question.
    pub(super) fn turns_by_question(&self) -> BTreeMap<String, usize> {
        let mut turns = BTreeMap::new();
        for asked in self.model.turns() {
            *turns.entry(last_question(&asked).to_owned()).or_default() += 1;
        }
        turns
    }
}

/// Returns the question that a turn is about; the worker adds to what users write.
fn last_question(asked: &ModelRequest) -> &str {
    let last = asked.messages().iter().rev().find(|message| message["role"] == "user");
    let text = last.and_then(|message| message["content"].as_str()).unwrap_or_default();
    let begin = text.rfind("What is").unwrap_or_else(|| panic!("no question: {text}"));
    let end = text[begin..].find('?').expect("the end of the question");
    &text[begin..=begin + end]
}
