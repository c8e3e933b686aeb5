use super::*;

fn call(id: &str) -> EdgeCall {
    EdgeCall { call_id: id.into(), tool: "files.read".into(), ..EdgeCall::default() }
}

fn ended(of: u64) -> Record {
    Record::Ended { of, outcome: subjects::edge::Outcome::Success, error_type: None, duration_us: 1 }
}

fn opened(key: &KeyPair) -> Record {
    let (node, holder) = ("n-1".parse().unwrap(), key.public_key());
    Record::Opened { lease_id: "l-1".into(), node, holder, lease: "cyl1".into() }
}

fn problems(path: &Path, key: &KeyPair) -> usize {
    let mut chain = EdgeVerifier::new("l-1", Some(key.public_key()));
    split_lines(&std::fs::read(path).unwrap()).map(|line| chain.check(line).1.len()).sum()
}

#[test]
fn a_full_audit_refuses_calls_and_still_records_their_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (folder.path().join("l-1.audit"), Arc::new(KeyPair::new_user()));
    let file = AuditFile::create(&path, "l-1", key.clone(), (12, u64::MAX)).unwrap();
    file.append(1, opened(&key)).unwrap();
    let mut begun = Vec::new();
    loop {
        match file.append(2, Record::Began(call("c"))) {
            Ok(n) => begun.push(n),
            Err(AppendError::Full) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(begun.len() >= 3, "{begun:?}");
    begun.iter().for_each(|of| assert!(file.append(3, ended(*of)).is_ok()));
    file.close(4, CloseReason::Full).unwrap();
    assert!(file.head().0 <= 12);
    assert!(matches!(file.append(5, Record::Resumed), Err(AppendError::Closed | AppendError::Full)));
    assert_eq!(problems(&path, &key), 0);
    let bytes = AuditFile::create(&folder.path().join("b"), "l-1", key.clone(), (1000, 5000)).unwrap();
    bytes.append(1, opened(&key)).unwrap();
    assert!(matches!(bytes.append(2, Record::Began(call("c"))), Err(AppendError::Full)));
}

#[test]
fn half_a_line_is_removed_and_any_other_damage_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (folder.path().join("l-1.audit"), Arc::new(KeyPair::new_user()));
    let file = AuditFile::create(&path, "l-1", key.clone(), (1000, u64::MAX)).unwrap();
    file.append(1, opened(&key)).unwrap();
    let first = file.append(2, Record::Began(call("c-1"))).unwrap();
    file.append(3, ended(first)).unwrap();
    file.append(4, Record::Began(call("c-2"))).unwrap();
    drop(file);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&whole[..], b"0123 {\"n\":5,"].concat()).unwrap();
    let left = AuditFile::recover(&path, "l-1", key.clone(), (1000, u64::MAX)).unwrap().unwrap();
    assert_eq!((left.torn_bytes, left.last_at, left.pending.len()), (12, 4, 1));
    assert_eq!(left.pending[0].2.call_id, "c-2");
    left.file.append(5, Record::Repaired { bytes: 12 }).unwrap();
    left.file.close(6, CloseReason::Restarted).unwrap();
    assert_eq!(problems(&path, &key), 0);
    let changed = String::from_utf8(std::fs::read(&path).unwrap()).unwrap().replace("c-1", "c-9");
    std::fs::write(&path, changed).unwrap();
    assert!(AuditFile::recover(&path, "l-1", key, (1000, u64::MAX)).unwrap().is_none());
}

#[test]
fn every_so_many_lines_are_signed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (folder.path().join("l-1.audit"), Arc::new(KeyPair::new_user()));
    let file = AuditFile::create(&path, "l-1", key.clone(), (1000, u64::MAX)).unwrap();
    file.append(1, opened(&key)).unwrap();
    for _ in 0..100 {
        let of = file.append(2, Record::Began(call("c"))).unwrap();
        file.append(3, ended(of)).unwrap();
    }
    let lines = std::fs::read_to_string(&path).unwrap();
    assert_eq!(lines.matches("\"record\":\"head\"").count(), 3);
    assert_eq!(problems(&path, &key), 0);
}
