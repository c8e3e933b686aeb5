//! Calls to external providers: who may make them, and what they may use.

use std::sync::Arc;

use control::close_lost_calls;
use data_encoding::HEXLOWER;
use futures_util::future::join_all;
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::{
    clock,
    entity::{egress_call, lease, lease_key, preference, token},
};

use crate::stage::{Stage, on_both, orchestrator};

on_both![
    calls_are_counted_for_the_user_of_the_lease,
    only_an_agent_with_a_valid_token_and_a_valid_lease_of_its_type_may_call,
    narrowest_preference_decides_about_a_provider,
    preference_that_an_agent_wrote_decides_nothing,
    used_up_budget_is_denied,
    concurrent_calls_do_not_overrun_a_budget,
    lost_calls_count_as_expected_until_they_end,
];

const ALLOWED: &str = "agents.project_manager.model_routing.allowed_external_providers";
const HOUR: i64 = 3_600_000_000;

fn hash(secret: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(secret))
}

async fn add_token(stage: &Stage, agent: &str, user: Option<&str>, lives: i64, is_revoked: bool) {
    let text = |text: &str| text.to_owned();
    stage
        .given(token::Model {
            id: format!("tok-{agent}-{lives}-{is_revoked}"),
            hash: hash(&format!("{agent}-{lives}-{is_revoked}")),
            label: text(agent),
            agent: text(agent),
            user_id: user.map(text),
            task_id: None,
            node: None,
            profile: None,
            is_front_end: false,
            on_disconnect: "continue".into(),
            created_at: clock::now(),
            created_by: text("test"),
            expires_at: clock::now() + lives,
            revoked_at: is_revoked.then(clock::now),
        })
        .await;
}

async fn prefer(stage: &Stage, scope: &str, id: &str, value: Value) {
    let row = preference::Model {
        id: format!("{scope}-{id}"),
        scope_type: scope.into(),
        scope_id: id.into(),
        key: ALLOWED.into(),
        value_type: if value.is_array() { "array" } else { "string" }.into(),
        value: value.to_string(),
        version: 1,
        deleted: false,
        updated_at: 0,
        updated_by: "admin:test".into(),
    };
    preference::Entity::insert(preference::ActiveModel::from(row))
        .on_conflict(
            sea_orm::sea_query::OnConflict::column(preference::Column::Id)
                .update_columns([preference::Column::Value, preference::Column::ValueType])
                .to_owned(),
        )
        .exec_without_returning(stage.store.read())
        .await
        .unwrap();
}

/// Registers the key of the gateway and a manager's token. Returns a lease of Ada for it.
async fn set_up(stage: &Stage) -> String {
    stage.given(lease_key::Model { key: stage.lease_key(), created_at: 0 }).await;
    add_token(stage, "project_manager", None, HOUR, false).await;
    prefer(stage, "system", "", json!(["openai"])).await;
    issue(stage, json!({ "agent": "project_manager", "user_id": "ada" })).await
}

async fn issue(stage: &Stage, wanted: Value) -> String {
    let issued = stage.call(&orchestrator(), "lease.issue", wanted).await.unwrap();
    issued["lease"].as_str().unwrap().to_owned()
}

fn call(lease: &str) -> Value {
    json!({
        "token_hash": hash("project_manager-3600000000-false"), "lease": lease, "provider": "openai",
        "model": "gpt-5", "max_seconds": 60,
    })
}

async fn begin(stage: &Stage, call: Value) -> Value {
    stage.call(&orchestrator(), "egress.begin", call).await.unwrap()
}

/// Begins a call with other members, and returns the code of its denial.
async fn denied(stage: &Stage, base: &Value, other: Value) -> (String, String) {
    let mut wanted = base.clone();
    wanted.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    wanted.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let begun = begin(stage, wanted).await;
    assert!(begun.get("call").is_none(), "{begun}");
    let text = |name: &str| begun["denial"][name].as_str().unwrap().to_owned();
    (text("code"), text("message"))
}

async fn end(stage: &Stage, call_id: &Value, tokens: (u64, u64), usd: f64) -> bool {
    let used = json!({ "prompt_tokens": tokens.0, "completion_tokens": tokens.1, "usd": usd });
    let ended = json!({ "call_id": call_id, "outcome": "completed", "used": used });
    stage.call(&orchestrator(), "egress.end", ended).await.unwrap()["ended"] == true
}

