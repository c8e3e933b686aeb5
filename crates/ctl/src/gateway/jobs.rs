//! `cynodectl jobs`.

use std::time::Duration;

use api::{Job, JobFilter, JobLog, JobLogPosition, JobSummary};
use data_encoding::BASE64;
use subjects::job::End;
use tokio::time::sleep;

use super::{ApiRequest, Gateway, cell, print_fields, print_json, print_list, print_outcome};
use crate::{
    cli::Jobs,
    error::{Error, Exit},
    print,
};

const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);
const PIECE_BYTES: u64 = 256 * 1024;

pub(crate) async fn run(gateway: &Gateway, command: Jobs, json: bool) -> Result<Exit, Error> {
    match command {
        Jobs::List { task, status, node, limit } => {
            let filter = JobFilter { task_id: task, status, node_id: node, limit: Some(limit), offset: None };
            let jobs: Vec<JobSummary> = gateway.ask(ApiRequest::get(&["jobs"]).query(&filter)).await?;
            let head = ["ID", "STATUS", "END", "WHERE", "TASK", "CREATED", "COMMAND"];
            let exit = print_list(&jobs, json, "no jobs", &head, row);
            if jobs.len() as u64 >= limit {
                print::note("there may be older ones: --limit, --status, --task and --node select");
            }
            Ok(exit)
        }
        Jobs::Show { id } => {
            let job: Job = gateway.ask(ApiRequest::get(&["jobs", &id])).await?;
            show(&job, json);
            Ok(Exit::Done)
        }
        Jobs::Logs { id, follow } => print_log(gateway, &id, follow, json).await,
        Jobs::Cancel { id } => {
            let job: Job = gateway.ask(ApiRequest::post(&["jobs", &id, "cancel"])).await?;
            let text = match job.status.is_final() {
                true => format!("{} has ended already: {}", job.job_id, ended(job.end.as_ref())),
                false => format!("cancel of {} requested; it is still {}", job.job_id, job.status.as_str()),
            };
            Ok(print_outcome(json, &job, &text))
        }
    }
}

fn row(job: &JobSummary) -> Vec<String> {
    let place = job.node_id.as_ref().map_or_else(|| job.queue.clone(), |node| format!("node {node}"));
    let end = job.end.as_ref().map_or_else(|| "-".to_owned(), |end| ended(Some(end)));
    vec![
        cell(&job.job_id),
        job.status.as_str().to_owned(),
        end,
        print::sanitize(&place),
        cell(&job.task_id),
        cell(&job.created_at),
        print::one_line(&job.command),
    ]
}

/// Returns how a job ended, for people.
fn ended(end: Option<&End>) -> String {
    let text = match end {
        None => "not ended".to_owned(),
        Some(End::Exited { code }) => format!("exited with code {code}"),
        Some(End::Signalled { signal }) => format!("ended by signal {signal}"),
        Some(End::NodeLost { why: Some(why) }) => format!("node_lost: {why}"),
        Some(End::EngineFailed { why }) => format!("engine_failed: {why}"),
        Some(end) => end.kind().as_str().to_owned(),
    };
    print::sanitize(&text)
}

fn show(job: &Job, json: bool) {
    if json {
        print_json(job);
        return;
    }
    print_fields!(job, job_id, task_id, status, waiting_because);
    if job.end.is_some() {
        print::line(&format!("{:16}{}", "end", ended(job.end.as_ref())));
    }
    let command = serde_json::to_string(&job.command).unwrap_or_default();
    print::line(&format!("{:16}{}", "command", print::sanitize(&command)));
    print_fields!(job, image, engine, queue, node_id, attempt, created_at, started_at, ended_at);
    print_fields!(job, cancel_requested_at);
    if let Some(usage) = job.usage {
        let peak = usage.memory_peak_bytes / (1024 * 1024);
        let text = format!("{} ms, {} ms of CPU, {peak} MiB at most", usage.wall_ms, usage.cpu_ms);
        print::line(&format!("{:16}{text}", "used"));
    }
    for file in &job.files {
        let text = format!("{} ({} bytes)", file.path, file.size);
        print::line(&format!("{:16}{}", "file", print::one_line(&text)));
    }
    for problem in &job.problems {
        print::line(&format!("{:16}{}", "problem", print::one_line(problem)));
    }
    if let Some(tail) = &job.log_tail {
        print::line("");
        print::line(print::sanitize(tail).trim_end());
    }
}

/// Prints what a job wrote as it wrote it: bytes, or a line of JSON for each piece.
async fn print_log(gateway: &Gateway, id: &str, follow: bool, json: bool) -> Result<Exit, Error> {
    let mut position = JobLogPosition { after: None, limit: Some(PIECE_BYTES) };
    loop {
        let path = ["jobs", id, "log"];
        let piece: JobLog = gateway.ask(ApiRequest::get(&path).query(&position)).await?;
        if json {
            print_json(&piece);
        } else {
            let bytes = BASE64.decode(piece.content.as_bytes());
            print::foreign_bytes(&bytes.map_err(|error| Error::GatewayResponse(error.to_string()))?);
        }
        if piece.is_complete || !(follow || piece.has_more) {
            return Ok(Exit::Done);
        }
        let waits = !piece.has_more;
        position.after = piece.next.or(position.after);
        if waits {
            sleep(FOLLOW_INTERVAL).await;
        }
    }
}
