//! What the world looks like at one moment, and the table of epoch records that states refer to.

use std::collections::{BTreeMap, BTreeSet};

use dolmen_units::{DiskId, Epoch, EpochId, HostId, Lsn};

use crate::{Decision, DiskView, EpochRecord, Owner, decide};

pub(super) const DISKS: usize = 3;
pub(super) const HOSTS: usize = 2;
/// Places of the modelled log.
pub(super) const LOG_MAX: usize = 3;
/// The line that was never forced, and up to two that were.
pub(super) const LINES_MAX: usize = 3;
/// Where a disk is that no host sees.
pub(super) const SHELF: usize = HOSTS;

/// An epoch record in the table; 0 is none.
pub(super) type Index = u16;
/// A set of disks, one bit each.
pub(super) type Mask = u8;

/// Who wrote each place of a log. Writer and place name a write: an epoch writes a place once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Log {
    writers: [Index; LOG_MAX],
    len: u8,
}

impl Log {
    pub(super) fn entries(&self) -> &[Index] {
        &self.writers[..usize::from(self.len)]
    }

    pub(super) fn push(&mut self, writer: Index) {
        self.writers[usize::from(self.len)] = writer;
        self.len += 1;
    }

    pub(super) fn len(&self) -> u8 {
        self.len
    }

    /// The first free place.
    pub(super) fn end(&self) -> Lsn {
        Lsn(u64::from(self.len) + 1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Disk {
    pub(super) base: Index,
    pub(super) pending: Index,
    pub(super) log: Log,
    /// Entries that were acknowledged while this disk was written, or recovered onto it. Entries behind them
    /// are a dead host's: whether another copy of them was served later, this disk cannot know.
    pub(super) served_len: u8,
    /// A host, or the shelf.
    pub(super) place: usize,
}

/// A host that has the pool open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub(super) epoch: Index,
    /// Voters that it still reaches.
    pub(super) members: Mask,
}

/// A line of history: the epoch that a confirmation began (none for the first line) and what it served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Line {
    pub(super) forced: Index,
    pub(super) served: Log,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) disks: [Disk; DISKS],
    pub(super) arbiter: [Index; HOSTS],
    pub(super) open: [Option<Open>; HOSTS],
    pub(super) lines: [Line; LINES_MAX],
    pub(super) confirmations: usize,
    pub(super) writes: usize,
}

impl State {
    /// The disks that a host sees.
    pub(super) fn here(&self, host: usize) -> Mask {
        (0..DISKS).filter(|&disk| self.disks[disk].place == host).fold(0, |mask, disk| mask | 1 << disk)
    }

    fn records(&self) -> impl Iterator<Item = Index> {
        let disks = self.disks.iter().flat_map(|disk| [disk.base, disk.pending]);
        let logs = self.disks.iter().map(|disk| &disk.log).chain(self.lines.iter().map(|line| &line.served));
        let entries = logs.flat_map(|log| log.entries().to_vec());
        let open = self.open.iter().flatten().map(|open| open.epoch);
        let lines = self.lines.iter().map(|line| line.forced);
        disks.chain(self.arbiter).chain(open).chain(lines).chain(entries).filter(|index| *index != 0)
    }
}

pub(super) fn members(mask: Mask) -> impl Iterator<Item = usize> {
    (0..DISKS).filter(move |disk| mask & (1 << disk) != 0)
}

/// All subsets of a set, the empty one and itself included.
pub(super) fn subsets(of: Mask) -> impl Iterator<Item = Mask> {
    (0..=of).filter(move |mask| mask & !of == 0)
}

pub(super) fn disk_id(disk: usize) -> DiskId {
    DiskId([u8::try_from(disk).unwrap() + 1; 16])
}

pub(super) fn disk_ids(mask: Mask) -> Vec<DiskId> {
    members(mask).map(disk_id).collect()
}

pub(super) fn host_id(host: usize) -> HostId {
    HostId([u8::try_from(host).unwrap() + 0xa0; 16])
}

/// What the shipping code decided, in indices.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ruling {
    Write { build_on: Index, highest: Epoch },
    ReadOnly { newest: Index, highest: Epoch },
}

