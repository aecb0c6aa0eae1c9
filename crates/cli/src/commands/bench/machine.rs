//! What is to be known of the machine that makes the load.

use std::fs;

use dolmen_api::shell_word;
use dolmen_bench::Machine;
use dolmen_units::Bytes;
use rustix::time::{ClockId, clock_gettime};

/// Ticks of all processors since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processors {
    busy: u64,
    all: u64,
}

impl Processors {
    /// Asks the kernel.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of `/proc/stat`: user, nice, system, idle, waiting, interrupts, soft interrupts, stolen by the
    /// host; what guests use is counted among the first two already (proc(5)).
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, idle, waiting, hard, soft, stolen] = ticks.try_into().ok()?;
        let busy = user + nice + system + hard + soft + stolen;
        Some(Self { busy, all: busy + idle + waiting })
    }

    /// The share that was in use since then.
    #[allow(clippy::cast_precision_loss)] // ticks of a machine stay far below 2^52
    pub(crate) fn busy_percent_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let busy = self.busy.saturating_sub(before.busy);
        Some(busy as f64 / all as f64 * 100.0)
    }
}

/// The memory of the machine, which its page cache may fill.
pub(crate) fn memory() -> Bytes {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 = total.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    Bytes(kib.saturating_mul(1024))
}

/// The machine, for the report.
pub(crate) fn machine() -> Machine {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        processors: u64::try_from(processors).unwrap_or(u64::MAX),
        memory_bytes: memory().0,
        kernel: kernel.trim().to_owned(),
    }
}

/// The command of this process as a shell would read it.
pub(crate) fn command() -> String {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    // Where the program stands is the machine's own business.
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    std::iter::once(program)
        .chain(words.map(|word| shell_word(&word).into_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Seconds since 1970, for the report alone: nothing is decided by it.
pub(crate) fn seconds_since_1970() -> u64 {
    u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
}

/// Milliseconds of a clock that only goes forward.
pub(crate) fn milliseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1000 + nanoseconds.unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_but_idle_and_waiting() {
        let at = |text: &str| Processors::parse(text).unwrap();
        let before = at("cpu  100 0 100 800 0 0 0 0 7 7\ncpu0 1 1\n");
        let after = at("cpu  150 0 100 900 50 0 0 0 9 9\n");
        assert_eq!(after.busy_percent_since(before), Some(25.0));
        assert_eq!(before.busy_percent_since(before), None);
        assert_eq!(Processors::parse("intr 1 2"), None);
        assert_eq!(Processors::parse("cpu  1 2"), None);
        assert!(memory() > Bytes::mib(16) && milliseconds() > 0 && seconds_since_1970() > 1_600_000_000);
    }
}
