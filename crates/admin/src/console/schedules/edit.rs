//! The forms for a new and for a changed schedule. What is saved was previewed: the form shows the next ten
//! firings first, and again if the timing was changed since.

use std::sync::Arc;

use api::{PreviewedSchedule, ScheduleDetails, SchedulePreview, ScheduleTiming};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};

use super::{fields, page_of, tables::firings_table};
use crate::{
    Error,
    console::{
        Console, Failure,
        components::{FormState, address, form, input, name, visible},
        flash,
        form::{Fields, PostedForm},
        page::{Section, page},
        session::Session,
    },
};

/// The hidden field with the timing whose firings the form shows.
const PREVIEWED: &str = "previewed";
/// The step that saves; any other shows the firings.
const SAVE: &str = "save";

pub(in super::super) async fn new(session: Session, fields: Fields) -> Response {
    new_page(&session, &fields, None, None)
}

pub(in super::super) async fn create(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let checked = fields::new_schedule(&fields)
        .and_then(|new| Ok((preview(&console, &session, &fields, &new.timing)?, new)));
    let (step, new) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            return Ok((error.status(), new_page(&session, &fields, Some(&error), None)).into_response());
        }
    };
    if let Step::Preview(previewed) = step {
        return Ok(new_page(&session, &fields, None, Some(&previewed)));
    }
    let user = fields.owned("user_id");
    let created = console.admin.create_schedule(&session.actor, user.as_deref(), new).await;
    if let Err(error @ (Error::Invalid { .. } | Error::Conflict(_) | Error::NotFound { .. })) = &created {
        return Ok((error.status(), new_page(&session, &fields, Some(error), None)).into_response());
    }
    let back = created.as_ref().map_or_else(
        |_| Section::Schedules.address().to_owned(),
        |created| page_of(&created.schedule.schedule_id),
    );
    flash::redirect_after(&console, &back, created, |created| format!("{} created.", created.schedule.name))
}

pub(in super::super) async fn edit(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let present = console.admin.get_schedule(&session.actor, fields.text("id")).await?;
    Ok(edit_page(&session, &present, &fields::fill(&present), None, None))
}

pub(in super::super) async fn update(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let id = fields.text("id");
    let present = console.admin.get_schedule(&session.actor, id).await?;
    let refused = |error: &Error| {
        (error.status(), edit_page(&session, &present, &fields, Some(error), None)).into_response()
    };
    let change = match fields::change(&fields, &present) {
        Ok(change) => change,
        Err(error) => return Ok(refused(&error)),
    };
    // What stays as it is needs no look at its firings.
    if change.timing.is_some() || fields.text("step") != SAVE {
        let timing = change.timing.as_ref().unwrap_or(&present.schedule.timing);
        match preview(&console, &session, &fields, timing) {
            Ok(Step::Save) => {}
            Ok(Step::Preview(previewed)) => {
                return Ok(edit_page(&session, &present, &fields, None, Some(&previewed)));
            }
            Err(error) => return Ok(refused(&error)),
        }
    }
    let changed = console.admin.change_schedule(&session.actor, id, change).await;
    if let Err(error @ (Error::Invalid { .. } | Error::Conflict(_))) = &changed {
        return Ok(refused(error));
    }
    flash::redirect_after(&console, &page_of(id), changed, |changed| {
        format!("{} changed; it has version {} now.", changed.schedule.name, changed.schedule.version)
    })
}

/// The next step after a posted form.
enum Step {
    /// The firings are shown, and the form again.
    Preview(Shown),
    Save,
}

/// The firings of a timing.
struct Shown {
    timing: String,
    previewed: PreviewedSchedule,
    /// Whether the form is shown again since the timing was changed after it had been previewed.
    has_changed: bool,
}

