//! Opening a SQLite file: the version of the library and the settings, which hold for one connection each.
//!
//! Owns durability (`synchronous=FULL` in WAL mode). Fails with [`StoreError`].

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;

use crate::store::StoreError;
use crate::store::errors::{sqlite_is_busy, sqlite_store_error};

/// Before 3.51.3 a reset of the WAL could corrupt a database.
const VERSION_MIN: [u32; 3] = [3, 51, 3];
/// How long a statement waits for a foreign writer before SQLITE_BUSY.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before the switch to WAL mode is tried again.
const WAL_SWITCH_PAUSE: Duration = Duration::from_millis(10);
/// In pages (4 KiB each): how far the WAL grows before a commit copies the rest of it back and starts it anew (most of it
/// was copied by `checkpoints` before). Lower: commits wait for that more often; higher: a longer WAL to read and to keep.
const WAL_AUTOCHECKPOINT: u32 = 32_000;
/// In KiB: pages that a connection that writes keeps. With SQLite's own 2 MiB those of 10,000 cases in use do not stay.
const WRITER_CACHE_KIB: u32 = 16_384;
/// In KiB: pages that a connection that reads keeps; SQLite's own default.
const READER_CACHE_KIB: u32 = 2_000;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Role {
    /// The one that writes.
    Writer,
    /// Reads only; SQLite refuses anything else on it.
    Reader,
}

/// Opens the file at `path` (creates it when it is not there).
pub(super) fn open(path: &str, role: Role) -> Result<SqliteConnection, StoreError> {
    let during = "opening the SQLite file";
    let mut connection = SqliteConnection::establish(path)
        .map_err(|error| StoreError::Unavailable { during, reason: format!("{path}: {error}") })?;
    // The timeout first: the pragmas after it may have to wait as well.
    let (query_only, cache_kib) = match role {
        Role::Reader => ("ON", READER_CACHE_KIB),
        Role::Writer => ("OFF", WRITER_CACHE_KIB),
    };
    let settings = format!(
        "PRAGMA busy_timeout = {}; PRAGMA foreign_keys = OFF; PRAGMA synchronous = FULL; \
         PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT}; PRAGMA cache_size = -{cache_kib};",
        BUSY_TIMEOUT.as_millis()
    );
    let failed = |error: diesel::result::Error| sqlite_store_error(during, &error);
    connection.batch_execute(&settings).map_err(failed)?;
    let mode = switch_to_wal(&mut connection).map_err(failed)?;
    let version = diesel::select(sql::<Text>("sqlite_version()")).get_result::<String>(&mut connection);
    check_version(&version.map_err(failed)?)?;
    if mode != "wal" {
        let reason = format!("{path} can't be put into WAL mode (it is in `{mode}`); put it on a local disk");
        return Err(StoreError::Refused { during, reason });
    }
    connection.batch_execute(&format!("PRAGMA query_only = {query_only};")).map_err(failed)?;
    Ok(connection)
}

/// Puts the file into WAL mode and returns the mode that it is in. Two processes that open a new file at once switch it at
/// once; one of them is told SQLITE_BUSY without waiting, for SQLite does not call its busy handler here.
fn switch_to_wal(connection: &mut SqliteConnection) -> QueryResult<String> {
    let started = Instant::now();
    loop {
        match diesel::sql_query("PRAGMA journal_mode = WAL").get_result::<JournalMode>(connection) {
            Err(error) if sqlite_is_busy(&error) && started.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(WAL_SWITCH_PAUSE);
            }
            switched => return switched.map(|mode| mode.journal_mode),
        }
    }
}

#[derive(diesel::QueryableByName)]
struct JournalMode {
    #[diesel(sql_type = Text)]
    journal_mode: String,
}

fn check_version(version: &str) -> Result<(), StoreError> {
    let mut parts = [0; 3];
    for (part, text) in parts.iter_mut().zip(version.split('.')) {
        *part = text.parse().unwrap_or(0);
    }
    if parts < VERSION_MIN {
        let reason = format!("SQLite {version} has a fault that can corrupt a database; 3.51.3 or later is needed");
        return Err(StoreError::Refused { during: "opening the SQLite file", reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_before_3_51_3_are_refused() {
        for good in ["3.51.3", "3.53.2", "4.0.0", "3.52"] {
            assert!(check_version(good).is_ok(), "{good}");
        }
        for bad in ["3.51.2", "3.40.1", "2.8.17", "nonsense"] {
            assert!(check_version(bad).is_err(), "{bad}");
        }
    }
}
