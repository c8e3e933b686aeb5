//! Prints the results as lines and as the table that `docs/models.md` holds.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{
    cases::Group,
    stage::{Graded, ModelUnderTest},
};

pub(crate) fn line(graded: &Graded) -> String {
    let outcome = match &graded.outcome {
        Ok(()) => "ok".to_owned(),
        Err(why) => format!("FAILED: {why}"),
    };
    format!(
        "seed {} {:<10} {:<24} {:>3} calls {:>6} prompt tokens {:>6.1} s  {outcome}",
        graded.seed,
        graded.group.name(),
        graded.id,
        graded.model_calls,
        graded.prompt_tokens,
        graded.seconds,
    )
}

/// Writes the table to standard output and to target/bench/agent.md.
pub(crate) fn write(model: &ModelUnderTest, all: &[Graded]) {
    let mut out = format!("\n## {}\n\n", model.name());
    // Writing to a string cannot fail.
    let _written = writeln!(out, "| group | solved | of these for reporting | model calls | prompt tokens |");
    let _written = writeln!(out, "|---|---|---|---|---|");
    for group in Group::ALL {
        row(&mut out, group.name(), all.iter().filter(|it| it.group == group));
    }
    row(&mut out, "all", all.iter());
    let seeds: BTreeSet<u64> = all.iter().map(|it| it.seed).collect();
    for seed in seeds.iter().filter(|_| seeds.len() > 1) {
        row(&mut out, &format!("seed {seed}"), all.iter().filter(|it| it.seed == *seed));
    }
    let (reused, prompt) =
        all.iter().filter_map(|it| it.reused).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    if prompt > 0 {
        let share = 100.0 * reused as f64 / prompt as f64;
        let _written =
            writeln!(out, "\nPrompt tokens reused within a handoff, after its first turn: {share:.0} %.");
    }
    println!("{out}");
    let folder = testkit::workspace().join("target/bench");
    let written =
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join("agent.md"), &out));
    written.expect("the table can be written");
}

fn row<'g>(out: &mut String, name: &str, graded: impl Iterator<Item = &'g Graded>) {
    let graded: Vec<&Graded> = graded.collect();
    if graded.is_empty() {
        return;
    }
    let solved = |it: &&&Graded| it.outcome.is_ok();
    let reporting: Vec<&&Graded> = graded.iter().filter(|it| !it.for_tuning).collect();
    let count = graded.len() as f64;
    let _written = writeln!(
        out,
        "| {name} | {} of {} | {} of {} | {:.1} | {:.0} |",
        graded.iter().filter(solved).count(),
        graded.len(),
        reporting.iter().filter(|it| it.outcome.is_ok()).count(),
        reporting.len(),
        graded.iter().map(|it| f64::from(it.model_calls)).sum::<f64>() / count,
        graded.iter().map(|it| it.prompt_tokens as f64).sum::<f64>() / count,
    );
}
