//! `cynodectl handoff`: publishes a handoff and waits for its answer.

use std::{io::Read, time::Duration};

use async_nats::HeaderMap;
use broker::Broker;
use nkeys::KeyPair;
use operate::publish::{publish, sign};
use subjects::{
    Artifact, Chat, ChatMessage, ChatRole, Context, Continue, Encoding, Handoff, HandoffId, MODEL_ID, Plan,
    Schedule, SchedulePayloadType, Scope, ScopeId, Timestamp, Verify, Work, headers,
};

use crate::{
    answer,
    cli::{self, Common, GatewayLink, LOCAL_USER, Link},
    error::{Error, Exit},
    gateway::{Gateway, leases::HandoffLeases, tasks},
    link,
    listener::AnswerListener,
    print,
};

/// Checks all that is given, then connects, publishes the handoff and waits for its answer.
pub(crate) async fn run(
    link: &Link,
    gateway: &GatewayLink,
    command: cli::Handoff,
    json: bool,
) -> Result<Exit, Error> {
    let (work, common) = work(command)?;
    let scope = Scope {
        user_id: common.user_id.clone(),
        group_ids: common.group_ids.clone(),
        project_id: common.project_id.clone(),
        task_id: common.task_scope.clone(),
        thread_id: common.thread_id.clone(),
        ..Scope::default()
    };
    let mut handoff = new(work, scope, common.deadline);
    handoff.id = common.id.unwrap_or(handoff.id);
    let encoding = if common.msgpack { Encoding::MessagePack } else { Encoding::Json };
    let key = common.sign.as_deref().map(secrets::signing_key::read).transpose()?;
    let lease = LeaseSource::find(gateway, &common)?;
    let broker = &link::connect(link).await?;
    if let (LeaseSource::Issued(leases), Some(task)) = (&lease, task_of(&mut handoff.work))
        && task.as_str().parse::<HandoffId>().is_err()
    {
        // A name: the lease and the agent need the id.
        *task = tasks::resolve(&leases.gateway, task).await?;
    }
    let lease = lease.lease(&handoff).await?;
    let listener = submit(broker, &handoff, encoding, key.as_ref(), lease.as_deref()).await?;
    if common.no_wait {
        if json {
            print::json(&serde_json::json!({ "handoff_id": handoff.id }));
        } else {
            print::line(&handoff.id.to_string());
        }
        return Ok(Exit::Done);
    }
    let answer = listener.wait_for_answer(broker, common.timeout).await?;
    answer::show(&answer, json);
    Ok(answer::exit(&answer))
}

/// Where the lease of a handoff comes from.
enum LeaseSource {
    Given(String),
    Issued(HandoffLeases),
    /// The handoff has none.
    Nowhere,
}

impl LeaseSource {
    /// Reads the given file, or prepares to issue a lease for the user on whose behalf the handoff is made.
    /// Says what follows if there is neither.
    fn find(link: &GatewayLink, common: &Common) -> Result<Self, Error> {
        if let Some(path) = &common.lease {
            let text = std::fs::read_to_string(path).map_err(|error| Error::File(path.clone(), error))?;
            let text = text.trim();
            // Anything else is no header value.
            if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(Error::NotALease(path.clone()));
            }
            return Ok(Self::Given(text.to_owned()));
        }
        if common.no_lease {
            return Ok(Self::Nowhere);
        }
        let Some(user) = common.user_id.clone() else {
            print::note(&format!(
                "no user is named, so there is no lease: a manager acts for the whole system and reaches no \
                 external model, and an analyst has no tools. Name one with --user ID (in a stack of `make \
                 run`: --user {LOCAL_USER}), or pass --no-lease"
            ));
            return Ok(Self::Nowhere);
        };
        if !link.has_token() {
            print::note(
                "no lease: there is no admin token for the gateway (--admin-token-file), so a manager acts \
                 for the whole system and an analyst without the gateway's tools",
            );
            return Ok(Self::Nowhere);
        }
        Ok(Self::Issued(HandoffLeases { gateway: Gateway::open(link)?, user }))
    }

    /// Returns the lease. Fails if it cannot be issued, since without it the agent might act for the whole
    /// system.
    async fn lease(self, handoff: &Handoff) -> Result<Option<String>, Error> {
        match self {
            Self::Given(lease) => Ok(Some(lease)),
            Self::Issued(leases) => leases.issue_for(handoff).await.map(Some),
            Self::Nowhere => Ok(None),
        }
    }
}

