//! The fault rig: the real program under real faults, with clients that write down all that they saw.
//!
//! One module for each kind of trouble. A scenario starts one to three server processes ([`rig`]), a load of clients that retry,
//! repeat, change payloads, give up and switch processes ([`traffic`]), and lets faults happen while the load goes on. A
//! fault counts only when something shows that it happened ([`totals`]). At its end every unclear command is settled,
//! and two judges that know nothing of the rig look at the database: `casework verify`, and `casework check` with the
//! history that the clients wrote ([`recorder`]). A scenario in which too little happened fails.
//!
//! Each test runs alone (module `heavy`, see `.config/nextest.toml`) and is short. With `CASEWORK_TEST_LONG=1` it is long; how
//! long, `CASEWORK_FAULTS_COMMANDS`, `CASEWORK_FAULTS_ROUNDS` and `CASEWORK_FAULTS_CLIENTS` say (see [`size`]).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and the line says where")]

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "a toolbox: not every tool is in use all the time")]
#[macro_use]
mod support;

mod clocks;
mod database_crashes;
mod disconnects;
mod disks;
mod durability_order;
mod hand_edits;
mod locks;
mod migrations;
mod network;
mod processes;
mod recorder;
mod rig;
mod routing;
mod size;
mod syscalls;
mod totals;
mod traffic;
mod unknown_commits;
