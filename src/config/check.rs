//! Turns settings as written into a checked configuration.

mod inference;

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    ops::{Deref, RangeInclusive},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use broker::Provision;
use settings::{Checker, Error, NatsConnection, Text, nats_options};
use subjects::{InstanceId, Kind, Role, Subject, signature::TrustedProducer};

use super::{
    Agent, Analysts, Config, Gateway, Instructions, Memory, Nats, Security, Worker,
    raw::{self, Raw},
};

const NO_ROLE: &str = "no role: say which with --role=project_manager or --role=project_analyst, `role` in \
                       the configuration file, or PMA_ROLE";
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn check(checker: Checker<'_>, raw: &Raw) -> Result<Config, Error> {
    let mut check = Check { checker, warnings: Vec::new() };
    let role = check.role(raw.role.as_ref())?;
    let instance = check.instance(role, raw.instance.as_ref())?;
    Ok(Config {
        role,
        nats: check.nats(&raw.nats, &instance)?,
        instance,
        instructions: check.instructions(role, &raw.instructions)?,
        gateway: check.gateway(&raw.gateway)?,
        memory: check.memory(&raw.memory)?,
        inference: check.inference(&raw.inference, &raw.gateway)?,
        worker: check.worker(role, &raw.worker)?,
        agent: check.agent(&raw.agent)?,
        analysts: Analysts {
            enabled: check.boolean("analysts.enabled", &raw.analysts.enabled)?,
            max_concurrent: check.number(
                "analysts.max_concurrent",
                &raw.analysts.max_concurrent,
                1..=1_000,
            )?,
            timeout: check.duration("analysts.timeout", &raw.analysts.timeout, SECOND..=DAY)?,
        },
        security: check.security(&raw.security)?,
        http: check.listen(&raw.http.listen)?,
        telemetry: raw.telemetry.check(&check)?,
        warnings: check.warnings,
    })
}

/// Checks the settings that only a worker has.
struct Check<'f> {
    checker: Checker<'f>,
    warnings: Vec<String>,
}

impl<'f> Deref for Check<'f> {
    type Target = Checker<'f>;

    fn deref(&self) -> &Checker<'f> {
        &self.checker
    }
}

