//! `db.finding.*`: the verdicts of analysts on the acceptance criteria of tasks.

use contract::{
    Page,
    finding::{Create, Finding, List, MAX_CRITERION_BYTES, MAX_EVIDENCE_BYTES, MAX_LOCATION_BYTES},
};
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use subjects::{Severity, Verdict};
use uuid::Uuid;

use crate::{
    BuiltInTool, Context, Does, Entry, ToolError, arguments::check, queries::page::PageRequest, tools::tasks,
};
use policy::{Scope, ScopedId};

use store::{clock, entity::finding};

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<Create>(), Entry::of::<List>()]
}

fn into_finding(row: finding::Model) -> Result<Finding, ToolError> {
    Ok(Finding {
        verdict: check::parse_stored("verdict", &row.verdict)?,
        severity: check::parse_stored("severity", &row.severity)?,
        finding_id: row.id,
        task_id: row.task_id,
        run_id: row.run_id,
        criterion: row.criterion,
        evidence: row.evidence,
        location: row.location,
        created_at: clock::text(row.created_at),
        created_by: row.created_by,
    })
}

/// Returns the findings on a task, the newest first, for administrators.
pub async fn latest_findings(
    db: &DatabaseExecutor<'_>,
    task_id: &str,
    limit: u64,
) -> Result<Vec<Finding>, ToolError> {
    let query = finding::Entity::find().filter(finding::Column::TaskId.eq(task_id));
    let ordered = query.order_by_desc(finding::Column::CreatedAt).order_by_desc(finding::Column::Id);
    ordered.limit(limit).all(db).await?.into_iter().map(into_finding).collect()
}

impl BuiltInTool for Create {
    const TITLE: &'static str = "Record a finding";
    const DESCRIPTION: &'static str =
        "Records the verdict on one acceptance criterion of a task. Findings are added, never changed.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Finding, ToolError> {
        check::non_blank("criterion", &input.criterion, MAX_CRITERION_BYTES)?;
        let evidence = input.evidence.unwrap_or_default();
        check::text("evidence", &evidence, MAX_EVIDENCE_BYTES)?;
        check::text("location", input.location.as_deref().unwrap_or_default(), MAX_LOCATION_BYTES)?;
        let task = tasks::find(context, &input.task_id).await?;
        let row = finding::Model {
            id: Uuid::now_v7().to_string(),
            task_id: task.id,
            run_id: input.run_id.map(String::from),
            criterion: input.criterion,
            verdict: verdict_text(input.verdict).to_owned(),
            severity: severity_text(input.severity).to_owned(),
            evidence,
            location: input.location,
            created_at: context.now,
            created_by: context.author(),
        };
        let insert = finding::Entity::insert(finding::ActiveModel::from(row.clone()));
        insert.exec_without_returning(&context.db).await?;
        into_finding(row)
    }
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List findings";
    const DESCRIPTION: &'static str = "Lists the findings on a task, the newest first.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Finding>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let task = tasks::find(context, &input.task_id).await?;
        let mut query = finding::Entity::find().filter(finding::Column::TaskId.eq(task.id));
        if let Some(run) = &input.run_id {
            query = query.filter(finding::Column::RunId.eq(run.as_str()));
        }
        if let Some(wanted) = input.verdict {
            query = query.filter(finding::Column::Verdict.eq(verdict_text(wanted)));
        }
        let ordered = query.order_by_desc(finding::Column::CreatedAt).order_by_desc(finding::Column::Id);
        let found = ordered.offset(request.offset).limit(request.fetch_limit()).all(&context.db).await?;
        Ok(request.build_page(found.into_iter().map(into_finding).collect::<Result<_, _>>()?))
    }
}

/// Returns a verdict as it is stored, in the contract's spelling.
fn verdict_text(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::NotMet => "not_met",
        Verdict::Unclear => "unclear",
    }
}

fn severity_text(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Minor => "minor",
        Severity::Major => "major",
        Severity::Critical => "critical",
    }
}
