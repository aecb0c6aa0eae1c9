//! The golden images: pools that come through everything the format has, made in each run until 1.0.
//!
//! `stored` is how they are kept, `content` what their spaces hold, `make` how they came about, `places` what stands where on
//! their disks, `read` how all of it is read and judged, `bit_flips` what comes of bits that turn, `unused` where they turn nothing
//! that anybody needs.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

pub mod bit_flips;
pub mod content;
pub mod make;
pub mod places;
pub mod read;
pub mod stored;
pub mod unused;

use std::rc::Rc;

use dolmen_buffer::ArenaConfig;
use dolmen_pool::{Arbiter, MemoryArbiter};
use dolmen_sim::{DiskProfile, Image, World};

use crate::harness::Bench;
use content::Content;

pub const BLOCK: usize = 4096;

/// A pool as it was left: its disks, by number, and what its spaces hold.
#[derive(Clone)]
pub struct Golden {
    pub disks: Vec<Disk>,
    pub content: Content,
}

#[derive(Clone)]
pub struct Disk {
    pub capacity: u64,
    pub image: Image,
}

impl Golden {
    /// The host that had it, with its disks.
    pub fn bench(&self, seed: u64) -> Bench {
        let world = World::new(seed);
        world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
        let disks = self.disks.iter().enumerate().map(|(number, disk)| {
            let profile = DiskProfile::new(dolmen_units::Bytes(disk.capacity));
            world.add_disk_with(&format!("disk{number}"), profile, disk.image.clone())
        });
        let disks = disks.collect();
        let arbiter = MemoryArbiter::new(self.content.host);
        // It takes effect at the call; the future has nothing left to do.
        drop(arbiter.record(self.content.pool, self.content.epoch.into()));
        Bench { world, disks, arbiter: Rc::clone(&arbiter) }
    }
}
