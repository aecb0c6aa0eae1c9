//! Files at ranges of a volume's device that its space lost, or could not save.
//!
//! A worker finds the names, which may take as long as a walk of the volume. So the answer of a search is kept for a while, and a
//! request that does not live to see it says so. A search holds the lock of its volume, and ends when a change wants the lock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dolmen_attach::SpaceKey;
use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Instant, within};
use dolmen_mutation::mutation;
use dolmen_pool::Disk;
use dolmen_space::{DataLossKind, Space, disks_at, failed_reads};
use dolmen_units::Bytes;
use dolmen_worker::protocol::long::{ByteRange, Name, NameKind, RangeNames};
use dolmen_worker::protocol::{Operation, Outcome};

use crate::answer::Answer;
use crate::open_pool::{OpenPool, key_of};
use crate::state::is_here;
use crate::volumes::locks::Lane;
use crate::volumes::records::{self, Found};
use crate::volumes::service::Volumes;
use crate::volumes::steer::Steer;
use crate::volumes::volume::Volume;
use crate::words::counted;

/// Ranges that are named, at most.
const RANGES_MAX: usize = 16;
/// Owners of a range that are named, at most.
const NAMES_MAX: usize = 8;
/// Disks of a range that are named, at most.
const DISKS_MAX: usize = 4;
/// Time that a request waits for a search.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Age up to which the names of a search are told again.
const NAMES_AGE_MAX: Duration = Duration::from_secs(60);

/// A search for names, under way or ended.
struct Search {
    ranges: Vec<ByteRange>,
    /// None while it is under way.
    found: Option<(Instant, Result<Vec<RangeNames>, String>)>,
}

/// Searches for names, the last one of each volume.
pub(crate) struct Damage {
    volumes: Rc<Volumes>,
    searches: Rc<RefCell<BTreeMap<SpaceKey, Search>>>,
    ended: Rc<Notify>,
}

impl Damage {
    pub(crate) fn new(volumes: &Rc<Volumes>) -> Self {
        Self { volumes: Rc::clone(volumes), searches: Rc::default(), ended: Rc::new(Notify::new()) }
    }

    /// Returns what lies at the damaged ranges of the volume on a space, a sentence for each range; none where nothing is damaged,
    /// and where the space carries no volume.
    pub(crate) async fn names(&self, pool: &Rc<OpenPool>, space: &Space) -> Vec<String> {
        let (ranges, left_out) = damaged_ranges(pool, space);
        if ranges.is_empty() {
            return Vec::new();
        }
        let Ok(Some(Found::Known(record))) = records::read(space).await else { return Vec::new() };
        let key = key_of(pool, space);
        let name = format!("{}/{}", pool.name(), space.name());
        let volume = Volume { pool: Rc::clone(pool), space: space.clone(), key, name, record: *record };
        let mut texts = Vec::new();
        match self.search(volume, &ranges).await {
            Ok(found) => {
                for range in &found {
                    texts.push(shown_range(range, &disks_of(pool, space, range.range.start).await));
                }
            }
            Err(why) => texts.push(why),
        }
        if left_out > 0 {
            texts
                .push(format!("{} more are not named", counted(left_out, "damaged range", "damaged ranges")));
        }
        texts
    }

    /// Returns the names at ranges, of the last search or a new one.
    async fn search(&self, volume: Volume, ranges: &[ByteRange]) -> Result<Vec<RangeNames>, String> {
        let (key, name) = (volume.key, volume.name.clone());
        let clock = Rc::clone(&self.volumes.seams.clock);
        let is_to_begin = match self.searches.borrow().get(&key) {
            None => true,
            Some(Search { found: None, .. }) => false,
            // One that failed, or ended for a change, has no names to keep.
            Some(Search { found: Some((_, Err(_))), .. }) => true,
            Some(Search { found: Some((at, Ok(_))), ranges: of }) => {
                of.as_slice() != ranges || clock.now().since(*at) > NAMES_AGE_MAX
            }
        };
        if is_to_begin {
            self.begin(volume, ranges.to_vec());
        }
        let ended = || {
            let searches = self.searches.borrow();
            let search = searches.get(&key)?;
            search.found.as_ref().map(|(_, found)| found.clone())
        };
        let limit = clock.now() + ANSWER_LIMIT;
        let found = within(clock.as_ref(), limit, self.ended.wait_for(ended)).await;
        found.unwrap_or_else(|| {
            Err(format!(
                "the files of volume {name} at damaged ranges are being searched for; ask again in a while"
            ))
        })
    }

