//! Stores what a job left, within bounds: a job decides how many files and names there are.

use sandbox::Running;
use subjects::job::{JobResult, Repeat};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    JobRunner,
    files::{FileError, Files},
};
use crate::crash_points::Point;
use crash::reach;

/// Problems that a result names.
const MAX_PROBLEMS: usize = 50;
/// The longest problem, in characters.
const MAX_PROBLEM_CHARS: usize = 300;
/// After this many refused files no more are sent: the gateway takes a limited number.
const MAX_REFUSED: usize = 8;
/// The paths of all files of a result, in bytes: the result is one message.
const MAX_PATH_BYTES: usize = 128 * 1024;

/// Why a result without the job's files must not be given.
#[derive(Debug)]
pub(super) enum NotStored {
    /// A request that the job end came before all files were stored.
    Cancelled,
    /// They could not be stored here, and the job may be run again elsewhere.
    Failed(FileError),
}

impl JobRunner {
    /// Stores what the job left and notes it in the result.
    pub(super) async fn store_outputs(
        &self,
        result: &mut JobResult,
        files: Files<'_>,
        running: &mut Running,
        cancelled: &CancellationToken,
    ) -> Result<(), NotStored> {
        let collected = match running.collect().await {
            Ok(collected) => collected,
            Err(error) => {
                result.problems.push(error.to_string());
                return Ok(());
            }
        };
        result.problems.extend(collected.problems.iter().map(ToString::to_string));
        let (count, mut refused, mut path_bytes) = (collected.files.len(), 0, 0);
        for (index, file) in collected.files.iter().enumerate() {
            path_bytes += file.path.len();
            let rest = count - index;
            if refused >= MAX_REFUSED || path_bytes > MAX_PATH_BYTES {
                result.problems.push(format!("{rest} more files are not stored: there are too many"));
                break;
            }
            let store = async {
                let stored = files.store(file).await;
                reach(Point::FileStored).await;
                stored
            };
            let stored = tokio::select! {
                biased;
                () = cancelled.cancelled() => return Err(NotStored::Cancelled),
                // The gateway drops what it has sent without a result that names it.
                stored = store => stored,
            };
            match stored {
                Ok(stored) => {
                    self.metrics.stored_files.inc();
                    result.files.push(stored);
                }
                Err(FileError::Refused(why)) => {
                    refused += 1;
                    result.problems.push(why);
                }
                Err(error) => {
                    warn!(path = file.path, %error, "File of a job not stored.");
                    if files.job.spec.repeat != Repeat::Never {
                        return Err(NotStored::Failed(error.about(&file.path)));
                    }
                    // How it ended is known, and it is not run again.
                    result.problems.push(format!("{rest} files are not stored: {error}"));
                    self.note_refused_token(&error);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Returns as many problems as a result names, shortened, and how many there are besides.
pub(super) fn bound_problems(mut problems: Vec<String>) -> Vec<String> {
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    for problem in &mut problems {
        if let Some((end, _)) = problem.char_indices().nth(MAX_PROBLEM_CHARS) {
            problem.truncate(end);
            problem.push('…');
        }
    }
    if more > 0 {
        problems.push(format!("{more} more problems"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_of_a_result_are_few_and_short() {
        let few = vec!["a is not a regular file but a FIFO".to_owned()];
        assert_eq!(bound_problems(few.clone()), few);
        let many = bound_problems(vec!["ü".repeat(10_000); 30_000]);
        assert_eq!(many.len(), MAX_PROBLEMS + 1);
        assert_eq!(many[0].chars().count(), MAX_PROBLEM_CHARS + 1);
        assert_eq!(many[MAX_PROBLEMS], "29950 more problems");
    }
}
