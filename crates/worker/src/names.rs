//! What lies at ranges of a device: files by name, metadata, the log, or nothing.
//!
//! XFS with `rmapbt` names the inode of each block, and one walk finds the paths of those. Elsewhere the map of each file is
//! compared with the ranges: exact, and as long as a walk of the volume takes. The content of a file is not read.

use std::collections::BTreeMap;
use std::fs::File;

use dolmen_dedup::{Control, Next, Phase, Progress};
use dolmen_files::FilesError;
use dolmen_files::block_groups::{BlockGroup, block_groups};
use dolmen_files::extents::extents_at_most;
use dolmen_files::handle::Access;
use dolmen_files::space_map::{Owner, space_map};
use dolmen_files::volume::xfs_geometry;
use dolmen_files::walk::Walk;
use dolmen_mutation::mutation;
use dolmen_volume::file_system::FileSystem;

use crate::protocol::long::{ByteRange, Name, NameKind, RangeNames};
use crate::protocol::{Failure, FailureCode, Outcome, Volume};
use crate::steering::Steering;

/// Ranges of one order, at most.
const RANGES_MAX: usize = 1024;
/// Names of one range, at most.
const NAMES_MAX: usize = 256;
/// Extents that one call maps.
const MAP_MAX: usize = 4096;
/// Owner of the log of XFS and ext4 in a map of their device.
const LOG: u64 = (b'X' as u64) << 32 | 2;
/// Places of btrfs outside of its block groups: what it keeps free for boot loaders, and the second copy of its head.
const BTRFS_HEADS: [(u64, u64); 2] = [(0, 1 << 20), (64 << 20, (64 << 20) + 4096)];

/// A part of a range that is to be found in maps of files.
#[derive(Debug, Clone, Copy)]
struct Sought {
    /// First address, as maps of files give it.
    start: u64,
    end: u64,
    range: usize,
    /// Bytes that no file has.
    left: u64,
}

/// Names that were found.
struct Names {
    found: Vec<RangeNames>,
    names_max: usize,
}

impl Names {
    /// Adds a name, or joins it with one of the same owner.
    fn add(&mut self, range: usize, name: Name) {
        let Some(found) = self.found.get_mut(range) else { return };
        let is_same = |other: &&mut Name| {
            other.kind == name.kind && other.inode == name.inode && other.path == name.path
        };
        if let Some(same) = found.names.iter_mut().find(is_same) {
            same.bytes = same.bytes.saturating_add(name.bytes);
            same.offset = same.offset.min(name.offset);
        } else if found.names.len() < self.names_max {
            found.names.push(name);
        } else {
            found.more = found.more.saturating_add(1);
        }
    }

    fn add_kind(&mut self, range: usize, kind: NameKind, bytes: u64) {
        if bytes > 0 {
            self.add(range, Name { kind, path: None, inode: None, offset: None, bytes });
        }
    }
}

/// Names what lies at ranges of the device of a volume.
pub(crate) fn names(
    volume: &Volume,
    root: &File,
    ranges: &[ByteRange],
    names_max: usize,
    steering: &mut Steering<'_>,
) -> Result<Outcome, Failure> {
    if ranges.len() > RANGES_MAX {
        return Err(Failure {
            code: FailureCode::BadOrder,
            message: format!("{} ranges are more than the {RANGES_MAX} of one order", ranges.len()),
            hint: "ask for them in several orders".to_owned(),
        });
    }
    let found = ranges.iter().map(|range| RangeNames { range: *range, names: Vec::new(), more: 0 });
    let mut names = Names { found: found.collect(), names_max: names_max.clamp(1, NAMES_MAX) };
    let next = match volume.record.file_system {
        FileSystem::Xfs if xfs_geometry(root).is_ok_and(|geometry| geometry.has_reverse_map) => {
            of_owners(root, ranges, &mut names, steering)
        }
        FileSystem::Xfs | FileSystem::Ext4 => sought_by_map(root, ranges, &mut names)
            .and_then(|sought| search(root, sought, &mut names, steering)),
        FileSystem::Btrfs => sought_by_groups(root, ranges, &mut names)
            .and_then(|sought| search(root, sought, &mut names, steering)),
    };
    match next {
        Ok(Next::Go) => Ok(Outcome::Names { ranges: names.found }),
        Ok(Next::Stop) => Ok(Outcome::Stopped),
        Err(error) => Err(Failure {
            code: if error.is_unsupported() { FailureCode::Unsupported } else { FailureCode::Refused },
            message: format!("the file system at {}: {error}", volume.record.mount_point.as_str()),
            hint: String::new(),
        }),
    }
}

