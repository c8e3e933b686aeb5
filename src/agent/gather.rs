//! Collects context layers 3 to 5 from the handoff, and through the gateway what the handoff only names by
//! id.

use contract::{
    ToolContract,
    preference::{self, Entry, Preference, PreferenceList},
    project, task,
};
use futures_util::future::join3;
use serde::{Serialize, de::DeserializeOwned};
use subjects::{PreferenceScope, Scope, ScopeId, Work};
use tracing::warn;

use super::{WorkError, session::Session};
use crate::context::Preferences;

/// Maximum number of preferences that are read for one handoff.
const MAX_PREFERENCES: usize = 5_000;

impl Session<'_> {
    /// P10, P12: sets the session's preferences and layers. What the handoff names by id but does not contain
    /// is fetched through the gateway.
    pub(super) async fn gather(&mut self) -> Result<(), WorkError> {
        let given = &self.handoff.context;
        let mut scope = self.handoff.scope.clone();
        // The task that the work is about takes precedence over the task of the scope.
        let about = match &self.handoff.work {
            Work::Verify(verify) => Some(&verify.task_id),
            Work::Review(review) => Some(&review.task_id),
            Work::Plan(plan) => plan.task_id.as_ref(),
            Work::Chat(_) | Work::Schedule(_) | Work::Continue(_) => None,
        };
        scope.task_id = about.cloned().or(scope.task_id);
        let project = scope.project_id.as_ref().filter(|_| given.project.is_none());
        let task = scope.task_id.clone().filter(|_| given.task.is_none());
        let preferences = Some(list_preferences(&scope)).filter(|_| given.preferences.is_none());
        let (project, task, preferences) = join3(
            self.fetch(project.map(|id| project::Get { project_id: id.to_string() })),
            self.fetch(task.map(|task_id| task::Get { task_id })),
            self.fetch(preferences),
        )
        .await;
        self.layers.project = given.project.clone().or(project?);
        self.layers.task = given.task.clone().or(task?);
        let fetched = self.fetch_remaining_preferences(&scope, preferences?).await?;
        let given = given.preferences.clone().unwrap_or_default();
        let entries = given.into_iter().map(Entry::from).chain(fetched.into_iter().map(Entry::from));
        self.preferences = Preferences::resolve(self.resources.role, &scope, entries);
        for skipped in &self.preferences.skipped {
            let (key, scope, why) = (&skipped.key, &skipped.scope, &skipped.why);
            warn!(handoff.id = %self.handoff.id, key, scope, why, "Preference ignored.");
        }
        self.layers.additional = self.preferences.additional_context();
        self.layers.memories = self.recall().await?;
        Ok(())
    }

    /// Fails with [`WorkError::InvalidHandoff`] if the handoff names another task than its payload.
    pub(super) fn check_task(&self, of_payload: &ScopeId) -> Result<(), WorkError> {
        let named = [
            ("scope.task_id", self.handoff.scope.task_id.as_ref()),
            ("context.task", self.handoff.context.task.as_ref().map(|task| &task.id)),
        ];
        match named.into_iter().find(|(_, task)| task.is_some_and(|task| task != of_payload)) {
            Some((what, _)) => {
                Err(WorkError::InvalidHandoff(format!("{what} and payload.task_id name different tasks")))
            }
            None => Ok(()),
        }
    }

    /// Returns the preferences of the first page and of those that follow it.
    async fn fetch_remaining_preferences(
        &self,
        scope: &Scope,
        first: Option<PreferenceList>,
    ) -> Result<Vec<Preference>, WorkError> {
        let Some(PreferenceList { mut preferences, mut next_cursor }) = first else { return Ok(Vec::new()) };
        while let Some(cursor) = next_cursor.take().filter(|_| preferences.len() < MAX_PREFERENCES) {
            let next = preference::List { cursor: Some(cursor), ..list_preferences(scope) };
            let page: Option<PreferenceList> = self.fetch(Some(next)).await?;
            let Some(page) = page else { break };
            preferences.extend(page.preferences);
            next_cursor = page.next_cursor;
        }
        if next_cursor.is_some() {
            warn!(
                handoff.id = %self.handoff.id,
                count = preferences.len(),
                "More preferences apply than are read; the others are ignored."
            );
        }
        Ok(preferences)
    }

    /// Fetches a record, if it is wanted and its tool is offered. A record that cannot be fetched is left out
    /// of its layer; the step in the trace says why. The call is prepared before the future is polled, so
    /// that the intents of several are journalled together.
    pub(super) fn fetch<T, R>(&self, wanted: Option<T>) -> impl Future<Output = Result<Option<R>, WorkError>>
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
        R: TryFrom<T::Output>,
    {
        let wanted = wanted.filter(|_| self.catalogue.has(T::NAME));
        let prepared = wanted.map(|input| self.prepare_tool(&input));
        async move {
            let Some(prepared) = prepared else { return Ok(None) };
            let returned = self.perform(prepared?).await?;
            if returned.failed {
                return Ok(None);
            }
            let is_cut = returned.truncated;
            let record = returned.parse().ok().and_then(|output: T::Output| R::try_from(output).ok());
            if record.is_none() {
                let tool = T::NAME;
                warn!(handoff.id = %self.handoff.id, tool, "Fetched context unreadable; left out.");
                let why = match is_cut {
                    true => "left out: its answer is larger than gateway.max_result_bytes",
                    false => "left out: its answer cannot be read",
                };
                self.ledger.describe_last(tool, why.to_owned());
            }
            Ok(record)
        }
    }
}

/// Returns the call that lists the preferences of a scope: of the system, and of whom and what it names.
fn list_preferences(scope: &Scope) -> preference::List {
    let names_none = scope.user_id.is_none()
        && scope.project_id.is_none()
        && scope.task_id.is_none()
        && scope.group_ids.is_empty();
    preference::List {
        user_id: scope.user_id.clone(),
        group_ids: scope.group_ids.clone(),
        project_id: scope.project_id.clone(),
        task_id: scope.task_id.clone(),
        // Without any id, the tool would list the preferences of everybody.
        scope: names_none.then_some(PreferenceScope::System),
        ..preference::List::default()
    }
}
