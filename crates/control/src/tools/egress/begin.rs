//! `egress.begin`: decides about a call to a provider, and opens it.

use contract::egress::{
    Begin, Begun, Denial, DenialCode, LOST_AFTER_SECONDS, MAX_CALL_SECONDS, MAX_MODEL_BYTES,
    MAX_PROVIDER_BYTES, OpenCall,
};
use policy::{AgentKind, Denial as PolicyDenial, Scope, Standing};
use sea_orm::EntityTrait;
use store::entity::egress_call;

use super::{Amount, agent, allowed, budget, day};
use crate::{AttributedOutcome, Attribution, BuiltInTool, Context, Does, ToolError, arguments::check};

impl BuiltInTool for Begin {
    const TITLE: &'static str = "Begin a call to a provider";
    const DESCRIPTION: &'static str = "Decides whether an agent, given by the hash of its token and its \
        lease, may call an external provider on behalf of its user, and opens the call. Returns the call, \
        or why it is denied.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Begun, ToolError> {
        check_input(&input)?;
        let expected = Amount::new(&input.expected)?;
        let standing = agent::look_up(context, &input.token_hash, input.lease.as_deref()).await?;
        let mut attribution = attribute(&standing, &input.provider);
        let decided = decide(context, &input, expected, &standing).await?;
        if let Err(denial) = &decided {
            attribution.outcome = AttributedOutcome::Denied(denial.code.as_str());
        }
        context.attribution.set(attribution);
        Ok(match decided {
            Ok(call) => Begun { call: Some(call), denial: None },
            Err(denial) => Begun { call: None, denial: Some(denial) },
        })
    }
}

async fn decide(
    context: &Context<'_>,
    input: &Begin,
    expected: Amount,
    standing: &Standing,
) -> Result<Result<OpenCall, Denial>, ToolError> {
    let facts = agent::facts(context, standing).await?;
    let (caller, lease) = match (policy::check_acting_for(standing, &facts), standing.caller()) {
        (Ok(lease), Some(caller)) => (caller, lease),
        (Err(why), _) => return Ok(Err(explain(&why, standing))),
        (Ok(_), None) => return Ok(Err(explain(&PolicyDenial::UnknownToken, standing))),
    };
    let agent = caller.agent.kind();
    let provider = &input.provider;
    if let Some(denial) = allowed::check_provider(context, agent, lease, &facts, provider).await? {
        return Ok(Err(denial));
    }
    let account = budget::Account { user_id: &lease.user_id, provider, day: day(context.now) };
    if let Some(denial) = budget::check(context, &account, &input.limits).await? {
        return Ok(Err(denial));
    }
    let seconds = input.max_seconds.saturating_add(LOST_AFTER_SECONDS);
    let row = egress_call::Model {
        id: context.call_id.to_owned(),
        made_by: context.caller.token.clone(),
        agent: agent.as_str().to_owned(),
        token_id: caller.token.clone(),
        lease_id: lease.lease_id.clone(),
        user_id: lease.user_id.clone(),
        project_id: lease.project_id.clone(),
        task_id: lease.task_id.clone(),
        run_id: lease.run_id.clone(),
        job_id: lease.job_id.clone(),
        provider: provider.clone(),
        model: input.model.clone(),
        day: account.day,
        expected_prompt_tokens: expected.prompt_tokens,
        expected_completion_tokens: expected.completion_tokens,
        expected_micro_usd: expected.micro_usd,
        begun_at: context.now,
        expires_at: context.now.saturating_add(i64::try_from(seconds * 1_000_000).unwrap_or(i64::MAX)),
        ended_at: None,
        outcome: None,
    };
    let call = OpenCall {
        call_id: row.id.clone(),
        agent,
        user_id: row.user_id.clone(),
        lease_id: row.lease_id.clone(),
    };
    egress_call::Entity::insert(egress_call::ActiveModel::from(row))
        .exec_without_returning(&context.db)
        .await?;
    Ok(Ok(call))
}

