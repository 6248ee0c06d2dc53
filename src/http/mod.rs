//! The HTTP interface (DESIGN section 6): start at the table in `routes`.
//!
//! Owns what a client sees: paths, headers, JSON shapes, problem documents, tokens and roles. Never decides and never
//! writes: commands go through the [`CommandGateway`](crate::actor::CommandGateway), reads show committed rows. Every error
//! of every route is an RFC 9457 problem, mapped in `problems` alone.

mod auth;
mod body;
mod cases;
mod commands;
mod exchange;
mod headers;
mod history;
mod lanes;
mod list;
mod metrics;
mod probes;
mod problem_pages;
mod problems;
mod routes;
mod server;
mod stream;
mod target;
mod token;

pub use auth::{Role, Roles};
pub use problems::{Problem, ProblemCode};
pub use server::{Listeners, ServerOptions, serve, serve_until};
pub use token::{NewToken, token_sha256};
