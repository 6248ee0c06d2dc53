//! Histories of the real server, on both databases.
