//! `cynodectl leases`, and the leases of handoffs.

use std::time::Duration;

use api::{AgentKind, IssuedLease, Lease, LeaseFilter, NewLease};
use subjects::{Handoff, Role, ScopeId};

use super::{
    ApiRequest, Gateway, cells, print_fields, print_json, print_list, print_outcome,
    tokens::{create_private_file, overwrite},
};
use crate::{
    cli::{self, Leases},
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(gateway: &Gateway, command: Leases, json: bool) -> Result<Exit, Error> {
    match command {
        Leases::Issue(new) => issue(gateway, *new, json).await,
        Leases::List { state, user, task, handoff, limit } => {
            let filter = LeaseFilter {
                state,
                user_id: user,
                task_id: task,
                handoff_id: handoff,
                limit: Some(limit),
                ..LeaseFilter::default()
            };
            let leases: Vec<Lease> = gateway.ask(ApiRequest::get(&["leases"]).query(&filter)).await?;
            let head = ["ID", "AGENT", "USER", "PROFILE", "TASK", "HANDOFF", "STATE", "EXPIRES", "BY"];
            let exit = print_list(&leases, json, "no leases", &head, |lease| {
                cells!(lease, id, agent, user_id, profile, task_id, handoff_id, state, expires_at, issued_by)
            });
            if leases.len() as u64 >= limit {
                print::note("there may be older ones: --limit, --state, --user, --task and --handoff select");
            }
            Ok(exit)
        }
        Leases::Show { id } => {
            let lease: Lease = gateway.ask(ApiRequest::get(&["leases", &id])).await?;
            show(&lease, json);
            Ok(Exit::Done)
        }
        Leases::Revoke { id } => {
            let lease: Lease = gateway.ask(ApiRequest::delete(&["leases", &id])).await?;
            let text = format!("{} (for {}) is revoked", lease.id, lease.user_id);
            Ok(print_outcome(json, &lease, &text))
        }
    }
}

fn show(lease: &Lease, json: bool) {
    if json {
        print_json(lease);
        return;
    }
    print_fields!(lease, id, agent, user_id, project_id, task_id, run_id, job_id, handoff_id, tools);
    print_fields!(
        lease,
        profile,
        state,
        issued_at,
        issued_by,
        expires_at,
        renewable_until,
        revoked_at,
        revoked_by,
        parent_id
    );
}

async fn issue(gateway: &Gateway, new: cli::NewLease, json: bool) -> Result<Exit, Error> {
    let wanted = NewLease {
        agent: new.agent,
        user_id: new.user,
        project_id: new.project,
        task_id: new.task,
        run_id: None,
        job_id: None,
        handoff_id: new.handoff,
        tools: (!new.tools.is_empty()).then_some(new.tools),
        lifetime_seconds: new.lives.as_ref().map(Duration::as_secs),
        renewable_seconds: new.renewable.as_ref().map(Duration::as_secs),
    };
    if let Some(path) = &new.out {
        // Created first: a file that cannot be written must fail before there is a lease to lose.
        create_private_file(path, "")?;
    }
    let issued = gateway.ask(ApiRequest::post(&["leases"]).body(&wanted)).await;
    let issued: IssuedLease = issued.inspect_err(|_| {
        if let Some(path) = &new.out {
            // Created above and empty; if it cannot be removed, it shows that it was left behind.
            drop(std::fs::remove_file(path));
        }
    })?;
    if let Some(path) = &new.out {
        overwrite(path, &format!("{}\n", issued.signed))?;
        show(&issued.lease, json);
        print::note(&format!("the signed lease is in {}", path.display()));
    } else if json {
        print_json(&issued);
    } else {
        show(&issued.lease, false);
        print_fields!(issued, signed);
    }
    Ok(Exit::Done)
}

/// Issues the leases of handoffs that are made on behalf of a user.
pub(crate) struct HandoffLeases {
    pub(crate) gateway: Gateway,
    pub(crate) user: ScopeId,
}

impl HandoffLeases {
    /// Issues the lease of a handoff, for the project of its scope.
    pub(crate) async fn issue_for(&self, handoff: &Handoff) -> Result<String, Error> {
        let agent = match handoff.kind().role() {
            Role::ProjectManager => AgentKind::ProjectManager,
            Role::ProjectAnalyst => AgentKind::ProjectAnalyst,
        };
        // An analyst works on one task; a manager may need others too.
        let task = handoff.work.verify().map(|verify| &verify.task_id);
        let text = |id: Option<&ScopeId>| id.map(ToString::to_string);
        let new = NewLease {
            agent,
            user_id: self.user.to_string(),
            project_id: text(handoff.scope.project_id.as_ref()),
            task_id: text(task),
            run_id: None,
            job_id: None,
            handoff_id: Some(handoff.id.to_string()),
            tools: None,
            lifetime_seconds: None,
            renewable_seconds: None,
        };
        let issued: IssuedLease = self.gateway.ask(ApiRequest::post(&["leases"]).body(&new)).await?;
        Ok(issued.signed)
    }
}
