//! Client histories: what the check of one finds, and that it finds nothing where there is nothing.
//!
//! [`model`] is a server in a few lines: it decides commands one after the other and keeps the rows that the real one would.
//! [`rules`] and [`answers`] break each promise alone, by hand. [`cross_check`] holds the checker against a search that tries every order.
//! [`server`] does it all with the real server and both databases.

mod answers;
mod cross_check;
mod model;
mod mutate;
mod rules;
mod server;
