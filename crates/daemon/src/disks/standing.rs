//! Which absent disks are awaited, and whether one that came back is taken in without a command
//! ([docs/design/0037](../../../docs/design/0037-disks-that-return.md)).
//!
//! Invariant: a command stands. A disk that a command took offline, or that is to leave, waits for a command.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::Instant;
use dolmen_disk::MemberState;
use dolmen_mutation::mutation;
use dolmen_pool::{Disk, PoolState, Role};
use dolmen_units::DiskId;

use crate::open_pool::OpenPool;
use crate::state::{Connection, Members, is_here};

/// Returns within [`FLAPPING_WINDOW`] after which a disk is left out when it comes again.
pub(super) const RETURNS_MAX: usize = 3;
pub(super) const FLAPPING_WINDOW: Duration = Duration::from_secs(600);

/// Facts about a member that are known before any label is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    takes_part: bool,
    /// A command took it offline.
    is_let_go: bool,
    /// A command removes it, replaces it, retired it, or declared it lost.
    is_to_leave: bool,
    /// The system has the connection with which it left: it failed, and did not come back.
    is_connected: bool,
    is_flapping: bool,
}

/// State of a member, by what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing: it takes part.
    TakesPart,
    /// A command.
    LeftToCommands,
    /// Its return.
    Awaited,
}

impl Known {
    const fn standing(self) -> Standing {
        match self {
            Self { takes_part: true, .. } => Standing::TakesPart,
            Self { is_let_go: true, .. }
            | Self { is_to_leave: true, .. }
            | Self { is_connected: true, .. }
            | Self { is_flapping: true, .. } => Standing::LeftToCommands,
            Self {
                takes_part: false,
                is_let_go: false,
                is_to_leave: false,
                is_connected: false,
                is_flapping: false,
            } => Standing::Awaited,
        }
    }
}

/// Decision on a disk that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    TakeIn,
    /// Several devices have its label.
    Copies,
    /// It came and went too often.
    Flapping,
}

/// Decides on a disk by the number of devices with its label, and of its returns lately.
const fn arrival_of(devices: usize, returns: usize) -> Arrival {
    match (devices, returns) {
        (0 | 1, 0..RETURNS_MAX) => Arrival::TakeIn,
        (0 | 1, _) => Arrival::Flapping,
        (2.., _) => Arrival::Copies,
    }
}

/// Notes how the disks that take part are connected.
pub(crate) fn note_connections(pool: &OpenPool, members: &Members) {
    let mut connections = pool.absences.connections.borrow_mut();
    for disk in pool.spaces.pool().disks().iter().filter(|disk| is_here(disk)) {
        let connection = disk.device().and_then(|device| members.connection_of(&device));
        connections.extend(connection.map(|connection| (disk.id(), connection)));
    }
}

/// Returns absent disks that the system may have as they were when they left: where they were, and how they were connected.
pub(crate) fn connected_absent(pool: &OpenPool) -> Vec<(DiskId, PathBuf, Connection)> {
    let connections = pool.absences.connections.borrow();
    let disks = pool.spaces.pool().disks();
    let absent = disks.iter().filter(|disk| !is_here(disk));
    absent
        .filter_map(|disk| Some((disk.id(), PathBuf::from(disk.name()), *connections.get(&disk.id())?)))
        .collect()
}

/// Notes that the system has a disk no more as it was when it left.
pub(crate) fn note_ended(pool: &OpenPool, disk: DiskId, connection: Connection) {
    let mut connections = pool.absences.connections.borrow_mut();
    if connections.get(&disk) == Some(&connection) {
        connections.remove(&disk);
    }
}

/// Returns what a member that is not in use waits for.
pub(crate) fn standing(pool: &OpenPool, disk: &Disk) -> Standing {
    let (members, id) = (pool.spaces.pool().members(), disk.id());
    let is_retired = disk.member().state == MemberState::Retired && !pool.absences.is_excluded(id);
    let known = Known {
        takes_part: is_here(disk),
        is_let_go: pool.absences.is_let_go(id) && !mutation!(OfflineTakenIn),
        is_to_leave: is_retired
            || members.is_declared_lost(disk)
            || members.role_of(disk) == Some(Role::Idle),
        is_connected: pool.absences.connections.borrow().contains_key(&id) && !mutation!(FailedTakenIn),
        is_flapping: pool.absences.is_flapping(id),
    };
    known.standing()
}

/// Returns absent disks whose return is awaited.
pub(crate) fn awaited(pool: &OpenPool) -> Vec<Rc<Disk>> {
    if pool.spaces.pool().state() != PoolState::Writable || pool.is_closing.get() {
        return Vec::new();
    }
    let disks = pool.spaces.pool().disks();
    disks.into_iter().filter(|disk| standing(pool, disk) == Standing::Awaited).collect()
}

/// Decides on an awaited disk that devices have the label of.
pub(crate) fn decide_on_arrival(pool: &OpenPool, disk: DiskId, devices: usize, now: Instant) -> Arrival {
    let devices = if mutation!(CopyTakenIn) { devices.min(1) } else { devices };
    let mut returns = pool.absences.returns.borrow_mut();
    let lately = returns.entry(disk).or_default();
    lately.retain(|at| now.since(*at) < FLAPPING_WINDOW);
    let arrival = arrival_of(devices, lately.len());
    if arrival == Arrival::Flapping {
        pool.absences.flapping.borrow_mut().insert(disk);
    }
    arrival
}

/// Notes that a disk was taken back in without a command.
pub(crate) fn note_return(pool: &OpenPool, disk: DiskId, now: Instant) {
    pool.absences.returns.borrow_mut().entry(disk).or_default().push(now);
}

/// Forgets how often a disk came back: a command has taken it in.
pub(crate) fn forget_returns(pool: &OpenPool, disk: DiskId) {
    pool.absences.returns.borrow_mut().remove(&disk);
    pool.absences.flapping.borrow_mut().remove(&disk);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of what is known: a disk is awaited in one of them alone.
    #[test]
    fn a_disk_is_awaited_where_nothing_speaks_against_it() {
        let known = |bits: u8| Known {
            takes_part: bits & 1 != 0,
            is_let_go: bits & 2 != 0,
            is_to_leave: bits & 4 != 0,
            is_connected: bits & 8 != 0,
            is_flapping: bits & 16 != 0,
        };
        for bits in 0..32 {
            let expected = match bits {
                0 => Standing::Awaited,
                _ if bits & 1 != 0 => Standing::TakesPart,
                _ => Standing::LeftToCommands,
            };
            assert_eq!(known(bits).standing(), expected, "{:?}", known(bits));
        }
    }

    #[test]
    fn one_device_that_comes_back_seldom_is_taken_in() {
        for (devices, returns, expected) in [
            (1, 0, Arrival::TakeIn),
            (1, RETURNS_MAX - 1, Arrival::TakeIn),
            (1, RETURNS_MAX, Arrival::Flapping),
            (2, 0, Arrival::Copies),
            (3, RETURNS_MAX, Arrival::Copies),
        ] {
            assert_eq!(arrival_of(devices, returns), expected, "{devices} {returns}");
        }
    }
}
