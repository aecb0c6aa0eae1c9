//! Spaces of pools: made, converted, deleted, verified, and served.

mod changes;
mod conversion;
mod listeners;
mod narrowing;
mod purge;
mod scrub;
mod trash;
mod write_cache;

pub(crate) use changes::two_sides;
pub(crate) use conversion::ConvertJob;
pub(crate) use narrowing::{Narrowings, has_no_room, narrow, narrowings};
pub(crate) use purge::PurgeJob;
pub(crate) use scrub::ScrubJob;
pub(crate) use trash::{called, to_lose};
pub(crate) use write_cache::{WriteCacheJob, view_write_cache};