fn goes_on(steering: &mut Steering<'_>, files: u64) -> Next {
    steering.next(&Progress { phase: Phase::Map, files, bytes: 0, bytes_planned: 0, bytes_saved: 0 })
}

fn kind_of(owner: u64) -> NameKind {
    if owner == LOG { NameKind::Log } else { NameKind::Metadata }
}

/// Names owners of blocks by their inodes, then gives these their paths.
fn of_owners(
    root: &File,
    ranges: &[ByteRange],
    names: &mut Names,
    steering: &mut Steering<'_>,
) -> Result<Next, FilesError> {
    for (at, range) in ranges.iter().enumerate().filter(|(_, range)| range.length > 0) {
        space_map(root, range.start, range.end(), |used| {
            let start = used.physical.max(range.start);
            let bytes = used.physical.saturating_add(used.length).min(range.end()).saturating_sub(start);
            match used.owner {
                Owner::Free => names.add_kind(at, NameKind::Free, bytes),
                Owner::Unknown => names.add_kind(at, NameKind::Unknown, bytes),
                Owner::Metadata(owner) => names.add_kind(at, kind_of(owner), bytes),
                Owner::OfInode(inode) if bytes > 0 => {
                    let (kind, inode) = (NameKind::Metadata, Some(inode));
                    names.add(at, Name { kind, path: None, inode, offset: None, bytes });
                }
                Owner::File { inode, offset, .. } if bytes > 0 => {
                    let offset = Some(offset.saturating_add(start.saturating_sub(used.physical)));
                    let (kind, inode) = (NameKind::File, Some(inode));
                    names.add(at, Name { kind, path: None, inode, offset, bytes });
                }
                Owner::OfInode(_) | Owner::File { .. } => {}
            }
            true
        })?;
    }
    let mut paths: BTreeMap<u64, Option<(String, bool)>> = BTreeMap::new();
    paths.extend(
        names.found.iter().flat_map(|found| &found.names).filter_map(|name| Some((name.inode?, None))),
    );
    let (mut missing, mut files) = (paths.len(), 0u64);
    let mut walk = Walk::new(root, b"")?;
    while missing > 0 {
        let mut take = |inode: u64, path: &[u8], is_folder: bool| {
            if let Some(entry @ None) = paths.get_mut(&inode) {
                *entry = Some((String::from_utf8_lossy(path).into_owned(), is_folder));
                missing -= 1;
            }
        };
        let found = walk.next(|folder, inode| {
            take(inode, folder, true);
            true
        })?;
        let Some(found) = found else { break };
        take(found.inode, walk.path(), false);
        files = files.saturating_add(1);
        if goes_on(steering, files) == Next::Stop {
            return Ok(Next::Stop);
        }
    }
    for name in names.found.iter_mut().flat_map(|found| &mut found.names) {
        let Some(Some((path, is_folder))) = name.inode.and_then(|inode| paths.get(&inode)) else { continue };
        name.path = Some(path.clone());
        if *is_folder && name.kind == NameKind::File {
            (name.kind, name.offset) = (NameKind::Folder, None);
        }
    }
    Ok(Next::Go)
}

/// Names what the map of the device names, and returns the rest: ext4 leaves out some of what files own.
fn sought_by_map(root: &File, ranges: &[ByteRange], names: &mut Names) -> Result<Vec<Sought>, FilesError> {
    let mut sought = Vec::new();
    for (at, range) in ranges.iter().enumerate().filter(|(_, range)| range.length > 0) {
        let mut seen = range.start;
        let mut add_unnamed = |from: u64, to: u64| {
            if from < to {
                sought.push(Sought { start: from, end: to, range: at, left: to - from });
            }
        };
        space_map(root, range.start, range.end(), |used| {
            let start = used.physical.max(seen);
            let end = used.physical.saturating_add(used.length).min(range.end());
            let kind = match used.owner {
                Owner::Free => NameKind::Free,
                Owner::Metadata(owner) => kind_of(owner),
                Owner::Unknown | Owner::OfInode(_) | Owner::File { .. } => return true,
            };
            if start < end {
                add_unnamed(seen, start);
                names.add_kind(at, kind, end - start);
                seen = end;
            }
            true
        })?;
        add_unnamed(seen, range.end());
    }
    Ok(sought)
}

