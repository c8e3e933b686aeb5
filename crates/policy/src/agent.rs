//! Agents, their tokens and leases, and the standing of a presented token.

use serde_json::{Map, Value};

use super::{AgentKind, Denial, Lease, LeaseMode, LeaseStanding, MemoryProfile, ScopedId};

/// The only user and task that a token may act for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBinding {
    pub user: String,
    pub task: String,
}

/// M116: the agent type of a token, and the user and task that it is bound to. Unbound tokens of analysts and
/// sandboxes require a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agent {
    Manager,
    Analyst(Option<TokenBinding>),
    Sandbox(Option<TokenBinding>),
    Orchestrator,
    /// The machine with this id, which runs jobs. It can do nothing but what the lease of a job permits to
    /// its sandbox.
    Node(String),
    /// A runner of workflows. It acts for the user of a workflow that it holds: the epoch of the call is its
    /// authority, which the tool checks.
    Workflow,
}

impl Agent {
    /// Returns the agent of a token that is bound to a user and a task, or to neither. `None` if only one of
    /// them is given, or if the agent type cannot be bound. The token of a node names the node, and no other
    /// does.
    pub fn of_token(
        kind: AgentKind,
        user: Option<&str>,
        task: Option<&str>,
        node: Option<&str>,
    ) -> Option<Self> {
        let binding = match (user, task) {
            (Some(user), Some(task)) => Some(TokenBinding { user: user.to_owned(), task: task.to_owned() }),
            (None, None) => None,
            _ => return None,
        };
        match (kind, binding, node) {
            (AgentKind::ProjectManager, None, None) => Some(Self::Manager),
            (AgentKind::Orchestrator, None, None) => Some(Self::Orchestrator),
            (AgentKind::Node, None, Some(node)) => Some(Self::Node(node.to_owned())),
            (AgentKind::Workflow, None, None) => Some(Self::Workflow),
            (AgentKind::ProjectAnalyst, binding, None) => Some(Self::Analyst(binding)),
            (AgentKind::Sandbox, binding, None) => Some(Self::Sandbox(binding)),
            _ => None,
        }
    }

    pub fn kind(&self) -> AgentKind {
        match self {
            Self::Manager => AgentKind::ProjectManager,
            Self::Analyst(_) => AgentKind::ProjectAnalyst,
            Self::Sandbox(_) => AgentKind::Sandbox,
            Self::Orchestrator => AgentKind::Orchestrator,
            Self::Node(_) => AgentKind::Node,
            Self::Workflow => AgentKind::Workflow,
        }
    }

    /// Returns the user and task that the token is bound to.
    pub fn binding(&self) -> Option<&TokenBinding> {
        match self {
            Self::Manager | Self::Orchestrator | Self::Node(_) | Self::Workflow => None,
            Self::Analyst(binding) | Self::Sandbox(binding) => binding.as_ref(),
        }
    }

    /// Returns whether the agent may do nothing without a lease.
    fn needs_lease(&self, mode: LeaseMode) -> bool {
        match self {
            Self::Orchestrator | Self::Workflow => false,
            Self::Node(_) => true,
            Self::Manager => mode == LeaseMode::Required,
            Self::Analyst(binding) | Self::Sandbox(binding) => binding.is_none(),
        }
    }

    /// Returns whether the agent works on one task, of which it needs to know the id.
    fn works_on_one_task(&self) -> bool {
        matches!(self, Self::Analyst(_) | Self::Sandbox(_) | Self::Node(_))
    }

    /// Returns the agent type whose tools the agent may call and whose leases it may use: a node acts as the
    /// sandboxes that it runs.
    pub fn acts_as(&self) -> AgentKind {
        match self.kind() {
            AgentKind::Node => AgentKind::Sandbox,
            kind => kind,
        }
    }
}

/// The effect of a call on the lease under which it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToOwnLease {
    Nothing,
    Renew,
    GiveBack,
}

impl ToOwnLease {
    pub(super) fn of(tool: &str) -> Self {
        match tool {
            "lease.renew" => Self::Renew,
            "lease.revoke" => Self::GiveBack,
            _ => Self::Nothing,
        }
    }
}

/// An agent that presented a token the gateway issued, with the lease and the memory profile of the call.
/// The profile is that of the token if it is bound to one, otherwise that of the lease if it names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The id of the token, never its secret.
    pub token: String,
    pub agent: Agent,
    pub lease: LeaseStanding,
    pub profile: MemoryProfile,
}

impl Caller {
    /// Denies a call under a revoked lease that names another one. Such a call may only give back its own
    /// again.
    pub(super) fn check_own_lease(&self, arguments: &Map<String, Value>) -> Result<(), Denial> {
        let LeaseStanding::Revoked(own) = &self.lease else { return Ok(()) };
        let named = arguments.get("lease_id").filter(|id| !id.is_null());
        match named.is_none_or(|id| id.as_str() == Some(&own.lease_id)) {
            true => Ok(()),
            false => Err(Denial::RevokedLease),
        }
    }

    /// Returns the user on whose behalf the call is made, if the token or the lease names one. For the audit,
    /// whether or not the call is permitted.
    pub fn user(&self) -> Option<&str> {
        let of_token = self.agent.binding().map(|binding| binding.user.as_str());
        self.lease.lease().map(|lease| lease.user_id.as_str()).or(of_token)
    }

