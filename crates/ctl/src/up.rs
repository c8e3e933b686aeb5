//! `cynodectl up` and `down`: a local stack of NATS, the gateway, managers, analysts, a node, a runner of
//! workflows and the orchestrator under one supervisor, which starts them in order, restarts those that die
//! and stops them in reverse order.

mod api;
mod child;
mod config;
mod lock;
mod node;
mod runner;
mod seed;
mod stack;
mod tour;

use std::{
    io::IsTerminal,
    net::{Ipv4Addr, TcpListener},
    time::{Duration, Instant},
};

use broker::Broker;
use subjects::streams::Layout;

use crate::{
    chat::{ChatContext, Conversation, Input},
    cli,
    error::{Error, Exit},
    link, print,
};
use config::StackConfig;
use node::Sandboxing;
use runner::Runner;
use stack::Stack;

const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Stops the stack of a data folder, or the processes that a killed `up` left behind.
pub(crate) async fn down(command: &cli::Down) -> Result<Exit, Error> {
    lock::stop_stack(&command.data).await
}

/// Starts a stack, runs the chat or the tour, then stops the stack.
pub(crate) async fn run(command: cli::Up, layout: Layout) -> Result<Exit, Error> {
    let mode = Mode::of(&command);
    let config = StackConfig::find(command, layout)?;
    let _lock = lock::take(&config.data)?;
    config.ports().into_iter().try_for_each(|(port, setting)| check_port(port, setting))?;
    let mut stack = Stack::new(config.data.clone());
    let input = Input::start(Some(config.data.join("chat-history")))?;
    let outcome = run_stack(&config, &mut stack, mode, input).await;
    let is_shown = mode != Mode::Tour || outcome.is_err();
    if is_shown {
        print::note("stopping …");
    }
    stack.stop(is_shown).await;
    outcome
}

/// What to do once everything is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Chat,
    Tour,
    Stay,
}

impl Mode {
    fn of(command: &cli::Up) -> Self {
        match (command.tour, command.stay) {
            (true, _) => Self::Tour,
            (false, true) => Self::Stay,
            (false, false) if std::io::stdin().is_terminal() => Self::Chat,
            (false, false) => Self::Tour,
        }
    }
}

/// Starts the processes, then runs until the mode is done or a signal arrives.
async fn run_stack(
    config: &StackConfig,
    stack: &mut Stack,
    mode: Mode,
    mut input: Input,
) -> Result<Exit, Error> {
    let started = async {
        // At the same time: trying to escape from each engine takes a moment.
        let began = Instant::now();
        let checks = async { Ok(tokio::join!(node::check(config), runner::check(config))) };
        let ((sandboxing, runner), broker) = tokio::try_join!(checks, start(config, stack))?;
        start_node(config, stack, sandboxing?).await?;
        start_runner(config, stack, runner)?;
        print::note(&format!("up in {:.1} s", began.elapsed().as_secs_f64()));
        Ok::<_, Error>((broker, seed::seed(config).await?))
    };
    let (broker, tools) = tokio::select! {
        started = started => started?,
        _ = input.signal() => return Ok(Exit::Done),
    };
    match mode {
        Mode::Tour => tokio::select! {
            shown = tour::show(&broker, &tools, stack, config) => shown,
            _ = input.signal() => Ok(Exit::Interrupted),
        },
        Mode::Stay => {
            print::note(&format!(
                "the stack is up; its console, with a chat, is at {}/console",
                config.admin_url()
            ));
            print::note(&config.describe_user());
            print::note(&config.describe_api());
            input.signal().await;
            Ok(Exit::Done)
        }
        Mode::Chat => {
            print::note(&config.welcome());
            let leases = seed::handoff_leases(config)?;
            let (project, gateway) = (Some(seed::project()?), config.gateway_link());
            let context =
                ChatContext { tasks: Some(&tools), project, leases: Some(&leases), gateway: &gateway };
            Conversation::new(&broker, context, input).run().await?;
            Ok(Exit::Done)
        }
    }
}

/// Starts the node and waits until it takes jobs. Without a sandbox, says what is missing and goes on.
async fn start_node(config: &StackConfig, stack: &mut Stack, sandboxing: Sandboxing) -> Result<(), Error> {
    match (sandboxing, config.node_spec()?) {
        (Sandboxing::Works, Some(spec)) => {
            print::note(&format!("node {}, which runs jobs in sandboxes", spec.name));
            stack.start(spec)?;
            stack.wait_until("the node takes jobs", async || node::probe(config).await.then_some(())).await
        }
        (Sandboxing::Missing(what), _) => {
            print::note(&format!("no node: this machine cannot sandbox jobs (docs/nodes.md); {what}"));
            Ok(())
        }
        (Sandboxing::Works | Sandboxing::Unwanted, _) => Ok(()),
    }
}

/// Starts the runner of workflows. Last, since its libraries take seconds to load and would take the time of
/// the others, and nothing waits for it: workflows wait in their queue until it is ready. Without one, says
/// what is missing and goes on.
fn start_runner(config: &StackConfig, stack: &mut Stack, runner: Runner) -> Result<(), Error> {
    match runner {
        Runner::Works(program) => {
            print::note(&format!("runner {}, which drives tasks to completion", config::RUNNER));
            stack.start_optional(config.runner_spec(&program))
        }
        Runner::Missing(what) => {
            print::note(&format!("no runner, so workflows wait (docs/workflow-runner.md); {what}"));
            Ok(())
        }
    }
}

/// Starts all processes but node and runner in order and waits until each group is ready.
async fn start(config: &StackConfig, stack: &mut Stack) -> Result<Broker, Error> {
    print::note(&format!("nats-server on {}, data in {}", config.nats_url(), config.data.display()));
    stack.start(config.nats())?;
    let broker = stack.wait_until("NATS answers", async || link::connect(&config.link()).await.ok()).await?;
    print::note(&format!("gateway on {}", config.mcp_url()));
    stack.start(config.gateway())?;
    stack.wait_until("the gateway answers", async || seed::probe_gateway(config).await.then_some(())).await?;
    seed::ensure_tokens(config).await?;
    if config.has_provider() {
        print::note("the preferences of this stack allow all users the external provider `openai`");
        seed::allow_provider(config).await?;
    } else if std::env::var_os("OPENAI_API_KEY").is_some() {
        print::note("OPENAI_API_KEY is not used: put the key into a file, OPENAI_API_KEY_FILE=key.txt");
    }
    let workers = config.workers();
    let names: Vec<&str> = workers.iter().map(|worker| worker.name.as_str()).collect();
    print::note(&format!("workers: {}, answering with {}", names.join(", "), config.describe_model()));
    let count = workers.len();
    for worker in workers {
        stack.start(worker)?;
    }
    let all_running = async || {
        let status = operate::status::read(&broker).await.ok()?;
        (status.instances.len() >= count).then_some(())
    };
    stack.wait_until("all workers are running", all_running).await?;
    print::note(&format!("OpenAI-compatible API on {}", config.api_url()));
    stack.start(config.orchestrator())?;
    let answers = async || api::probe(config).await.then_some(());
    stack.wait_until("the orchestrator is ready", answers).await?;
    Ok(broker)
}

/// Fails if another process listens on the port.
fn check_port(port: u16, setting: &'static str) -> Result<(), Error> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::PortTaken { port, setting }),
    }
}
