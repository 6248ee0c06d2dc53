//! A committing connection to PostgreSQL and its place behind the fence.
//!
//! Owns one writer id, its epoch and the one connection that commits under them. Never reads for anyone, never decides
//! whether to try again. Once a commit has no clear answer it sends nothing more until [`Writer::fence`] has held, also when
//! the future of that commit was dropped.

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Statement;
use uuid::Uuid;

use super::commit::{AnswerRow, Columns, answers, plain_text, skipping_text, waiting_text};
use super::connect::{Connector, RawConnection};
use super::fence::{raise, writer_connection_name};
use crate::engine::Chain;
use crate::store::errors::{postgres_commit_error, postgres_session_is_stale, postgres_store_error};
use crate::store::{BatchAnswer, ChainAnswer, CommitError, CommitFault, LockMode, RetryCause, StoreError, Writer};

/// How long a batch may take beside waiting for locks; after that its answer counts as lost.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// In [`LockMode::Skip`] nothing should wait. What still can: an `open` of a case that a person is just inserting, and the
/// fence. Too low: needless second sends; too high: that person holds up the batch for longer.
const SKIP_PATIENCE: Duration = Duration::from_millis(1_000);
/// One plan for every batch size, and no sequential scan in it: a plan made on small tables would stay.
const SESSION_SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
                                SET default_transaction_isolation = 'read committed'";
const INSERT_WRITER: &str = "INSERT INTO writers (writer_id, node, epoch) VALUES ($1, $2, 1)";

/// An open connection with the statement prepared in each of its texts.
struct Session {
    connection: RawConnection,
    plain: Statement,
    skipping: Statement,
    waiting: Statement,
    lock_timeout: Option<Duration>,
}

/// One committing connection.
pub(super) struct PostgresWriter {
    connector: Connector,
    node: String,
    writer_id: String,
    epoch: i64,
    session: Option<Session>,
    is_unclear: bool,
}

impl PostgresWriter {
    /// Draws a writer id, which is never used twice, and opens its connection.
    pub(super) async fn open(connector: Connector, node: &str) -> Result<Self, StoreError> {
        let mut writer = Self {
            connector,
            node: node.to_owned(),
            writer_id: String::new(),
            epoch: 0,
            session: None,
            is_unclear: false,
        };
        writer.enrol().await?;
        Ok(writer)
    }

    /// Becomes a new writer: a fresh id at epoch 1.
    async fn enrol(&mut self) -> Result<(), StoreError> {
        let during = "registering a writer";
        self.writer_id = Uuid::new_v4().simple().to_string();
        self.epoch = 1;
        let session = Session::open(&self.connector, &self.writer_id).await;
        let session = session.map_err(|error| postgres_store_error(during, &error))?;
        let inserted = session.connection.client().execute(INSERT_WRITER, &[&self.writer_id, &self.node]).await;
        inserted.map_err(|error| postgres_store_error(during, &error))?;
        self.session = Some(session);
        Ok(())
    }

    /// Sends one batch. What comes back as an error is classified by the caller.
    async fn send(&mut self, batch: &[&Chain], lock: LockMode) -> Result<BatchAnswer, CommitError> {
        if self.session.is_none() {
            let opened = Session::open(&self.connector, &self.writer_id).await;
            // No batch was sent: whatever the reason, nothing is written.
            self.session = Some(opened.map_err(|error| CommitError {
                fault: CommitFault::Failed,
                reason: postgres_commit_error(&error).reason,
            })?);
        }
        self.is_unclear = true;
        let session = self.session.as_mut().expect("it was opened above");
        let patience = COMMIT_TIMEOUT + if let LockMode::Wait(wait) = lock { wait } else { SKIP_PATIENCE };
        let sent = session.send(batch, lock, &self.writer_id, self.epoch);
        let error = match tokio::time::timeout(patience, sent).await {
            Ok(Ok(rows)) => {
                let answered = answers(batch, &rows);
                self.is_unclear = answered.is_none();
                return answered.ok_or_else(|| CommitError {
                    fault: CommitFault::Unclear,
                    reason: "the rows of the answer do not fit the batch".into(),
                });
            }
            Ok(Err(error)) => {
                if postgres_session_is_stale(&error) {
                    self.session = None;
                }
                postgres_commit_error(&error)
            }
            Err(_) => CommitError {
                fault: CommitFault::Unclear,
                reason: format!("no answer within {} s", patience.as_secs()),
            },
        };
        self.is_unclear = error.fault == CommitFault::Unclear;
        if self.is_unclear {
            self.session = None;
        }
        Err(error)
    }

