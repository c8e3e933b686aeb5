//! From what is written to what may be used.

mod inference;

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    ops::RangeInclusive,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use broker::{Auth, Provision, Tls};
use figment::Figment;
use subjects::{InstanceId, Kind, Role, Subject, signature::TrustedProducer};

use super::{
    Agent, Analysts, Config, Error, Gateway, Instructions, Nats, Security, Telemetry, Worker,
    raw::{self, Raw, Text},
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn check(figment: &Figment) -> Result<Config, Error> {
    let raw: Raw = figment.extract().map_err(|error| Error::from_figment(figment, error))?;
    let mut check = Check { figment, warnings: Vec::new() };
    let role = check.role(raw.role.as_ref())?;
    let instance = check.instance(role, raw.instance.as_ref())?;
    Ok(Config {
        role,
        nats: check.nats(&raw.nats, &instance)?,
        instance,
        instructions: check.instructions(role, &raw.instructions)?,
        gateway: check.gateway(&raw.gateway)?,
        inference: check.inference(&raw.inference)?,
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
        telemetry: check.telemetry(&raw.telemetry)?,
        warnings: check.warnings,
    })
}

/// Knows where a value came from when it has to be refused.
struct Check<'f> {
    figment: &'f Figment,
    warnings: Vec<String>,
}

