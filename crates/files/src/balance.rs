//! Balance of a mounted btrfs: the kernel writes what a block group holds elsewhere, and frees the group.
//!
//! The kernel keeps the order of a balance in the file system until it ends. It cancels one whose process is killed. After a power cut
//! the next mount goes on with it. An order here names one block group, so a mount goes on with one group at most.

use std::fs::File;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::FilesError;
use crate::block_groups::BlockGroup;
use crate::call::{Request, call, call_with};

const BALANCE: Request = Request::both(0x94, 32, 1024);
const CONTROL: Request = Request::reads(0x94, 33, 4);
const PROGRESS: Request = Request::fills(0x94, 34, 1024);

const DATA: u64 = 1;
const METADATA: u64 = 1 << 2;
/// Filters: groups that are used less than a part, and groups in a range of addresses.
///
/// The range of one group needs no filter by count. Linux 6.18 passes over all mixed groups with one: it takes that number for a least
/// one of metadata, too.
const BY_USAGE: u64 = 1 << 1;
const BY_ADDRESS: u64 = 1 << 4;
/// Bytes of the largest block group of data.
const GROUP_BYTES_MAX: u64 = 10 << 30;
const RUNNING: u64 = 1;
const CANCEL: u32 = 2;
/// What the call returns if the file system is being resized, or a device of it replaced.
const OTHER_OPERATION: i32 = 10;

/// `btrfs_balance_args`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawFilter {
    profiles: u64,
    usage: u64,
    device: u64,
    device_range: [u64; 2],
    addresses: [u64; 2],
    target: u64,
    flags: u64,
    count: u64,
    stripes: [u32; 2],
    unused: [u64; 6],
}

/// `btrfs_ioctl_balance_args`.
#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawBalance {
    flags: u64,
    state: u64,
    data: RawFilter,
    metadata: RawFilter,
    system: RawFilter,
    expected: u64,
    considered: u64,
    completed: u64,
    unused: [u64; 72],
}

const _: () = assert!(size_of::<RawBalance>() == 1024);

impl RawBalance {
    /// Returns the order to move one group, if it is used less than a part.
    fn of(group: &BlockGroup, usage_percent: u64) -> Self {
        let mut raw = Self::new_zeroed();
        raw.data.flags = BY_USAGE | BY_ADDRESS;
        raw.data.usage = usage_percent;
        raw.data.addresses = [group.logical, group.logical.saturating_add(group.length)];
        raw.flags = DATA;
        if group.is_mixed {
            // The kernel takes mixed groups by two equal filters alone.
            (raw.flags, raw.metadata) = (DATA | METADATA, raw.data);
        }
        raw
    }

    /// Returns whether an order of one group has these filters.
    fn is_of_one_group(&self) -> bool {
        let [start, end] = self.data.addresses;
        self.data.flags == BY_USAGE | BY_ADDRESS && end.saturating_sub(start) <= GROUP_BYTES_MAX
    }
}

/// End of an order to move a block group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BalanceEnd {
    /// The group was moved, and is no more.
    Moved,
    /// The group is not there, or is used more than the order says.
    Unmatched,
    /// [`cancel`] or a signal ended it. What it copied counts for nothing.
    Cancelled,
    /// There is no room for what the group holds, or for metadata.
    NoRoom,
    /// A file that is used for swap pins the group.
    Pinned,
    /// Another balance is under way or paused, or the file system is being resized.
    Busy,
}

/// The balance of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// None is under way.
    Idle,
    /// One is under way that has an order of [`balance`].
    OneGroup,
    /// Another one is under way.
    Foreign,
    /// One is paused, and goes on when somebody resumes it.
    Paused,
}

/// Moves what a block group of data holds elsewhere, if it is used less than a part of its length. It waits for the end.
///
/// # Errors
/// [`FilesError`].
pub fn balance(file: &File, group: &BlockGroup, usage_percent: u64) -> Result<BalanceEnd, FilesError> {
    let mut raw = RawBalance::of(group, usage_percent);
    match call(file, BALANCE, &mut raw) {
        Ok(OTHER_OPERATION) => Ok(BalanceEnd::Busy),
        Ok(_) if raw.completed > 0 => Ok(BalanceEnd::Moved),
        Ok(_) => Ok(BalanceEnd::Unmatched),
        Err(error) => match error.raw_os_error() {
            Some(libc::ECANCELED | libc::EINTR) => Ok(BalanceEnd::Cancelled),
            Some(libc::ENOSPC | libc::EDQUOT) => Ok(BalanceEnd::NoRoom),
            Some(libc::ETXTBSY) => Ok(BalanceEnd::Pinned),
            Some(libc::EINPROGRESS | libc::EBUSY) => Ok(BalanceEnd::Busy),
            _ => Err(FilesError::of("balance a block group")(error)),
        },
    }
}

/// Returns which balance a file system has.
///
/// # Errors
/// [`FilesError`].
pub fn standing(file: &File) -> Result<Standing, FilesError> {
    let mut raw = RawBalance::new_zeroed();
    match call(file, PROGRESS, &mut raw) {
        Ok(_) if raw.state & RUNNING == 0 => Ok(Standing::Paused),
        Ok(_) if raw.is_of_one_group() => Ok(Standing::OneGroup),
        Ok(_) => Ok(Standing::Foreign),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(Standing::Idle),
        Err(error) => Err(FilesError::of("show its balance")(error)),
    }
}

/// Ends the balance of one group that is under way, if one is, and waits for its end.
///
/// # Errors
/// [`FilesError`].
pub fn cancel(file: &File) -> Result<(), FilesError> {
    if standing(file)? != Standing::OneGroup {
        return Ok(());
    }
    match call_with(file, CONTROL, CANCEL) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(()),
        Err(error) => Err(FilesError::of("end its balance")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a group of data, and one that holds metadata too. The filters are where the kernel reads them, and equal for both kinds
    /// in the second order.
    #[test]
    fn an_order_names_one_group_and_both_kinds_where_they_are_mixed() {
        let group = |is_mixed| BlockGroup {
            logical: 0x1000,
            length: 0x200,
            is_data: true,
            is_mixed,
            is_whole: true,
            places: Vec::new(),
        };
        let word =
            |raw: &RawBalance, at: usize| u64::from_ne_bytes(*raw.as_bytes()[at..].first_chunk().unwrap());
        for is_mixed in [false, true] {
            let raw = RawBalance::of(&group(is_mixed), 42);
            assert!(raw.is_of_one_group());
            assert_eq!(word(&raw, 0), if is_mixed { 5 } else { 1 });
            for (base, is_set) in [(16, true), (152, is_mixed), (288, false)] {
                let expected = if is_set { [42, 0x1000, 0x1200, 0x12, 0] } else { [0; 5] };
                assert_eq!(
                    [8, 40, 48, 64, 72].map(|at| word(&raw, base + at)),
                    expected,
                    "{is_mixed} {base}"
                );
            }
        }
    }
}
