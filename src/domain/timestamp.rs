//! Points in time with microsecond precision, as both databases keep them.
//!
//! Owns parsing and writing of RFC 3339. Never reads a clock. Fails with [`InvalidTimestamp`].

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};

/// Microseconds since 1970-01-01T00:00:00Z. Written as RFC 3339 in UTC with six decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The text is no RFC 3339 time between the years 1 and 9999.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no RFC 3339 time such as 2026-01-31T12:00:00Z")]
pub struct InvalidTimestamp(String);

/// 9999-12-31T23:59:59.999999Z: the last instant that RFC 3339 can write.
const MICROS_MAX: i64 = 253_402_300_799_999_999;
/// 0001-01-01T00:00:00Z.
const MICROS_MIN: i64 = -62_135_596_800_000_000;

impl Timestamp {
    /// Wraps microseconds since the epoch; what lies outside the years 1 to 9999 is moved to the nearest end.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(MICROS_MIN, MICROS_MAX))
    }

    /// Microseconds since the epoch.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Parses RFC 3339 with any offset; more than six decimals are cut.
    ///
    /// # Errors
    /// [`InvalidTimestamp`] when the text is no such time.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| InvalidTimestamp(text.to_owned()))?;
        let micros = time.timestamp_micros();
        if !(MICROS_MIN..=MICROS_MAX).contains(&micros) {
            return Err(InvalidTimestamp(text.to_owned()));
        }
        Ok(Self(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::<Utc>::from_timestamp_micros(self.0).expect("the range was checked when it was made");
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_six_decimals() {
        let time = Timestamp::parse("2010-10-02T09:20:39.266+02:00").expect("valid");
        assert_eq!(time.to_string(), "2010-10-02T07:20:39.266000Z");
        assert_eq!(Timestamp::parse(&time.to_string()).expect("valid"), time);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in ["", "2010-10-02", "2010-13-02T00:00:00Z", "10000-01-01T00:00:00Z"] {
            assert!(Timestamp::parse(bad).is_err(), "{bad}");
        }
    }
}
