//! Parses the id of a handoff as a user enters it.

use subjects::{HandoffId, IdError};

/// Reads the id of a handoff. The ids of completions and responses contain it.
pub(super) fn handoff_id(text: &str) -> Result<HandoffId, IdError> {
    let id = ["chatcmpl-", "resp_"].iter().find_map(|prefix| text.strip_prefix(prefix));
    id.unwrap_or(text).parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handoffs_are_also_named_by_their_completions_and_responses() {
        let id = HandoffId::now();
        for text in [format!("{id}"), format!("chatcmpl-{id}"), format!("resp_{id}")] {
            assert_eq!(handoff_id(&text).ok(), Some(id), "{text}");
        }
        assert!(handoff_id("chatcmpl-").is_err() && handoff_id(&format!("run-{id}")).is_err());
    }
}
