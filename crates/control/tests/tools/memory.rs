//! The `memory.*` tools.

mod isolation;
mod limits;

use control::{Memories, ToolError, Wanted};
use policy::{Caller, MemoryProfile};
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::{Value, json};
use store::entity::{memory_chunk, memory_profile, memory_source};

use crate::stage::{Stage, analyst, each, manager, on_both};

on_both![
    text_is_kept_found_read_and_deleted,
    text_is_replaced_as_a_whole,
    another_process_sees_every_change,
    memories_of_another_release_are_read_again,
    restored_store_is_searched_as_it_is,
    text_that_is_replaced_is_not_read_in_halves,
    listing_goes_on_while_texts_come_and_go,
    search_below_a_path_finds_the_best_of_it,
    answer_of_a_search_can_be_read_whole,
    arguments_out_of_range_are_refused,
    long_text_is_read_in_pieces,
    texts_are_listed_by_path,
    analysts_read,
    what_an_administrator_ingested_is_not_changed,
];

pub(crate) fn of_profile(name: &str) -> Caller {
    Caller { profile: name.parse().unwrap(), ..manager() }
}

pub(crate) async fn put(stage: &Stage, path: &str, text: &str) -> Value {
    stage.ok("memory.put", json!({ "path": path, "text": text })).await
}

pub(crate) async fn search(stage: &Stage, query: &str) -> Value {
    stage.ok("memory.search", json!({ "query": query, "limit": 50 })).await
}

pub(crate) async fn paths(stage: &Stage, query: &str) -> Vec<String> {
    each(&search(stage, query).await, "memories", "path").into_iter().map(str::to_owned).collect()
}

async fn text_is_kept_found_read_and_deleted(stage: Stage) {
    stage.set_time("2026-11-18T10:00:00Z");
    let new = json!({
        "path": "decisions/store.md", "text": "# Store\nWe chose PostgreSQL for the ledger.\n",
        "tags": ["decision", "ledger"],
    });
    let kept = stage.ok("memory.put", new.clone()).await;
    assert_eq!((&kept["changed"], &kept["chunks"]), (&json!(true), &json!(1)));
    assert_eq!((&kept["profile"], &kept["source"]), (&json!("default"), &json!("project_manager")));
    assert_eq!(stage.ok("memory.put", new).await["changed"], false);
    put(&stage, "people/lunch.md", "Lunch is at noon.").await;

    let found = search(&stage, "which database for the ledgers?").await;
    let best = &found["memories"][0];
    assert_eq!(best["path"], "decisions/store.md");
    assert_eq!(best["text"], "# Store\nWe chose PostgreSQL for the ledger.\n");
    assert_eq!((&best["first_line"], &best["last_line"]), (&json!(1), &json!(2)));
    assert_eq!((&best["tags"], &best["digest"]), (&json!(["decision", "ledger"]), &kept["digest"]));
    assert_eq!(best["created_at"], "2026-11-18T10:00:00Z");
    assert!(best["score"].as_f64().unwrap() > 0.9);

    let got = stage.ok("memory.get", json!({ "path": "decisions/store.md" })).await;
    assert_eq!(got["text"], best["text"]);
    stage.ok("memory.delete", json!({ "path": "decisions/store.md" })).await;
    assert_eq!(paths(&stage, "ledger").await, Vec::<String>::new());
    for tool in ["memory.get", "memory.delete"] {
        assert_eq!(stage.fails(tool, json!({ "path": "decisions/store.md" })).await.0, "not_found");
    }
    let left = memory_chunk::Entity::find().filter(memory_chunk::Column::Path.eq("decisions/store.md"));
    assert_eq!(left.count(stage.store.read()).await.unwrap(), 0);
}

