//! Spaces of pools: made, converted, deleted, verified, and served.

mod changes;
mod conversion;
mod listeners;
mod narrowing;
mod purge;
mod scrub;
mod trash;
mod write_cache;

pub(crate) use changes::{SpaceChanges, full_name, plan_new_space};
pub(crate) use conversion::{Conversions, ConvertJob};
pub(crate) use listeners::NetworkListeners;
pub(crate) use narrowing::{Narrowings, has_no_room, narrow, narrowings};
pub(crate) use purge::{PurgeJob, Purges};
pub(crate) use scrub::{ScrubJob, Scrubs};
pub(crate) use trash::{Deletions, called, to_lose};
pub(crate) use write_cache::{WriteCacheJob, WriteCaches};
