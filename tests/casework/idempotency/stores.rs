//! Each kind of store, as two processes see it.

use std::sync::Arc;

use casework::idempotency::{MemoryBounds, MemoryStore, RedisStore, SqlStore};

use super::promises::{Found, Stores};
use crate::support::database::{TestDatabase, block_on};
use crate::support::redis::RedisServer;

/// One store, seen twice: memory belongs to one process.
pub fn memory() -> Stores {
    let store = Arc::new(MemoryStore::new(MemoryBounds::default()));
    Stores { first: store.clone(), second: store }
}

/// Two connections to one Redis.
pub fn redis(server: &RedisServer) -> Stores {
    let open = || Arc::new(RedisStore::open(&server.url()).unwrap());
    Stores { first: open(), second: open() }
}

/// Two sets of connections to one database.
pub fn sql(database: &TestDatabase) -> Stores {
    let open = || Arc::new(SqlStore::open(&database.url().parse().unwrap()).unwrap());
    let (first, second) = (open(), open());
    // Both at once, as two processes start.
    let (one, other) = block_on(async { tokio::join!(first.create_tables(), second.create_tables()) });
    one.unwrap();
    other.unwrap();
    Stores { first, second }
}

/// Runs a check on every kind of store and fails with all that was found.
#[track_caller]
pub fn on_every_store(check: impl Fn(&Stores) -> Found) {
    let (server, sqlite, postgres) = (RedisServer::start(), TestDatabase::sqlite(), TestDatabase::postgres());
    let mut found = Vec::new();
    for (name, stores) in
        [("memory", memory()), ("Redis", redis(&server)), ("SQLite", sql(&sqlite)), ("PostgreSQL", sql(&postgres))]
    {
        if let Err(words) = check(&stores) {
            found.push(format!("{name}: {words}"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