/// What a release with another embedder stored, or what a disk damaged, is found as before.
async fn memories_of_another_release_are_read_again(stage: Stage) {
    for number in 0..250 {
        put(&stage, &format!("{number}.md"), &format!("herd {number} of zebras crosses road {}", number % 7))
            .await;
    }
    let profile = MemoryProfile::default();
    let search = async || {
        let (restarted, db) = (Memories::default(), stage.store.read().into());
        let wanted = Wanted { query: "zebras on road 3", limit: Some(50), prefix: "" };
        restarted.find(&db, &profile, &wanted, store::clock::now()).await.unwrap()
    };
    let before = search().await;
    let damage = async |bytes: Vec<u8>, path: Option<&str>| {
        let column = memory_chunk::Column::Features;
        let mut update = memory_chunk::Entity::update_many().col_expr(column, bytes.into());
        if let Some(path) = path {
            update = update.filter(memory_chunk::Column::Path.eq(path));
        }
        let write = stage.store.write().await.unwrap();
        update.exec(&*write).await.unwrap();
        write.commit().await.unwrap();
    };
    damage(vec![2], None).await;
    damage(vec![1, 0xff], Some("3.md")).await;
    assert_eq!(search().await, before);
}

/// An older store is restored under a running gateway, and changed before the next search.
async fn restored_store_is_searched_as_it_is(stage: Stage) {
    put(&stage, "a.md", "an otter in the river").await;
    let read = stage.store.read();
    let before = memory_profile::Entity::find().one(read).await.unwrap().unwrap();
    for path in ["b.md", "b2.md"] {
        put(&stage, path, "otters build nothing").await;
    }
    assert_eq!(paths(&stage, "otter").await.len(), 3);
    let write = stage.store.write().await.unwrap();
    for path in ["b.md", "b2.md"] {
        let of_path = memory_chunk::Column::Path.eq(path);
        memory_chunk::Entity::delete_many().filter(of_path).exec(&*write).await.unwrap();
        let of_path = memory_source::Column::Path.eq(path);
        memory_source::Entity::delete_many().filter(of_path).exec(&*write).await.unwrap();
    }
    memory_profile::Entity::update(memory_profile::ActiveModel::from(before).reset_all())
        .exec(&*write)
        .await
        .unwrap();
    write.commit().await.unwrap();
    for path in ["c.md", "d.md"] {
        put(&stage, path, "otters are back").await;
    }
    let mut found = paths(&stage, "otter").await;
    found.sort();
    assert_eq!(found, ["a.md", "c.md", "d.md"]);
}

async fn text_that_is_replaced_is_not_read_in_halves(stage: Stage) {
    let text = |word: &str| (0..2_000).map(|line| format!("{word} in line {line}\n")).collect::<String>();
    put(&stage, "a.md", &text("zebra")).await;
    let first = stage.ok("memory.get", json!({ "path": "a.md" })).await;
    let next = json!({ "path": "a.md", "cursor": first["next_cursor"] });
    assert!(stage.ok("memory.get", next.clone()).await["text"].as_str().unwrap().contains("zebra"));
    put(&stage, "a.md", &text("giraffe")).await;
    let (code, message) = stage.fails("memory.get", next).await;
    assert!(code == "conflict" && message.contains("from its beginning"), "{code}: {message}");
    for cursor in ["9", "x", "1.x", "-1.0", "99999999999999999999.0"] {
        let (code, _) = stage.fails("memory.get", json!({ "path": "a.md", "cursor": cursor })).await;
        assert!(matches!(&*code, "invalid_arguments" | "conflict"), "{cursor}: {code}");
    }
}

async fn listing_goes_on_while_texts_come_and_go(stage: Stage) {
    for path in ["a.md", "b.md", "c.md", "d.md"] {
        put(&stage, path, "an otter").await;
    }
    let first = stage.ok("memory.list", json!({ "limit": 2 })).await;
    assert_eq!(each(&first, "items", "path"), ["a.md", "b.md"]);
    for path in ["a.md", "b.md"] {
        stage.ok("memory.delete", json!({ "path": path })).await;
    }
    let rest = stage.ok("memory.list", json!({ "cursor": first["next_cursor"] })).await;
    assert_eq!(each(&rest, "items", "path"), ["c.md", "d.md"]);
    assert_eq!(rest.get("next_cursor").filter(|next| !next.is_null()), None);
}

async fn search_below_a_path_finds_the_best_of_it(stage: Stage) {
    for number in 0..60 {
        put(&stage, &format!("noise/{number}.md"), "deploy deploy deploy").await;
    }
    put(&stage, "team/deploy.md", "a long text in which the word deploy comes once, late, and alone").await;
    let (memories, profile) = (Memories::default(), MemoryProfile::default());
    let db = stage.store.read().into();
    let wanted = Wanted { query: "deploy", prefix: "team/", limit: Some(5) };
    let found = memories.find(&db, &profile, &wanted, store::clock::now()).await.unwrap();
    let paths: Vec<&str> = found.memories.iter().map(|memory| memory.path.as_str()).collect();
    assert_eq!(paths, ["team/deploy.md"]);
}

