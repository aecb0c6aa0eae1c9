//! Commands against a daemon that is played: every question and every answer is known.
// The played daemon runs on a thread of its own, because the command waits for it.
#![allow(clippy::disallowed_methods)]

mod changes;
mod fake;
mod trouble;
mod views;
