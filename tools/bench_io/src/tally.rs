//! What is counted around a stretch of I/O, as one list of numbers that are subtracted and added alike.

use dolmen_block_io::{IoCounters, Seams};
use dolmen_block_linux::Handle;
use dolmen_space::SpaceCounters;

use crate::heap::heap;

macro_rules! counts {
    ($(#[$doc:meta])* pub(crate) struct $name:ident { $($(#[$of_field:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
        pub(crate) struct $name { $($(#[$of_field])* pub(crate) $field: u64,)* }

        impl $name {
            /// What was counted from `earlier` to this.
            pub(crate) fn since(self, earlier: Self) -> Self {
                Self { $($field: self.$field.saturating_sub(earlier.$field),)* }
            }

            /// Both together.
            pub(crate) fn plus(self, other: Self) -> Self {
                Self { $($field: self.$field + other.$field,)* }
            }
        }
    };
}
pub(crate) use counts;

counts! {
    /// Counts, either since some beginning or between two moments.
    pub(crate) struct Tally {
        /// Client I/Os that ended.
        operations,
        nanoseconds,
        /// Processor time of the whole process in its own code, kernel workers of its ring included.
        user_us,
        system_us,
        /// Times that the process rested, and times that it was made to.
        rests,
        preemptions,
        /// Of the runtime's thread.
        allocations,
        allocated_bytes,
        /// Bytes copied by the counted way, in both arenas.
        copied_bytes,
        buffers,
        buffer_waits,
        polls,
        /// Of the list of ready tasks, the one lock on the path of an I/O.
        locks,
        enters,
        submissions,
        /// Messages from other threads, and times that one had to wake the runtime.
        messages,
        unparks,
        disk_reads,
        disk_read_bytes,
        disk_writes,
        disk_write_bytes,
        disk_flushes,
        disk_durable_writes,
        fresh_writes,
        rewrites,
        overwrites,
        flushes,
        shared_flushes,
        page_reads,
        page_writes,
    }
}

/// Everything that is counted now, but for the client I/Os, the disks and the time.
pub(crate) fn now(handle: &Handle, seams: &Seams) -> Tally {
    let (heap, runtime) = (heap(), handle.counters());
    let (data, metadata) = (seams.data.counters(), seams.metadata.counters());
    let usage = usage();
    Tally {
        nanoseconds: seams.clock.now().0,
        allocations: heap.allocations,
        allocated_bytes: heap.bytes,
        copied_bytes: data.copied_bytes + metadata.copied_bytes,
        buffers: data.takes + metadata.takes,
        buffer_waits: data.waits + metadata.waits,
        polls: runtime.polls,
        locks: runtime.locks,
        enters: runtime.driver.enters,
        submissions: runtime.driver.submissions,
        messages: runtime.messages,
        unparks: runtime.unparks,
        ..usage
    }
}

impl Tally {
    /// With what one more disk was asked for.
    pub(crate) fn with_disk(self, disk: IoCounters) -> Self {
        Self {
            disk_reads: self.disk_reads + disk.reads,
            disk_read_bytes: self.disk_read_bytes + disk.read_bytes,
            disk_writes: self.disk_writes + disk.writes,
            disk_write_bytes: self.disk_write_bytes + disk.write_bytes,
            disk_flushes: self.disk_flushes + disk.flushes,
            disk_durable_writes: self.disk_durable_writes + disk.durable_writes,
            ..self
        }
    }

    /// With what the spaces did.
    pub(crate) fn with_spaces(self, spaces: SpaceCounters) -> Self {
        Self {
            fresh_writes: spaces.fresh_writes,
            rewrites: spaces.rewrites,
            overwrites: spaces.overwrites,
            flushes: spaces.flushes,
            shared_flushes: spaces.shared_flushes,
            page_reads: spaces.page_reads,
            page_writes: spaces.page_writes,
            ..self
        }
    }

    /// `count` for each client I/O.
    #[allow(clippy::cast_precision_loss)] // counts of a benchmark stay far below 2^52
    pub(crate) fn per_operation(&self, count: u64) -> f64 {
        if self.operations == 0 { 0.0 } else { count as f64 / self.operations as f64 }
    }

    /// Client I/Os per second.
    pub(crate) fn rate(&self) -> f64 {
        if self.nanoseconds == 0 { 0.0 } else { 1e9 / self.per_operation(self.nanoseconds).max(1e-9) }
    }

    /// Processor time of each client I/O, in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.per_operation(self.user_us + self.system_us)
    }
}

/// Processor time and rests of this process.
#[allow(unsafe_code)]
fn usage() -> Tally {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the one struct that it is given, which lives on this stack; all of it is integers, for
    // which zeros are a valid value if the call should fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let positive = |value: i64| u64::try_from(value).unwrap_or(0);
    let micros = |time: libc::timeval| positive(time.tv_sec) * 1_000_000 + positive(time.tv_usec);
    Tally {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        rests: positive(usage.ru_nvcsw),
        preemptions: positive(usage.ru_nivcsw),
        ..Tally::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_per_operation_are_what_was_counted_in_between() {
        let before = Tally { operations: 10, polls: 100, nanoseconds: 1_000_000_000, ..Tally::default() };
        let after = Tally { operations: 30, polls: 160, nanoseconds: 3_000_000_000, ..Tally::default() };
        let spent = after.since(before);
        assert!((spent.per_operation(spent.polls) - 3.0).abs() < 1e-9);
        assert!((spent.rate() - 10.0).abs() < 1e-9);
        assert_eq!(spent.plus(before), after);
    }

    #[test]
    fn work_costs_processor_time() {
        let before = usage();
        while usage().since(before).user_us < 1000 {
            std::hint::black_box(vec![0u8; 1 << 16]);
        }
    }
}
