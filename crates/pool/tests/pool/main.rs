//! What pools do and survive, on modelled disks.

mod changes;
mod degraded;
mod input;
mod rotten_log;
mod scale;
mod two_hosts;
