//! What data sheets say of a solid-state disk and of the memory in it.

use crate::error::{ParameterError, within};
use crate::time::{mul_div, wide};

/// What a power cut leaves of the write buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBuffer {
    /// Nothing: a flush has to empty it.
    Volatile,
    /// All of it, by capacitors: a flush has nothing to do.
    Protected,
}

/// A solid-state disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashParameters {
    /// Size, in bytes.
    pub capacity_bytes: u64,
    /// The interface, in bytes a second, each way.
    pub interface_bytes_per_second: u64,
    /// Commands held at once.
    pub queue_depth: usize,
    /// What a read costs beside flash and interface, in nanoseconds: the latency of sequential reads in data sheets,
    /// less what 4 KiB take on the interface.
    pub read_overhead_ns: u64,
    /// What a write costs beside the interface until the buffer has it, in nanoseconds: the latency of sequential
    /// writes in data sheets, less what 4 KiB take on the interface.
    pub write_overhead_ns: u64,
    /// Reads in a second that the controller handles at most.
    pub reads_per_second: u64,
    /// Writes in a second that the controller handles at most.
    pub writes_per_second: u64,
    /// Channels between the controller and the flash.
    pub channels: usize,
    /// One channel, in bytes a second.
    pub channel_bytes_per_second: u64,
    /// Dies on all channels together.
    pub dies: usize,
    /// Data of one page of flash, in bytes.
    pub page_bytes: u64,
    /// The slowest page read, in nanoseconds. Cells of two bits are sensed once for one page and twice for the other, so
    /// half of the pages take half of it.
    pub page_read_ns: u64,
    /// Programming one page, in nanoseconds.
    pub page_program_ns: u64,
    /// Sustained sequential writes, in bytes a second: what the flash takes, host data and moved data together.
    pub program_bytes_per_second: u64,
    /// Sustained random writes of 4 KiB in a second. How much less than sequential ones they are tells how much data is
    /// moved for each, and that tells how much spare room there is.
    pub random_writes_per_second: u64,
    /// The write buffer, in bytes.
    pub buffer_bytes: u64,
    /// What a power cut leaves of it.
    pub buffer: WriteBuffer,
}

impl FlashParameters {
    /// How many bytes are programmed for each that is written at random in the steady state, in thousandths.
    #[must_use]
    pub fn amplification_per_mille(&self) -> u64 {
        let random = self.random_writes_per_second.saturating_mul(4096);
        mul_div(self.program_bytes_per_second, 1_000, random).max(1_000)
    }

    /// Says what describes no device.
    pub(crate) fn check(&self) -> Result<(), ParameterError> {
        within("capacity_bytes", self.capacity_bytes, 1 << 30, 1 << 50)?;
        within("interface_bytes_per_second", self.interface_bytes_per_second, 1_000_000, 1 << 40)?;
        within("queue_depth", wide(self.queue_depth), 1, 65_536)?;
        within("read_overhead_ns", self.read_overhead_ns, 0, 1_000_000_000)?;
        within("write_overhead_ns", self.write_overhead_ns, 0, 1_000_000_000)?;
        within("reads_per_second", self.reads_per_second, 1, 1_000_000_000)?;
        within("writes_per_second", self.writes_per_second, 1, 1_000_000_000)?;
        within("channels", wide(self.channels), 1, 1_024)?;
        within("channel_bytes_per_second", self.channel_bytes_per_second, 1_000_000, 1 << 40)?;
        within("dies", wide(self.dies), wide(self.channels), 65_536)?;
        within("page_bytes", self.page_bytes, 4_096, 1 << 20)?;
        within("page_read_ns", self.page_read_ns, 0, 1_000_000_000)?;
        within("page_program_ns", self.page_program_ns, 0, 1_000_000_000)?;
        within("program_bytes_per_second", self.program_bytes_per_second, 1_000_000, 1 << 40)?;
        within("buffer_bytes", self.buffer_bytes, 4_096, self.capacity_bytes)?;
        // Fewer random writes than this would need a device with hardly any spare room.
        let most = self.program_bytes_per_second / 4_096;
        within("random_writes_per_second", self.random_writes_per_second, (most / 20).max(1), most)
    }
}