impl Check<'_> {
    fn wrong(&self, key: &str, found: &str, right: &str) -> Error {
        Error::value(self.figment, key, format!("`{found}` is not {right}"))
    }

    fn number<T>(&self, key: &str, text: &Text, range: RangeInclusive<T>) -> Result<T, Error>
    where
        T: FromStr + PartialOrd + std::fmt::Display,
    {
        let right = || format!("a whole number from {} to {}", range.start(), range.end());
        let number: T = text.0.trim().parse().map_err(|_| self.wrong(key, &text.0, &right()))?;
        if range.contains(&number) { Ok(number) } else { Err(self.wrong(key, &text.0, &right())) }
    }

    fn boolean(&self, key: &str, text: &Text) -> Result<bool, Error> {
        text.0.trim().parse().map_err(|_| self.wrong(key, &text.0, "true or false"))
    }

    fn duration(&self, key: &str, text: &Text, range: RangeInclusive<Duration>) -> Result<Duration, Error> {
        let right = || {
            let (from, to) =
                (humantime::format_duration(*range.start()), humantime::format_duration(*range.end()));
            format!("a duration from {from} to {to}, as in 30s or 500ms")
        };
        let duration =
            humantime::parse_duration(text.0.trim()).map_err(|_| self.wrong(key, &text.0, &right()))?;
        if range.contains(&duration) { Ok(duration) } else { Err(self.wrong(key, &text.0, &right())) }
    }

    /// G7: out of range is clamped, unreadable falls back to the default; both are said, neither stops the start.
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
        let source = super::error::source_of(self.figment, key);
        let number = match text.0.trim().parse::<T>() {
            Ok(number) if range.contains(&number) => return Ok(number),
            Ok(number) if number < low => low,
            Ok(number) if number > high => high,
            // Not a number, in either sense.
            Ok(_) | Err(_) => self.number(key, default, range)?,
        };
        self.warnings.push(format!(
            "{key} (from {source}): `{}` is not within {low} to {high}; using {number}",
            text.0
        ));
        Ok(number)
    }

    fn role(&self, text: Option<&Text>) -> Result<Role, Error> {
        let text = text.ok_or(Error::NoRole)?;
        text.0
            .parse()
            .map_err(|error: subjects::UnknownRole| Error::value(self.figment, "role", error.to_string()))
    }

    fn instance(&self, role: Role, text: Option<&Text>) -> Result<InstanceId, Error> {
        let made = match text {
            Some(text) => text.0.parse(),
            None => InstanceId::random(role.prefix()),
        };
        made.map_err(|error| Error::value(self.figment, "instance", error.to_string()))
    }

    fn nats(&self, raw: &raw::Nats, instance: &InstanceId) -> Result<Nats, Error> {
        if raw.url.0.trim().is_empty() {
            return Err(self.wrong("nats.url", "", "a server, as in nats://127.0.0.1:4222"));
        }
        let auth = match (&raw.creds_file, &raw.nkey_file) {
            (Some(_), Some(_)) => {
                let problem = "nats.creds_file is set too; a connection has one identity";
                return Err(Error::value(self.figment, "nats.nkey_file", problem));
            }
            (Some(creds), None) => Auth::Creds(self.file("nats.creds_file", creds)?),
            (None, Some(nkey)) => Auth::Nkey(self.file("nats.nkey_file", nkey)?),
            (None, None) => Auth::None,
        };
        let provision = match raw.provision.0.as_str() {
            "create" => Provision::Create,
            "verify" => Provision::Verify,
            "none" => Provision::None,
            other => return Err(self.wrong("nats.provision", other, "create, verify or none")),
        };
        if !broker::is_inbox_prefix(&raw.inbox_prefix.0) {
            let right = "words between dots, as in _INBOX_pma";
            return Err(self.wrong("nats.inbox_prefix", &raw.inbox_prefix.0, right));
        }
        let layout = raw.layout.0.parse();
        let options = broker::Options {
            url: raw.url.0.clone(),
            name: format!("cynode-pma/{}/{instance}", crate::VERSION),
            auth,
            tls: self.tls(&raw.tls)?,
            inbox_prefix: Some(raw.inbox_prefix.0.clone()),
            layout: layout.map_err(|_| self.wrong("nats.layout", &raw.layout.0, "shared or by_role"))?,
        };
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

    fn tls(&self, raw: &raw::Tls) -> Result<Tls, Error> {
        let optional =
            |key: &str, text: &Option<Text>| text.as_ref().map(|text| self.file(key, text)).transpose();
        let certificate = optional("nats.tls.cert_file", &raw.cert_file)?;
        let key = optional("nats.tls.key_file", &raw.key_file)?;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(Error::value(
                    self.figment,
                    "nats.tls.cert_file",
                    "needs nats.tls.key_file beside it",
                ));
            }
            (None, Some(_)) => {
                return Err(Error::value(
                    self.figment,
                    "nats.tls.key_file",
                    "needs nats.tls.cert_file beside it",
                ));
            }
        };
        Ok(Tls {
            required: self.boolean("nats.tls.required", &raw.required)?,
            ca_file: optional("nats.tls.ca_file", &raw.ca_file)?,
            identity,
        })
    }

    /// A file that must be there, since it holds a secret that is needed at once.
    fn file(&self, key: &str, text: &Text) -> Result<PathBuf, Error> {
        let path = PathBuf::from(&text.0);
        if path.is_file() { Ok(path) } else { Err(self.wrong(key, &text.0, "an existing file")) }
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
        // Also where there is no gateway: a wrong value is wrong before it is used.
        let timeout = self.duration("gateway.timeout", &raw.timeout, SECOND..=HOUR)?;
        let patience = self.duration("gateway.patience", &raw.patience, Duration::ZERO..=HOUR)?;
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
        }))
    }

    fn worker(&self, role: Role, raw: &raw::Worker) -> Result<Worker, Error> {
        let mut slots = BTreeMap::new();
        for kind in Kind::ALL {
            let text = match kind {
                Kind::Chat => &raw.concurrency.chat,
                Kind::Schedule => &raw.concurrency.schedule,
                Kind::Plan => &raw.concurrency.plan,
                Kind::Continue => &raw.concurrency.r#continue,
                Kind::Verify => &raw.concurrency.verify,
            };
            let key = format!("worker.concurrency.{kind}");
            // Checked for both roles, so that a file shared by both is wrong for both or for none.
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
            // Far below the server's own limit, so that the worker is the one to give up.
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

    fn telemetry(&self, raw: &raw::Telemetry) -> Result<Telemetry, Error> {
        let log_format = match raw.log_format.0.as_str() {
            "json" => telemetry::Format::Json,
            "text" => telemetry::Format::Text,
            other => return Err(self.wrong("telemetry.log_format", other, "json or text")),
        };
        if !telemetry::is_level(&raw.log_level.0) {
            let right = "a level (error, warn, info, debug, trace) or a filter such as info,async_nats=warn";
            return Err(self.wrong("telemetry.log_level", &raw.log_level.0, right));
        }
        let otlp_endpoint = match raw.otlp_endpoint.as_ref().map_or("", |text| &text.0) {
            "" => None,
            text => {
                let right = "the HTTP address of a collector, as in http://127.0.0.1:4318 (empty: none)";
                let endpoint = text.parse();
                Some(endpoint.map_err(|_| self.wrong("telemetry.otlp_endpoint", text, right))?)
            }
        };
        Ok(Telemetry { log_format, log_level: raw.log_level.0.clone(), otlp_endpoint })
    }
}

/// A copy of an answer must never land in the contract's own subjects, nor in the server's.
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
    fn copies_of_answers_stay_out_of_the_contracts_own_subjects() {
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
