//! The file that names the epoch in force of one pool on this host, and labels of its voters.
//!
//! Two slots of 4096 bytes hold the same record and are overwritten in place, so that a record of a further epoch needs no
//! room on a file system that has none left. A slot that is damaged or older is written first, then the other one, each
//! with a sync:
//!
//! | crash | slots | read as |
//! |---|---|---|
//! | before or in the first write | damaged or older, old | old |
//! | behind the first write, in the second one | new, damaged or old | new |
//! | behind the second write | new, new | new |
//! | a slot that rots later | either | the other slot, which has the same record |
//! | both rot | damaged | an error, never *no record* |
//!
//! The record counts once both slots have it: an epoch that only one slot names was never in force, and every one of its
//! voters has it by then, so that either reading is right ([docs/design/0003](../../../docs/design/0003-epochs.md)).
//!
//! Invariant: the last good slot is never overwritten while the other one is not as new.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use dolmen_checksum::crc32c;
use dolmen_mutation::mutation;
use dolmen_pool::{HostRecord, VOTERS_MAX};
use dolmen_units::{DiskId, Epoch, EpochId, PoolId};
use rustix::fs::{Advice, IFlags, fadvise, ioctl_setflags};

const MAGIC: &str = "dolmen-epoch-3";
/// Beginnings of the records of earlier versions.
const MAGICS_BEFORE: [&[u8; 15]; 2] = [b"dolmen-epoch-1 ", b"dolmen-epoch-2 "];
/// The length of a slot: what file systems write as one.
const SLOT_BYTES: usize = 4096;
const FILE_BYTES: usize = 2 * SLOT_BYTES;
/// Most bytes of a record without labels, and of one label in it: words, decimal numbers of 64 bits, and hexadecimal ones.
const RECORD_BYTES_MAX: usize = 128;
const LABEL_BYTES_MAX: usize = 1 + 32 + 1 + 20;

const _: () = assert!(
    RECORD_BYTES_MAX + VOTERS_MAX * LABEL_BYTES_MAX <= SLOT_BYTES,
    "a slot has room for the label of each voter"
);

/// Why the record cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("{0}")]
    System(#[from] io::Error),
    #[error(
        "both copies of the record are damaged; put the file back from a backup, or remove it and import the pool with all of its disks"
    )]
    Damaged,
    #[error(
        "it is a record of an earlier version ({found}, expected {MAGIC}); remove it and import the pool with all of its disks"
    )]
    Before { found: String },
}

/// A slot that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    sequence: u64,
    record: HostRecord,
}

/// The two slots, wherever they are.
trait Slots {
    /// Reads a slot; none where it cannot be read.
    fn read(&self, slot: usize) -> Option<Vec<u8>>;
    /// Overwrites a slot, durably.
    fn write(&mut self, slot: usize, content: &[u8]) -> io::Result<()>;
    /// Has further reads bring what the medium holds, after a write that failed: the system keeps content in memory that it could
    /// not write, and calls it clean.
    fn forget_cached(&self);
}

impl Slots for File {
    fn read(&self, slot: usize) -> Option<Vec<u8>> {
        let mut content = vec![0; SLOT_BYTES];
        self.read_exact_at(&mut content, offset_of(slot)).ok()?;
        Some(content)
    }

    fn write(&mut self, slot: usize, content: &[u8]) -> io::Result<()> {
        self.write_all_at(content, offset_of(slot))?;
        self.sync_data()
    }

    fn forget_cached(&self) {
        if let Err(error) = fadvise(self, 0, None, Advice::DontNeed) {
            tracing::warn!(%error, "a record that could not be written may read as if it had been");
        }
    }
}

fn offset_of(slot: usize) -> u64 {
    if slot == 0 { 0 } else { SLOT_BYTES as u64 }
}

