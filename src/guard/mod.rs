//! A guard: the idempotency layer as a reverse proxy, in front of a service that need not know of it.
//!
//! Owns the way of a request through the proxy: which rule it falls under ([`Rules`]), the layer of that rule, the upstream,
//! and the answer's way back. Cases are unknown here. Never follows a redirect, keeps a cookie, unpacks a body or asks for
//! another proxy. What fails on the way is answered with a problem document that says whether to send the request again.
//!
//! # Quick start
//!
//! ```sh
//! casework guard --upstream http://127.0.0.1:8000 --listen 127.0.0.1:8081 --store sqlite:guard.db
//! ```
//!
//! A POST, PUT, PATCH or DELETE with an `Idempotency-Key` now reaches the service once, and its repeats get the first
//! answer. Without a key it passes as it is (`key = "required"` in a rule refuses it), as do all other methods.
//!
//! # What is promised, and how far
//!
//! **At most once while the store keeps what it was told**, as the layer does. Three things bound that:
//!
//! * A guard that dies in the middle leaves its claim, and repeats are told "in flight" until the lease is over
//!   (`claim_lease`). Then the request is sent again: the guard can't know whether the first one was carried out.
//! * An upstream that does not answer a request that was sent to it leaves things *unclear*. What then happens is the rule's
//!   `when_unclear`. `"keep"` (the default) keeps the guard's own 502 or 504 under the key: the request is never sent again
//!   under it, and the client is told to look for the outcome where the service shows it. That is what a payment needs.
//!   `"release"` gives the key back: right where the upstream knows the key itself (it is passed on) or where doing it twice
//!   does no harm.
//! * A 5xx that the upstream itself answers gives the key back, unless `final_statuses` names it.
//!
//! An upstream that could not be connected to got nothing: 502 `upstream-unavailable`, and the next attempt is sent.

mod answer;
mod forward;
mod headers;
mod health;
mod metrics;
mod problems;
mod routes;
mod rules;
mod server;
mod settings;

pub use problems::ProblemCode;
pub use routes::{Guard, GuardSetupError};
pub use rules::{InvalidRules, Rule, Rules};
pub use server::{Listeners, ServerOptions, serve};
pub use settings::{
    HostRule, InvalidUpstream, KeyRule, PathPattern, PrincipalRule, Time, UpstreamOptions, WhenUnclear,
};
