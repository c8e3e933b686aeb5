//! Benchmark reports: one row per measurement, with its goal and whether it was met.

#![expect(clippy::print_stdout, reason = "a benchmark says what it measured")]

use std::{fs, process::ExitCode};

use crate::workspace;
use serde_json::{Value, json};

#[derive(Debug)]
pub struct Report {
    /// The name of the file in `target/bench`.
    name: &'static str,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    goal: Option<Goal>,
    samples: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {bound}"),
            Self::AtMost(bound) => format!("<= {bound}"),
        }
    }
}

impl Report {
    pub fn new(name: &'static str) -> Self {
        Self { name, rows: Vec::new() }
    }

    /// Adds a row with the median of the samples.
    pub fn add(&mut self, name: &str, unit: &'static str, samples: Vec<f64>, goal: Option<Goal>) {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let value = sorted[sorted.len() / 2];
        println!("  {name}: {value:.3} {unit}  {samples:.3?}");
        self.rows.push(Row { name: name.to_owned(), value, unit, goal, samples });
    }

    /// Prints and writes the report. Returns failure if a goal was missed.
    pub fn finish(self) -> ExitCode {
        let met = |row: &Row| row.goal.is_none_or(|goal| goal.met(row.value));
        println!("\n| what | measured | goal | |\n|---|---|---|---|");
        for row in &self.rows {
            let goal = row.goal.map_or_else(String::new, Goal::text);
            let verdict = match row.goal {
                None => "",
                Some(_) if met(row) => "met",
                Some(_) => "MISSED",
            };
            println!("| {} | {} {} | {goal} | {verdict} |", row.name, shown(row.value), row.unit);
        }
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name, "value": row.value, "unit": row.unit, "samples": row.samples,
                    "goal": row.goal.map(Goal::text), "met": met(row),
                })
            })
            .collect();
        let report = json!({ "machine": machine(), "rows": rows });
        let file = format!("target/bench/{}.json", self.name);
        let path = workspace().join(&file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, serde_json::to_vec_pretty(&report).unwrap()).unwrap();
        println!("\nwritten to {file}");
        if self.rows.iter().all(met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn shown(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn machine() -> Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": model.trim_start_matches([' ', '\t', ':']),
        "date": time::OffsetDateTime::now_utc().date().to_string(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}