/// Returns the record, if there is one.
pub(crate) fn read(path: &Path, pool: PoolId) -> Result<Option<HostRecord>, RecordError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut start = [0; 15];
    if file.read_exact_at(&mut start, 0).is_ok() && MAGICS_BEFORE.contains(&&start) {
        let found = String::from_utf8_lossy(&start).trim().to_owned();
        return Err(RecordError::Before { found });
    }
    in_force(&file, pool).map(|slot| Some(slot.record)).ok_or(RecordError::Damaged)
}

/// Writes the record, durably. Room is needed for the first one only.
pub(crate) fn write(path: &Path, pool: PoolId, record: &HostRecord) -> io::Result<()> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(mut file) if file.metadata()?.len() == FILE_BYTES as u64 => overwrite(&mut file, pool, record),
        Ok(_) => create(path, pool, record),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path, pool, record),
        Err(error) => Err(error),
    }
}

fn create(path: &Path, pool: PoolId, record: &HostRecord) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let fresh = folder.join(name);
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
    // A file system that copies on write needs room for each overwrite, unless it is told not to; others have no such flag.
    let _ = ioctl_setflags(&file, IFlags::NOCOW);
    let slot = encode(pool, &Slot { sequence: 1, record: record.clone() });
    file.write_all(&[slot.as_slice(), slot.as_slice()].concat())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(folder)?.sync_all()
}

fn overwrite(slots: &mut impl Slots, pool: PoolId, record: &HostRecord) -> io::Result<()> {
    let [first, second] = [0, 1].map(|slot| slots.read(slot).and_then(|content| decode(pool, &content)));
    // The one that may be lost goes first.
    let mut order = if sequence_of(&first) > sequence_of(&second) { [1, 0] } else { [0, 1] };
    let newest = sequence_of(&first).max(sequence_of(&second)).unwrap_or(0);
    let slot = Slot { sequence: newest + 1, record: record.clone() };
    if mutation!(RecordOverInForce) {
        order.reverse();
    }
    let content = encode(pool, &slot);
    let written = order.into_iter().try_for_each(|at| slots.write(at, &content));
    written.inspect_err(|_| slots.forget_cached())
}

fn sequence_of(slot: &Option<Slot>) -> Option<u64> {
    slot.as_ref().map(|slot| slot.sequence)
}

fn in_force(slots: &impl Slots, pool: PoolId) -> Option<Slot> {
    let [first, second] = [0, 1].map(|slot| slots.read(slot).and_then(|content| decode(pool, &content)));
    first.max_by_sequence(second)
}

trait Newest {
    fn max_by_sequence(self, other: Self) -> Self;
}

impl Newest for Option<Slot> {
    /// The one with the larger sequence; that which is there, where the other is not.
    fn max_by_sequence(self, other: Self) -> Self {
        self.into_iter().chain(other).max_by_key(|slot| slot.sequence)
    }
}

fn encode(pool: PoolId, slot: &Slot) -> Vec<u8> {
    let Slot { sequence, record: HostRecord { epoch, labels } } = slot;
    let labels: String = labels.iter().map(|(disk, label)| format!(" {disk}:{label}")).collect();
    let body = format!("{MAGIC} {pool} {sequence} {} {:016x}{labels}", epoch.number.0, epoch.nonce);
    let mut content = format!("{body} {:08x}\n", crc32c(body.as_bytes())).into_bytes();
    content.resize(SLOT_BYTES, 0);
    content
}

