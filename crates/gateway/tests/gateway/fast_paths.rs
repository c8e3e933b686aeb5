//! The fast paths of the gateway change nothing but the time: the same random requests, with a fast path
//! switched on and off, get the same answers and leave the same audit rows.
//!
//! `FAST_PATHS_SEED` chooses other requests than the usual ones; a failure tells the seed.

mod request;
mod side;

use futures_util::future::join_all;
use rand::{SeedableRng, rngs::SmallRng};

use self::{request::Request, side::Side};

const REQUESTS: usize = 300;
/// Requests that are sent at the same time, so that their audit rows are committed in groups.
const CONCURRENT: usize = 64;

fn seed() -> u64 {
    std::env::var("FAST_PATHS_SEED").map_or(20_260_728, |seed| seed.parse().expect("a number"))
}

/// Sends the same requests to both gateways and compares what they answer and record. Returns the gateways,
/// still running.
async fn compare(off: &str) -> [Side; 2] {
    let seed = seed();
    let mut rng = SmallRng::seed_from_u64(seed);
    let sides = [Side::start(off, "true").await, Side::start(off, "false").await];
    let mut answered = 0;
    for number in 0..REQUESTS {
        let request = Request::random(&mut rng);
        let (on, off) = (sides[0].send(&request).await, sides[1].send(&request).await);
        assert_eq!(on, off, "seed {seed}, request {number}: {request:?}");
        answered += usize::from(on.is_result());
    }
    // Otherwise the requests would hardly compare anything.
    assert!((REQUESTS / 3..REQUESTS).contains(&answered), "seed {seed}: {answered} results");
    assert_eq!(sides[0].rows().await, sides[1].rows().await, "seed {seed}: audit rows");
    assert_eq!(sides[0].upstream_calls(), sides[1].upstream_calls(), "seed {seed}: calls of upstream tools");

    let requests: Vec<Request> = (0..CONCURRENT).map(|_| Request::read_only(&mut rng)).collect();
    let on = join_all(requests.iter().map(|request| sides[0].send(request))).await;
    let off = join_all(requests.iter().map(|request| sides[1].send(request))).await;
    for (number, request) in requests.iter().enumerate() {
        assert_eq!(on[number], off[number], "seed {seed}, concurrent request {number}: {request:?}");
    }
    sides
}

/// Stops the gateways and compares all audit rows, whatever their order, and the verified hash chains.
async fn compare_audits(mut sides: [Side; 2]) {
    sides.iter_mut().for_each(Side::stop);
    let mut rows = [sides[0].rows().await, sides[1].rows().await];
    rows.iter_mut().for_each(|rows| rows.sort());
    assert_eq!(rows[0], rows[1]);
    // As many rows on both sides; how many heads were signed depends on the time.
    let verified = sides.each_ref().map(|side| {
        let checked = side.check();
        let rows =
            checked.stdout.lines().find(|line| line.starts_with("ok") && line.contains("rows verified"));
        assert!(checked.code == 0 && rows.is_some(), "{checked:?}");
        rows.and_then(|rows| rows.split(',').next()).map(str::to_owned)
    });
    assert_eq!(verified[0], verified[1]);
}

#[tokio::test]
async fn endpoint_answers_alike_without_its_fast_path() {
    let sides = compare("mcp.fast_path").await;
    let taken = sides.each_ref().map(|side| side.log_lines("Call takes the fast path."));
    assert!(taken[0] >= REQUESTS / 3 && taken[1] == 0, "{taken:?}");
    compare_audits(sides).await;
}

#[tokio::test]
async fn audit_is_the_same_without_its_fast_path() {
    let sides = compare("audit.fast_append").await;
    let connections = sides.each_ref().map(Side::store_connections);
    assert_eq!(connections[0], connections[1] + 1, "the fast path has a connection of its own");
    compare_audits(sides).await;
}

#[tokio::test]
async fn upstream_tools_answer_alike_without_the_fast_path() {
    let sides = compare("upstreams.fast_path").await;
    // Direct calls have larger ids than any that rmcp assigns.
    let direct = sides.each_ref().map(|side| side.largest_upstream_id() >= 1 << 32);
    assert_eq!(direct, [true, false]);
    compare_audits(sides).await;
}
