//! How well a model manages: `make bench-agent`. 24 small tasks on the real stack, graded by the store and
//! the answer.
//!
//! Without `INFERENCE_URL` a scripted model answers without fault, which shows that every task can be solved.

mod agent {
    pub(crate) mod cases;
    pub(crate) mod create_and_read;
    pub(crate) mod hold_back;
    pub(crate) mod plan_and_verify;
    pub(crate) mod stage;
    pub(crate) mod table;
    pub(crate) mod update;
}

use std::process::ExitCode;

use agent::{
    cases::{self, Names},
    stage::{Graded, ModelUnderTest, Stage},
    table,
};

#[tokio::main]
async fn main() -> ExitCode {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse::<u64>().expect("a number"));
    let (first, seeds) = (number("FIRST_SEED").unwrap_or(0), number("SEEDS").unwrap_or(1));
    let model = ModelUnderTest::from_env();
    let mut graded: Vec<Graded> = Vec::new();
    for seed in first..first + seeds {
        for case in cases::all() {
            let wanted = |part: &String| case.id.contains(part.as_str()) || case.group.name() == part;
            if !only.is_empty() && !only.iter().any(wanted) {
                continue;
            }
            let stage = Stage::start().await;
            let prepared = (case.prepare)(&stage, Names::of(seed)).await;
            let result = stage.run(&case, seed, &model, prepared).await;
            println!("{}", table::line(&result));
            graded.push(result);
        }
    }
    table::write(&model, &graded);
    // The scripted model makes no mistake, so each one is ours.
    let faultless = model.is_scripted() && graded.iter().any(|it| it.outcome.is_err());
    if faultless { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