/// Names what block groups of btrfs name, and returns the rest, as addresses of btrfs.
fn sought_by_groups(root: &File, ranges: &[ByteRange], names: &mut Names) -> Result<Vec<Sought>, FilesError> {
    let mut groups = Vec::new();
    block_groups(root, &mut groups)?;
    let mut sought = Vec::new();
    for (at, range) in ranges.iter().enumerate() {
        let mut left = range.length;
        for (start, end) in BTRFS_HEADS {
            let bytes = range.end().min(end).saturating_sub(range.start.max(start));
            names.add_kind(at, NameKind::Metadata, bytes);
            left = left.saturating_sub(bytes);
        }
        for group in &groups {
            for place in &group.places {
                let part = part_of(group, place.1, range);
                let bytes = part.end.saturating_sub(part.start);
                left = left.saturating_sub(bytes);
                match (group.is_data, group.is_whole) {
                    (false, _) => names.add_kind(at, NameKind::Metadata, bytes),
                    (true, false) => names.add_kind(at, NameKind::Unknown, bytes),
                    (true, true) if bytes > 0 => {
                        sought.push(Sought { start: part.start, end: part.end, range: at, left: bytes });
                    }
                    (true, true) => {}
                }
            }
        }
        names.add_kind(at, NameKind::Free, left);
    }
    Ok(sought)
}

/// Returns the part of a range that one copy of a block group has, as addresses of btrfs.
fn part_of(group: &BlockGroup, physical: u64, range: &ByteRange) -> std::ops::Range<u64> {
    let start = range.start.max(physical);
    let end = range.end().min(physical.saturating_add(group.length)).max(start);
    let base = if mutation!(DeviceAddressAsLogical) { physical } else { group.logical };
    let logical = |address: u64| base.saturating_add(address.saturating_sub(physical));
    logical(start)..logical(end)
}

/// Compares the map of each file with what is sought.
fn search(
    root: &File,
    mut sought: Vec<Sought>,
    names: &mut Names,
    steering: &mut Steering<'_>,
) -> Result<Next, FilesError> {
    sought.sort_unstable_by_key(|part| part.start);
    // Ranges may overlap: what ends behind an address begins at most this far before it.
    let longest = sought.iter().map(|part| part.end.saturating_sub(part.start)).max().unwrap_or(0);
    let mut walk = Walk::new(root, b"")?.with_subvolumes()?;
    let (mut files, mut extents) = (0u64, Vec::new());
    while !sought.is_empty()
        && let Some(found) = walk.next(|_, _| true)?
    {
        files = files.saturating_add(1);
        if goes_on(steering, files) == Next::Stop {
            return Ok(Next::Stop);
        }
        let Ok(file) = found.handle.open(root, Access::Read) else { continue };
        let (mut from, mut more) = (0, true);
        while more {
            extents.clear();
            let Ok(whole) = extents_at_most(&file, from, u64::MAX - from, MAP_MAX, &mut extents) else {
                break;
            };
            more = !whole && !extents.is_empty();
            for extent in &extents {
                from = from.max(extent.end());
                if !extent.has_place() && !extent.is_encoded() {
                    continue;
                }
                let (start, end) = (extent.physical, extent.physical.saturating_add(extent.length));
                let first = sought.partition_point(|part| part.start.saturating_add(longest) <= start);
                let parts = sought.get_mut(first..).unwrap_or_default().iter_mut();
                for part in parts.take_while(|part| part.start < end) {
                    let (from, to) = (part.start.max(start), part.end.min(end));
                    if from >= to {
                        continue;
                    }
                    part.left = part.left.saturating_sub(to - from);
                    let offset = (!extent.is_encoded()).then(|| extent.logical.saturating_add(from - start));
                    let path = Some(String::from_utf8_lossy(walk.path()).into_owned());
                    let (kind, inode) = (NameKind::File, Some(found.inode));
                    names.add(part.range, Name { kind, path, inode, offset, bytes: to - from });
                }
            }
        }
    }
    for part in &sought {
        names.add_kind(part.range, NameKind::Unknown, part.left);
    }
    Ok(Next::Go)
}