/// All epoch records met so far, and all rulings.
pub(super) struct Table {
    records: Vec<EpochRecord>,
    indices: BTreeMap<EpochRecord, Index>,
    rulings: BTreeMap<[Index; 2 + 2 * DISKS], Ruling>,
}

impl Table {
    pub(super) fn new() -> Self {
        let unused = EpochRecord::first(u64::MAX, Owner::Exported, disk_ids(1), Lsn(1)).unwrap();
        Self { records: vec![unused], indices: BTreeMap::new(), rulings: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, record: EpochRecord) -> Index {
        if let Some(&index) = self.indices.get(&record) {
            return index;
        }
        let index = Index::try_from(self.records.len()).unwrap();
        self.records.push(record.clone());
        self.indices.insert(record, index);
        index
    }

    pub(super) fn get(&self, index: Index) -> &EpochRecord {
        assert_ne!(index, 0, "no record");
        &self.records[usize::from(index)]
    }

    pub(super) fn voters(&self, index: Index) -> Mask {
        let voters = self.get(index).voters();
        (0..DISKS).filter(|&disk| voters.contains(&disk_id(disk))).fold(0, |mask, disk| mask | 1 << disk)
    }

    /// Which of the state's lines an epoch belongs to.
    pub(super) fn line(&self, state: &State, epoch: Index) -> usize {
        let forced = self.get(epoch).fork().map(|fork| fork.forced);
        let is_line = |line: &Line| match (line.forced, forced) {
            (0, forced) => forced.is_none(),
            (index, forced) => Some(self.get(index).id()) == forced,
        };
        state.lines[..=state.confirmations].iter().position(is_line).unwrap()
    }

    /// Random bits that no record in sight has, drawn so that equal worlds get equal bits.
    pub(super) fn nonce(&self, state: &State, number: Epoch, candidates: impl Iterator<Item = u64>) -> u64 {
        let mut used = BTreeSet::new();
        for record in state.records().map(|index| self.get(index)) {
            used.extend([record.id(), record.predecessor()]);
            used.extend(record.spans().iter().map(|span| span.epoch));
            used.extend(record.fork().map(|fork| fork.forced));
        }
        let mut candidates = candidates;
        candidates.find(|&nonce| !used.contains(&EpochId { number, nonce })).unwrap()
    }

    /// The shipping decision for a host that sees `disks`.
    pub(super) fn rule(&mut self, state: &State, host: usize, disks: Mask) -> Ruling {
        let mut key = [0; 2 + 2 * DISKS];
        key[0] = Index::try_from(host).unwrap();
        key[1] = state.arbiter[host];
        for disk in members(disks) {
            key[2 + 2 * disk] = state.disks[disk].base;
            key[3 + 2 * disk] = state.disks[disk].pending;
        }
        if let Some(ruling) = self.rulings.get(&key) {
            return *ruling;
        }
        let optional = |index: Index| (index != 0).then(|| self.get(index));
        let present: Vec<DiskView> = members(disks)
            .map(|disk| DiskView {
                disk: disk_id(disk),
                base: self.get(state.disks[disk].base).clone(),
                pending: optional(state.disks[disk].pending).cloned(),
            })
            .collect();
        let arbiter = optional(state.arbiter[host]).map(EpochRecord::id);
        let ruling = match decide(host_id(host), arbiter, &present) {
            Decision::Write { build_on, highest } => Ruling::Write { build_on: self.add(build_on), highest },
            Decision::ReadOnly { newest, highest, .. } => {
                Ruling::ReadOnly { newest: self.add(newest), highest }
            }
            Decision::Nothing => panic!("a host with disks was told that it has none"),
        };
        self.rulings.insert(key, ruling);
        ruling
    }

    /// The union of the present logs, place by place, as far as the epoch's spans accept the writer.
    pub(super) fn recover(&self, state: &State, build_on: Index, disks: Mask) -> Log {
        let record = self.get(build_on);
        let mut log = Log::default();
        for place in 0..LOG_MAX {
            let writer = record.writer_of(log.end());
            let held = members(disks).filter_map(|disk| state.disks[disk].log.entries().get(place).copied());
            let mut accepted = held.filter(|&entry| Some(self.get(entry).id()) == writer);
            let Some(entry) = accepted.next() else { break };
            log.push(entry);
        }
        log
    }
}
