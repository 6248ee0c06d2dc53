//! How much of each thing a run does: little by default, much in the long run, any amount by environment variables.
//!
//! Never decides what is done, only how often.

use crate::support::long_tests_wanted;

/// Commands that a scenario sends at least, retries not counted (`CASEWORK_FAULTS_COMMANDS`).
pub fn commands(short: u64) -> u64 {
    number("CASEWORK_FAULTS_COMMANDS").unwrap_or(if long_tests_wanted() { short * 10 } else { short })
}

/// How often a scenario goes through its faults (`CASEWORK_FAULTS_ROUNDS`).
pub fn rounds(short: u64) -> u64 {
    number("CASEWORK_FAULTS_ROUNDS").unwrap_or(if long_tests_wanted() { short * 5 } else { short })
}

/// Clients that send at once (`CASEWORK_FAULTS_CLIENTS`).
pub fn clients() -> usize {
    number("CASEWORK_FAULTS_CLIENTS").map_or(48, |clients| clients as usize)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}
