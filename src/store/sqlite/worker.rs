//! Threads that own SQLite connections: work is sent to them as closures.
//!
//! Owns the threads, the bounded queue before them and when a connection is opened again. A plain connection on a thread of
//! its own is seven times as fast as one behind an async wrapper. The threads end when the last handle is dropped. Fails
//! with [`StoreError`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use diesel::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use super::connect::{Role, open};
use crate::store::StoreError;

/// How many closures may wait. Senders wait for a place, so a flood is held where it begins.
const QUEUE_MAX: usize = 64;

type Job = Box<dyn FnOnce(&mut Slot) + Send>;

/// A thread's connection: opened by the first work that needs it.
pub(super) struct Slot {
    path: Arc<str>,
    role: Role,
    connection: Option<SqliteConnection>,
}

impl Slot {
    /// The connection; opens it if there is none.
    pub(super) fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => open(&self.path, self.role)?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Closes the connection. What it had not committed is rolled back; the next work opens a new one.
    pub(super) fn close(&mut self) {
        self.connection = None;
    }
}

/// A handle to some threads that do the same kind of work. Cheap to clone.
#[derive(Clone)]
pub(in crate::store) struct Workers(mpsc::Sender<Job>);

impl Workers {
    /// Starts `count` threads named `name`.
    pub(in crate::store) fn start(name: &str, count: usize, path: &str, role: Role) -> Result<Self, StoreError> {
        let (sender, receiver) = mpsc::channel::<Job>(QUEUE_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..count {
            let receiver = receiver.clone();
            let mut slot = Slot { path: path.into(), role, connection: None };
            let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                loop {
                    // One thread waits in the channel, the others for the lock.
                    let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
                    let Some(job) = job else { return };
                    if catch_unwind(AssertUnwindSafe(|| job(&mut slot))).is_err() {
                        tracing::error!("work on a database thread panicked; its connection is opened anew");
                        slot.close();
                    }
                }
            });
            spawned.map_err(|error| StoreError::Unavailable {
                during: "starting a database thread",
                reason: error.to_string(),
            })?;
        }
        Ok(Self(sender))
    }

    /// Runs `work` on one of the threads. It runs to its end also when nobody waits for its result any more; `None`: it
    /// panicked.
    pub(super) async fn run_on_slot<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Slot) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |slot| {
            // The caller may be gone; its work is done all the same.
            let _ = sender.send(work(slot));
        });
        self.0.send(job).await.ok()?;
        receiver.await.ok()
    }

    /// Has `work` run some time later, unless so much waits already that there is no place for it.
    pub(super) fn offer(&self, work: impl FnOnce(&mut Slot) + Send + 'static) {
        // Refused: whoever offers does so again.
        let _ = self.0.try_send(Box::new(work));
    }

    /// Runs `work` with a connection. `during` names it, in words.
    pub(in crate::store) async fn run<T: Send + 'static>(
        &self,
        during: &'static str,
        work: impl FnOnce(&mut SqliteConnection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let result = self.run_on_slot(move |slot| slot.connection().and_then(work)).await;
        result.unwrap_or_else(|| {
            Err(StoreError::Unavailable { during, reason: "the work on the database thread panicked".into() })
        })
    }
}
