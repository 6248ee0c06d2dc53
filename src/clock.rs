//! The wall clock, read in one place.

use std::time::SystemTime;

use crate::domain::Timestamp;

/// Now, to the microsecond.
pub fn now() -> Timestamp {
    let micros = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
    };
    Timestamp::from_micros(micros)
}