/// Builds a handoff with a new id, issued now; `within` sets its deadline.
pub(crate) fn new(work: Work, scope: Scope, within: Option<Duration>) -> Handoff {
    Handoff {
        id: HandoffId::now(),
        issued_at: Timestamp::now(),
        deadline: within.and_then(|time| Timestamp::new(time::OffsetDateTime::now_utc() + time).ok()),
        reply_to: None,
        scope,
        replays: Vec::new(),
        context: Context::default(),
        work,
    }
}

/// Builds a chat with a manager; `stream` requests text deltas while it writes.
pub(crate) fn chat(messages: Vec<ChatMessage>, stream: bool) -> Work {
    Work::Chat(Chat { model: MODEL_ID.to_owned(), messages, stream, temperature: None, max_tokens: None })
}

/// Publishes a handoff. Subscribes first, since the answer may arrive before the publish returns.
pub(crate) async fn submit(
    broker: &Broker,
    handoff: &Handoff,
    encoding: Encoding,
    key: Option<&KeyPair>,
    lease: Option<&str>,
) -> Result<AnswerListener, Error> {
    let body = handoff.encode(encoding)?;
    let mut sent = HeaderMap::new();
    sent.insert(headers::CONTENT_TYPE, encoding.content_type());
    sent.insert(headers::MSG_ID, handoff.id.to_string());
    if let Some(key) = key {
        sent.insert(headers::SIGNATURE, sign(key, &handoff.subject(), encoding, &body, lease)?);
    }
    if let Some(lease) = lease {
        sent.insert(headers::LEASE, lease);
    }
    let listener = AnswerListener::start(broker, &[handoff.kind()], handoff.id).await?;
    let acknowledged = publish(broker, &handoff.subject(), &sent, &body.into()).await?;
    if acknowledged.duplicate {
        print::note(&format!("{} was already published; waiting for its answer.", handoff.id));
    }
    Ok(listener)
}

fn work(command: cli::Handoff) -> Result<(Work, Common), Error> {
    Ok(match command {
        cli::Handoff::Chat { text, common } => {
            let message = ChatMessage { role: ChatRole::User, content: text_or_input(text)? };
            (chat(vec![message], false), common)
        }
        cli::Handoff::Schedule { prompt, schedule_id, run_id, common } => {
            // A run belongs to one user, so that of another handoff would not do.
            let new_run = || format!("run-{}", HandoffId::now()).parse().map_err(Error::nats);
            let schedule = Schedule {
                schedule_id,
                run_id: run_id.map_or_else(new_run, Ok)?,
                fired_at: Timestamp::now(),
                payload_type: SchedulePayloadType::Prompt,
                payload: text_or_input(prompt)?.into(),
            };
            (Work::Schedule(schedule), common)
        }
        cli::Handoff::Plan { goal, criteria, constraints, steps_of, common } => {
            let goal = text_or_input(goal)?;
            let plan = Plan { goal, acceptance_criteria: criteria, constraints, task_id: steps_of };
            (Work::Plan(plan), common)
        }
        cli::Handoff::Continue { continues, input, common } => {
            (Work::Continue(Continue::new(continues, text_or_input(input)?)), common)
        }
        cli::Handoff::Review { review, common } => {
            let review = serde_json::from_str(&text_or_input(review)?).map_err(Error::Review)?;
            (Work::Review(Box::new(review)), common)
        }
        cli::Handoff::Verify { task_id, criteria, artifacts, common } => {
            let artifacts =
                artifacts.into_iter().map(|artifact_id| Artifact { artifact_id, path: None }).collect();
            let verify = Verify {
                task_id,
                acceptance_criteria: criteria,
                artifacts,
                evidence: Vec::new(),
                policy: None,
            };
            (Work::Verify(verify), common)
        }
    })
}

/// Returns the task that a handoff is about, if its payload names one.
fn task_of(work: &mut Work) -> Option<&mut ScopeId> {
    match work {
        Work::Verify(verify) => Some(&mut verify.task_id),
        Work::Review(review) => Some(&mut review.task_id),
        Work::Plan(plan) => plan.task_id.as_mut(),
        Work::Chat(_) | Work::Schedule(_) | Work::Continue(_) => None,
    }
}

/// Returns the text, or standard input for `-`.
fn text_or_input(text: String) -> Result<String, Error> {
    if text != "-" {
        return Ok(text);
    }
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).map_err(Error::Input)?;
    Ok(input.trim_end().to_owned())
}
