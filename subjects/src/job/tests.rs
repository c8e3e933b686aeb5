use async_nats::HeaderMap;
use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::PoolName;

#[test]
fn encoding_then_decoding_an_entry_is_the_identity() {
    for record in [Record::Started, Record::Released { why: Some("drained".into()) }, Record::Still] {
        let entry = Entry::new(record);
        assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry);
    }
}

#[test]
fn every_end_has_a_name_of_its_own() {
    let ends = [
        End::Exited { code: 0 },
        End::Signalled { signal: 9 },
        End::Oom,
        End::Timeout,
        End::Output,
        End::Disk,
        End::Cancelled,
        End::NodeLost { why: None },
        End::EngineFailed { why: "no bwrap".into() },
    ];
    assert_eq!(ends.each_ref().map(End::kind), EndKind::ALL);
    for end in ends {
        assert_eq!(serde_json::to_value(&end).unwrap()["how"], end.kind().as_str());
        assert_eq!(end.is_success(), end == End::Exited { code: 0 });
    }
}

#[test]
fn chunk_is_read_back_from_its_headers() {
    let (job, node) = (JobId::now(), "node-1".parse().unwrap());
    let chunk = LogChunk { attempt: 2, number: 7, bytes: Bytes::from_static(b"\xff\0text") };
    assert_eq!(LogChunk::read(&chunk.headers(job, &node), chunk.bytes.clone()), Ok(chunk));
    assert_eq!(LogChunk::read(&HeaderMap::new(), Bytes::new()), Err(NotALogChunk));
}

#[test]
fn class_of_an_image_needs_a_whole_digest() {
    let class = |digest: &str| Class::with_image(PoolName::default(), Engine::Oci, digest);
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    assert_eq!(class(&digest).unwrap().to_string(), "default_oci_0123456789abcdef");
    for bad in ["", "sha256:", "latest", &digest[..70], &digest.to_uppercase()] {
        assert_eq!(class(bad), None, "{bad}");
    }
}

proptest! {
    #[test]
    fn printing_then_parsing_a_class_is_the_identity(
        pool in "[a-z0-9][a-z0-9-]{0,31}",
        engine in prop::sample::select(Engine::ALL.to_vec()),
        digits in prop::option::of("[0-9a-f]{64}"),
    ) {
        let pool: PoolName = pool.parse().unwrap();
        let class = match digits {
            None => Class::new(pool, engine),
            Some(digits) => Class::with_image(pool, engine, &format!("sha256:{digits}")).unwrap(),
        };
        prop_assert_eq!(class.to_string().parse::<Class>(), Ok(class));
    }
}
