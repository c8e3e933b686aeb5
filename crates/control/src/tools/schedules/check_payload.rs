//! What a payload must be like before it is stored.

use std::borrow::Cow;

use contract::{
    schedule::{MAX_PAYLOAD_BYTES, Payload},
    task::{MAX_CRITERIA, MAX_DESCRIPTION_BYTES, MAX_TITLE_BYTES},
};

use crate::{ToolError, arguments::check, tools::jobs};

/// Checks a payload as it is checked before a schedule is stored.
pub fn check_schedule_payload(payload: &Payload) -> Result<(), ToolError> {
    to_json(payload).map(drop)
}

/// Checks a payload and returns the JSON that is stored.
pub(super) fn to_json(payload: &Payload) -> Result<String, ToolError> {
    match payload {
        Payload::Prompt { prompt } => check::non_blank("prompt", prompt, MAX_PAYLOAD_BYTES)?,
        Payload::Task { name, description, acceptance_criteria } => {
            check::non_blank("name of the task", name, MAX_TITLE_BYTES)?;
            check::text("description", description.as_deref().unwrap_or_default(), MAX_DESCRIPTION_BYTES)?;
            check::count("acceptance criteria", acceptance_criteria.len(), MAX_CRITERIA)?;
            for criterion in acceptance_criteria {
                check::non_blank("acceptance criterion", criterion, MAX_DESCRIPTION_BYTES)?;
            }
        }
        Payload::JobSpec { kind, payload, .. } => {
            jobs::check_kind(kind)?;
            check::to_json("payload of the job", &payload.clone().into(), jobs::MAX_PAYLOAD_BYTES)?;
        }
    }
    let text = subjects::encode_json_text(payload);
    if text.len() > MAX_PAYLOAD_BYTES {
        return Err(ToolError::TooLarge { what: "payload", size: text.len(), limit: MAX_PAYLOAD_BYTES });
    }
    // It is stored as it is, and goes to a model with every run.
    refuse_secret("payload", &text)?;
    Ok(text)
}

/// Refuses what chats would redact: secrets by their shape, and values that follow a name such as `password`.
pub(super) fn refuse_secret(what: &str, text: &str) -> Result<(), ToolError> {
    if let Some(kind) = secrets::find(text) {
        return Err(ToolError::Invalid(format!("the {what} contains a secret ({kind}); take it out")));
    }
    if matches!(secrets::redact_by_kind(text), Cow::Owned(_)) {
        let why = format!("the {what} contains a password or another secret behind its name; take it out");
        return Err(ToolError::Invalid(why));
    }
    Ok(())
}
