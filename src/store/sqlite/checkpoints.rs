//! Copies the write-ahead log back into the file beside the commits, not within one.
//!
//! A commit that finds the log too long copies it back itself (`wal_autocheckpoint`) and keeps everybody waiting for as
//! long; here a thread with a connection of its own does so before, and leaves the little that was written meanwhile. A
//! hint and no more: nothing depends on it, and what fails here is found again by the writer's own copying.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use diesel::connection::SimpleConnection;

use super::connect::Role;
use super::worker::Workers;
use crate::store::StoreError;
use crate::store::errors::describe;

/// In operations, each of which writes about five pages. Higher: more is left to the commit that starts the log anew;
/// lower: pages that change often are copied more often.
const OPERATIONS_BETWEEN: usize = 4_000;

/// When to copy, and the thread that does it.
#[derive(Clone)]
pub(super) struct Checkpoints {
    copier: Workers,
    /// Operations since the last copying began.
    operations: Arc<AtomicUsize>,
}

impl Checkpoints {
    /// Starts the thread for the file at `path`; it opens the file when there is work.
    pub(super) fn start(path: &str) -> Result<Self, StoreError> {
        let copier = Workers::start("casework-sqlite-checkpoint", 1, path, Role::Writer)?;
        Ok(Self { copier, operations: Arc::default() })
    }

    /// So many operations were committed. Never waits.
    pub(super) fn committed(&self, operations: usize) {
        if self.operations.fetch_add(operations, Relaxed) + operations < OPERATIONS_BETWEEN {
            return;
        }
        self.operations.store(0, Relaxed);
        self.copier.offer(|slot| {
            let copied = slot.connection().map_err(|error| error.to_string()).and_then(|connection| {
                // PASSIVE waits for nobody: it copies what no reader and no writer needs any more.
                connection.batch_execute("PRAGMA wal_checkpoint(PASSIVE)").map_err(|error| describe(&error))
            });
            if let Err(reason) = copied {
                tracing::debug!(reason, "the write-ahead log was not copied back; a later commit does so");
                slot.close();
            }
        });
    }
}