    /// Returns the task that the token or the lease names. For the audit, like [`Caller::user`].
    pub fn task(&self) -> Option<&str> {
        let of_token = self.agent.binding().map(|binding| binding.task.as_str());
        self.lease.lease().and_then(|lease| lease.task_id.as_deref()).or(of_token)
    }

    /// Returns what token and lease confine the caller to, or why they permit nothing. `None`: the caller
    /// acts for the whole system.
    pub(super) fn check_bounds(&self, does: ToOwnLease) -> Result<Option<Bounds>, Denial> {
        let lease = match &self.lease {
            LeaseStanding::Valid(lease) => lease,
            LeaseStanding::Renewable(lease) if does != ToOwnLease::Nothing => lease,
            // Given back again, or already revoked by another caller.
            LeaseStanding::Revoked(lease) if does == ToOwnLease::GiveBack => lease,
            LeaseStanding::Absent(mode) if self.agent.needs_lease(*mode) => return Err(Denial::MissingLease),
            LeaseStanding::Absent(_) => return Ok(self.agent.binding().map(Bounds::from)),
            LeaseStanding::Early(_) => return Err(Denial::EarlyLease),
            LeaseStanding::Renewable(_) | LeaseStanding::Expired(_) => return Err(Denial::ExpiredLease),
            LeaseStanding::Revoked(_) => return Err(Denial::RevokedLease),
            LeaseStanding::Unknown => return Err(Denial::UnknownLease),
        };
        if lease.agent != self.agent.acts_as() {
            return Err(Denial::LeaseOfOtherAgent);
        }
        match (&lease.node, &self.agent) {
            (None, _) => {}
            (Some(node), Agent::Node(own)) if node == own => {}
            (Some(node), Agent::Node(own)) => {
                return Err(Denial::LeaseOfOtherNode { lease: node.clone(), token: own.clone() });
            }
            (Some(_), _) => return Err(Denial::LeaseOfOtherAgent),
        }
        // The call has another profile than its lease only if the token is bound to that one.
        if let Some(profile) = lease.profile.as_ref().filter(|profile| **profile != self.profile) {
            return Err(Denial::LeaseOfOtherProfile { lease: profile.clone(), token: self.profile.clone() });
        }
        if self.agent.works_on_one_task() && lease.task_id.is_none() {
            return Err(Denial::MissingId(ScopedId::Task));
        }
        // Both narrow: a bound token is not valid for another user or task.
        if let Some(binding) = self.agent.binding() {
            if binding.user != lease.user_id {
                return Err(Denial::MismatchedId(ScopedId::User));
            }
            if Some(&binding.task) != lease.task_id.as_ref() {
                return Err(Denial::MismatchedId(ScopedId::Task));
            }
        }
        Ok(Some(Bounds::from(lease)))
    }

    /// Returns the bounds of a caller that was permitted a call; `None` if it acts for the whole system.
    pub fn bounds(&self) -> Option<Bounds> {
        let of_lease = self.lease.lease().map(Bounds::from);
        of_lease.or_else(|| self.agent.binding().map(Bounds::from))
    }
}

/// The ids that a caller is confined to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub user: String,
    pub project: Option<String>,
    pub task: Option<String>,
    pub run: Option<String>,
    pub job: Option<String>,
}

impl Bounds {
    /// Returns whether something that belongs to `owner` is within the bounds. What has no owner belongs to
    /// the whole system.
    pub fn includes_owner(&self, owner: Option<&str>) -> bool {
        owner.is_none_or(|owner| owner == self.user)
    }
}

impl From<&TokenBinding> for Bounds {
    fn from(binding: &TokenBinding) -> Self {
        let TokenBinding { user, task } = binding.clone();
        Self { user, task: Some(task), project: None, run: None, job: None }
    }
}

impl From<&Lease> for Bounds {
    fn from(lease: &Lease) -> Self {
        Self {
            user: lease.user_id.clone(),
            project: lease.project_id.clone(),
            task: lease.task_id.clone(),
            run: lease.run_id.clone(),
            job: lease.job_id.clone(),
        }
    }
}

/// The status of a presented token at the time of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Valid(Caller),
    Expired(Caller),
    Revoked(Caller),
    /// No token, a token the gateway never issued, or one whose stored row is invalid.
    Unknown,
}

impl Standing {
    /// Returns the standing of a token of `caller` at `now`, in microseconds since 1970.
    pub fn at(caller: Caller, now: i64, expires_at: i64, is_revoked: bool) -> Self {
        if is_revoked {
            Self::Revoked(caller)
        } else if expires_at <= now {
            Self::Expired(caller)
        } else {
            Self::Valid(caller)
        }
    }

    /// Returns the caller of a valid token.
    pub(super) fn valid_caller(&self) -> Result<&Caller, Denial> {
        match self {
            Self::Valid(caller) => Ok(caller),
            Self::Expired(_) => Err(Denial::ExpiredToken),
            Self::Revoked(_) => Err(Denial::RevokedToken),
            Self::Unknown => Err(Denial::UnknownToken),
        }
    }

    /// Returns the agent the token was issued for, valid or not, for the audit.
    pub fn caller(&self) -> Option<&Caller> {
        match self {
            Self::Valid(caller) | Self::Expired(caller) | Self::Revoked(caller) => Some(caller),
            Self::Unknown => None,
        }
    }
}
