//! Everything on one machine: NATS, the gateway, managers and analysts under one supervisor that starts them in order,
//! starts again what dies, and ends them in the opposite order.

mod child; // one process: started, started again, ended
mod lock; // one stack for a folder, and what is left of one whose supervisor died
mod parts; // what runs, with which arguments
mod seed; // a token and a small project, so that there is something to talk about
mod stack; // the processes, together
mod tour; // what a newcomer should see, without a keyboard

use std::{
    io::IsTerminal,
    net::{Ipv4Addr, TcpListener},
    time::{Duration, Instant},
};

use broker::Broker;
use subjects::streams::Layout;

use crate::{
    chat::{Conversation, Input},
    cli,
    error::{Error, Exit},
    link, print,
};
use parts::Parts;
use stack::Stack;

/// A stack that is not up after this time will not be.
const UP_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Ends what an earlier `up` left behind.
pub(crate) async fn down(command: &cli::Down) -> Result<Exit, Error> {
    lock::end_what_runs(&command.data).await
}

pub(crate) async fn run(command: cli::Up, layout: Layout) -> Result<Exit, Error> {
    let mode = Mode::of(&command);
    let parts = Parts::find(command, layout)?;
    let _lock = lock::take(&parts.data)?;
    parts.ports().into_iter().try_for_each(|(port, name)| is_free(port, name))?;
    let mut stack = Stack::new(parts.data.clone());
    let outcome = with(&parts, &mut stack, mode, Input::start()?).await;
    if mode != Mode::Tour || outcome.is_err() {
        print::note("stopping …");
    }
    stack.stop().await;
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

/// Until all is done, or a signal comes.
async fn with(parts: &Parts, stack: &mut Stack, mode: Mode, mut input: Input) -> Result<Exit, Error> {
    let started = async {
        let broker = start(parts, stack).await?;
        Ok::<_, Error>((broker, seed::seed(parts).await?))
    };
    let (broker, tools) = tokio::select! {
        started = started => started?,
        _ = input.signal() => return Ok(Exit::Done),
    };
    match mode {
        Mode::Tour => tokio::select! {
            shown = tour::show(&broker, &tools, stack, parts.has_a_model()) => shown,
            _ = input.signal() => Ok(Exit::Interrupted),
        },
        Mode::Stay => {
            print::note(&format!("the stack is up; its console is at {}/console", parts.admin_url()));
            input.signal().await;
            Ok(Exit::Done)
        }
        Mode::Chat => {
            print::note(&parts.welcome());
            Conversation::new(&broker, Some(&tools), Some(seed::project()?), input).run().await?;
            Ok(Exit::Done)
        }
    }
}

async fn start(parts: &Parts, stack: &mut Stack) -> Result<Broker, Error> {
    let began = Instant::now();
    print::note(&format!("nats-server on {}, data in {}", parts.nats_url(), parts.data.display()));
    stack.start(parts.nats())?;
    let broker = stack.until("NATS answers", async || link::connect(&parts.link()).await.ok()).await?;
    print::note(&format!("gateway on {}", parts.mcp_url()));
    stack.start(parts.gateway())?;
    stack.until("the gateway answers", async || seed::is_gateway_there(parts).await.then_some(())).await?;
    seed::give_tokens(parts).await?;
    let workers = parts.workers();
    let names: Vec<&str> = workers.iter().map(|worker| worker.name.as_str()).collect();
    print::note(&format!("workers: {}, answering with {}", names.join(", "), parts.model_in_words()));
    let count = workers.len();
    for worker in workers {
        stack.start(worker)?;
    }
    let all_are_there = async || {
        let status = operate::status::look(&broker).await.ok()?;
        (status.instances.len() >= count).then_some(())
    };
    stack.until("all workers are running", all_are_there).await?;
    print::note(&format!("up in {:.1} s", began.elapsed().as_secs_f64()));
    Ok(broker)
}

fn is_free(port: u16, setting: &'static str) -> Result<(), Error> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::PortTaken { port, setting }),
    }
}