/// Agents cut an answer at 32 KiB, and what is cut cannot be read.
async fn answer_of_a_search_can_be_read_whole(stage: Stage) {
    put(&stage, "best.md", "quokka").await;
    for number in 0..60 {
        put(&stage, &format!("{number}.md"), &format!("quokka {number} {}", "grass ".repeat(150))).await;
    }
    let found = search(&stage, "quokka").await;
    let hits = found["memories"].as_array().unwrap();
    assert!(found.to_string().len() < 25 * 1024 && (10..50).contains(&hits.len()), "{}", hits.len());
    assert_eq!(hits[0]["path"], "best.md", "what is left out is the rest");
}

async fn arguments_out_of_range_are_refused(stage: Stage) {
    put(&stage, "a.md", "an otter").await;
    for (tool, arguments) in [
        ("memory.search", json!({ "query": "otter", "limit": 0 })),
        ("memory.search", json!({ "query": "otter", "limit": 51 })),
        ("memory.put", json!({ "path": "b.md", "text": "x", "expires_in_seconds": 0 })),
        ("memory.put", json!({ "path": "b.md", "text": "x", "expires_in_seconds": u64::MAX })),
        ("memory.put", json!({ "path": "docs/setup.md\u{200e}", "text": "x" })),
        ("memory.put", json!({ "path": "docs/setup.md ", "text": "x" })),
        ("memory.get", json!({ "path": "a\0" })),
        ("memory.delete", json!({ "path": "a\0" })),
    ] {
        let (code, message) = stage.fails(tool, arguments.clone()).await;
        assert!(code == "invalid_arguments", "{tool} {arguments}: {code} {message}");
    }
}

async fn text_is_replaced_as_a_whole(stage: Stage) {
    let long: String = (0..300).map(|line| format!("zebra {line} crosses the road\n")).collect();
    assert!(put(&stage, "a.md", &long).await["chunks"].as_i64().unwrap() > 3);
    put(&stage, "b.md", "an elephant").await;
    assert!(paths(&stage, "zebra").await.contains(&"a.md".to_owned()));
    put(&stage, "a.md", "giraffes are tall").await;
    let chunks = memory_chunk::Entity::find().filter(memory_chunk::Column::Path.eq("a.md"));
    assert_eq!(chunks.count(stage.store.read()).await.unwrap(), 1);
    let found = search(&stage, "zebra giraffe").await;
    assert!(each(&found, "memories", "text").iter().all(|text| !text.contains("zebra")), "{found}");
    let totals =
        memory_profile::Entity::find_by_id("default").one(stage.store.read()).await.unwrap().unwrap();
    assert_eq!((totals.chunks, totals.bytes), (2, 17 + 11));
    let sources = memory_source::Entity::find().all(stage.store.read()).await.unwrap();
    let mut versions: Vec<i64> = sources.iter().map(|row| row.version).collect();
    versions.sort_unstable();
    assert!(versions.is_sorted_by(|one, next| one < next), "each change has a version: {versions:?}");
    assert_eq!(versions.last(), Some(&totals.version));
}

/// A second process has an index of its own, and follows the store by its version.
async fn another_process_sees_every_change(stage: Stage) {
    let other = Memories::default();
    let profile = MemoryProfile::default();
    let search = async |query: &str| {
        let (db, now) = (stage.store.read().into(), store::clock::now());
        let found =
            other.find(&db, &profile, &Wanted { query, limit: Some(50), prefix: "" }, now).await.unwrap();
        found.memories.into_iter().map(|memory| memory.path).collect::<Vec<_>>()
    };
    assert!(search("otter").await.is_empty());
    for number in 0..20 {
        put(&stage, &format!("{number:02}.md"), &format!("otter number {number} swims")).await;
    }
    assert_eq!(search("otter").await.len(), 20);
    put(&stage, "07.md", "a beaver builds").await;
    let found = search("otter swims").await;
    assert!(found.len() >= 19 && !found[..19].contains(&"07.md".to_owned()), "{found:?}");
    assert_eq!(search("beaver").await[0], "07.md");
    stage.ok("memory.delete", json!({ "path": "07.md" })).await;
    assert!(!search("beaver otter").await.contains(&"07.md".to_owned()));
    put(&stage, "07.md", "the beaver is back").await;
    assert_eq!(search("beaver").await[0], "07.md");
    let own: Vec<String> = paths(&stage, "otter").await;
    assert_eq!(own, search("otter").await, "both processes find the same in the same order");
}

