//! Rotating disks by data sheet. `docs/device_models.md` names each sheet and says which of its figures were read in a
//! copy and which are taken as commonly quoted.

use crate::disk::{DiskParameters, Scheduler, Seeks, WriteCache};

const MB: u64 = 1_000_000;
const GB: u64 = 1_000_000_000;

/// Data of a track that streams at a sustained rate, from a turn and the time to the next track.
const fn track_bytes(bytes_per_second: u64, revolutions_per_minute: u64, skew_ns: u64) -> u64 {
    bytes_per_second / 1_000 * (60_000_000_000 / revolutions_per_minute + skew_ns) / MB
}

/// The longest track of a disk of which the mean and the ratio of inner to outer rate are known.
const fn outer_of_mean(mean_bytes: u64, inner_rate: u64, outer_rate: u64) -> u64 {
    mean_bytes * 2 * outer_rate / (inner_rate + outer_rate)
}

const fn seeks(single_us: u64, average_us: u64, full_us: u64) -> Seeks {
    Seeks { single_ns: single_us * 1_000, average_ns: average_us * 1_000, full_ns: full_us * 1_000 }
}

/// Seagate Cheetah 15K.5, ST3146855SS: 147 GB, 15,000 turns a minute, SAS 3 Gb/s.
pub(super) const CHEETAH_15K5: DiskParameters = DiskParameters {
    capacity_bytes: 146_815_737_856,
    revolutions_per_minute: 15_000,
    outer_track_bytes: track_bytes(125 * MB, 15_000, 400_000),
    inner_track_bytes: track_bytes(73 * MB, 15_000, 400_000),
    zones: 16,
    heads: 4,
    skew_ns: 400_000,
    read_seeks: seeks(200, 3_500, 7_400),
    write_seeks: seeks(400, 4_000, 7_900),
    command_ns: 200_000,
    interface_bytes_per_second: 300 * MB,
    buffer_bytes: 16 << 20,
    segment_bytes: 512 << 10,
    queue_depth: 64,
    scheduler: Scheduler::ShortestAccess,
    write_cache: WriteCache::Off,
};

/// Seagate Savvio 10K.1, ST973401SS: 73 GB, 10,000 turns a minute, SAS 3 Gb/s.
pub(super) const SAVVIO_10K1: DiskParameters = DiskParameters {
    capacity_bytes: 73_407_820_800,
    revolutions_per_minute: 10_000,
    outer_track_bytes: outer_of_mean(360_000, 506, 753),
    inner_track_bytes: outer_of_mean(360_000, 753, 506),
    zones: 16,
    heads: 4,
    skew_ns: 600_000,
    read_seeks: seeks(200, 4_000, 8_100),
    write_seeks: seeks(600, 4_400, 8_600),
    command_ns: 200_000,
    interface_bytes_per_second: 300 * MB,
    buffer_bytes: 8 << 20,
    segment_bytes: 512 << 10,
    queue_depth: 64,
    scheduler: Scheduler::ShortestAccess,
    write_cache: WriteCache::Off,
};

/// Quantum Atlas 10K: 9.1 GB, 10,000 turns a minute, Ultra160 SCSI.
pub(super) const ATLAS_10K: DiskParameters = DiskParameters {
    capacity_bytes: 9_182_000_000,
    revolutions_per_minute: 10_000,
    outer_track_bytes: track_bytes(26 * MB, 10_000, 800_000),
    inner_track_bytes: track_bytes(18 * MB, 10_000, 800_000),
    zones: 16,
    heads: 6,
    skew_ns: 800_000,
    read_seeks: seeks(800, 5_000, 10_500),
    write_seeks: seeks(1_000, 5_500, 11_000),
    command_ns: 300_000,
    interface_bytes_per_second: 160 * MB,
    buffer_bytes: 2 << 20,
    segment_bytes: 192 << 10,
    queue_depth: 64,
    scheduler: Scheduler::Elevator,
    write_cache: WriteCache::Off,
};

