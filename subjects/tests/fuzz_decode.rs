//! Decodes a million mutations of valid bodies.
//!
//! Fails if the decoder panics, loops, or accepts a body that does not survive encoding and decoding.
//! `FUZZ_SEED` repeats a run; `FUZZ_INPUTS` sets the number of bodies.

use std::{fs, path::Path, thread, time::Instant};

use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use subjects::{Body, Encoding, Handoff, Kind};

const INPUTS: u64 = 1_000_000;
const THREADS: u64 = 2;

#[test]
fn no_body_makes_the_decoder_panic() {
    let seed = from_env("FUZZ_SEED").unwrap_or_else(|| rand::rng().random());
    let inputs = from_env("FUZZ_INPUTS").unwrap_or(INPUTS);
    println!("FUZZ_SEED={seed} FUZZ_INPUTS={inputs}");
    let corpus = corpus();
    let started = Instant::now();
    let accepted: u64 = thread::scope(|scope| {
        let runs: Vec<_> = (0..THREADS)
            .map(|thread| {
                let corpus = &corpus;
                scope.spawn(move || run(SmallRng::seed_from_u64(seed ^ thread), corpus, inputs / THREADS))
            })
            .collect();
        runs.into_iter()
            .map(|run| run.join().expect("a body made the decoder panic; see the bytes above"))
            .sum()
    });
    println!("{inputs} inputs in {:.1} s, {accepted} of them acceptable", started.elapsed().as_secs_f64());
    // If nearly all bodies are accepted or refused, the mutations are too weak or too strong to test
    // anything.
    assert!(accepted > inputs / 1_000 && accepted < inputs / 2, "{accepted} of {inputs} were acceptable");
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a whole number"))
}

type Sample = (Kind, Encoding, Vec<u8>);

fn corpus() -> Vec<Sample> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut corpus = Vec::new();
    for kind in Kind::ALL {
        for (encoding, extension) in [(Encoding::Json, "json"), (Encoding::MessagePack, "msgpack")] {
            corpus.push((
                kind,
                encoding,
                fs::read(folder.join(format!("handoff-{kind}.{extension}"))).unwrap(),
            ));
        }
    }
    corpus
}

fn run(mut rng: SmallRng, corpus: &[Sample], inputs: u64) -> u64 {
    let mut accepted = 0;
    for _ in 0..inputs {
        let (kind, encoding, body) = corpus.choose(&mut rng).unwrap();
        let mut body = body.clone();
        for _ in 0..rng.random_range(1..=4) {
            mutate(&mut rng, &mut body, corpus);
        }
        let decoded = std::panic::catch_unwind(|| Handoff::decode(*kind, &Body::inspect(*encoding, &body)));
        let Ok(decoded) = decoded else {
            panic!("{kind} {encoding}: {:?}", String::from_utf8_lossy(&body));
        };
        if let Ok(handoff) = decoded {
            accepted += 1;
            let again = handoff.encode(*encoding).expect("what was read can be written");
            assert_eq!(Handoff::decode(*kind, &Body::inspect(*encoding, &again)).as_ref(), Ok(&handoff));
        }
    }
    accepted
}

/// Byte sequences that are known to break parsers.
const NASTY: [&[u8]; 20] = [
    b"null",
    b"{}",
    b"[[[[[[[[",
    b"\"\\ud800\"",
    b"1e999",
    b"-0",
    b"\0",
    b"\xff\xfe",
    b"18446744073709551616",
    b"\"\"",
    b",",
    b":",
    b"}",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xc1",
    b"\xdb\xff\xff\xff\xff",
    b"\xcb\x7f\xf8\0\0\0\0\0\0",
    b"\"handoff_id\":",
    b"9999-99-99T99:99:99Z",
];

fn mutate(rng: &mut SmallRng, body: &mut Vec<u8>, corpus: &[Sample]) {
    let at = rng.random_range(0..=body.len());
    match rng.random_range(0..8) {
        0 => body.truncate(at),
        1 if at < body.len() => body[at] ^= 1 << rng.random_range(0..8),
        2 if at < body.len() => body[at] = rng.random(),
        3 => {
            let piece = NASTY.choose(rng).unwrap();
            body.splice(at..at, piece.iter().copied());
        }
        4 => {
            let to = rng.random_range(at..=body.len().min(at + 64));
            body.drain(at..to);
        }
        5 => {
            let to = rng.random_range(at..=body.len().min(at + 64));
            let copy = body[at..to].to_vec();
            body.splice(at..at, copy);
        }
        6 => {
            let (_, _, other) = corpus.choose(rng).unwrap();
            let from = rng.random_range(0..other.len());
            let to = rng.random_range(from..=other.len().min(from + 128));
            body.splice(at..at, other[from..to].iter().copied());
        }
        _ => {
            let to = rng.random_range(at..=body.len().min(at + 8));
            body[at..to].reverse();
        }
    }
}
