//! What was learned about the models of a server while the worker runs.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{EndpointOptions, profile::ServerFacts};
use crate::config::{Profile, ToolMode};

/// A server that could not be asked about a model is asked again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// A server is asked again after this time: it may have been restarted with another model or context.
const REFRESH_AFTER: Duration = Duration::from_secs(300);

/// The models of one server, by name.
#[derive(Debug, Default)]
pub(super) struct LearnedModels(tokio::sync::Mutex<HashMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    learned: Arc<Learned>,
    /// The properties that the server reported; `None` if it could not be queried.
    facts: Option<ServerFacts>,
    ask_at: Instant,
}

/// The properties of a model that its server reported.
#[derive(Clone, Debug)]
pub(super) enum Told {
    All(ServerFacts),
    /// A part of what it could say; the rest could not be read now.
    Some(ServerFacts),
    /// The server could not be queried.
    Nothing,
}

impl LearnedModels {
    /// Returns what is known of a model. Asks the server if that was not done for a while. If it cannot be
    /// reached, it is asked again later; everything learned except the context limit is kept.
    pub(super) async fn get(
        &self,
        model: &str,
        options: &EndpointOptions,
        asking: impl Future<Output = Told>,
    ) -> Arc<Learned> {
        let mut models = self.0.lock().await;
        if let Some(known) = models.get(model)
            && known.ask_at > Instant::now()
        {
            return Arc::clone(&known.learned);
        }
        let (facts, is_all) = match asking.await {
            Told::All(facts) => (Some(facts), true),
            Told::Some(facts) => (Some(facts), false),
            Told::Nothing => (None, false),
        };
        let ask_at = Instant::now() + if is_all { REFRESH_AFTER } else { RETRY_AFTER };
        if let Some(known) = models.get_mut(model)
            && (facts.is_none() || facts == known.facts || (!is_all && known.facts.is_some()))
        {
            known.ask_at = ask_at;
            known.learned.forget_context_limit();
            return Arc::clone(&known.learned);
        }
        let profile =
            Profile::choose(&options.profiles, model, &facts.clone().unwrap_or_default(), options.tool_mode);
        let learned = Arc::new(Learned::new(profile));
        models.insert(model.to_owned(), Entry { learned: Arc::clone(&learned), facts, ask_at });
        learned
    }

    /// Asks the server again at the next request: it was away, and may be another one now.
    pub(super) async fn refresh(&self) {
        self.0.lock().await.values_mut().for_each(|entry| entry.ask_at = Instant::now());
    }
}

/// One model.
#[derive(Debug)]
pub(super) struct Learned(Mutex<State>);

#[derive(Debug)]
struct State {
    profile: Profile,
    /// The context that a refusal named. It holds until the server is asked again.
    context_limit: Option<usize>,
    adaptation: Adaptation,
}

/// The parts of requests that are omitted because the server rejects them.
#[derive(Clone, Debug, Default)]
pub(super) struct Adaptation {
    /// Tools whose schemas the server refuses.
    pub(super) tools: Vec<String>,
    /// Fields of the body.
    pub(super) fields: Vec<&'static str>,
    /// Whether the schema of typed steps is left out: they are asked for in words only.
    pub(super) omits_step_schema: bool,
}

impl Learned {
    fn new(profile: Profile) -> Self {
        Self(Mutex::new(State { profile, context_limit: None, adaptation: Adaptation::default() }))
    }

    pub(super) fn profile(&self) -> Profile {
        let state = self.lock();
        let context_tokens = [state.profile.context_tokens, state.context_limit].into_iter().flatten().min();
        let profile = Profile { context_tokens, ..state.profile.clone() };
        if profile.tool_mode == Some(ToolMode::Typed) { profile.typed() } else { profile }
    }

    pub(super) fn adaptation(&self) -> Adaptation {
        self.lock().adaptation.clone()
    }

    /// Asks the model for typed steps from now on, unless the configuration sets another mode.
    pub(super) fn use_typed_steps(&self, configured: Option<ToolMode>) {
        if configured.is_none() {
            self.lock().profile.tool_mode = Some(ToolMode::Typed);
        }
    }

    /// Leaves out these tools from now on. A server that refuses all that were tried does not support this
    /// way of calling tools: then typed steps are used, and if it refuses those, without a schema. `mode` is
    /// the one in which they were tried; if another request has changed it since, nothing is concluded.
    pub(super) fn record_refused_tools(&self, tools: Vec<String>, tried: usize, mode: Option<ToolMode>) {
        let mut state = self.lock();
        if state.profile.tool_mode != mode {
            return;
        }
        if tools.len() < tried {
            let known = &mut state.adaptation.tools;
            let new: Vec<String> = tools.into_iter().filter(|tool| !known.contains(tool)).collect();
            known.extend(new);
            return;
        }
        state.adaptation.tools.clear();
        match state.profile.tool_mode {
            Some(ToolMode::Typed) => state.adaptation.omits_step_schema = true,
            Some(ToolMode::Native) | None => state.profile.tool_mode = Some(ToolMode::Typed),
        }
    }

    /// Omits a field from now on.
    pub(super) fn leave_out(&self, field: &'static str) {
        let fields = &mut self.lock().adaptation.fields;
        if !fields.contains(&field) {
            fields.push(field);
        }
    }

    pub(super) fn set_context_limit(&self, tokens: usize) {
        self.lock().context_limit = Some(tokens);
    }

    fn forget_context_limit(&self) {
        self.lock().context_limit = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned() -> Learned {
        Learned::new(Profile::default())
    }

    /// Two requests at once meet the same refusal: the second tells nothing new.
    #[test]
    fn what_two_requests_learn_at_once_is_learned_once() {
        let learned = learned();
        for _ in 0..2 {
            learned.leave_out("temperature");
            learned.record_refused_tools(vec!["a".to_owned()], 3, None);
        }
        let adaptation = learned.adaptation();
        assert_eq!((adaptation.fields, adaptation.tools), (vec!["temperature"], vec!["a".to_owned()]));
        for _ in 0..2 {
            learned.record_refused_tools(vec!["a".to_owned(), "b".to_owned()], 2, None);
        }
        assert_eq!(learned.profile().tool_mode, Some(ToolMode::Typed));
        assert!(!learned.adaptation().omits_step_schema, "no typed step was refused");
    }
}