impl Check<'_> {
    /// G7: clamps a number to its range, and replaces an unreadable one with the default. Both add a warning;
    /// neither is an error.
    fn clamped<T>(
        &mut self,
        key: &str,
        text: &Text,
        default: &Text,
        range: RangeInclusive<T>,
    ) -> Result<T, Error>
    where
        T: FromStr + PartialOrd + Copy + std::fmt::Display,
    {
        let (low, high) = (*range.start(), *range.end());
        let source = self.source_of(key);
        let number = match text.0.trim().parse::<T>() {
            Ok(number) if range.contains(&number) => return Ok(number),
            Ok(number) if number < low => low,
            Ok(number) if number > high => high,
            // Unreadable, or NaN.
            Ok(_) | Err(_) => self.number(key, default, range)?,
        };
        self.warnings.push(format!(
            "{key} (from {source}): `{}` is not within {low} to {high}; using {number}",
            text.0
        ));
        Ok(number)
    }

    fn role(&self, text: Option<&Text>) -> Result<Role, Error> {
        let text = text.ok_or_else(|| Error::Refused(NO_ROLE.to_owned()))?;
        text.0.parse().map_err(|error: subjects::UnknownRole| self.refuse("role", error.to_string()))
    }

    fn instance(&self, role: Role, text: Option<&Text>) -> Result<InstanceId, Error> {
        let made = match text {
            Some(text) => text.0.parse(),
            None => InstanceId::random(role.prefix()),
        };
        made.map_err(|error| self.refuse("instance", error.to_string()))
    }

    fn nats(&self, raw: &raw::Nats, instance: &InstanceId) -> Result<Nats, Error> {
        let connection = NatsConnection {
            url: &raw.url,
            creds_file: raw.creds_file.as_ref(),
            nkey_file: raw.nkey_file.as_ref(),
            inbox_prefix: &raw.inbox_prefix,
            layout: &raw.layout,
            tls: &raw.tls,
        };
        let options = nats_options(self, connection, format!("cynode-pma/{}/{instance}", crate::VERSION))?;
        let provisions =
            [("create", Provision::Create), ("verify", Provision::Verify), ("none", Provision::None)];
        let provision = self.choice("nats.provision", &raw.provision, &provisions)?;
        Ok(Nats {
            options,
            provision,
            replicas: self.number("nats.replicas", &raw.replicas, 1..=5)?,
            dedupe_window: self.duration(
                "nats.dedupe_window",
                &raw.dedupe_window,
                10 * SECOND..=24 * HOUR,
            )?,
        })
    }

    fn instructions(&self, role: Role, raw: &raw::Instructions) -> Result<Instructions, Error> {
        let root = PathBuf::from(&raw.root.0);
        let path_of = |role: Role| {
            let set = match role {
                Role::ProjectManager => &raw.project_manager,
                Role::ProjectAnalyst => &raw.project_analyst,
            };
            set.as_ref().map_or_else(|| root.join(role.as_str()), |text| PathBuf::from(&text.0))
        };
        let skill = raw
            .skill
            .as_ref()
            .map_or_else(|| root.join("skills/cynode-interaction.md"), |text| (&text.0).into());
        Ok(Instructions { own: path_of(role), other: path_of(role.other()), skill })
    }

    fn gateway(&self, raw: &raw::Gateway) -> Result<Option<Gateway>, Error> {
        // Also checked without a gateway, so that a wrong value is found before it is used.
        let timeout = self.duration("gateway.timeout", &raw.timeout, SECOND..=HOUR)?;
        let patience = self.duration("gateway.patience", &raw.patience, Duration::ZERO..=HOUR)?;
        let fast_path = self.boolean("gateway.fast_path", &raw.fast_path)?;
        let Some(url) = &raw.url else { return Ok(None) };
        let url = self.url("gateway.url", url)?;
        let token_file =
            raw.token_file.as_ref().map(|text| self.file("gateway.token_file", text)).transpose()?;
        Ok(Some(Gateway {
            url,
            token_file,
            timeout,
            patience,
            max_result_bytes: self.number(
                "gateway.max_result_bytes",
                &raw.max_result_bytes,
                256..=16 * 1_024 * 1_024,
            )?,
            fast_path,
        }))
    }

    fn memory(&self, raw: &raw::Memory) -> Result<Memory, Error> {
        let profile = raw.profile.0.parse().map_err(|error: policy::InvalidProfile| {
            self.refuse("memory.profile", format!("`{}` is invalid: {error}", raw.profile.0))
        })?;
        let recall = self.number("memory.recall", &raw.recall, 0..=10)?;
        Ok(Memory { profile, recall })
    }

    fn worker(&self, role: Role, raw: &raw::Worker) -> Result<Worker, Error> {
        let mut slots = BTreeMap::new();
        for kind in Kind::ALL {
            let text = match kind {
                Kind::Chat => &raw.concurrency.chat,
                Kind::Schedule => &raw.concurrency.schedule,
                Kind::Plan => &raw.concurrency.plan,
                Kind::Continue => &raw.concurrency.r#continue,
                Kind::Review => &raw.concurrency.review,
                Kind::Verify => &raw.concurrency.verify,
            };
            let key = format!("worker.concurrency.{kind}");
            // Checked for both roles, so that a shared file is accepted or refused by both.
            let count =
                self.number(&key, text, NonZeroUsize::MIN..=NonZeroUsize::MIN.saturating_add(65_535))?;
            if kind.role() == role {
                slots.insert(kind, count);
            }
        }
        Ok(Worker {
            slots,
            threads: self.number(
                "worker.threads",
                &raw.threads,
                NonZeroUsize::MIN..=NonZeroUsize::MIN.saturating_add(255),
            )?,
            ack_wait: self.duration("worker.ack_wait", &raw.ack_wait, SECOND..=HOUR)?,
            grace: self.duration("worker.grace", &raw.grace, Duration::ZERO..=HOUR)?,
            // Far below the server's delivery limit, so that the worker dead-letters first.
            max_attempts: self.number(
                "worker.max_attempts",
                &raw.max_attempts,
                NonZeroU32::MIN..=NonZeroU32::MIN.saturating_add(99),
            )?,
            sweep_every: self.duration("worker.sweep_every", &raw.sweep_every, SECOND..=DAY)?,
        })
    }

    fn agent(&mut self, raw: &raw::Agent) -> Result<Agent, Error> {
        let defaults = raw::Agent::default();
        Ok(Agent {
            max_steps: self.clamped("agent.max_steps", &raw.max_steps, &defaults.max_steps, 1..=50)?,
            temperature: self.clamped(
                "agent.temperature",
                &raw.temperature,
                &defaults.temperature,
                0.0..=2.0,
            )?,
            context_tokens: self.number("agent.context_tokens", &raw.context_tokens, 1_024..=10_000_000)?,
            token_budget: self.number("agent.token_budget", &raw.token_budget, 1_000..=1_000_000_000)?,
            offered_tools: self.number("agent.offered_tools", &raw.offered_tools, 1..=128)?,
            max_reply_bytes: self.number("agent.max_reply_bytes", &raw.max_reply_bytes, 256..=1_048_576)?,
            assess_input: self.boolean("agent.assess_input", &raw.assess_input)?,
            think_timeout: self.duration("agent.think_timeout", &raw.think_timeout, SECOND..=HOUR)?,
            max_turn: self.duration("agent.max_turn", &raw.max_turn, SECOND..=24 * HOUR)?,
        })
    }

    fn security(&self, raw: &raw::Security) -> Result<Security, Error> {
        let key = "security.trusted_producers";
        let mut trusted_producers = Vec::new();
        for producer in &raw.trusted_producers {
            let (public, subjects) = match producer {
                raw::Producer::Key(public) => (public, None),
                raw::Producer::Limited { key, subjects } => (key, Some(subjects.clone())),
            };
            if nkeys::KeyPair::from_public_key(public).is_err() {
                return Err(self.wrong(
                    key,
                    public,
                    "a public nkey, as in UD… (never a seed, which starts with S)",
                ));
            }
            for subject in subjects.iter().flatten() {
                if !matches!(subject.parse(), Ok(Subject::Handoff(_))) {
                    return Err(self.wrong(
                        key,
                        subject,
                        "a handoff subject, as in pma.handoff.chat or pa.verify",
                    ));
                }
            }
            trusted_producers.push(TrustedProducer { key: public.clone(), subjects });
        }
        for prefix in &raw.reply_prefixes {
            if !is_reply_prefix(prefix) {
                let right = "a prefix that ends in a dot and lies outside the worker's own subjects";
                return Err(self.wrong("security.reply_prefixes", prefix, right));
            }
        }
        let signing_key_file = raw
            .signing_key_file
            .as_ref()
            .map(|text| self.file("security.signing_key_file", text))
            .transpose()?;
        Ok(Security { trusted_producers, signing_key_file, reply_prefixes: raw.reply_prefixes.clone() })
    }

    fn listen(&self, text: &Text) -> Result<Option<std::net::SocketAddr>, Error> {
        if text.0.is_empty() {
            return Ok(None);
        }
        let right = "an address, as in 127.0.0.1:9180 (empty: none)";
        text.0.parse().map(Some).map_err(|_| self.wrong("http.listen", &text.0, right))
    }
}

