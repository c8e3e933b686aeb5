use figment::{Figment, value::Value};
use subjects::Role;

use super::{Config, error::source_of, raw};

/// A checked configuration together with where each of its values came from.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub(super) figment: Figment,
}

impl Loaded {
    /// Every setting as a line of TOML with its source behind it. Secrets are in files, so only their paths can show;
    /// a URL may carry a password all the same and is shown without it.
    pub fn describe(&self) -> String {
        let lines = raw::keys().into_iter().map(|key| match self.value(&key) {
            Some(value) => format!("{key} = {value}  # {}", source_of(&self.figment, &key)),
            None => format!("# {key} is not set"),
        });
        let warnings = self.config.warnings.iter().map(|warning| format!("# warning: {warning}"));
        lines.chain(warnings).collect::<Vec<_>>().join("\n")
    }

    /// What counts, which is not always what was written.
    fn value(&self, key: &str) -> Option<String> {
        let config = &self.config;
        let path_of = |role: Role| {
            let instructions = &config.instructions;
            if role == config.role { &instructions.own } else { &instructions.other }
        };
        match key {
            "nats.url" => Some(format!("{:?}", config.nats.options.shown_url())),
            "instance" => Some(format!("{:?}", config.instance.as_str())),
            "agent.max_steps" => Some(config.agent.max_steps.to_string()),
            "agent.temperature" => Some(config.agent.temperature.to_string()),
            "instructions.project_manager" => Some(format!("{:?}", path_of(Role::ProjectManager))),
            "instructions.project_analyst" => Some(format!("{:?}", path_of(Role::ProjectAnalyst))),
            "instructions.skill" => Some(format!("{:?}", config.instructions.skill)),
            _ => match self.figment.find_value(key) {
                Ok(Value::Empty(..)) | Err(_) => None,
                // Any of these may carry a password.
                Ok(Value::String(_, url)) if key.ends_with("url") || key.ends_with("endpoint") => {
                    Some(format!("{:?}", broker::without_secrets(&url)))
                }
                Ok(value) => Some(shown(&value)),
            },
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Empty(..) => "\"\"".to_owned(),
        // Settings are read as text; numbers and truths are shown as what they are.
        Value::String(_, text) if text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok() => text.clone(),
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