fn check_input(input: &Begin) -> Result<(), ToolError> {
    check::non_blank("provider", &input.provider, MAX_PROVIDER_BYTES)?;
    if let Some(model) = &input.model {
        check::non_blank("model", model, MAX_MODEL_BYTES)?;
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !input.provider.bytes().all(is_name) {
        let why = "`provider` is a name: letters, digits, - and _";
        return Err(ToolError::Invalid(why.to_owned()));
    }
    if !(1..=MAX_CALL_SECONDS).contains(&input.max_seconds) {
        return Err(ToolError::Invalid(format!("`max_seconds` must be 1 to {MAX_CALL_SECONDS}")));
    }
    Ok(())
}

/// Returns what the audit records: the agent, and whom its lease names.
fn attribute(standing: &Standing, provider: &str) -> Attribution {
    let caller = standing.caller();
    let lease = caller.and_then(|caller| caller.lease.lease());
    let bound = caller.and_then(|caller| caller.agent.binding());
    let or_bound = |of_lease: Option<&String>, bound: Option<&String>| of_lease.or(bound).cloned();
    Attribution {
        agent: caller.map(|caller| (caller.agent.kind().to_string(), caller.token.clone())),
        tool: Some(format!("egress.{provider}")),
        lease_id: lease.map(|lease| lease.lease_id.clone()),
        user_id: or_bound(lease.map(|lease| &lease.user_id), bound.map(|bound| &bound.user)),
        task_id: or_bound(lease.and_then(|lease| lease.task_id.as_ref()), bound.map(|bound| &bound.task)),
        project_id: lease.and_then(|lease| lease.project_id.clone()),
        run_id: lease.and_then(|lease| lease.run_id.clone()),
        job_id: lease.and_then(|lease| lease.job_id.clone()),
        outcome: AttributedOutcome::Success,
    }
}

/// Returns a denial with what to do about it.
fn explain(why: &PolicyDenial, standing: &Standing) -> Denial {
    let kind = standing.caller().map(|caller| caller.agent.kind());
    let (code, remedy) = match why {
        _ if kind == Some(AgentKind::Orchestrator) => (
            DenialCode::WrongAgent,
            "the egress is for managers, analysts and sandboxes; set inference.egress_token_file to the \
             token of the agent itself",
        ),
        PolicyDenial::ExpiredToken => {
            (DenialCode::ExpiredToken, "issue a new one with `cynodectl tokens issue`")
        }
        PolicyDenial::RevokedToken => {
            (DenialCode::RevokedToken, "issue a new one with `cynodectl tokens issue`")
        }
        PolicyDenial::MissingLease => (
            DenialCode::MissingLease,
            "external models are asked on behalf of a user only: publish the handoff with a lease",
        ),
        PolicyDenial::UnknownLease => {
            (DenialCode::UnknownLease, "publish the handoff with a lease of this gateway")
        }
        PolicyDenial::EarlyLease => (DenialCode::EarlyLease, "check the clock of the gateway that issued it"),
        PolicyDenial::ExpiredLease => (DenialCode::ExpiredLease, "publish the work again as a new handoff"),
        PolicyDenial::RevokedLease => (DenialCode::RevokedLease, "publish the work again as a new handoff"),
        PolicyDenial::LeaseOfOtherAgent => {
            (DenialCode::LeaseOfOtherAgent, "use a token of the agent type that the lease names")
        }
        PolicyDenial::LeaseOfOtherNode { .. } => {
            (DenialCode::LeaseMismatch, "use the token of the node that the lease names")
        }
        PolicyDenial::LeaseOfOtherProfile { .. } => (
            DenialCode::LeaseMismatch,
            "set inference.egress_token_file to a token that is bound to no other memory profile",
        ),
        PolicyDenial::MissingId(_) | PolicyDenial::MismatchedId(_) => {
            (DenialCode::LeaseMismatch, "issue a lease for a task and project of its user")
        }
        _ => (
            DenialCode::UnknownToken,
            "set inference.egress_token_file to a token of the gateway for this agent type",
        ),
    };
    let message = match code {
        DenialCode::WrongAgent => remedy.to_owned(),
        DenialCode::UnknownToken => format!("{}; {remedy}", PolicyDenial::UnknownToken),
        _ => format!("{why}; {remedy}"),
    };
    Denial { code, message, retry_after_seconds: None }
}