/// Returns whether copies of answers may be sent under this prefix. They must not reach the subjects of the
/// contract or of the server.
fn is_reply_prefix(prefix: &str) -> bool {
    const OWN: [&str; 11] = [
        "pma.handoff.",
        "pa.verify.",
        "pma.run.",
        "pa.run.",
        "pma.dead.",
        "pa.dead.",
        "pma.delta.",
        "pma.event.",
        "pma.cancel.",
        "pma.instance.",
        "pma.presence.",
    ];
    let tokens_are_plain = prefix.strip_suffix('.').is_some_and(|path| {
        path.split('.').all(|token| !token.is_empty() && !token.contains(['*', '>', ' ', '\t', '\r', '\n']))
    });
    tokens_are_plain
        && !prefix.starts_with('$')
        && !OWN.iter().any(|own| own.starts_with(prefix) || prefix.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::is_reply_prefix;

    #[test]
    fn reply_prefixes_must_not_overlap_reserved_subjects() {
        for good in ["pma.reply.", "pa.reply.", "_INBOX.", "orchestrator.answers.", "pma.handoffs."] {
            assert!(is_reply_prefix(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "pma.",
            "pa.",
            "pma.handoff.",
            "pma.handoff.chat.",
            "$JS.",
            "a.*.",
            "a..b.",
            "reply",
            ">.",
        ] {
            assert!(!is_reply_prefix(bad), "{bad}");
        }
    }
}
