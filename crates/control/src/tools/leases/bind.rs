//! `lease.bind`: issues a lease for the node that runs a job, which then decides on calls itself.

use std::collections::BTreeMap;

use contract::lease::{Bind, Bound, Issue};
use nkeys::{KeyPair, KeyPairType};
use policy::{Agent, AgentKind, Condition, Effect, FAMILIES, Lease, MemoryProfile, Pattern, Rule, Scope};
use sea_orm::{ColumnTrait, DatabaseExecutor, DbErr, EntityTrait, QueryFilter, QueryOrder, sea_query::Expr};
use subjects::{ScopeId, job::JobSpec};

use crate::{BuiltInTool, Context, Does, NewLease, ToolError, arguments::check, profiles};
use store::entity::{access_rule, edge_lease, job, lease, upstream};

/// How many lines a node may write to its audit of one lease.
const MAX_AUDIT_QUOTA: u64 = 100_000;
/// A node that is cut off may decide on calls for this time.
const LIFETIME_SECONDS: u64 = 600;
const MAX_NAMESPACES: usize = 16;
const MAX_NAME_BYTES: usize = 64;
/// As long as a lease is allowed to be, with all else that is in it.
const MAX_RULES: usize = 256;

impl BuiltInTool for Bind {
    const TITLE: &'static str = "Bind a lease to a node";
    const DESCRIPTION: &'static str = "Issues a lease under that of the call, for the node that runs the \
        job. Only nodes call this.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Sandbox;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Bound, ToolError> {
        let Agent::Node(own) = &context.caller.agent else {
            return Err(ToolError::Invalid("only a node can bind a lease".to_owned()));
        };
        if own != input.node.as_str() {
            let why = format!("the token is for node {own}, and the call names node {}", input.node);
            return Err(ToolError::Invalid(format!("{why}; use the token of node {}", input.node)));
        }
        let parent = context.caller.lease.lease();
        let parent = parent.ok_or_else(|| ToolError::Invalid("the call has no lease to bind".to_owned()))?;
        if parent.node.is_some() {
            return Err(ToolError::Invalid("the lease is bound to a node already".to_owned()));
        }
        let is_user_key =
            KeyPair::from_public_key(&input.holder).is_ok_and(|key| key.key_pair_type() == KeyPairType::User);
        if !is_user_key {
            return Err(ToolError::Invalid("`holder` is not the public nkey of a user".to_owned()));
        }
        check::count("local", input.local.len(), MAX_NAMESPACES)?;
        for (namespace, digest) in &input.local {
            check::non_blank("namespace", namespace, MAX_NAME_BYTES)?;
            check::non_blank("digest", digest, MAX_NAME_BYTES)?;
        }
        let db = &context.db;
        let local = permitted_namespaces(db, context.profile(), &input.local).await?;
        let rules = rules_for(db, parent).await?;
        let quota = input.audit_quota.unwrap_or(MAX_AUDIT_QUOTA).clamp(2, MAX_AUDIT_QUOTA);
        let max_seconds = context.leases.lifetime.as_secs();
        let lifetime = input.lifetime_seconds.unwrap_or(LIFETIME_SECONDS).clamp(1, max_seconds.max(1));
        let new = NewLease {
            lease: Issue { tools: tools_of(db, parent).await?, ..child_of(parent, lifetime) },
            parent_id: Some(parent.lease_id.clone()),
            issued_by: context.author(),
        };
        // It has the memory profile of the job's lease.
        let (row, _) = context.leases.issue_with(db, new, None).await?;
        let node = Node { id: input.node.to_string(), holder: input.holder, quota };
        let bound = Lease {
            node: Some(node.id.clone()),
            holder: Some(node.holder.clone()),
            audit_quota: Some(node.quota),
            local,
            rules: Some(Bound::digest_of(&rules)),
            ..crate::lease_issuer::to_lease(&row)?
        };
        let issued = context.leases.sign_lease(&row, bound)?;
        let entry = to_entry(&row, parent, node, &context.caller.token, context.now);
        edge_lease::Entity::insert(edge_lease::ActiveModel::from(entry)).exec_without_returning(db).await?;
        Ok(Bound {
            lease_id: issued.lease_id,
            lease: issued.lease,
            expires_at: issued.expires_at,
            renewable_until: issued.renewable_until,
            rules,
        })
    }
}

struct Node {
    id: String,
    holder: String,
    quota: u64,
}

fn to_entry(row: &lease::Model, parent: &Lease, node: Node, token: &str, now: i64) -> edge_lease::Model {
    edge_lease::Model {
        lease_id: row.id.clone(),
        parent_id: parent.lease_id.clone(),
        node: node.id,
        holder: node.holder,
        token: token.to_owned(),
        agent: row.agent.clone(),
        user_id: row.user_id.clone(),
        project_id: row.project_id.clone(),
        task_id: row.task_id.clone(),
        run_id: row.run_id.clone(),
        job_id: row.job_id.clone(),
        profile: row.profile.clone(),
        audit_quota: i64::try_from(node.quota).unwrap_or(i64::MAX),
        bound_at: now,
        expires_at: row.expires_at,
        lines: 0,
        head: String::new(),
        stream_seq: 0,
        stream_digest: String::new(),
        stream_lines: 0,
        stream_head: String::new(),
        stated_lines: 0,
        stated_head: String::new(),
        pending: "{}".to_owned(),
        closed_at: None,
        close_reason: None,
    }
}