    fn begin(&self, volume: Volume, ranges: Vec<ByteRange>) {
        let key = volume.key;
        self.searches.borrow_mut().insert(key, Search { ranges: ranges.clone(), found: None });
        let (volumes, searches, ended) =
            (Rc::clone(&self.volumes), Rc::clone(&self.searches), Rc::clone(&self.ended));
        let searching = async move {
            let found = find(&volumes, &volume, ranges).await.map_err(|error| error.message);
            let now = volumes.seams.clock.now();
            if let Some(search) = searches.borrow_mut().get_mut(&key) {
                search.found = Some((now, found));
            }
            ended.notify_all();
        };
        self.volumes.seams.spawner.spawn("names of files", Box::pin(searching));
    }
}

/// A search that is registered as long as this lives.
struct Registered<'a> {
    volumes: &'a Volumes,
    key: SpaceKey,
    steer: Rc<Steer>,
}

impl<'a> Registered<'a> {
    fn new(volumes: &'a Volumes, key: SpaceKey) -> Self {
        let steer = Steer::new();
        volumes.searches.note(key, Some(Rc::clone(&steer)));
        Self { volumes, key, steer }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.volumes.searches.note(self.key, None);
    }
}

async fn find(volumes: &Volumes, volume: &Volume, ranges: Vec<ByteRange>) -> Answer<Vec<RangeNames>> {
    let mutex = volumes.locks.of(volume.key, Lane::Volume);
    let _exclusive = volumes.turn(&mutex, volume.key, &volume.name).await?;
    let (device, mounted) = volumes.mount_of(volume.key).await?;
    let (Some(device), Some(_)) = (device, mounted) else {
        let message = format!(
            "files at damaged ranges are named while volume {} is mounted: `dolmen volume mount {}`",
            volume.name, volume.name
        );
        return Err(dolmen_api::ErrorBody::new(dolmen_api::ErrorCode::Busy, message));
    };
    let operation = Operation::Names { volume: volume.for_worker(device), ranges, names_max: NAMES_MAX };
    let registered = Registered::new(volumes, volume.key);
    match volumes.workers.long(volume.key, &volume.name, operation, &registered.steer).await? {
        Outcome::Names { ranges } => Ok(ranges),
        Outcome::Stopped => {
            let message = format!(
                "the search for files of volume {} at damaged ranges was ended by a change of the volume; ask again",
                volume.name
            );
            Err(dolmen_api::ErrorBody::new(dolmen_api::ErrorCode::Busy, message))
        }
        other => {
            let message = format!("the search for names was answered with {other:?}");
            Err(dolmen_api::ErrorBody::new(dolmen_api::ErrorCode::Internal, message))
        }
    }
}

/// Returns the damaged ranges of a space that may hold content, joined where they meet, and how many are left out.
fn damaged_ranges(pool: &OpenPool, space: &Space) -> (Vec<ByteRange>, usize) {
    let is_damage = |kind| match kind {
        DataLossKind::Lost | DataLossKind::TableLost | DataLossKind::CorruptHere => true,
        DataLossKind::AcceptedUnverified => false,
    };
    let events = pool.data_loss_events().into_iter();
    let lost = events.filter(|one| one.space == space.id() && is_damage(one.kind));
    let lost = lost.map(|one| ByteRange { start: one.at, length: one.length.0 });
    let failed = failed_reads(space).into_iter();
    let failed = failed.map(|one| ByteRange { start: one.at, length: one.length.0 });
    let mut ranges = joined(lost.chain(failed).collect());
    let left_out = ranges.len().saturating_sub(RANGES_MAX);
    ranges.truncate(RANGES_MAX);
    (ranges, left_out)
}

/// Sorts ranges and joins those that meet.
fn joined(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.retain(|range| range.length > 0);
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end() && !mutation!(DamagedRangesApart) => {
                last.length = last.end().max(range.end()).saturating_sub(last.start);
            }
            Some(_) | None => joined.push(range),
        }
    }
    joined
}

