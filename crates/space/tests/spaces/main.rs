//! What spaces do and survive, on modelled disks.
//!
//! One program for all of it: the harness is compiled once, and tests of all modules share the processors.

#[path = "../golden/mod.rs"]
mod golden;
#[path = "../harness/mod.rs"]
mod harness;

mod alternating_slots;
mod attributes;
mod basics;
mod cache_size;
mod cached;
mod called_off;
mod cold_reads;
mod convert;
mod copies;
mod cut_short;
mod declared_lost;
mod degraded;
mod delayed_writes;
mod destaging;
mod drain;
mod failing_disks;
mod flaps;
mod full;
mod geometry;
mod golden_images;
mod headers;
mod held;
mod in_doubt;
mod keep_room;
mod lifecycle;
mod limits;
mod log;
mod members;
mod old_members;
mod parity;
mod races;
mod read_only;
mod rebalance;
mod rebuilt;
mod removal;
mod repair_speed;
mod repair_throttle;
mod reserve;
mod returned;
mod roles;
mod scrub;
mod shadow_rows;
mod slab_map;
mod slow;
mod sole_tables;
mod strict;
mod stripes;
mod surviving_clients;
mod torn_tables;
mod trash;
mod unaligned;
