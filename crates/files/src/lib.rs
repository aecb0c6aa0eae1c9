//! Calls of Linux file systems that volumes need and the standard library lacks.
//!
//! | module | calls |
//! |---|---|
//! | [`share`] | clone a range (`FICLONERANGE`); share a range that is equal (`FIDEDUPERANGE`) |
//! | [`copy`] | files and trees that share the extents of their sources |
//! | [`images`] | library of images of disks on a volume, and clones of them |
//! | [`extents`] | where the bytes of a file lie (`FS_IOC_FIEMAP`) |
//! | [`space_map`] | what lies at each address of a file system (`FS_IOC_GETFSMAP`) |
//! | [`block_groups`] | where addresses of btrfs lie on its device (`BTRFS_IOC_TREE_SEARCH`) |
//! | [`allocated`] | which addresses of btrfs are in use (`BTRFS_IOC_TREE_SEARCH_V2`) |
//! | [`balance`] | balance of a mounted btrfs, one block group at a time (`BTRFS_IOC_BALANCE_V2`) |
//! | [`project_quota`] | project quotas of XFS and ext4 (`FS_IOC_FSSETXATTR`, `quotactl`) |
//! | [`subvolume`] | subvolumes of btrfs and their quotas (`BTRFS_IOC_QGROUP_LIMIT`) |
//! | [`scrub`] | scrub of a mounted btrfs (`BTRFS_IOC_SCRUB`) |
//! | [`inodes`] | all inodes of XFS (`XFS_IOC_BULKSTAT`) |
//! | [`handle`] | a file by its handle, whatever it is called (`open_by_handle_at`) |
//! | [`walk`] | all files below a folder, on one device, by their handles |
//! | [`load`] | idle priority of I/O (`ioprio_set`) |
//! | [`volume`] | geometry of XFS, fill, trim, freeze |
//!
//! Everything here waits for the file system, for ever if its device gives no answer. So the program that calls it is one that
//! serves no device itself.
//!
//! Invariant: a structure that the kernel fills is read no further than the kernel says that it filled it, and numbers from it
//! are checked before they are used as lengths.

pub mod allocated;
pub mod balance;
pub mod block_groups;
mod call;
pub mod copy;
pub mod error;
pub mod extents;
pub mod handle;
pub mod images;
pub mod inodes;
pub mod load;
pub mod project_quota;
pub mod scrub;
pub mod share;
pub mod space_map;
pub mod subvolume;
mod tree_search;
pub mod volume;
pub mod walk;

pub use error::FilesError;