/// Returns the disks of the row at a place that may have lost it: those that are absent or had errors, or else all.
async fn disks_of(pool: &OpenPool, space: &Space, at: u64) -> Vec<String> {
    let Ok(slots) = disks_at(space, at).await else { return Vec::new() };
    let disks = pool.spaces.pool().disks();
    let of_row: Vec<_> = disks.iter().filter(|disk| slots.contains(&disk.slot())).collect();
    let state = |disk: &Rc<Disk>| {
        let errors = disk.counters();
        match (is_here(disk), errors.read_errors + errors.checksum_errors) {
            (false, _) => Some("absent".to_owned()),
            (true, 0) => None,
            (true, errors) => Some(counted(errors, "error", "errors")),
        }
    };
    let shown = |disk: &Rc<Disk>, state: &str| format!("disk {} ({}, {state})", disk.slot().0, disk.name());
    let suspects: Vec<String> =
        of_row.iter().filter_map(|disk| state(disk).map(|state| shown(disk, &state))).collect();
    let mut named = match suspects.is_empty() {
        false => suspects,
        true => of_row.iter().map(|disk| shown(disk, "no error is counted")).collect(),
    };
    named.truncate(DISKS_MAX);
    named
}

fn shown_range(found: &RangeNames, disks: &[String]) -> String {
    let disks = if disks.is_empty() { String::new() } else { format!(", of {},", disks.join(" and ")) };
    let owners: Vec<String> = found.names.iter().map(shown_name).collect();
    let more = match found.more {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let owners = if owners.is_empty() { "nothing that is known".to_owned() } else { owners.join(", ") };
    format!("{} from byte {} on{disks} hold {owners}{more}", Bytes(found.range.length), found.range.start)
}

fn shown_name(name: &Name) -> String {
    let bytes = Bytes(name.bytes);
    let inode = name.inode.map(|inode| format!(" of inode {inode}")).unwrap_or_default();
    let of = match (&name.path, name.kind) {
        (Some(path), NameKind::Folder) => format!("entries of folder {path:?}"),
        (Some(path), NameKind::Metadata) => format!("metadata of {path:?}"),
        (Some(path), _) => {
            let from = name.offset.map(|offset| format!(" from its byte {offset} on")).unwrap_or_default();
            format!("file {path:?}{from}")
        }
        (None, NameKind::File) => format!("a file without a name{inode}"),
        (None, NameKind::Folder) => format!("entries of a folder without a name{inode}"),
        (None, NameKind::Metadata) => format!("metadata{inode}"),
        (None, NameKind::Log) => "the log of the file system".to_owned(),
        (None, NameKind::Free) => "free room".to_owned(),
        (None, NameKind::Unknown) => "content that no file has".to_owned(),
    };
    format!("{bytes} of {of}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_are_one() {
        let range = |start, length| ByteRange { start, length };
        let found = joined(vec![range(8192, 4096), range(0, 4096), range(4096, 4096), range(1 << 20, 0)]);
        assert_eq!(found, [range(0, 12288)]);
        assert_eq!(joined(vec![range(0, 8192), range(4096, 512), range(65536, 1)]).len(), 2);
    }

    #[test]
    fn a_range_is_shown_with_its_files() {
        let name = |kind, path: Option<&str>, inode, offset| Name {
            kind,
            path: path.map(str::to_owned),
            inode,
            offset,
            bytes: 4096,
        };
        let names = vec![
            name(NameKind::File, Some("docs/a"), Some(9), Some(4096)),
            name(NameKind::File, None, Some(7), None),
            name(NameKind::Free, None, None, None),
        ];
        let found = RangeNames { range: ByteRange { start: 1 << 20, length: 12288 }, names, more: 2 };
        assert_eq!(
            shown_range(&found, &["disk 1 (/dev/a, absent)".to_owned()]),
            "12 KiB from byte 1048576 on, of disk 1 (/dev/a, absent), hold 4 KiB of file \"docs/a\" from its byte 4096 on, \
             4 KiB of a file without a name of inode 7, 4 KiB of free room, and 2 more"
        );
    }
}
