//! The four stores of a lock, each in a home of its own, and stores that do not work as they should.
//!
//! Each [`StoreHome::open`] gives a store with connections of its own, as another process has; in memory there is but one.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use casework::lock::{
    LeaseTtl, LockName, LockStore, LockStoreError, MemoryLockStore, Owner, RedisLockStore, SemaphoreLock, SqlLockStore,
};
use casework::store::SideTables;

use crate::support::database::TestDatabase;
use crate::support::redis::RedisServer;

/// Long beside everything that a test does while it is held: a lock that opens before has been given back.
pub const LONG: Duration = Duration::from_secs(60);
/// Bound on what should come at once, on a machine that is busy.
pub const SOON: Duration = Duration::from_secs(20);

/// Where leases are kept in a test.
pub enum StoreHome {
    Memory(Arc<MemoryLockStore>),
    Redis(RedisServer),
    Sql(TestDatabase),
}

impl StoreHome {
    pub fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub fn redis() -> Self {
        Self::Redis(RedisServer::start())
    }

    pub fn sqlite() -> Self {
        Self::Sql(TestDatabase::sqlite())
    }

    pub fn postgres() -> Self {
        Self::Sql(TestDatabase::postgres())
    }

    /// A store of its own over what the others see.
    pub async fn open(&self) -> Arc<dyn LockStore> {
        match self {
            Self::Memory(store) => store.clone(),
            Self::Redis(server) => Arc::new(RedisLockStore::open(&server.url()).unwrap()),
            Self::Sql(database) => Arc::new(sql_store(database).await),
        }
    }

    /// A lock of its own over what the others see.
    pub async fn lock(&self) -> SemaphoreLock {
        SemaphoreLock::new(self.open().await)
    }
}

/// A store over a database, with its table made.
pub async fn sql_store(database: &TestDatabase) -> SqlLockStore {
    let store = SqlLockStore::new(SideTables::open(&database.url().parse().unwrap()).unwrap());
    store.create_tables().await.unwrap();
    store
}

/// A store whose steps fail or hang by order, over one that works.
pub struct Troubled {
    pub store: Arc<dyn LockStore>,
    /// No renewal reaches the store: as in a process that is paused.
    pub no_renewals: AtomicBool,
    /// Giving back takes for ever.
    pub stuck_releases: AtomicBool,
}

impl Troubled {
    pub fn new(store: Arc<dyn LockStore>) -> Arc<Self> {
        Arc::new(Self { store, no_renewals: AtomicBool::new(false), stuck_releases: AtomicBool::new(false) })
    }
}

#[async_trait]
impl LockStore for Troubled {
    async fn acquire(
        &self,
        name: &LockName,
        owner: Owner,
        ttl: LeaseTtl,
        permits: NonZeroU32,
    ) -> Result<Option<u64>, LockStoreError> {
        self.store.acquire(name, owner, ttl, permits).await
    }

    async fn renew(&self, name: &LockName, owner: Owner, ttl: LeaseTtl) -> Result<bool, LockStoreError> {
        if self.no_renewals.load(Ordering::SeqCst) {
            return Err(LockStoreError::Unavailable { during: "renewing", reason: "by order".to_owned() });
        }
        self.store.renew(name, owner, ttl).await
    }

    async fn release(&self, name: &LockName, owner: Owner) -> Result<bool, LockStoreError> {
        if self.stuck_releases.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.store.release(name, owner).await
    }
}

/// Writes each test four times: `NAME::memory`, `redis`, `sqlite` and `postgres`.
macro_rules! on_every_store {
    ($(
        $(#[doc = $doc:literal])*
        async fn $name:ident($home:ident: &StoreHome) $body:block
    )+) => { $(
        $(#[doc = $doc])*
        mod $name {
            use super::*;
            use $crate::lock::fixture::StoreHome;
            use $crate::support::database::block_on;

            async fn check($home: &StoreHome) $body

            #[test]
            fn memory() {
                block_on(check(&StoreHome::memory()));
            }

            #[test]
            fn redis() {
                block_on(check(&StoreHome::redis()));
            }

            #[test]
            fn sqlite() {
                block_on(check(&StoreHome::sqlite()));
            }

            #[test]
            fn postgres() {
                block_on(check(&StoreHome::postgres()));
            }
        }
    )+ };
}
