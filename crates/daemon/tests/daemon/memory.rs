//! What the daemon asks of the system, so that it never waits for its own devices when memory is short: as the kernel shows it.

use std::fs;

use rustix::process::{Resource, geteuid, getrlimit};

use crate::client::{World, pattern};

/// Bits of the kernel's capability sets.
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_RESOURCE: u32 = 24;
/// What makes a thread an I/O flusher, among the flags in its `stat`: `PF_MEMALLOC_NOIO` and `PF_LOCAL_THROTTLE`.
const IO_FLUSHER: u64 = 0x0008_0000 | 0x0010_0000;

/// A field of a process's `status`.
fn field(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

/// One that is in KiB.
fn kibibytes(pid: u32, name: &str) -> u64 {
    field(pid, name).strip_suffix(" kB").unwrap().parse().unwrap()
}

fn may(capability: u32) -> bool {
    u64::from_str_radix(&field(std::process::id(), "CapEff"), 16).unwrap() & (1 << capability) != 0
}

fn may_lock_memory() -> bool {
    getrlimit(Resource::Memlock).current.is_none() || (geteuid().is_root() && may(CAP_IPC_LOCK))
}

/// The flags of each thread.
fn flags(pid: u32) -> Vec<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |thread: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        // Behind the name, which may hold anything: state, and five numbers before the flags.
        stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()
    };
    threads.filter_map(of).collect()
}

#[test]
fn the_daemon_locks_its_memory_and_is_an_io_flusher_where_it_may() {
    // Scenario: a daemon with a pool and a space that holds data. All memory of its own is locked, what it asked for last
    // included; each of its threads gets memory without waiting for write-back.
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let mut client = world.nbd();
    client.write(0, &pattern(3, 1 << 20));
    client.flush();
    let pid = world.pid();
    if may_lock_memory() {
        let (locked, own) = (kibibytes(pid, "VmLck"), kibibytes(pid, "RssAnon"));
        println!("{locked} KiB are locked, {own} KiB are its own");
        assert!(own > 0 && locked >= own, "{locked} KiB are locked of {own} KiB");
    } else {
        println!("skipped: memory is locked for root, or where ulimit -l is unlimited");
    }
    if may(CAP_SYS_RESOURCE) {
        let flags = flags(pid);
        assert!(
            !flags.is_empty() && flags.iter().all(|flags| flags & IO_FLUSHER == IO_FLUSHER),
            "{flags:x?}"
        );
    } else {
        println!("skipped: being an I/O flusher needs CAP_SYS_RESOURCE");
    }
}
