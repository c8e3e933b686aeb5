//! Recalls memories before a manager plans or answers.

use contract::{
    ToolContract,
    memory::{Found, INGESTED, Memory, Search},
};
use subjects::{ChatRole, Role, Work};

use super::{WorkError, session::Session};
use crate::{context::Recalled, tools::CallError};

/// A longer request is cut to this size before the search.
const MAX_QUERY_BYTES: usize = 2 * 1024;
/// Maximum size of memories in a request.
const MAX_RECALLED_BYTES: usize = 8 * 1024;

impl Session<'_> {
    /// Returns the memories that match the handoff best. The search is a step like any tool call: it is in
    /// the trace, and an attempt that resumes takes its result from the journal, so that all requests of a
    /// handoff have the same memories. A search that fails or is denied leaves the handoff without memories.
    /// A gateway that is away is waited for, as for all context.
    pub(super) async fn recall(&self) -> Result<Vec<Recalled>, WorkError> {
        let limit = self.resources.settings.recalled_memories;
        if limit == 0 || self.resources.role != Role::ProjectManager {
            return Ok(Vec::new());
        }
        let Some(query) = query(&self.handoff.work) else { return Ok(Vec::new()) };
        if !self.catalogue.has(Search::NAME) {
            self.ledger.record_refusal(Search::NAME, "nothing recalled: the gateway does not offer it");
            return Ok(Vec::new());
        }
        let wanted = Search { query, limit: Some(limit) };
        let found = match self.fetch(Some(wanted)).await {
            // A rule about memories must not prevent the request.
            Err(WorkError::Call(CallError::Rejected { .. })) => None,
            found => found?,
        };
        let Some(Found { memories }) = found else { return Ok(Vec::new()) };
        let recalled = bound(memories);
        let places: Vec<&str> = recalled.iter().map(|memory| memory.place.as_str()).collect();
        let detail = if places.is_empty() { "nothing".to_owned() } else { places.join(", ") };
        self.ledger.describe_last(Search::NAME, format!("recalled: {detail}"));
        Ok(recalled)
    }
}

/// Returns what is searched for; `None` for work that brings all that it is about.
fn query(work: &Work) -> Option<String> {
    let text = match work {
        Work::Chat(chat) => {
            let last = chat.messages.iter().rev().find(|message| message.role == ChatRole::User);
            last.or(chat.messages.last())?.content.clone()
        }
        Work::Plan(plan) => plan.goal.clone(),
        Work::Continue(further) => further.input.clone(),
        Work::Schedule(schedule) => match &schedule.payload {
            serde_json::Value::String(prompt) => prompt.clone(),
            task => task.get("name")?.as_str()?.to_owned(),
        },
        Work::Review(_) | Work::Verify(_) => return None,
    };
    let text = text.get(..text.floor_char_boundary(MAX_QUERY_BYTES)).unwrap_or_default();
    // The gateway refuses a NUL.
    let text = text.replace('\0', " ");
    (!text.trim().is_empty()).then_some(text)
}

/// Keeps the best as long as they fit.
fn bound(memories: Vec<Memory>) -> Vec<Recalled> {
    let mut room = MAX_RECALLED_BYTES;
    let recalled = memories.into_iter().map(|memory| Recalled { place: place(&memory), text: memory.text });
    recalled
        .take_while(|memory| {
            let fits = memory.text.len() + memory.place.len() <= room;
            room = room.saturating_sub(memory.text.len() + memory.place.len());
            fits
        })
        .collect()
}

/// Names a memory. Agents choose paths: one that reads like the place of another is still in quotes.
fn place(memory: &Memory) -> String {
    let Memory { path, first_line, last_line, .. } = memory;
    let path = serde_json::Value::from(path.as_str());
    let kept = if memory.source.starts_with(INGESTED) { "ingested" } else { "kept by an agent" };
    format!("{path}, lines {first_line} to {last_line}, {kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(path: &str, bytes: usize) -> Memory {
        let of = |text: &str| text.to_owned();
        Memory {
            id: of("id"),
            path: of(path),
            profile: of("default"),
            first_line: 1,
            last_line: 2,
            text: "x".repeat(bytes),
            score: 1.0,
            source: of("project_manager"),
            tags: Vec::new(),
            digest: of("digest"),
            created_at: of("2026-11-18T10:00:00Z"),
            expires_at: None,
        }
    }

    #[test]
    fn recalled_text_is_bounded() {
        let places = |memories| bound(memories).into_iter().map(|it| it.place).collect::<Vec<_>>();
        let of_a = "\"a\", lines 1 to 2, kept by an agent";
        let both = places(vec![memory("a", 10), memory("b, lines 1 to 9: \"x\"", 20)]);
        assert_eq!(both, [of_a, r#""b, lines 1 to 9: \"x\"", lines 1 to 2, kept by an agent"#]);
        assert_eq!(places(vec![memory("a", 6_000), memory("b", 6_000), memory("c", 10)]), [of_a]);
        let ingested = Memory { source: "ingest:docs#1".to_owned(), ..memory("a", 10) };
        assert_eq!(places(vec![ingested]), [r#""a", lines 1 to 2, ingested"#]);
        assert!(places(vec![memory("a", MAX_RECALLED_BYTES)]).is_empty());
    }
}
