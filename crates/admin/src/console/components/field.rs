//! Form fields with label, hint and error.

use maud::{Markup, html};

use super::super::{flash, form::Fields};
use crate::Error;

/// The values of a form and the error of its submission, if there is one.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct FormState<'f> {
    pub(in super::super) fields: &'f Fields,
    pub(in super::super) error: Option<&'f Error>,
}

impl<'f> FormState<'f> {
    /// Renders the error above the form.
    pub(in super::super) fn alert(self) -> Markup {
        html! {
            @if let Some(error) = self.error {
                p .flash .bad role="alert" {
                    @match error {
                        Error::Invalid { message, .. } => {
                            "Nothing was changed. "
                            (flash::sentence(&format!("{}{message}", self.field_label())))
                        }
                        other => { "Nothing was changed. " (flash::sentence(&other.to_string())) }
                    }
                }
            }
        }
    }

    /// Returns the field as a prefix of the message. Messages about the transport already name the setting.
    fn field_label(self) -> String {
        match self.error.and_then(Error::field) {
            None | Some("transport") => String::new(),
            Some(field) => flash::sentence(&field.replace('_', " ")).replace('.', ": "),
        }
    }

    /// Returns the message if this field is invalid.
    fn wrong(self, name: &str) -> Option<&'f str> {
        let error = self.error.filter(|error| error.field() == Some(name))?;
        match error {
            Error::Invalid { message, .. } => Some(message),
            _ => None,
        }
    }
}

/// Renders a control with label, hint and error. `error_field` is the field that operations name in their
/// errors.
fn field(
    form: FormState<'_>,
    (name, error_field): (&str, &str),
    label: &str,
    hint: &str,
    control: impl FnOnce(Option<&str>, bool) -> Markup,
) -> Markup {
    let wrong = form.wrong(error_field);
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
    form: FormState<'_>,
    (name, error_field): (&str, &str),
    kind: &str,
    label: &str,
    hint: &str,
) -> Markup {
    field(form, (name, error_field), label, hint, |described, wrong| {
        html! {
            input #(name) name=(name) type=(kind) value=(form.fields.text(name)) autocomplete="off"
                spellcheck="false" step=[(kind == "datetime-local").then_some("1")]
                aria-describedby=[described] aria-invalid=[wrong.then_some("true")];
        }
    })
}

/// Renders a text input with suggestions: the options of the `datalist` with the id `list`.
pub(in super::super) fn suggest(
    form: FormState<'_>,
    (name, error_field): (&str, &str),
    list: &str,
    label: &str,
    hint: &str,
) -> Markup {
    field(form, (name, error_field), label, hint, |described, wrong| {
        html! {
            input #(name) name=(name) type="text" list=(list) value=(form.fields.text(name))
                autocomplete="off" spellcheck="false" aria-describedby=[described]
                aria-invalid=[wrong.then_some("true")];
        }
    })
}

pub(in super::super) fn area(
    form: FormState<'_>,
    (name, error_field): (&str, &str),
    label: &str,
    hint: &str,
) -> Markup {
    field(form, (name, error_field), label, hint, |described, wrong| {
        html! {
            textarea #(name) name=(name) rows="4" autocomplete="off" spellcheck="false"
                aria-describedby=[described] aria-invalid=[wrong.then_some("true")] {
                (form.fields.text(name))
            }
        }
    })
}

/// Renders a text area for a document, with its white space as it is.
pub(in super::super) fn document(
    form: FormState<'_>,
    (name, error_field): (&str, &str),
    label: &str,
    hint: &str,
) -> Markup {
    field(form, (name, error_field), label, hint, |described, wrong| {
        html! {
            textarea #(name) name=(name) rows="20" autocomplete="off" spellcheck="false"
                aria-describedby=[described] aria-invalid=[wrong.then_some("true")] {
                // Browsers drop the first line break.
                "\n" (form.fields.exact(name))
            }
        }
    })
}

/// Renders a select; `choices` are pairs of value and text.
pub(in super::super) fn options(
    form: FormState<'_>,
    name: &str,
    label: &str,
    hint: &str,
    choices: &[(&str, &str)],
) -> Markup {
    let chosen = form.fields.text(name);
    field(form, (name, name), label, hint, |described, wrong| {
        html! {
            select #(name) name=(name) aria-describedby=[described] aria-invalid=[wrong.then_some("true")] {
                @for (value, text) in choices { option value=(value) selected[*value == chosen] { (text) } }
            }
        }
    })
}

pub(in super::super) fn checkbox(form: FormState<'_>, name: &str, label: &str, hint: &str) -> Markup {
    let id = format!("{name}-hint");
    html! {
        div .field .check {
            input #(name) name=(name) type="checkbox" value="on" checked[form.fields.is_on(name)]
                aria-describedby=(id);
            label for=(name) { (label) }
            p .hint id=(id) { (hint) }
        }
    }
}