/// Seagate Cheetah 9LP, ST39102LW: 9.1 GB, 10,000 turns a minute, Ultra2 SCSI.
pub(super) const CHEETAH_9LP: DiskParameters = DiskParameters {
    capacity_bytes: 9_100_000_000,
    revolutions_per_minute: 10_000,
    outer_track_bytes: track_bytes(21 * MB, 10_000, 800_000),
    inner_track_bytes: track_bytes(14 * MB, 10_000, 800_000),
    zones: 16,
    heads: 12,
    skew_ns: 800_000,
    read_seeks: seeks(800, 5_200, 12_000),
    write_seeks: seeks(1_000, 6_000, 13_000),
    command_ns: 300_000,
    interface_bytes_per_second: 80 * MB,
    buffer_bytes: 1 << 20,
    segment_bytes: 128 << 10,
    queue_depth: 64,
    scheduler: Scheduler::Elevator,
    write_cache: WriteCache::Off,
};

/// IBM Ultrastar 18ES, DNES-309170W: 9.1 GB, 7,200 turns a minute, Ultra2 SCSI.
pub(super) const ULTRASTAR_18ES: DiskParameters = DiskParameters {
    capacity_bytes: 9_173_000_000,
    revolutions_per_minute: 7_200,
    outer_track_bytes: track_bytes(20_200_000, 7_200, 800_000),
    inner_track_bytes: track_bytes(12_700_000, 7_200, 800_000),
    zones: 16,
    heads: 5,
    skew_ns: 800_000,
    read_seeks: seeks(800, 7_000, 13_000),
    write_seeks: seeks(1_000, 8_000, 14_000),
    command_ns: 300_000,
    interface_bytes_per_second: 80 * MB,
    buffer_bytes: 2 << 20,
    segment_bytes: 192 << 10,
    queue_depth: 64,
    scheduler: Scheduler::Elevator,
    write_cache: WriteCache::Off,
};

/// Seagate Constellation, ST9500430SS: 500 GB, 7,200 turns a minute, SAS 6 Gb/s.
pub(super) const CONSTELLATION_7K2: DiskParameters = DiskParameters {
    capacity_bytes: 500 * GB,
    revolutions_per_minute: 7_200,
    outer_track_bytes: outer_of_mean(890_823, 75, 142),
    inner_track_bytes: outer_of_mean(890_823, 142, 75),
    zones: 16,
    heads: 6,
    skew_ns: 700_000,
    read_seeks: seeks(500, 8_000, 17_350),
    write_seeks: seeks(700, 8_400, 17_820),
    command_ns: 200_000,
    interface_bytes_per_second: 600 * MB,
    buffer_bytes: 16 << 20,
    segment_bytes: 1 << 20,
    queue_depth: 64,
    scheduler: Scheduler::ShortestAccess,
    write_cache: WriteCache::Off,
};

/// Quantum Fireball lct08: 8.4 GB, 5,400 turns a minute, Ultra ATA/66.
pub(super) const FIREBALL_LCT08: DiskParameters = DiskParameters {
    capacity_bytes: 8_400_000_000,
    revolutions_per_minute: 5_400,
    outer_track_bytes: track_bytes(22 * MB, 5_400, 2_000_000),
    inner_track_bytes: track_bytes(13_200_000, 5_400, 2_000_000),
    zones: 16,
    heads: 2,
    skew_ns: 2_000_000,
    read_seeks: seeks(2_000, 8_900, 18_000),
    write_seeks: seeks(2_000, 8_900, 18_000),
    command_ns: 500_000,
    interface_bytes_per_second: 66 * MB,
    buffer_bytes: 512 << 10,
    segment_bytes: 128 << 10,
    queue_depth: 32,
    scheduler: Scheduler::Elevator,
    write_cache: WriteCache::On,
};

/// Hitachi Travelstar 5K320, HTS543232L9SA00: 320 GB, 5,400 turns a minute, SATA 3 Gb/s.
pub(super) const TRAVELSTAR_5K320: DiskParameters = DiskParameters {
    capacity_bytes: 320_072_933_376,
    revolutions_per_minute: 5_400,
    outer_track_bytes: track_bytes(70 * MB, 5_400, 1_100_000),
    inner_track_bytes: track_bytes(35 * MB, 5_400, 1_100_000),
    zones: 16,
    heads: 4,
    skew_ns: 1_100_000,
    read_seeks: seeks(1_000, 12_000, 20_000),
    write_seeks: seeks(1_100, 13_000, 21_000),
    command_ns: 300_000,
    interface_bytes_per_second: 300 * MB,
    buffer_bytes: 8 << 20,
    segment_bytes: 512 << 10,
    queue_depth: 32,
    scheduler: Scheduler::Elevator,
    write_cache: WriteCache::On,
};
