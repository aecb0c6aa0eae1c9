//! Clients that may have survived whatever had the pool open before.

/// Who may still be there of those that were told of writes before the pool was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// Nobody: the host that they were on has ended with them.
    Ended,
    /// Any of them: the daemon alone has ended. What they wrote and is not there has to be told by the next flush.
    MayLive,
}
