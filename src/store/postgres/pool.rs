//! Connections for reads and administration, a few at a time.
//!
//! Owns opening, reuse and the time that a read may take. A connection whose last statement did not end well is closed, not
//! reused: what it holds is unknown. Fails with [`StoreError`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connect::{Connector, DieselConnection};
use crate::store::StoreError;
use crate::store::errors::diesel_store_error;

/// How many connections there are at most. Too few: reads wait for each other; too many: the server's memory.
const CONNECTIONS_MAX: usize = 8;
/// How long a read may take, and how long it may wait for a connection.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Everything is looked up by a key; a plan made while the tables were small must not scan them later.
const SESSION_SETTINGS: &str = "SET enable_seqscan = off";

/// The connections that are not in use.
#[derive(Clone)]
pub(in crate::store) struct Pool {
    connector: Connector,
    idle: Arc<Mutex<Vec<DieselConnection>>>,
    permits: Arc<Semaphore>,
}

/// A connection in use. It goes back to the pool only through [`Lease::finish`] with a good result.
pub(in crate::store) struct Lease {
    connection: DieselConnection,
    idle: Arc<Mutex<Vec<DieselConnection>>>,
    during: &'static str,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Pool {
    pub(in crate::store) fn new(connector: Connector) -> Self {
        Self { connector, idle: Arc::default(), permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    /// Takes a connection, or opens one. `during` names what it is for, in words.
    pub(in crate::store) async fn lease(&self, during: &'static str) -> Result<Lease, StoreError> {
        let permit = tokio::time::timeout(READ_TIMEOUT, self.permits.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let reason = format!("no connection was free for {} s", READ_TIMEOUT.as_secs());
            return Err(StoreError::Unavailable { during, reason });
        };
        let connection = loop {
            // Not one that the server ended while it was idle.
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(connection) if connection.is_closed() => {}
                Some(connection) => break connection,
                None => break self.open(during).await?,
            }
        };
        Ok(Lease { connection, idle: self.idle.clone(), during, _permit: Some(permit) })
    }

    /// A connection that does not count as one of the pool's: for a transaction that stays open. It never goes back.
    pub(super) async fn detached(&self, during: &'static str) -> Result<Lease, StoreError> {
        let connection = self.open(during).await?;
        Ok(Lease { connection, idle: Arc::default(), during, _permit: None })
    }

    async fn open(&self, during: &'static str) -> Result<DieselConnection, StoreError> {
        let mut connection = self.connector.open_diesel("casework-reader", during).await?;
        let set = connection.diesel().batch_execute(SESSION_SETTINGS).await;
        set.map_err(|error| diesel_store_error(during, &error, connection.is_closed()))?;
        Ok(connection)
    }
}

impl Lease {
    /// What queries are given.
    pub(in crate::store) fn diesel(&mut self) -> &mut AsyncPgConnection {
        self.connection.diesel()
    }

    /// Ends the use: classifies an error, and gives the connection back after a good result.
    pub(in crate::store) fn finish<T>(self, result: QueryResult<T>) -> Result<T, StoreError> {
        let value = self.check(result)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.connection);
        Ok(value)
    }

    /// Classifies an error while the use goes on.
    pub(super) fn check<T>(&self, result: QueryResult<T>) -> Result<T, StoreError> {
        result.map_err(|error| diesel_store_error(self.during, &error, self.connection.is_closed()))
    }
}

/// Limits the time of a query. Its connection is not used again after the limit.
pub(in crate::store) async fn within<T>(query: impl Future<Output = QueryResult<T>>) -> QueryResult<T> {
    tokio::time::timeout(READ_TIMEOUT, query).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", READ_TIMEOUT.as_secs());
        Err(Error::DatabaseError(DatabaseErrorKind::UnableToSendCommand, Box::new(reason)))
    })
}
