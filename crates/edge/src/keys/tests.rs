use super::*;

fn keys(max_keys: usize, max_answer_bytes: usize) -> Arc<Keys> {
    Arc::new(Keys::new(max_keys, max_answer_bytes))
}

/// Claims a key for the call `1`.
fn claim(keys: &Arc<Keys>, key: &str) -> Claimed {
    keys.claim(key, "files.add", "1")
}

fn fresh(keys: &Arc<Keys>, key: &str) -> Claim {
    match claim(keys, key) {
        Claimed::Fresh(claim) => claim,
        other => panic!("{other:?}"),
    }
}

fn kept(keys: &Arc<Keys>, key: &str) -> Kept {
    match claim(keys, key) {
        Claimed::Refused(Refusal::Made(kept)) => kept,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_has_one_call_and_its_answer() {
    let keys = keys(10, 1000);
    let first = fresh(&keys, "a");
    let Claimed::Running(waiting) = claim(&keys, "a") else { panic!("it is running") };
    for (tool, arguments) in [("files.add", "2"), ("files.remove", "1")] {
        let other = keys.claim("a", tool, arguments);
        assert!(matches!(other, Claimed::Refused(Refusal::Reused)), "{other:?}");
    }
    assert!(!waiting.is_cancelled());
    first.settle(Kept::Answered("done".into()));
    assert!(waiting.is_cancelled());
    assert_eq!(kept(&keys, "a"), Kept::Answered("done".into()));
}

#[test]
fn a_call_that_was_not_made_frees_its_key_and_one_that_is_lost_does_not() {
    let keys = keys(10, 1000);
    fresh(&keys, "a").release();
    drop(fresh(&keys, "a"));
    assert_eq!(kept(&keys, "a"), Kept::InDoubt);
    let Claimed::Fresh(lost) = claim(&keys, "b") else { panic!("it is free") };
    let Claimed::Running(waiting) = claim(&keys, "b") else { panic!("it is running") };
    drop(lost);
    assert!(waiting.is_cancelled(), "who waits must not wait for ever");
}

#[test]
fn full_key_table_drops_answers_but_no_keys() {
    let keys = keys(4, 10);
    for key in ["a", "b", "c"] {
        fresh(&keys, key).settle(Kept::Answered("5byte".into()));
    }
    assert_eq!(kept(&keys, "a"), Kept::Forgotten);
    assert_eq!(kept(&keys, "c"), Kept::Answered("5byte".into()));
    // One that is too large takes the place of all others, and is there for those that wait for it.
    let large: Arc<str> = "x".repeat(100).into();
    fresh(&keys, "d").settle(Kept::Answered(large.clone()));
    assert_eq!((kept(&keys, "b"), kept(&keys, "c")), (Kept::Forgotten, Kept::Forgotten));
    assert_eq!(kept(&keys, "d"), Kept::Answered(large));
    assert!(matches!(claim(&keys, "e"), Claimed::Refused(Refusal::Full)));
    assert_eq!(keys.lock().answer_bytes, 100);
}

#[test]
fn keys_of_an_earlier_process_are_not_used_again() {
    let keys = keys(10, 1000);
    let call = |key: &str| EdgeCall {
        tool: "files.add".to_owned(),
        arguments_digest: Some("1".to_owned()),
        key_digest: Some(named(key)),
        ..EdgeCall::default()
    };
    let lost = UsedKey::of(&call("a")).unwrap();
    let mut made = UsedKey::of(&call("b")).unwrap();
    made.succeeded();
    keys.restore(vec![lost, made]);
    assert_eq!((kept(&keys, "a"), kept(&keys, "b")), (Kept::InDoubt, Kept::Forgotten));
    assert!(UsedKey::of(&EdgeCall::default()).is_none());
}

#[test]
fn keys_are_those_of_the_gateway() {
    let cases =
        [("", false), ("run/1", true), (&*"k".repeat(256), true), (&*"k".repeat(257), false), ("a\n", false)];
    for (key, expected) in cases {
        assert_eq!(is_valid(key), expected, "{key:?}");
    }
}
