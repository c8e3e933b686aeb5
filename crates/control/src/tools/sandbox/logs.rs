//! `sandbox.job.logs`: reads what a job wrote.

use contract::sandbox::{JobLog, ReadLog};
use policy::{Scope, ScopedId};

use super::{read, view};
use crate::{BuiltInTool, Context, Does, ToolError};

impl BuiltInTool for ReadLog {
    const TITLE: &'static str = "Read what a job wrote";
    const DESCRIPTION: &'static str = "Reads the output of a job of sandbox.run in pieces, also while it \
        runs: give `next` as `after` to read on. `has_more` says that more is stored, `is_complete` that \
        nothing more comes.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Job];
    const SCOPE: Scope = Scope::Pm;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<JobLog, ToolError> {
        let row = read::find(context, &input.job_id, input.task_id.as_ref()).await?;
        let is_final = view::status_of(&row)?.is_final();
        context.sandboxes.read_log(&input, is_final).await
    }
}
