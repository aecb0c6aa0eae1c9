//! Leading: room for an unnamed file at addresses of the device that the caller chooses.
//!
//! XFS has no call for that. But it allocates behind the last extent of a file, and keeps the distance: an extent that follows a gap
//! of a length in the file is put that much further on the device, if it fits there and the allocation group is the same. So byte `n`
//! of the file stands for address `n` of the device. One block of a file that lies in the group, the *leader*, is shared into its
//! place first; then each range is reserved, in order.
//!
//! The rule is one of the kernel's own code, not of its interface. So the map of the file is asked for each range, and a range that
//! lies elsewhere is freed again before it was written.

use std::collections::BTreeMap;
use std::fs::File;

use dolmen_dedup::DeviceRange;
use dolmen_files::FilesError;
use dolmen_files::extents::extents_at_most;
use dolmen_files::handle::{Access, Handle};
use dolmen_files::inodes::inode_of;
use dolmen_files::share::clone_range;
use dolmen_files::space_map::{Owner, space_map};
use dolmen_files::volume::XfsGeometry;
use rustix::fs::FallocateFlags;

/// Extents of files that one look for a leader lists, and those that are tried in one allocation group for a pack.
const LISTED_MAX: usize = 256;
const TRIED_MAX: usize = 4096;
/// Ranges of one group that went astray one after another, after which the group is left out.
const STRAYS_MAX: u32 = 8;

/// Address of the leader that was used last in each allocation group.
pub(crate) type Leaders = BTreeMap<u64, u64>;

/// A file that is led.
pub(crate) struct Led<'a> {
    pub(crate) root: &'a File,
    /// Handle that those of all files are formed like.
    pub(crate) form: &'a Handle,
    pub(crate) geometry: XfsGeometry,
    pub(crate) pack: &'a File,
}

/// Answer of a group.
#[derive(PartialEq, Eq)]
enum Found {
    Room,
    /// The volume has no room left.
    Full,
}

/// A block of a file, which lies at an address.
struct Candidate {
    inode: u64,
    offset: u64,
    address: u64,
}

impl Led<'_> {
    /// Reserves room in ranges, which come in their order, and appends those that were had to `into`.
    ///
    /// Ends before the first that found the volume full.
    pub(crate) fn reserve(
        &self,
        ranges: &[DeviceRange],
        leaders: &mut Leaders,
        into: &mut Vec<DeviceRange>,
    ) -> Result<(), FilesError> {
        for ranges in ranges.chunk_by(|one, next| self.group_of(one.start) == self.group_of(next.start)) {
            if self.reserve_in_group(ranges, leaders, into)? == Found::Full {
                break;
            }
        }
        // A leader behind the last range would be in the way of a pack that has to end with its content.
        let end = into.last().map_or(0, DeviceRange::end);
        rustix::fs::ftruncate(self.pack, end).map_err(failed)
    }

    fn reserve_in_group(
        &self,
        ranges: &[DeviceRange],
        leaders: &mut Leaders,
        into: &mut Vec<DeviceRange>,
    ) -> Result<Found, FilesError> {
        let Some(last) = ranges.last() else { return Ok(Found::Room) };
        let Some(leader) = self.place_leader(last.start, leaders)? else { return Ok(Found::Room) };
        let mut strays = 0;
        // The distance to the leader is never negative.
        for range in ranges.iter().filter(|range| range.start > leader) {
            match rustix::fs::fallocate(self.pack, FallocateFlags::KEEP_SIZE, range.start, range.length) {
                Ok(()) => {}
                Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => return Ok(Found::Full),
                Err(error) => return Err(failed(error)),
            }
            if self.is_at_its_address(range.start, range.length)? {
                into.push(*range);
                strays = 0;
                continue;
            }
            self.free(*range)?;
            strays += 1;
            if strays == STRAYS_MAX {
                break;
            }
        }
        Ok(Found::Room)
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.geometry.block_bytes)
    }

    fn group_bytes(&self) -> u64 {
        self.block_bytes().saturating_mul(self.geometry.group_blocks.into()).max(1)
    }

    fn group_of(&self, address: u64) -> u64 {
        address / self.group_bytes()
    }

    /// Shares a block that lies before an address of its group into its place in the pack, and returns where that is.
    fn place_leader(&self, before: u64, leaders: &mut Leaders) -> Result<Option<u64>, FilesError> {
        let group = self.group_of(before);
        let mut from = leaders.remove(&group).unwrap_or(group.saturating_mul(self.group_bytes()));
        let mut tried = 0;
        let mut refused = None;
        while from < before && tried < TRIED_MAX {
            let candidates = self.candidates(from, before)?;
            let Some(last) = candidates.last() else { break };
            from = last.address.saturating_add(self.block_bytes());
            tried = tried.saturating_add(candidates.len());
            for candidate in candidates {
                if refused == Some(candidate.inode) {
                    continue;
                }
                // A file that was deleted or refuses is no leader; another may be.
                if !self.share_block(&candidate).is_ok_and(|is_shared| is_shared) {
                    refused = Some(candidate.inode);
                } else if self.is_at_its_address(candidate.address, self.block_bytes())? {
                    leaders.insert(group, candidate.address);
                    return Ok(Some(candidate.address));
                } else {
                    self.free(DeviceRange { start: candidate.address, length: self.block_bytes() })?;
                }
            }
        }
        Ok(None)
    }

    /// Lists blocks of files in a range.
    fn candidates(&self, from: u64, before: u64) -> Result<Vec<Candidate>, FilesError> {
        let mut candidates = Vec::new();
        space_map(self.root, from, before, |used| {
            if let Owner::File { inode, offset, is_unwritten: false } = used.owner {
                // The first of them may begin before the range.
                let inside = from.saturating_sub(used.physical);
                let address = used.physical.saturating_add(inside);
                if address.saturating_add(self.block_bytes()) <= before {
                    candidates.push(Candidate { inode, offset: offset.saturating_add(inside), address });
                }
            }
            candidates.len() < LISTED_MAX
        })?;
        Ok(candidates)
    }

    fn share_block(&self, candidate: &Candidate) -> Result<bool, FilesError> {
        let Candidate { inode, offset, address } = *candidate;
        let Some(found) = inode_of(self.root, inode)? else { return Ok(false) };
        let is_whole = offset.saturating_add(self.block_bytes()) <= found.size;
        let handle = self.form.sibling(inode, found.generation);
        let Some(handle) = handle.filter(|_| found.is_file() && found.links > 0 && is_whole) else {
            return Ok(false);
        };
        let source = handle.open(self.root, Access::Read)?;
        clone_range(&source, offset, self.pack, address, self.block_bytes())?;
        Ok(true)
    }

    /// Returns whether a range of the pack lies at the same range of the device.
    fn is_at_its_address(&self, start: u64, length: u64) -> Result<bool, FilesError> {
        let (mut found, mut at) = (Vec::new(), start);
        extents_at_most(self.pack, start, length, usize::MAX, &mut found)?;
        for extent in found {
            if extent.logical > at || extent.physical != extent.logical || !extent.has_place() {
                return Ok(false);
            }
            at = at.max(extent.end());
        }
        Ok(at >= start.saturating_add(length))
    }

    fn free(&self, range: DeviceRange) -> Result<(), FilesError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(self.pack, flags, range.start, range.length).map_err(failed)
    }
}

fn failed(error: rustix::io::Errno) -> FilesError {
    FilesError { what: "reserve room at an address", source: error.into() }
}
