//! The example, as a process.