async fn usage(stage: &Stage) -> Value {
    let page = stage.call(&orchestrator(), "egress.usage", json!({ "user_id": "ada" })).await.unwrap();
    page["items"][0].clone()
}

/// P15, P21.
async fn calls_are_counted_for_the_user_of_the_lease(stage: Stage) {
    let lease = set_up(&stage).await;
    let begun = begin(&stage, call(&lease)).await;
    assert_eq!(begun["call"]["user_id"], "ada", "{begun}");
    assert_eq!(begun["call"]["agent"], "project_manager");
    let id = &begun["call"]["call_id"];
    assert!(end(&stage, id, (100, 20), 0.25).await);
    assert!(!end(&stage, id, (100, 20), 0.25).await, "a call ends once");
    let used = usage(&stage).await;
    let counted = |name: &str| used[name].as_i64().unwrap();
    assert_eq!((counted("calls"), counted("estimated_calls"), counted("open_calls")), (1, 0, 0));
    assert_eq!((counted("prompt_tokens"), counted("completion_tokens")), (100, 20));
    assert_eq!((used["usd"].as_f64(), used["provider"].as_str()), (Some(0.25), Some("openai")));
    let other = stage.call(&orchestrator(), "egress.usage", json!({ "user_id": "eve" })).await.unwrap();
    assert_eq!(other["items"], json!([]));
    let unknown = json!({ "call_id": "none", "outcome": "completed" });
    let error = stage.call(&orchestrator(), "egress.end", unknown).await.unwrap_err();
    assert_eq!(error.code(), "not_found");
}

/// P15, P21: nothing that cannot be resolved is permitted.
async fn only_an_agent_with_a_valid_token_and_a_valid_lease_of_its_type_may_call(stage: Stage) {
    let lease = set_up(&stage).await;
    for (agent, user, lives, is_revoked) in [
        ("project_manager", None, -HOUR, false),
        ("project_manager", None, HOUR, true),
        ("project_analyst", None, HOUR, false),
        ("orchestrator", None, HOUR, false),
        ("user", Some("ada"), HOUR, false),
        ("admin", None, HOUR, false),
    ] {
        add_token(&stage, agent, user, lives, is_revoked).await;
    }
    let base = call(&lease);
    for (secret, code) in [
        ("nonsense", "unknown_token"),
        ("project_manager--3600000000-false", "expired_token"),
        ("project_manager-3600000000-true", "revoked_token"),
        ("user-3600000000-false", "unknown_token"),
        ("admin-3600000000-false", "unknown_token"),
        ("orchestrator-3600000000-false", "wrong_agent"),
        ("project_analyst-3600000000-false", "lease_of_other_agent"),
    ] {
        let (found, message) = denied(&stage, &base, json!({ "token_hash": hash(secret) })).await;
        assert_eq!(found, code, "{secret}: {message}");
        assert!(message.len() < 280, "fits into what a worker quotes: {message}");
    }
    let foreign = policy::Lease { user_id: "eve".into(), ..policy::Lease::read_unverified(&lease).unwrap() };
    let forged = foreign.clone().sign(&nkeys::KeyPair::new_user()).unwrap();
    let never_issued = policy::Lease { lease_id: "none".into(), ..foreign };
    let never_issued = never_issued.sign(stage.lease_pair()).unwrap();
    for (presented, code) in [
        (Value::Null, "missing_lease"),
        (json!("nonsense"), "unknown_lease"),
        (json!(forged), "unknown_lease"),
        (json!(never_issued), "unknown_lease"),
    ] {
        let (found, message) = denied(&stage, &base, json!({ "lease": presented })).await;
        assert_eq!(found, code, "{message}");
    }
    let own = policy::Lease::read_unverified(&lease).unwrap();
    // The clock of the gateway that issued it may be a little ahead.
    let of_other = policy::Lease { not_before: clock::now() + 60_000_000, ..own.clone() };
    let of_other = of_other.sign(stage.lease_pair()).unwrap();
    assert_eq!(begin(&stage, call(&of_other)).await["call"]["user_id"], "ada");
    for (times, code) in [
        ((clock::now() + HOUR, clock::now() + 2 * HOUR), "early_lease"),
        ((clock::now() - 2 * HOUR, clock::now() - HOUR), "expired_lease"),
    ] {
        let lease = policy::Lease { not_before: times.0, expires_at: times.1, ..own.clone() };
        let lease = lease.sign(stage.lease_pair()).unwrap();
        let (found, message) = denied(&stage, &base, json!({ "lease": lease })).await;
        assert_eq!(found, code, "{message}");
    }
    // The task was given to another user since the lease was issued.
    let of_task = json!({ "agent": "project_manager", "user_id": "ada", "task_id": "t-1" });
    let of_task = issue(&stage, of_task).await;
    let update = store::entity::task::ActiveModel {
        user_id: Set(Some("eve".into())),
        ..crate::egress::task("t-1", "ada").into()
    };
    store::entity::task::Entity::insert(update).exec_without_returning(stage.store.read()).await.unwrap();
    assert_eq!(denied(&stage, &base, json!({ "lease": of_task })).await.0, "lease_mismatch");
    lease::Entity::update_many()
        .col_expr(lease::Column::RevokedAt, Expr::value(clock::now()))
        .exec(stage.store.read())
        .await
        .unwrap();
    assert_eq!(denied(&stage, &base, json!({})).await.0, "revoked_lease");
}

