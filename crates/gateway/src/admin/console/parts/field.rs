use maud::{Markup, html};

use super::super::{flash, form::Fields};
use crate::admin::Error;

/// A form as somebody filled it in, and what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Filled<'f> {
    pub(in super::super) fields: &'f Fields,
    pub(in super::super) error: Option<&'f Error>,
}

impl<'f> Filled<'f> {
    /// What stands over the form when something is wrong with it.
    pub(in super::super) fn alert(self) -> Markup {
        html! {
            @if let Some(error) = self.error {
                p .flash .bad role="alert" {
                    @match error {
                        Error::Invalid { message, .. } => { "Nothing was changed. " (flash::sentence(&format!("{}{message}", self.about()))) }
                        other => { "Nothing was changed. " (flash::sentence(&other.to_string())) }
                    }
                }
            }
        }
    }

    /// What is said about how a server is reached names what is wrong by itself.
    fn about(self) -> String {
        match self.error.and_then(Error::field) {
            None | Some("transport") => String::new(),
            Some(field) => flash::sentence(&field.replace('_', " ")).replace('.', ": "),
        }
    }

    fn wrong(self, name: &str) -> Option<&'f str> {
        let error = self.error.filter(|error| error.field() == Some(name))?;
        match error {
            Error::Invalid { message, .. } => Some(message),
            _ => None,
        }
    }
}

/// `wrong_as` is the name under which operations complain about it.
fn around(
    filled: Filled<'_>,
    (name, wrong_as): (&str, &str),
    label: &str,
    hint: &str,
    control: impl FnOnce(Option<&str>, bool) -> Markup,
) -> Markup {
    let wrong = filled.wrong(wrong_as);
    let (hint_id, wrong_id) = (format!("{name}-hint"), format!("{name}-wrong"));
    let mut described = Vec::new();
    if !hint.is_empty() {
        described.push(hint_id.as_str());
    }
    if wrong.is_some() {
        described.push(wrong_id.as_str());
    }
    let described = described.join(" ");
    html! {
        div .field {
            label for=(name) { (label) }
            (control((!described.is_empty()).then_some(described.as_str()), wrong.is_some()))
            @if let Some(wrong) = wrong { p .wrong id=(wrong_id) { (flash::sentence(wrong)) } }
            @if !hint.is_empty() { p .hint id=(hint_id) { (hint) } }
        }
    }
}

pub(in super::super) fn input(
    filled: Filled<'_>,
    (name, wrong_as): (&str, &str),
    kind: &str,
    label: &str,
    hint: &str,
) -> Markup {
    around(filled, (name, wrong_as), label, hint, |described, wrong| {
        html! {
            input #(name) name=(name) type=(kind) value=(filled.fields.text(name)) autocomplete="off"
                spellcheck="false" step=[(kind == "datetime-local").then_some("1")]
                aria-describedby=[described] aria-invalid=[wrong.then_some("true")];
        }
    })
}

pub(in super::super) fn area(
    filled: Filled<'_>,
    (name, wrong_as): (&str, &str),
    label: &str,
    hint: &str,
) -> Markup {
    around(filled, (name, wrong_as), label, hint, |described, wrong| {
        html! {
            textarea #(name) name=(name) rows="4" autocomplete="off" spellcheck="false"
                aria-describedby=[described] aria-invalid=[wrong.then_some("true")] {
                (filled.fields.text(name))
            }
        }
    })
}

/// `choices` are values and what they are called.
pub(in super::super) fn options(
    filled: Filled<'_>,
    name: &str,
    label: &str,
    hint: &str,
    choices: &[(&str, &str)],
) -> Markup {
    let chosen = filled.fields.text(name);
    around(filled, (name, name), label, hint, |described, wrong| {
        html! {
            select #(name) name=(name) aria-describedby=[described] aria-invalid=[wrong.then_some("true")] {
                @for (value, text) in choices { option value=(value) selected[*value == chosen] { (text) } }
            }
        }
    })
}

pub(in super::super) fn checkbox(filled: Filled<'_>, name: &str, label: &str, hint: &str) -> Markup {
    let id = format!("{name}-hint");
    html! {
        div .field .check {
            input #(name) name=(name) type="checkbox" value="on" checked[filled.fields.is_on(name)] aria-describedby=(id);
            label for=(name) { (label) }
            p .hint id=(id) { (hint) }
        }
    }
}