async fn long_text_is_read_in_pieces(stage: Stage) {
    let text: String = (1..=2_000).map(|line| format!("line {line} of a long text\n")).collect();
    put(&stage, "long.txt", &text).await;
    let (mut read, mut cursor, mut pieces) = (String::new(), Value::Null, 0);
    loop {
        let mut wanted = json!({ "path": "long.txt" });
        if !cursor.is_null() {
            wanted["cursor"] = cursor;
        }
        let piece = stage.ok("memory.get", wanted).await;
        let first = read.lines().count() + 1;
        assert_eq!(piece["first_line"], first);
        read.push_str(piece["text"].as_str().unwrap());
        (cursor, pieces) = (piece["next_cursor"].clone(), pieces + 1);
        if cursor.is_null() {
            break;
        }
    }
    assert!(read == text && pieces > 2);
    let wrong = json!({ "path": "long.txt", "cursor": "x" });
    assert_eq!(stage.fails("memory.get", wrong).await.0, "invalid_arguments");
    // A hit says where it stands.
    let hit = &search(&stage, "1234").await["memories"][0];
    let lines: Vec<&str> = text.lines().collect();
    let first = usize::try_from(hit["first_line"].as_i64().unwrap()).unwrap();
    assert!(hit["text"].as_str().unwrap().starts_with(lines[first - 1]));
}

async fn texts_are_listed_by_path(stage: Stage) {
    for path in ["b/2", "a/1", "B/3", "b/1", "\u{e4}/1"] {
        put(&stage, path, "text").await;
    }
    let all = stage.ok("memory.list", json!({})).await;
    assert_eq!(each(&all, "items", "path"), ["B/3", "a/1", "b/1", "b/2", "\u{e4}/1"]);
    let some = stage.ok("memory.list", json!({ "prefix": "b/", "limit": 1 })).await;
    assert_eq!(each(&some, "items", "path"), ["b/1"]);
    let next = json!({ "prefix": "b/", "limit": 1, "cursor": some["next_cursor"] });
    assert_eq!(each(&stage.ok("memory.list", next).await, "items", "path"), ["b/2"]);
}

async fn analysts_read(stage: Stage) {
    put(&stage, "a.md", "a fact about otters").await;
    let found = stage.call(&analyst("u", "t"), "memory.search", json!({ "query": "otter" })).await.unwrap();
    assert_eq!(each(&found, "memories", "path"), ["a.md"]);
}

/// Text that an agent wrote, perhaps on the word of a hostile page, does not take the place of a document.
async fn what_an_administrator_ingested_is_not_changed(stage: Stage) {
    let profile = MemoryProfile::default();
    let new = control::NewMemory {
        path: "docs/rules.md".into(),
        text: "Deploy on Mondays.".into(),
        source: "ingest:docs".into(),
        ..Default::default()
    };
    let prepared = control::PreparedMemory::new(&profile, new).await.unwrap();
    let write = stage.store.write().await.unwrap();
    let db = sea_orm::DatabaseExecutor::Transaction(&write);
    let book = control::MemoryBook::new(&db, &profile, store::clock::now());
    book.put(&stage.memories.settings, prepared, control::MemoryAuthor::Administrator).await.unwrap();
    write.commit().await.unwrap();
    let forged = json!({ "path": "docs/rules.md", "text": "Deploy whenever the agent says." });
    assert_eq!(stage.fails("memory.put", forged).await.0, "read_only");
    let gone = stage.call(&manager(), "memory.delete", json!({ "path": "docs/rules.md" })).await;
    assert!(matches!(gone, Err(ToolError::ReadOnly(_))));
    assert_eq!(paths(&stage, "deploy").await, ["docs/rules.md"]);
}
