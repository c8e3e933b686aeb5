//! Many clients at three orchestrators, while orchestrators, gateways and NATS are killed.

mod stack;
mod writer;

use std::pin::pin;

use futures_util::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use testkit::ChatClient;

use self::{stack::Stack, writer::Writer};

/// Each user has two threads and writes to both at the same time.
const THREADS: usize = 40;

/// Sends requests in threads, one after the other in each, and repeats them as the SDKs do until they are
/// answered. Meanwhile orchestrators are killed and frozen, two gateways on one PostgreSQL and NATS are
/// killed and restarted. In the end each thread has its messages and their answers, each once and in order,
/// there is one handoff for each request, and no model turn was paid twice. `DOOR_REQUESTS` makes it longer,
/// `STORM_SEED` repeats a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_has_one_handoff_and_one_answer() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = variable("STORM_SEED").unwrap_or_else(|| rand::rng().random());
    let requests = usize::try_from(variable("DOOR_REQUESTS").unwrap_or(240)).unwrap();
    println!("STORM_SEED={seed} DOOR_REQUESTS={requests}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut stack = Stack::start().await;
    let keys = join_all((0..THREADS / 2).map(|user| stack.key(user))).await;

    let per_thread = requests / THREADS;
    let writers: Vec<Writer> = (0..THREADS)
        .map(|thread| Writer::new(thread, &keys[thread / 2], &stack.urls, rng.random()))
        .collect();
    let mut writing = pin!(join_all(writers.into_iter().map(|writer| writer.write(per_thread))));
    let repeats: usize = loop {
        tokio::select! {
            repeats = &mut writing => break repeats.into_iter().sum(),
            () = stack.fail(&mut rng) => {}
        }
    };
    println!("{:?}, {repeats} repeated requests", stack.failures);
    assert!(repeats > 0, "no request was disturbed");
    stack.settle().await;
    for (thread, key) in (0..THREADS).map(|thread| (thread, &keys[thread / 2])) {
        let client = ChatClient::new(&stack.urls.lock().unwrap()[0], key);
        let path = format!("/threads/{}/export", name(thread));
        let exported = client.send("GET", &path, None).await;
        let messages = exported.body["messages"].as_array().unwrap_or_else(|| panic!("{exported:?}"));
        let said: Vec<&str> = messages.iter().filter_map(|message| message["content"].as_str()).collect();
        let expected = (0..per_thread).flat_map(|at| [question(thread, at), answer(&question(thread, at))]);
        assert_eq!(said, expected.collect::<Vec<_>>(), "thread {thread}");
    }
    let asked = stack.turns_by_question();
    let twice: Vec<_> = asked.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "paid twice: {twice:?}");
    assert_eq!(asked.len(), per_thread * THREADS);
    // A handoff that was published again after it was answered, because NATS died before it confirmed the
    // first time, has the same id and gets no second answer.
    let answers = stack.answers().await;
    let twice: Vec<_> = answers.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "answered twice: {twice:?}");
    assert_eq!(answers.len(), per_thread * THREADS);
}

fn name(thread: usize) -> String {
    format!("thread-{thread}")
}

fn question(thread: usize, at: usize) -> String {
    format!("What is {at} in {}?", name(thread))
}

fn answer(question: &str) -> String {
    format!("The answer to: {question}")
}