fn task(id: &str, user: &str) -> store::entity::task::Model {
    store::entity::task::Model {
        id: id.into(),
        name: id.into(),
        title: id.into(),
        description: String::new(),
        acceptance_criteria: "[]".into(),
        status: "pending".into(),
        project_id: Some("p-1".into()),
        scope_key: String::new(),
        user_id: Some(user.into()),
        parent_task_id: None,
        schedule_id: None,
        run_id: None,
        position: 0,
        version: 1,
        created_at: 0,
        updated_at: 0,
    }
}

/// P19: task, project, user and system in this order. What depends on groups, which are not known, is denied.
async fn narrowest_preference_decides_about_a_provider(stage: Stage) {
    set_up(&stage).await;
    stage.given(task("t-1", "ada")).await;
    let lease = json!({ "agent": "project_manager", "user_id": "ada", "task_id": "t-1" });
    let base = call(&issue(&stage, lease).await);
    let is_allowed = async |provider: &str| {
        let mut wanted = base.clone();
        wanted["provider"] = json!(provider);
        begin(&stage, wanted).await.get("call").is_some()
    };
    assert!(is_allowed("openai").await && !is_allowed("other").await);
    for (scope, id, value, openai, other) in [
        ("group", "g-1", json!(["openai", "other"]), true, false),
        ("group", "g-2", json!([]), false, false),
        ("user", "eve", json!("other"), false, false),
        ("user", "ada", json!("openai"), true, false),
        ("project", "p-1", json!(["other"]), false, true),
        ("task", "t-1", json!(["openai", "other"]), true, true),
        ("task", "t-1", json!(null), false, false),
        ("task", "t-1", json!([]), false, false),
    ] {
        prefer(&stage, scope, id, value.clone()).await;
        let allowed = (is_allowed("openai").await, is_allowed("other").await);
        assert_eq!(allowed, (openai, other), "{scope} {id} {value}");
    }
    let (code, message) = denied(&stage, &base, json!({})).await;
    assert_eq!(code, "provider_not_allowed");
    let command = format!("cynodectl preferences set {ALLOWED} '[\"openai\"]' --scope user --scope-id ada");
    assert!(message.contains(&command) && message.len() < 280, "{message}");
}

/// An agent of an earlier release may have allowed itself a provider.
async fn preference_that_an_agent_wrote_decides_nothing(stage: Stage) {
    let base = call(&set_up(&stage).await);
    for (scope, id) in [("user", "ada"), ("group", "g-1")] {
        prefer(&stage, scope, id, json!(["other"])).await;
    }
    preference::Entity::update_many()
        .col_expr(preference::Column::UpdatedBy, Expr::value("project_manager:tok"))
        .filter(preference::Column::ScopeType.ne("system"))
        .exec(stage.store.read())
        .await
        .unwrap();
    let (code, _) = denied(&stage, &base, json!({ "provider": "other" })).await;
    assert_eq!(code, "provider_not_allowed");
    assert!(begin(&stage, base).await.get("call").is_some(), "the system's preference counts");
}

