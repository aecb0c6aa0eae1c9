//! What pools do and survive, on modelled disks.

mod changes;
mod corrupt_log;
mod degraded;
mod growth;
mod host_record;
mod input;
mod label_scrub;
mod labels;
mod scale;
mod two_hosts;
