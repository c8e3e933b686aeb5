//! What a chat says when something is wrong, in plain words, with what to do.

use contract::thread::{AnswerState, TurnAnswer};
use maud::{Markup, html};
use uuid::Uuid;

use super::super::{
    components::{address, visible},
    flash::sentence,
    page::Section,
};
use crate::orchestrator::ChatFailure;

/// The form was sent before, with another text.
pub(super) const KEY_REUSED: &str = "idempotency_key_reused";

/// Returns whether the form was sent before with another text, so that this one needs another name.
pub(super) fn is_another_text(failure: &ChatFailure) -> bool {
    matches!(failure, ChatFailure::Refused { code, .. } if code == KEY_REUSED)
}

/// Renders why a message was not sent. Its text is still in the form.
pub(super) fn not_sent(failure: &ChatFailure) -> Markup {
    notice(&html! { "Your message was not sent." }, &describe(failure))
}

/// Renders why work was not stopped.
pub(super) fn not_stopped(failure: &ChatFailure) -> Markup {
    notice(&html! { "The work was not stopped." }, &describe(failure))
}

fn notice(title: &Markup, text: &Markup) -> Markup {
    html! {
        div #chat-notice .flash .bad role="alert" { p { strong { (title) } } (text) }
    }
}

/// Renders the place of a notice while there is none.
pub(super) fn none() -> Markup {
    html! { div #chat-notice hidden {} }
}

/// Describes a failure and what to do about it.
pub(super) fn describe(failure: &ChatFailure) -> Markup {
    match failure {
        ChatFailure::NotConfigured => html! {
            p {
                "No orchestrator is configured. Set " code { "admin.orchestrator_url" }
                " to the address of one, for example "
                code { "--set admin.orchestrator_url=http://127.0.0.1:8780/v1" }
                ", and restart the gateway."
            }
        },
        ChatFailure::NoUser => html! {
            p {
                "Your token names no user to chat as. "
                a href=(address("/console/tokens/new", &[("agent", "admin")])) { "Issue an admin token" }
                " with a user, and sign in with it."
            }
        },
        ChatFailure::Unreachable { url } => html! {
            p {
                "The orchestrator does not answer at " code { (visible(url)) } ". Start "
                code { "cynode-orchestrator" } ", or correct " code { "admin.orchestrator_url" }
                ". Then send the message again: it is not sent twice."
            }
        },
        ChatFailure::NotAnOrchestrator { url } => html! {
            p {
                "What answers at " code { (visible(url)) } " is not an orchestrator. Correct "
                code { "admin.orchestrator_url" } ": it ends with " code { "/v1" } "."
            }
        },
        ChatFailure::Refused { code, message, retry_after } => refused(code, message, *retry_after),
    }
}

fn refused(code: &str, message: &str, retry_after: Option<u64>) -> Markup {
    match code {
        "thread_busy" => html! {
            p {
                "The project manager still works on the last message of this thread. Wait for its answer, \
                 or stop it; then send the message again."
            }
        },
        // The script gives the form the new name.
        KEY_REUSED => html! {
            p data-request=(Uuid::new_v4()) {
                "This form was sent before with another text. That message is in its thread. To send this \
                 text as well, send it again."
            }
        },
        "rate_limit_exceeded" => html! {
            p {
                "You have sent too many messages, or too many are worked on. "
                @match retry_after {
                    Some(seconds) => { "Try again in " (seconds) " s." }
                    None => { "Try again in a moment." }
                }
            }
        },
        "invalid_api_key" => html! {
            p {
                "The orchestrator does not accept the console's key. It may use another gateway: compare its "
                code { "gateway.url" } "."
            }
        },
        "host_not_allowed" => html! {
            p {
                "The orchestrator does not accept this host name. List it in its setting "
                code { "api.hosts" } "."
            }
        },
        _ => html! {
            p { (sentence(&visible(message))) @if !code.is_empty() { " (" code { (visible(code)) } ")" } }
            p .hint { "Try again in a moment. The log of the orchestrator says more." }
        },
    }
}

/// Renders why a turn ended without an answer.
pub(super) fn turn_failed(answer: &TurnAnswer) -> Markup {
    let code = answer.error_code.as_deref().unwrap_or_default();
    if answer.state == AnswerState::Cancelled || code == "cancelled" {
        return html! { p .stopped { "You stopped this." } };
    }
    let advice = match code {
        "inference_unavailable" => "The model server is not available. Try again when it is.",
        "inference_failed" => "The model gave no usable answer. Try again, or say it in other words.",
        "tool_rejected" | "scope_mismatch" => "The manager was denied what it needs for this.",
        "budget_exceeded" => "The request is too large for one turn. Ask for less at once.",
        "deadline_exceeded" | "stale_handoff" => "It took too long. Try again.",
        _ => "Try again. If it fails again, an administrator finds the reason in the log of the workers.",
    };
    html! {
        div .failed {
            p { strong { "The project manager could not answer." } " " (advice) }
            @if !answer.text.is_empty() {
                p .hint {
                    (sentence(&visible(&answer.text)))
                    @if !code.is_empty() { " (" code { (visible(code)) } ")" }
                }
            }
        }
    }
}

/// Renders the page of a person who cannot chat yet.
pub(super) fn obstacle(failure: &ChatFailure) -> Markup {
    html! {
        div .empty .left {
            p .what { "Chat is not set up." }
            (describe(failure))
            p { "Earlier conversations are under " a href=(Section::Threads.address()) { "Threads" } "." }
        }
    }
}
