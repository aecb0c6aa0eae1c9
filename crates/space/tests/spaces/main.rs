//! What spaces do and survive, on modelled disks.
//!
//! One program for all of it: the harness is compiled once, and tests of all modules share the processors.

#[path = "../golden/mod.rs"]
mod golden;
#[path = "../harness/mod.rs"]
mod harness;

mod ailing;
mod basics;
mod cache_size;
mod cached;
mod called_off;
mod convert;
mod copies;
mod cut_short;
mod degraded;
mod drain;
mod flaps;
mod flips;
mod full;
mod geometry;
mod golden_images;
mod headers;
mod heirs;
mod held;
mod in_place;
mod keep_room;
mod late;
mod lifecycle;
mod limits;
mod log;
mod looked_at;
mod members;
mod moments;
mod old_members;
mod only_tables;
mod outlived;
mod parity;
mod rebalance;
mod rebuilt;
mod removal;
mod repair_pace;
mod repair_speed;
mod reserve;
mod returned;
mod roles;
mod scrub;
mod slow;
mod strict;
mod stripes;
mod torn_tables;
mod trash;
mod undecided;
mod written_off;
