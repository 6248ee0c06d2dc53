//! Casework (the bird's-eye view is written with the last module).
pub mod domain;
pub mod engine;
pub mod store;