async fn used_up_budget_is_denied(stage: Stage) {
    let lease = set_up(&stage).await;
    for (limits, tokens, usd, said) in [
        (json!({ "tokens_per_day": 120 }), (100, 20), 0.0, "120 of 120 tokens"),
        (json!({ "usd_per_day": 0.5 }), (0, 0), 0.5, "$0.50 of $0.50"),
    ] {
        let mut wanted = call(&lease);
        wanted["limits"] = limits;
        let begun = begin(&stage, wanted.clone()).await;
        end(&stage, &begun["call"]["call_id"], tokens, usd).await;
        let (code, message) = denied(&stage, &wanted, json!({})).await;
        assert_eq!(code, "budget_used_up");
        assert!(message.contains(said) && message.contains("ada") && message.len() < 280, "{message}");
    }
    // The budget of another user is another one.
    let other = issue(&stage, json!({ "agent": "project_manager", "user_id": "eve" })).await;
    let mut wanted = call(&other);
    wanted["limits"] = json!({ "tokens_per_day": 120, "usd_per_day": 0.5 });
    assert!(begin(&stage, wanted).await.get("call").is_some());
}

/// What open calls may use counts: of many calls at the same time, so many begin as fit.
async fn concurrent_calls_do_not_overrun_a_budget(stage: Stage) {
    let lease = set_up(&stage).await;
    let stage = Arc::new(stage);
    let mut wanted = call(&lease);
    wanted["limits"] = json!({ "tokens_per_day": 1000 });
    wanted["expected"] = json!({ "prompt_tokens": 150, "completion_tokens": 50 });
    let begun = join_all((0..20).map(|_| begin(&stage, wanted.clone()))).await;
    let open: Vec<&Value> = begun.iter().filter_map(|begun| begun.get("call")).collect();
    assert_eq!(open.len(), 5, "1000 tokens have room for 5 calls of 200");
    let denial = begun.iter().find_map(|begun| begun.get("denial")).unwrap();
    assert_eq!(
        (denial["code"].as_str(), denial["retry_after_seconds"].as_u64()),
        (Some("budget_busy"), Some(5))
    );
    // They use less than expected, so there is room for more.
    for call in open {
        end(&stage, &call["call_id"], (10, 10), 0.0).await;
    }
    assert!(begin(&stage, wanted).await.get("call").is_some());
}

/// A call that its orchestrator did not end, since it was killed, counts as expected. If it ends after all,
/// what it used replaces that.
async fn lost_calls_count_as_expected_until_they_end(stage: Stage) {
    let lease = set_up(&stage).await;
    let mut wanted = call(&lease);
    wanted["limits"] = json!({ "tokens_per_day": 1000 });
    wanted["expected"] = json!({ "prompt_tokens": 700, "completion_tokens": 300, "usd": 1.5 });
    let begun = begin(&stage, wanted.clone()).await;
    let expire = async || {
        egress_call::Entity::update_many()
            .col_expr(egress_call::Column::ExpiresAt, Expr::value(clock::now() - 1))
            .exec(stage.store.read())
            .await
            .unwrap();
    };
    assert_eq!(denied(&stage, &wanted, json!({})).await.0, "budget_busy");
    assert_eq!(close_lost_calls(&stage.store).await.unwrap(), 0, "it may still end");
    expire().await;
    assert_eq!(denied(&stage, &wanted, json!({})).await.0, "budget_used_up");
    assert_eq!(close_lost_calls(&stage.store).await.unwrap(), 0, "the denied call closed it");
    let used = usage(&stage).await;
    assert_eq!((&used["calls"], &used["estimated_calls"], &used["usd"]), (&json!(1), &json!(1), &json!(1.5)));
    assert!(end(&stage, &begun["call"]["call_id"], (10, 5), 0.1).await);
    let used = usage(&stage).await;
    assert_eq!((&used["calls"], &used["estimated_calls"], &used["usd"]), (&json!(1), &json!(0), &json!(0.1)));
    assert_eq!((&used["prompt_tokens"], &used["completion_tokens"]), (&json!(10), &json!(5)));
    begin(&stage, wanted).await;
    expire().await;
    assert_eq!(close_lost_calls(&stage.store).await.unwrap(), 1, "maintenance closes it too");
}
