//! Solid-state disks by data sheet. `docs/device_models.md` names each sheet and says which of its figures were read in
//! a copy and which are taken as commonly quoted.

use crate::flash::{FlashParameters, WriteBuffer};

const MB: u64 = 1_000_000;
const GB: u64 = 1_000_000_000;

/// Intel SSD DC S3700, 800 GB: SATA 6 Gb/s, 8 channels, 25 nm flash (64 Gbit dies: 75 µs read at most, 1,300 µs program).
pub(super) const INTEL_S3700: FlashParameters = FlashParameters {
    capacity_bytes: 800 * GB,
    interface_bytes_per_second: 560 * MB,
    queue_depth: 32,
    read_overhead_ns: 50_000 - 7_314,
    write_overhead_ns: 65_000 - 7_314,
    reads_per_second: 75_000,
    writes_per_second: 75_000,
    channels: 8,
    channel_bytes_per_second: 200 * MB,
    dies: 128,
    page_bytes: 8_192,
    page_read_ns: 75_000,
    page_program_ns: 1_300_000,
    program_bytes_per_second: 460 * MB,
    random_writes_per_second: 36_000,
    buffer_bytes: 4 << 20,
    buffer: WriteBuffer::Protected,
};

/// Samsung SSD 850 PRO, 512 GB: SATA 6 Gb/s. The sheet tells what one command at a time gets (10,000 reads and 36,000
/// writes a second), and the overheads follow from that. Flash timings and steady random writes are not stated: those
/// here are assumed, and the random writes are those of a fresh device.
pub(super) const SAMSUNG_850PRO: FlashParameters = FlashParameters {
    capacity_bytes: 512 * GB,
    interface_bytes_per_second: 560 * MB,
    queue_depth: 32,
    read_overhead_ns: 100_000 - 42_000 - 10_240 - 7_314,
    write_overhead_ns: 27_778 - 7_314,
    reads_per_second: 100_000,
    writes_per_second: 90_000,
    channels: 8,
    channel_bytes_per_second: 400 * MB,
    dies: 64,
    page_bytes: 16_384,
    page_read_ns: 56_000,
    page_program_ns: 600_000,
    program_bytes_per_second: 520 * MB,
    random_writes_per_second: 90_000,
    buffer_bytes: 16 << 20,
    buffer: WriteBuffer::Volatile,
};

/// Micron 5100 MAX, 960 GB: SATA 6 Gb/s. Its flash timings are not stated; those here are assumed.
pub(super) const MICRON_5100MAX: FlashParameters = FlashParameters {
    capacity_bytes: 960 * GB,
    interface_bytes_per_second: 560 * MB,
    queue_depth: 32,
    read_overhead_ns: 40_000,
    write_overhead_ns: 30_000,
    reads_per_second: 93_000,
    writes_per_second: 93_000,
    channels: 8,
    channel_bytes_per_second: 333 * MB,
    dies: 48,
    page_bytes: 16_384,
    page_read_ns: 100_000,
    page_program_ns: 1_300_000,
    program_bytes_per_second: 520 * MB,
    random_writes_per_second: 74_000,
    buffer_bytes: 16 << 20,
    buffer: WriteBuffer::Protected,
};

/// Intel SSD DC P3700, 2 TB: PCIe 3.0 x4, 18 channels, 20 nm flash of 64 Gbit dies (100 µs read at most, 1,300 µs program).
pub(super) const INTEL_P3700: FlashParameters = FlashParameters {
    capacity_bytes: 2_000 * GB,
    interface_bytes_per_second: 2_800 * MB,
    queue_depth: 4_096,
    read_overhead_ns: 20_000 - 1_463,
    write_overhead_ns: 20_000 - 1_463,
    reads_per_second: 460_000,
    writes_per_second: 460_000,
    channels: 18,
    channel_bytes_per_second: 200 * MB,
    dies: 288,
    page_bytes: 8_192,
    page_read_ns: 100_000,
    page_program_ns: 1_300_000,
    program_bytes_per_second: 2_000 * MB,
    random_writes_per_second: 175_000,
    buffer_bytes: 16 << 20,
    buffer: WriteBuffer::Protected,
};
