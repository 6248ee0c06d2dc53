//! The conformance suite of the store: what the seam promises, on SQLite and on PostgreSQL, judged by the rows that the
//! databases' own shells show.
//!
//! What differs between the two, and is tested here as differing:
//! - row locks: on PostgreSQL a case that someone holds is answered `Locked` and the others commit; on SQLite a foreign
//!   writer holds up the whole batch, which ends as `Retry`;
//! - the writer fence: on PostgreSQL another process can fence a writer; SQLite has one process;
//! - a case inserted by hand is an edit on PostgreSQL and refused on SQLite; so is an assignment that is updated.

mod commits;
mod fences;
mod fixture;
mod hand_edits;
mod locks;
mod reads;
mod schema;