/// Returns a lease with the ids of `parent`.
fn child_of(parent: &Lease, lifetime: u64) -> Issue {
    let id = |id: &Option<String>| id.as_ref().and_then(|id| id.parse::<ScopeId>().ok());
    Issue {
        project_id: id(&parent.project_id),
        task_id: id(&parent.task_id),
        run_id: id(&parent.run_id),
        job_id: id(&parent.job_id),
        lifetime_seconds: Some(lifetime),
        ..Issue::new(parent.agent, parent.user_id.parse().ok())
    }
}

/// Returns the tools of a bound lease, under which the code in the sandbox calls: of a job those that its
/// caller named, without those that the job's lease has for the node itself.
async fn tools_of(db: &DatabaseExecutor<'_>, parent: &Lease) -> Result<Option<Vec<String>>, ToolError> {
    let found = match &parent.job_id {
        Some(id) => job::Entity::find_by_id(id).one(db).await?,
        None => None,
    };
    let Some(row) = found.filter(|row| row.lease_id.as_ref() == Some(&parent.lease_id)) else {
        return Ok(parent.tools.clone());
    };
    let spec = serde_json::from_str::<JobSpec>(&row.payload);
    let spec = spec.map_err(|error| DbErr::Type(format!("the spec of job {}: {error}", row.id)))?;
    Ok(Some(spec.tools))
}

/// Returns the namespaces of the node's own tools that the lease may pin. A node's tools do not hide those of
/// the gateway, and count as reaching the network, as all upstream tools do.
pub(super) async fn permitted_namespaces(
    db: &DatabaseExecutor<'_>,
    profile: &MemoryProfile,
    wanted: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ToolError> {
    if wanted.is_empty() || !profiles::may_reach_network(db, profile).await? {
        return Ok(BTreeMap::new());
    }
    let taken = upstream::Entity::find().filter(upstream::Column::Namespace.is_in(wanted.keys()));
    let taken: Vec<String> = taken.all(db).await?.into_iter().map(|row| row.namespace).collect();
    let is_free = |name: &String| !taken.contains(name) && !FAMILIES.contains(&name.as_str());
    Ok(wanted
        .iter()
        .filter(|(name, _)| is_free(name))
        .map(|(name, pin)| (name.clone(), pin.clone()))
        .collect())
}

/// Returns the access rules that may apply to calls under a lease, in their order. One that cannot be read
/// denies its tools.
async fn rules_for(db: &DatabaseExecutor<'_>, lease: &Lease) -> Result<Vec<Rule>, ToolError> {
    let rows = access_rule::Entity::find().order_by_asc(access_rule::Column::Position).all(db).await?;
    let concerns = |rule: &Rule| {
        rule.agent.is_none_or(|agent| agent == lease.agent || agent == AgentKind::Node)
            && rule.user.as_ref().is_none_or(|user| *user == lease.user_id)
    };
    let rules: Vec<Rule> = rows.into_iter().map(to_rule).filter(concerns).collect();
    check::count("access rules of a lease", rules.len(), MAX_RULES)?;
    Ok(rules)
}

fn to_rule(row: access_rule::Model) -> Rule {
    let tool = Pattern::new(row.tool);
    let agent = row.agent.as_deref().map(str::parse).transpose();
    let condition = match (row.argument, row.matches) {
        (None, None) => Ok(None),
        (Some(argument), Some(glob)) => Ok(Some(Condition { argument, glob })),
        _ => Err(()),
    };
    let effect = match row.effect.as_str() {
        "allow" => Ok(Effect::Allow),
        "deny" => Ok(Effect::Deny),
        _ => Err(()),
    };
    match (effect, agent, condition) {
        (Ok(effect), Ok(agent), Ok(condition)) => {
            Rule { id: row.id, effect, agent, user: row.user_id, tool, condition }
        }
        _ => Rule { id: row.id, effect: Effect::Deny, agent: None, user: None, tool, condition: None },
    }
}

/// Records how much a node says that it has written to its audit of a lease, and until when the lease lasts.
pub(super) async fn note_renewal(
    db: &DatabaseExecutor<'_>,
    own: &Lease,
    stated: (Option<u64>, Option<String>),
    renewed_until: i64,
) -> Result<(), ToolError> {
    if own.node.is_none() {
        return Ok(());
    }
    let mut update = edge_lease::Entity::update_many()
        .col_expr(edge_lease::Column::ExpiresAt, Expr::value(renewed_until))
        .filter(edge_lease::Column::LeaseId.eq(&own.lease_id));
    if let (Some(lines), Some(head)) = stated {
        let lines = i64::try_from(lines).unwrap_or(i64::MAX);
        let found = edge_lease::Entity::find_by_id(&own.lease_id).one(db).await?;
        // A node that states fewer lines than before has lost some: the earlier statement counts.
        if found.is_some_and(|row| row.stated_lines <= lines) {
            update = update
                .col_expr(edge_lease::Column::StatedLines, Expr::value(lines))
                .col_expr(edge_lease::Column::StatedHead, Expr::value(head));
        }
    }
    update.exec(db).await?;
    Ok(())
}