fn decode(pool: PoolId, content: &[u8]) -> Option<Slot> {
    let end = content.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = (content.get(..end)?, content.get(end + 1..)?);
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    let (body, sum) = std::str::from_utf8(line).ok()?.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c(body.as_bytes()) {
        return None;
    }
    let mut parts = body.split(' ');
    let named = parts.next()? == MAGIC && parts.next()?.parse::<PoolId>().ok()? == pool;
    let sequence = parts.next()?.parse().ok()?;
    let number = Epoch(parts.next()?.parse().ok()?);
    let nonce = u64::from_str_radix(parts.next()?, 16).ok()?;
    let labels = parts.map(|part| {
        let (disk, label) = part.split_once(':')?;
        Some((disk.parse::<DiskId>().ok()?, label.parse().ok()?))
    });
    let labels = labels.collect::<Option<BTreeMap<DiskId, u64>>>()?;
    named.then_some(Slot { sequence, record: HostRecord { epoch: EpochId { number, nonce }, labels } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const POOL: PoolId = PoolId([7; 16]);

    fn epoch(number: u64) -> EpochId {
        EpochId { number: Epoch(number), nonce: number << 32 }
    }

    fn record(number: u64) -> HostRecord {
        let labels = [(DiskId([1; 16]), number), (DiskId([2; 16]), u64::MAX)].into();
        HostRecord { epoch: epoch(number), labels }
    }

    #[test]
    fn a_record_reads_back_and_any_changed_byte_is_noticed() {
        let slot = Slot { sequence: 3, record: record(12) };
        let content = encode(POOL, &slot);
        let without = Slot { sequence: 3, record: epoch(12).into() };
        assert_eq!(decode(POOL, &encode(POOL, &without)), Some(without));
        assert_eq!(decode(POOL, &content), Some(slot));
        assert_eq!(decode(PoolId([8; 16]), &content), None);
        for at in 0..content.len() {
            let mut changed = content.clone();
            changed[at] ^= 1;
            assert_eq!(decode(POOL, &changed), None, "byte {at}");
        }
    }

    /// Scenario: as many voters as an epoch can have, with the largest numbers. The record fits in its slot.
    #[test]
    fn the_longest_record_fits_in_a_slot() {
        let disks = (0..VOTERS_MAX).map(|index| DiskId([u8::try_from(index).unwrap(); 16]));
        let largest = EpochId { number: Epoch(u64::MAX), nonce: u64::MAX };
        let longest = HostRecord { epoch: largest, labels: disks.map(|disk| (disk, u64::MAX)).collect() };
        let content = encode(POOL, &Slot { sequence: u64::MAX, record: longest.clone() });
        assert_eq!(content.len(), SLOT_BYTES);
        assert_eq!(decode(POOL, &content).map(|slot| slot.record), Some(longest));
    }

    /// Slots in memory whose power is cut in one of the writes.
    #[derive(Clone)]
    struct Cut {
        slots: [Option<Vec<u8>>; 2],
        writes_left: usize,
        torn: Torn,
    }

    /// What the write in which the power goes leaves.
    #[derive(Clone, Copy, Debug)]
    enum Torn {
        Old,
        /// So many bytes of the new content before the old ones.
        Mixed(usize),
        Unreadable,
    }

    impl Slots for Cut {
        fn read(&self, slot: usize) -> Option<Vec<u8>> {
            self.slots[slot].clone()
        }

        fn write(&mut self, slot: usize, content: &[u8]) -> io::Result<()> {
            if self.writes_left > 0 {
                self.writes_left -= 1;
                self.slots[slot] = Some(content.to_vec());
                return Ok(());
            }
            let before = self.slots[slot].clone().unwrap_or_else(|| vec![0xee; SLOT_BYTES]);
            match self.torn {
                Torn::Old => {}
                Torn::Mixed(length) => {
                    self.slots[slot] = Some([&content[..length], &before[length..]].concat());
                }
                Torn::Unreadable => self.slots[slot] = None,
            }
            Err(io::Error::other("the power is gone"))
        }

        fn forget_cached(&self) {}
    }

    /// Slots below a cache that keeps content which could not be written, as that of the system does.
    struct StaleCache {
        medium: [Option<Vec<u8>>; 2],
        cached: RefCell<[Option<Vec<u8>>; 2]>,
        fails: bool,
    }

    impl Slots for StaleCache {
        fn read(&self, slot: usize) -> Option<Vec<u8>> {
            self.cached.borrow()[slot].clone().or_else(|| self.medium[slot].clone())
        }

        fn write(&mut self, slot: usize, content: &[u8]) -> io::Result<()> {
            self.cached.borrow_mut()[slot] = Some(content.to_vec());
            if self.fails {
                return Err(io::Error::other("the medium failed"));
            }
            self.medium[slot] = Some(content.to_vec());
            Ok(())
        }

        fn forget_cached(&self) {
            *self.cached.borrow_mut() = [None, None];
        }
    }

    /// Scenario: a write fails, and the system keeps the new content in memory. What is read is what the medium holds: else the
    /// record would name an epoch that a power cut takes back.
    #[test]
    fn a_record_that_could_not_be_written_does_not_read_as_if_it_had_been() {
        let slot = Some(encode(POOL, &Slot { sequence: 1, record: record(1) }));
        let medium = [slot.clone(), slot];
        let mut slots = StaleCache { medium, cached: RefCell::default(), fails: true };
        assert!(overwrite(&mut slots, POOL, &record(2)).is_err());
        assert_eq!(in_force(&slots, POOL).map(|slot| slot.record), Some(record(1)));
        slots.fails = false;
        overwrite(&mut slots, POOL, &record(3)).unwrap();
        slots.forget_cached();
        assert_eq!(in_force(&slots, POOL).map(|slot| slot.record), Some(record(3)));
    }

    /// Every order of four records, each whole or cut in its first or second write, in each way: what is read is the last record that was
    /// whole, or the one that was cut.
    #[test]
    fn a_record_that_is_cut_leaves_the_old_or_the_new_one() {
        fn go_on(slots: &Cut, named: EpochId, number: u64) {
            if number == 6 {
                return;
            }
            let cuts = [Torn::Old, Torn::Mixed(20), Torn::Mixed(60), Torn::Mixed(80), Torn::Unreadable];
            for torn in cuts {
                for writes_left in 0..=2 {
                    let mut slots = Cut { writes_left, torn, ..slots.clone() };
                    let is_whole = overwrite(&mut slots, POOL, &record(number)).is_ok();
                    assert_eq!(is_whole, writes_left == 2);
                    let found = in_force(&slots, POOL).map(|slot| slot.record.epoch);
                    let found =
                        found.unwrap_or_else(|| panic!("no record is left: {torn:?} behind {writes_left}"));
                    let is_right = found == epoch(number) || (found == named && !is_whole);
                    assert!(is_right, "{found:?} instead of {named:?}: {torn:?} behind {writes_left}");
                    go_on(&slots, found, number + 1);
                }
            }
        }
        let slot = Some(encode(POOL, &Slot { sequence: 1, record: record(1) }));
        let slots = Cut { slots: [slot.clone(), slot], writes_left: 0, torn: Torn::Old };
        go_on(&slots, epoch(1), 2);
    }

    /// Scenario: a record in a file, one slot that rots, both, and a file of an earlier version. The first is read from the other
    /// slot and mended by the next record; the others are errors by name.
    #[test]
    fn a_file_with_one_bad_slot_is_read_and_one_with_two_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        assert!(matches!(read(&path, POOL), Ok(None)));
        for number in 1..4 {
            write(&path, POOL, &record(number)).unwrap();
            assert_eq!(read(&path, POOL).unwrap(), Some(record(number)));
        }
        let rot = |at: u64| File::options().write(true).open(&path).unwrap().write_all_at(b"#", at).unwrap();
        for (number, at) in [(4, 30), (5, 4096 + 30)] {
            rot(at);
            assert_eq!(read(&path, POOL).unwrap(), Some(record(number - 1)));
            write(&path, POOL, &record(number)).unwrap();
        }
        rot(0);
        rot(4096);
        assert!(matches!(read(&path, POOL), Err(RecordError::Damaged)));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        for before in ["dolmen-epoch-1", "dolmen-epoch-2"] {
            fs::write(&path, format!("{before} 07070707 1 2 3\n")).unwrap();
            assert!(matches!(read(&path, POOL), Err(RecordError::Before { found }) if found == before));
        }
        write(&path, POOL, &record(9)).unwrap();
        assert_eq!(read(&path, POOL).unwrap(), Some(record(9)));
    }
}