/// Computes the firings of a timing, unless the form shows them already and asks to be saved.
fn preview(
    console: &Console,
    session: &Session,
    fields: &Fields,
    timing: &ScheduleTiming,
) -> Result<Step, Error> {
    let text = serde_json::to_string(timing).unwrap_or_default();
    let saves = fields.text("step") == SAVE;
    if saves && fields.exact(PREVIEWED) == text {
        return Ok(Step::Save);
    }
    let preview = SchedulePreview { timing: timing.clone(), count: Some(10), after: None };
    let previewed = console.admin.preview_schedule(&session.actor, &preview)?;
    Ok(Step::Preview(Shown { timing: text, previewed, has_changed: saves }))
}

fn new_page(session: &Session, fields: &Fields, error: Option<&Error>, shown: Option<&Shown>) -> Response {
    let filled = FormState { fields, error };
    let body = html! {
        p .crumbs { a href=(Section::Schedules.address()) { "Schedules" } " / Create" }
        div .card {
            (filled.alert())
            (form(session, Section::Schedules.address(), &hidden(shown), &html! {
                div .grid {
                    (input(filled, ("name", "name"), "text", "Name", "For example morning report."))
                    @if session.actor.is_admin() {
                        (input(filled, ("user_id", "user_id"), "text", "User", "On whose behalf it runs."))
                    }
                    (input(filled, ("project_id", "project_id"), "text", "Project", "Optional."))
                }
                (fields::timing_fields(filled))
                (fields::payload_fields(filled))
                (fields::policy_fields(filled))
                (steps(shown, shown.map(|_| "Create the schedule")))
            }))
        }
    };
    page(session, Some(Section::Schedules), "Create a schedule", &body)
}

fn edit_page(
    session: &Session,
    present: &ScheduleDetails,
    fields: &Fields,
    error: Option<&Error>,
    shown: Option<&Shown>,
) -> Response {
    let filled = FormState { fields, error };
    let schedule = &present.schedule;
    let (id, version) = (schedule.schedule_id.as_str(), schedule.version.to_string());
    // After an error about the version, the form still has the one that its author has read.
    let version = fields.given("version").unwrap_or(&version);
    let mut hidden = hidden(shown);
    hidden.extend([("id", id), ("version", version)]);
    let body = html! {
        p .crumbs {
            a href=(Section::Schedules.address()) { "Schedules" } " / "
            a href=(page_of(id)) { (name(&schedule.name)) } " / Change"
        }
        div .card {
            (filled.alert())
            @if matches!(error, Some(Error::Conflict(_))) {
                p .hint {
                    a href=(address("/console/schedules/edit", &[("id", id)])) { "Begin again" }
                    " with the schedule as it is now."
                }
            }
            (form(session, "/console/schedules/edit", &hidden, &html! {
                (input(filled, ("name", "name"), "text", "Name", ""))
                (fields::timing_fields(filled))
                (fields::payload_fields(filled))
                (fields::policy_fields(filled))
                (steps(shown, Some("Save")))
            }))
        }
    };
    page(session, Some(Section::Schedules), "Change a schedule", &body)
}

fn hidden(shown: Option<&Shown>) -> Vec<(&str, &str)> {
    shown.map(|shown| (PREVIEWED, shown.timing.as_str())).into_iter().collect()
}

/// Renders the firings, if they were asked for, and what can be done next.
fn steps(shown: Option<&Shown>, save: Option<&str>) -> Markup {
    let preview = if shown.is_some() { "Show the firings again" } else { "Show the next firings" };
    html! {
        @if let Some(shown) = shown {
            fieldset #firings {
                legend { "Next firings" }
                @if shown.has_changed {
                    p .flash .bad role="alert" {
                        "The timing was changed. Look at its firings before you save it."
                    }
                }
                p .hint role="status" { (visible(&shown.previewed.description)) "." }
                (firings_table(&shown.previewed.firings))
            }
        }
        div .actions {
            @if let Some(save) = save {
                button .button type="submit" name="step" value=(SAVE) { (save) }
                button .button .quiet type="submit" name="step" value="preview" { (preview) }
            } @else {
                button .button type="submit" name="step" value="preview" { (preview) }
            }
        }
    }
}
