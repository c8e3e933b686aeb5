use super::*;

fn call(n: u64) -> EdgeCall {
    EdgeCall { call_id: format!("c-{n}"), tool: "files.read".into(), ..EdgeCall::default() }
}

/// Returns the lines of a lease with `calls` refused calls, signed by `key`, and closed.
fn lines(calls: u64, key: &KeyPair) -> Vec<Vec<u8>> {
    let (mut prev, mut lines) = (String::new(), Vec::new());
    let mut add = |record: &dyn Fn(u64, &str) -> Record| {
        let n = lines.len() as u64 + 1;
        let (mut text, hash) = Line { n, prev: prev.clone(), at: 5, record: record(n, &prev) }.encode();
        text.pop();
        lines.push(text);
        prev = hash;
    };
    let sign = |n: u64, prev: &str| Signature::sign(key, "l-1", n, prev).unwrap();
    add(&|_, _| Record::Opened {
        lease_id: "l-1".into(),
        node: "n-1".parse().unwrap(),
        holder: key.public_key(),
        lease: "cyl1".into(),
    });
    for _ in 0..calls {
        add(&|n, _| Record::Refused { call: call(n), denied: true, error_type: "not_allowed".into() });
    }
    add(&|n, prev| Record::Head(sign(n, prev)));
    add(&|n, prev| Record::Closed { why: CloseReason::Done, head: sign(n, prev) });
    lines
}

fn problems(lines: &[Vec<u8>], holder: Option<String>) -> Vec<Problem> {
    let mut chain = EdgeVerifier::new("l-1", holder);
    lines.iter().flat_map(|line| chain.check(line).1).collect()
}

#[test]
fn every_change_to_the_lines_is_found_and_named() {
    let key = KeyPair::new_user();
    let good = lines(4, &key);
    assert_eq!(problems(&good, None), []);
    assert_eq!(problems(&good, Some(key.public_key())), []);

    let mut changed = good.clone();
    let text = String::from_utf8(changed[2].clone()).unwrap().replace("not_allowed", "rule");
    changed[2] = text.into_bytes();
    assert_eq!(problems(&changed, None), [Problem::Changed(3)]);

    let mut rehashed = good.clone();
    let (mut line, ..) = Line::decode(&good[2]).unwrap();
    line.at = 6;
    rehashed[2] = line.encode().0;
    rehashed[2].pop();
    assert_eq!(problems(&rehashed, None), [Problem::Unlinked(4)]);

    let mut without = good.clone();
    without.remove(3);
    assert_eq!(problems(&without, None), [Problem::Missing(4)]);

    let mut repeated = good.clone();
    repeated.insert(3, good[2].clone());
    assert_eq!(problems(&repeated, None), [Problem::Unlinked(4)]);

    let mut broken = good.clone();
    broken[1].truncate(30);
    assert_eq!(problems(&broken, None), [Problem::Unreadable(2)]);
}

#[test]
fn lines_of_another_holder_are_found() {
    let (key, other) = (KeyPair::new_user(), KeyPair::new_user());
    let found = problems(&lines(1, &other), Some(key.public_key()));
    let expected = |n| Problem::OtherHolder(n, other.public_key(), key.public_key());
    assert_eq!(found, [expected(3), expected(4)]);
    let mut forged = lines(1, &other);
    let (mut line, ..) = Line::decode(&forged[2]).unwrap();
    if let Record::Head(head) = &mut line.record {
        head.key = key.public_key();
    }
    forged.truncate(2);
    forged.push(line.encode().0);
    forged[2].pop();
    assert_eq!(problems(&forged, Some(key.public_key())), [Problem::BadSignature(3)]);
}

#[test]
fn nothing_follows_the_last_line() {
    let key = KeyPair::new_user();
    let mut all = lines(1, &key);
    let (last, hash, _) = Line::decode(all.last().unwrap()).unwrap();
    let mut text = Line { n: last.n + 1, prev: hash, at: 9, record: Record::Resumed }.encode().0;
    text.pop();
    all.push(text);
    assert_eq!(problems(&all, None), [Problem::AfterClose(5)]);
}