    /// What is left of a batch when an `open` has to wait for a person who is just inserting that case: without its
    /// opens it waits for nothing, and they are answered as locked.
    async fn send_without_opens(&mut self, batch: &[&Chain]) -> Result<BatchAnswer, CommitError> {
        let is_open = |chain: &Chain| chain.step.is_some() && chain.expected.get() == 0;
        let others: Vec<&Chain> = batch.iter().copied().filter(|chain| !is_open(chain)).collect();
        let answer = self.send(&others, LockMode::Skip).await.map_err(|mut error| {
            // The fence itself is in the way: soon the epoch is another one, and the answer clear.
            if error.fault == CommitFault::Locked {
                error.fault = CommitFault::Retry(RetryCause::Busy);
            }
            error
        })?;
        let BatchAnswer::Settled(answers) = answer else { return Ok(answer) };
        let mut answers = answers.into_iter();
        let merged = batch.iter().map(|chain| match is_open(chain) {
            true => ChainAnswer::Locked,
            false => answers.next().expect("one answer a chain was checked when they were read"),
        });
        Ok(BatchAnswer::Settled(merged.collect()))
    }
}

#[async_trait]
impl Writer for PostgresWriter {
    async fn commit(&mut self, batch: &[Chain], lock: LockMode) -> Result<BatchAnswer, CommitError> {
        if self.is_unclear {
            let reason = "an earlier commit has no clear answer, and the fence was not raised since".into();
            return Err(CommitError { fault: CommitFault::Unclear, reason });
        }
        debug_assert!(batch.is_sorted_by(|a, b| a.case_id < b.case_id), "each case once, in key order");
        let batch: Vec<&Chain> = batch.iter().collect();
        match self.send(&batch, lock).await {
            Err(error) if error.fault == CommitFault::Locked && lock == LockMode::Skip => {
                self.send_without_opens(&batch).await
            }
            answer => answer,
        }
    }

    async fn fence(&mut self) -> Result<(), StoreError> {
        // The old socket is closed first: a server that can notice it ends the old batch sooner.
        self.session = None;
        self.is_unclear = true;
        match raise(&self.connector, &self.writer_id).await? {
            Some(epoch) => {
                self.epoch = epoch;
                let session = Session::open(&self.connector, &self.writer_id).await;
                self.session = Some(session.map_err(|error| postgres_store_error("reconnecting a writer", &error))?);
            }
            // Someone removed the row, which fences as well. A row that came back at epoch 1 would let old batches
            // through, so the id is never inserted again.
            None => self.enrol().await?,
        }
        self.is_unclear = false;
        Ok(())
    }
}

impl Session {
    async fn open(connector: &Connector, writer_id: &str) -> Result<Self, tokio_postgres::Error> {
        let connection = connector.open_raw(&writer_connection_name(writer_id)).await?;
        let client = connection.client();
        client.batch_execute(SESSION_SETTINGS).await?;
        let plain = client.prepare(&plain_text()).await?;
        let skipping = client.prepare(&skipping_text()).await?;
        let waiting = client.prepare(&waiting_text()).await?;
        Ok(Self { connection, plain, skipping, waiting, lock_timeout: None })
    }

    async fn send(
        &mut self,
        batch: &[&Chain],
        lock: LockMode,
        writer_id: &str,
        epoch: i64,
    ) -> Result<Vec<AnswerRow>, tokio_postgres::Error> {
        let client = self.connection.client();
        let columns = Columns::of(batch);
        let (statement, lock_timeout) = match lock {
            LockMode::Skip if columns.are_plain() => (&self.plain, SKIP_PATIENCE),
            LockMode::Skip => (&self.skipping, SKIP_PATIENCE),
            LockMode::Wait(wait) => (&self.waiting, wait),
        };
        if self.lock_timeout != Some(lock_timeout) {
            // 0 would mean no limit at all.
            client.batch_execute(&format!("SET lock_timeout = {}", lock_timeout.as_millis().max(1))).await?;
            self.lock_timeout = Some(lock_timeout);
        }
        let params = columns.params(&writer_id, &epoch);
        // A statement takes its first parameters; `plain` knows none of the last.
        let params = &params[..statement.params().len()];
        // `query` collects to the end of the exchange (ReadyForQuery): only that proves the commit, rows can come before.
        let rows = client.query(statement, params).await?;
        let read = |row: &tokio_postgres::Row| {
            Ok(AnswerRow { place: row.try_get(0)?, won: row.try_get(1)?, version: row.try_get(2)? })
        };
        rows.iter().map(read).collect()
    }
}
