//! A node whose disk is full: what it cannot record does not happen, and that is no fault of the job.

use std::{fs, time::Duration};

use edge::{EdgeLimits, JobEndpoint};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::support::{NODE, World, call};

/// Lets no file of this process grow beyond `size`, as if the disk were full. `None` ends that.
pub(crate) fn limit_files(size: Option<u64>) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: size.or(maximum), maximum }).unwrap();
}

/// Makes a call that cannot be recorded, and makes room again.
async fn fail_to_record(world: &World, endpoint: &JobEndpoint) {
    // The process would end with the signal otherwise.
    let _caught = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).unwrap();
    let file = world.path("edge").join(format!("{}.audit", endpoint.lease_id()));
    limit_files(Some(fs::metadata(&file).unwrap().len() + 30));
    let answer = call(endpoint, "local.echo", json!({})).await;
    assert_eq!(answer["error"]["message"], "the audit is not writable", "{answer}");
    limit_files(None);
}

/// The gateway does not wait for the audit of a lease that was never used.
#[tokio::test]
async fn lease_whose_audit_cannot_be_begun_is_not_used_and_not_missed() {
    let world = World::start().await;
    let limits = EdgeLimits { lifetime: Duration::from_secs(1), ..EdgeLimits::default() };
    let edge = world.open("edge", &world.key, NODE, limits);
    let (held, other) = (world.job_lease(None).await, world.job_lease(None).await);
    let mut failures = edge.write_failures();
    let _caught = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).unwrap();
    let files = || fs::read_dir(world.path("edge")).unwrap().count();
    // Neither what is beside the audit, nor its first line.
    for size in [0, 600] {
        limit_files(Some(size));
        let refused = edge.serve_job(&held, &world.path("s")).await.unwrap_err();
        assert!(refused.is_of_this_node() && refused.is_transient(), "{refused:?}");
        assert!(failures.has_changed().unwrap());
        failures.mark_unchanged();
        assert!(edge.try_writing().is_err());
        limit_files(None);
        assert_eq!(files(), 1, "only the lock is left");
    }
    edge.try_writing().unwrap();
    assert_eq!(files(), 1);

    // One that was used and not shipped is missed.
    let endpoint = edge.serve_job(&other, &world.path("t")).await.unwrap();
    let used = endpoint.lease_id().to_owned();
    endpoint.close().await;
    let alarm = world.wait_for_alarm("not_closed").await;
    assert_eq!(alarm["lease_id"], used);
    let audit = world.node_audit().await;
    assert_eq!(audit["leases"].as_array().unwrap().len(), 3, "{audit:#}");
    assert!(audit["alarms"].as_array().unwrap().iter().all(|alarm| alarm["lease_id"] == used), "{audit:#}");
    world.ship(&edge).await;
    world.wait_until_closed(&used).await;
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
}

/// So the job can be given to another node: none of its calls has had an effect, or will have one here.
#[tokio::test]
async fn job_whose_first_call_cannot_be_recorded_makes_none_any_more() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let denied = call(&endpoint, "local.none", json!({})).await;
    assert!(denied["error"].is_object(), "{denied}");
    assert_eq!(endpoint.unrecorded(), None);
    let (found, ()) = tokio::join!(endpoint.wait_for_unrecorded(), fail_to_record(&world, &endpoint));
    assert!(!found.has_acted && found.why.contains("the audit file cannot be written"), "{found:?}");
    for tool in ["local.echo", "help.list"] {
        let answer = call(&endpoint, tool, json!({})).await;
        assert_eq!(answer["error"]["message"], "the audit is not writable", "{answer}");
    }
    assert!(world.server.calls().is_empty());
    endpoint.close().await;
    world.ship(&edge).await;
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
}

/// Another node must not make its calls again.
#[tokio::test]
async fn job_that_has_made_a_call_goes_on_when_there_is_room_again() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    for first in ["local.echo", "help.list"] {
        let held = world.job_lease(None).await;
        let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
        assert!(call(&endpoint, first, json!({})).await["error"].is_null());
        fail_to_record(&world, &endpoint).await;
        assert!(endpoint.unrecorded().unwrap().has_acted, "{first}");
        assert!(call(&endpoint, "local.echo", json!({})).await["error"].is_null());
        endpoint.close().await;
    }
    assert_eq!(world.server.calls().len(), 3);
    world.ship(&edge).await;
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
}
