//! A client that writes to one thread and repeats what fails.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use testkit::{ChatClient, chat_body};

use super::{answer, name, question};

/// How long one request may need with all its repeats.
const PATIENCE: Duration = Duration::from_secs(240);
/// A client gives up a connection on which nothing comes for this long; orchestrators send comments.
const SILENCE: Duration = Duration::from_secs(12);

pub(super) struct Writer {
    thread: usize,
    key: String,
    urls: Arc<Mutex<Vec<String>>>,
    rng: StdRng,
}

impl Writer {
    pub(super) fn new(thread: usize, key: &str, urls: &Arc<Mutex<Vec<String>>>, seed: u64) -> Self {
        Self { thread, key: key.to_owned(), urls: Arc::clone(urls), rng: StdRng::seed_from_u64(seed) }
    }

    /// Sends this many messages, each when the one before is answered. Returns the number of repeats.
    pub(super) async fn write(mut self, messages: usize) -> usize {
        let mut repeats = 0;
        for at in 0..messages {
            repeats += self.send(at).await;
        }
        repeats
    }

    /// Sends a message until it is answered. Returns how often it was repeated.
    async fn send(&mut self, at: usize) -> usize {
        let question = question(self.thread, at);
        let (streams, has_key): (bool, bool) = (self.rng.random(), self.rng.random());
        let since = Instant::now();
        let mut attempt = 0;
        loop {
            // A load balancer sends each attempt to any orchestrator.
            let url = {
                let urls = self.urls.lock().unwrap();
                urls[self.rng.random_range(0..urls.len())].clone()
            };
            let mut client = ChatClient::new(&url, &self.key)
                .with("x-cynode-thread", &name(self.thread))
                .with("x-stainless-retry-count", &attempt.to_string());
            if has_key {
                client = client.with("idempotency-key", &format!("{}-{at}", self.thread));
            }
            let asked = async {
                if streams { ask_streamed(&client, &question).await } else { ask(&client, &question).await }
            };
            let limit = if streams { PATIENCE } else { SILENCE };
            let why = match tokio::time::timeout(limit, asked).await {
                Ok(Ok(content)) => {
                    assert_eq!(content, answer(&question));
                    return attempt;
                }
                Ok(Err(why)) => why,
                Err(_) => "no answer in time".to_owned(),
            };
            attempt += 1;
            assert!(since.elapsed() < PATIENCE, "{question} attempt {attempt}: {why}");
            tokio::time::sleep(Duration::from_millis(self.rng.random_range(50..400))).await;
        }
    }
}

/// Asks for the whole answer. Fails with what makes SDKs repeat a request.
async fn ask(client: &ChatClient, question: &str) -> Result<String, String> {
    let body = chat_body(&[("user", question)]).to_string().into_bytes();
    let sent = client.send_bytes("POST", "/chat/completions", Some(body)).await;
    let response = sent.map_err(|error| error.to_string())?;
    if response.status == 200 {
        return Ok(response.content().to_owned());
    }
    repeatable(response.status, || response.body.to_string())
}

async fn ask_streamed(client: &ChatClient, question: &str) -> Result<String, String> {
    let mut body = chat_body(&[("user", question)]);
    body["stream"] = json!(true);
    let opened = tokio::time::timeout(SILENCE, client.open("/chat/completions", &body)).await;
    let stream = opened.map_err(|_| "no headers in time")?.map_err(|error| error.to_string())?;
    if stream.status != 200 {
        return repeatable(stream.status, || format!("{:?}", stream.headers));
    }
    let streamed = stream.read_within(SILENCE).await.ok_or("the stream fell silent")?;
    match (streamed.is_done, streamed.error) {
        (true, None) => Ok(streamed.content),
        (_, error) => Err(format!("the stream broke: {error:?}")),
    }
}

/// SDKs repeat these; anything else is a defect.
fn repeatable(status: u16, why: impl FnOnce() -> String) -> Result<String, String> {
    let why = format!("{status} {}", why());
    assert!([408, 409, 429].contains(&status) || status >= 500, "refused: {why}");
    Err(why)
}
