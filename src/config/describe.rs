use figment::{Figment, value::Value};

use super::{Config, error::source_of, raw};

/// A checked configuration together with where each of its values came from.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub(super) figment: Figment,
}

impl Loaded {
    /// One setting a line: key, value, source. Secrets are in files, so only their paths can show; a URL may
    /// carry a password all the same and is shown without it.
    pub fn describe(&self) -> String {
        let mut lines = Vec::new();
        for key in raw::keys() {
            let value = match key.as_str() {
                "nats.url" => format!("{:?}", self.config.nats.options.shown_url()),
                // Made at start when not set; what was made is what counts.
                "instance" => format!("{:?}", self.config.instance.as_str()),
                // Put right where they had to be.
                "agent.max_steps" => self.config.agent.max_steps.to_string(),
                "agent.temperature" => self.config.agent.temperature.to_string(),
                _ => self
                    .figment
                    .find_value(&key)
                    .map_or_else(|_| "(not set)".to_owned(), |value| shown(&value)),
            };
            lines.push(format!("{key} = {value}  # {}", source_of(&self.figment, &key)));
        }
        lines.extend(self.config.warnings.iter().map(|warning| format!("# warning: {warning}")));
        lines.join("\n")
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Empty(..) => "(not set)".to_owned(),
        Value::String(_, text) => format!("{text:?}"),
        Value::Array(_, items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Dict(_, fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(key, value)| format!("{key} = {}", shown(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Char(_, char) => format!("{char:?}"),
        Value::Bool(_, value) => value.to_string(),
        Value::Num(_, number) => number.to_i128().map_or_else(
            || number.to_f64().map_or_else(|| "?".to_owned(), |value| value.to_string()),
            |value| value.to_string(),
        ),
    }
}
