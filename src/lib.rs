//! Casework (the bird's-eye view is written with the last module).
pub mod actor;
pub mod cli;
pub mod clock;
pub mod command_log;
pub mod domain;
pub mod engine;
pub mod http;
pub mod store;
