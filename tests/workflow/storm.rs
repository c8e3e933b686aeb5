//! Many workflows, while runners, workers, nodes, NATS and the gateway are killed and frozen. At the end
//! everything is counted.

mod ledger;
mod plan;
mod stack;

use std::{str::FromStr, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use self::{plan::Plan, stack::Stack};

/// The share of the storm in which tasks are created, so that it hits all phases of many workflows.
const CREATING: f64 = 0.8;

/// Reads a number from the environment: `make storm` sets larger ones than `make test`.
fn from_env<T: FromStr>(name: &str, usual: T) -> T {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Every task is done, or failed because it has a step that fails; each job has one result and its files are
/// there once; each handoff has one answer, and no turn of a model is stored twice; findings are recorded;
/// nothing is held or queued. `STORM_SEED` repeats a run; `WORKFLOW_TASKS` and `WORKFLOW_SECONDS` make it
/// longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_runners_drive_every_task_to_its_end_once_in_a_storm() {
    let seed = from_env("STORM_SEED", rand::rng().random());
    let lasts = Duration::from_secs(from_env("WORKFLOW_SECONDS", 25));
    let tasks = from_env("WORKFLOW_TASKS", 10);
    println!("STORM_SEED={seed} WORKFLOW_SECONDS={} WORKFLOW_TASKS={tasks}", lasts.as_secs());
    let mut rng = StdRng::seed_from_u64(seed);
    let mut stack = Stack::start().await;
    let manager = stack.stage.manager.clone();
    let began = Instant::now();
    let creating = async {
        let mut plans = Vec::new();
        for number in 0..tasks {
            plans.push(start_task(&manager, number).await);
            let share = CREATING * (number + 1) as f64 / tasks as f64;
            tokio::time::sleep_until(began + lasts.mul_f64(share)).await;
        }
        plans
    };
    let failing = async {
        while began.elapsed() < lasts {
            stack.fail(&mut rng).await;
        }
        stack.mend();
    };
    let (plans, ()) = tokio::join!(creating, failing);
    println!("{:?}", stack.failures);
    let patience = Duration::from_secs(180) + 2 * lasts;
    ledger::balance(&mut stack, &plans, patience).await;
    println!("the last workflow ended {:.0} s after the storm", (began.elapsed() - lasts).as_secs_f64());
}

/// Creates a task and starts its workflow, however often that has to be tried.
async fn start_task(manager: &mcp::Client, number: usize) -> Plan {
    let task = json!({ "title": format!("Task {number}"), "user_id": "ada" });
    let task = call(manager, "db.task.create", task, &format!("create/{number}")).await;
    let plan = Plan::new(number, task["task_id"].as_str().unwrap());
    let start = json!({ "task_id": plan.task, "steps": plan.steps(), "policy": plan.policy() });
    call(manager, "workflow.start", start, &format!("start/{number}")).await;
    plan
}

/// Calls until the gateway answers: the key makes it one effect.
async fn call(manager: &mcp::Client, tool: &str, arguments: Value, key: &str) -> Value {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    loop {
        let call = mcp::Call {
            name: tool,
            arguments: arguments.clone(),
            idempotency_key: Some(key),
            traceparent: None,
            lease: None,
        };
        match manager.call(call).await {
            Ok(reply) if !reply.is_error => return reply.structured.unwrap(),
            Ok(reply) if !reply.text.contains("unavailable") => panic!("{tool}: {}", reply.text),
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
}
