//! Changes of the epoch, and the labels that carry it: heartbeats and stamps included.

pub(crate) mod change;
pub(crate) mod flusher;
pub(crate) mod heartbeat;
pub(crate) mod label_scrub;
pub(crate) mod labels;
pub(crate) mod stamps;
pub(crate) mod watch;
