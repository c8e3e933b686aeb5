//! Tests the PostgreSQL helpers that the store tests use.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use testkit::Postgres;

#[test]
fn postgres_keeps_committed_data_when_it_is_killed() {
    let mut server = Postgres::start();
    let database = server.database();
    server.sql(&database, "CREATE TABLE kept (number int)");
    server.sql(&database, "INSERT INTO kept VALUES (7)");
    server.kill();
    server.start_again();
    assert_eq!(server.sql(&database, "SELECT number, 'x' FROM kept"), "7|x");
}

#[test]
fn postgres_gives_each_test_a_database_of_its_own() {
    let server = Postgres::start_with(&[("max_connections", "7")]);
    let (one, other) = (server.database(), server.database());
    assert_ne!(one, other);
    server.sql(&one, "CREATE TABLE mine (number int)");
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
    assert_eq!((server.sql(&one, tables).as_str(), server.sql(&other, tables).as_str()), ("1", "0"));
    assert_eq!(server.sql(&one, "SHOW max_connections"), "7");
}

#[test]
fn postgres_leaves_nothing_behind() {
    let (id, folder) = {
        let server = Postgres::start();
        (server.process().id(), PathBuf::from(server.folder()))
    };
    assert!(!folder.exists(), "{} is still there", folder.display());
    assert!(!Path::new(&format!("/proc/{id}")).exists(), "process {id} is still there");
    // The template exists by now, so this is the cost for each test.
    let started = Instant::now();
    drop(Postgres::start());
    println!("start and stop took {:?}", started.elapsed());
}
