//! What is set of a pool: reserve, room for repair, limits, enclosures, bays, and how full it may be.

mod bay;
mod enclosure;
mod filling;
mod keep_room;
mod limits;
mod reserve;
mod service;

pub(crate) use enclosure::{Domains, apart_advice, check_count, rows_share};
pub(crate) use filling::{fill_of, filling_findings, look_at_filling};
pub(crate) use keep_room::{kept_bytes, room_advice, room_used, with_kept_room};
pub(crate) use reserve::{lacks_reserve, reserve_advice};
pub(crate) use service::Settings;
