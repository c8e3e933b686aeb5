//! What a model is asked like: by its name, by what its server says of it, and by the configuration.

use std::collections::BTreeSet;

use crate::config::{Profile, ToolMode};

/// Models up to this size do better with typed steps.
const SMALL: u64 = 20_000_000_000;
/// Token limit of one step of a small model: it should be short, and the model may never stop by itself.
const TYPED_MAX_TOKENS: u32 = 640;

/// Models that are known to call tools well, whatever their size.
const NATIVE: [&str; 6] = ["gpt-*", "chatgpt-*", "o3*", "o4*", "claude*", "gemini*"];

/// The properties that a server reports about a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// Tokens of one request and its reply.
    pub(crate) context_tokens: Option<usize>,
    /// The number of the model's parameters.
    pub(crate) parameters: Option<u64>,
}

impl Profile {
    /// Chooses the profile of a model: the first one that matches, completed by what is known of the model.
    /// `tool_mode` is the one that the configuration wants for all models.
    pub(crate) fn choose(
        profiles: &[Self],
        model: &str,
        facts: &ServerFacts,
        tool_mode: Option<ToolMode>,
    ) -> Self {
        let configured = profiles.iter().find(|profile| matches(&profile.model, model));
        let mut chosen = configured.cloned().unwrap_or_default();
        model.clone_into(&mut chosen.model);
        let is_known = NATIVE.iter().any(|pattern| matches(pattern, model));
        let size = facts.parameters.or_else(|| size_in_name(model));
        let is_small = !is_known && size.is_some_and(|size| size <= SMALL);
        let guessed = if is_small { ToolMode::Typed } else { ToolMode::Native };
        chosen.tool_mode = chosen.tool_mode.or(tool_mode).or(Some(guessed));
        chosen.context_tokens = chosen.context_tokens.or(facts.context_tokens);
        chosen
    }

    /// Returns the profile for typed steps, with the limits that they need.
    pub(super) fn typed(&self) -> Self {
        Self {
            temperature: self.temperature.or(Some(0.0)),
            max_tokens: self.max_tokens.or(Some(TYPED_MAX_TOKENS)),
            tool_mode: Some(ToolMode::Typed),
            ..self.clone()
        }
    }
}

/// Returns whether a name matches a pattern in which `*` stands for any text; case does not matter.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    let parts: Vec<&str> = pattern.split('*').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Reads the number of parameters in a name such as `qwen2.5-coder-1.5b` or `smollm2-135m`.
fn size_in_name(model: &str) -> Option<u64> {
    let model = model.to_lowercase();
    let words: BTreeSet<&str> = model.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').collect();
    words.into_iter().find_map(|word| {
        let (number, unit) = match word.strip_suffix('b') {
            Some(number) => (number, 1e9),
            None => (word.strip_suffix('m')?, 1e6),
        };
        let number: f64 = number.parse().ok().filter(|number: &f64| (0.01..10_000.0).contains(number))?;
        Some((number * unit) as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_models_get_typed_steps() {
        let mode = |model: &str, parameters: Option<u64>| {
            let facts = ServerFacts { parameters, context_tokens: None };
            Profile::choose(&[], model, &facts, None).tool_mode.unwrap()
        };
        for small in
            ["qwen2.5-coder-1.5b", "SmolLM2-135M", "meta-llama/Llama-3.2-3B-Instruct", "phi-4.14b-q4"]
        {
            assert_eq!(mode(small, None), ToolMode::Typed, "{small}");
        }
        for large in ["qwen3-235b-a22b", "llama-3.3-70b", "gpt-4.1-mini", "deepseek-chat", "model", ""] {
            assert_eq!(mode(large, None), ToolMode::Native, "{large}");
        }
        assert_eq!(mode("model", Some(1_500_000_000)), ToolMode::Typed, "the server knows");
        assert_eq!(mode("gpt-small", Some(1_500_000_000)), ToolMode::Native, "known by name");
    }

    #[test]
    fn configuration_decides_first() {
        let configured = Profile {
            model: "Qwen*-1.5b".to_owned(),
            tool_mode: Some(ToolMode::Native),
            context_tokens: Some(4_096),
            ..Profile::default()
        };
        let facts = ServerFacts { context_tokens: Some(32_768), parameters: None };
        let chosen = Profile::choose(&[configured], "qwen2-1.5b", &facts, Some(ToolMode::Typed));
        assert_eq!((chosen.tool_mode, chosen.context_tokens), (Some(ToolMode::Native), Some(4_096)));
        let other = Profile::choose(&[], "qwen2-1.5b", &facts, Some(ToolMode::Native));
        assert_eq!((other.tool_mode, other.context_tokens), (Some(ToolMode::Native), Some(32_768)));
    }
}
