//! Pools and disks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::status::Health;

/// Whether a pool can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// It can.
    Writable,
    /// It was opened for reading.
    ReadOnly,
    /// It has stopped, because it lost what it cannot go on without.
    Stopped,
    /// It is remembered, and not open: its disks are not here, or opening it failed.
    Closed,
}

/// Whether a disk takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskState {
    /// It takes part.
    Present,
    /// It is here, and is being emptied.
    Retired,
    /// It is not here, or left because it missed a write.
    Absent,
    /// It waits to take the place of a disk that is lost, and takes no rows before.
    Spare,
    /// It takes no rows, and stays a disk of the pool.
    Idle,
}

/// What a disk is to its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskRole {
    /// It takes rows.
    Member,
    /// It waits to take the place of a disk that is lost.
    Spare,
    /// It holds nothing, and stays a disk of the pool.
    Retired,
}

/// Says what a disk is in: an enclosure, a shelf, whatever may fail as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetEnclosure {
    /// Its name; left out for a disk by itself.
    #[serde(default)]
    pub name: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Sets what a disk is to its pool. What it holds goes to the other disks where it is to hold nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetDiskRole {
    /// What it is to be.
    pub role: DiskRole,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// A disk of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    /// Its place in the pool.
    pub slot: u16,
    /// Its identity, which stands on it.
    pub id: String,
    /// Where it is found now.
    #[serde(default)]
    pub path: Option<String>,
    /// Where it was seen last, of one that is absent, as far as this host knows.
    #[serde(default)]
    pub last_path: Option<String>,
    /// Whether it takes part.
    pub state: DiskState,
    /// What has become of what it lies on, of one that takes part all the same.
    #[serde(default)]
    pub backing_state: Option<BackingState>,
    /// Its size.
    pub size_bytes: u64,
    /// Room for slabs that its device has gained since, and that is not used: `GrowDisk` takes it into use.
    #[serde(default)]
    pub gained_bytes: u64,
    /// Room for slabs.
    pub data_bytes: u64,
    /// Of it, not used by any slab.
    pub free_bytes: u64,
    /// What may fail as one with it; 0 for itself alone.
    pub fault_domain: u32,
    /// The name of that, if it has one.
    #[serde(default)]
    pub enclosure: Option<String>,
    /// Whether it carries log and metadata.
    pub is_voter: bool,
    /// Reads that failed, as far as this host remembers: what it counted ends with an export of the pool.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Blocks that did not match their checksum.
    pub checksum_errors: u64,
    /// Reads that were not answered in time, and were asked of other disks.
    #[serde(default)]
    pub timed_out_reads: u64,
    /// How many times as long it takes as the other disks of its sort, if that is many.
    #[serde(default)]
    pub times_slower: Option<u64>,
    /// How well it is, from 0 to 100, by what is known of it here: errors that nobody has acknowledged, how fast it is beside the
    /// others, and what it lies on. Of one that is absent nothing is known.
    #[serde(default)]
    pub score: Option<u8>,
    /// What it says of itself, of one that does.
    #[serde(default)]
    pub smart: Option<crate::Smart>,
    /// Why nothing is known of that.
    #[serde(default)]
    pub smart_silence: Option<String>,
    /// What people call its bay.
    #[serde(default)]
    pub bay: Option<String>,
}

/// What has become of what a disk lies on, while its pool is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackingState {
    /// Its file was removed: it works for as long as the daemon runs, and is gone then.
    Removed,
    /// Its file was cut short: it leaves the pool with the next flush.
    CutShort,
    /// Its device is gone from the system: it leaves the pool with the next command.
    Unplugged,
}

/// The disks of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Disks {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By slot.
    pub disks: Vec<Disk>,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// How it is.
    pub health: Health,
    /// Why, if it is not healthy.
    pub why: Vec<String>,
    /// Whether it can be written.
    pub state: PoolState,
    /// Why not, if it cannot.
    #[serde(default)]
    pub state_cause: Option<String>,
    /// The epoch in force.
    pub epoch: String,
    /// Data areas of all disks.
    pub data_bytes: u64,
    /// Of them, used by slabs.
    pub used_bytes: u64,
    /// Of them, free.
    pub free_bytes: u64,
    /// Spaces on it.
    pub space_count: u64,
    /// Spaces in the trash, and those that are being purged.
    #[serde(default)]
    pub trash_count: u64,
    /// Room that these take on all disks: what a purge gives back.
    #[serde(default)]
    pub trash_bytes: u64,
    /// Seconds that a disk may be absent before what it had is rebuilt on the others; 0 for ever. Left out of a pool that is
    /// not open, and by daemons that do not know it.
    #[serde(default)]
    pub repair_after_s: Option<u64>,
    /// Lost disks for which it is to keep room.
    #[serde(default)]
    pub keep_room_for: u32,
    /// Lost disks for which it has room; as many as it is to keep it for, unless a repair has used some.
    #[serde(default)]
    pub has_room_for: u32,
    /// Write caches of its strict spaces, those with parity among them.
    #[serde(default)]
    pub write_caches: Vec<WriteCache>,
    /// When it is full, as far as its history says; left out of one that is not open.
    #[serde(default)]
    pub fill: Option<crate::FillForecast>,
    /// Why its history is not recorded now; left out where it is.
    #[serde(default)]
    pub history_problem: Option<String>,
    /// Its disks, by slot.
    pub disks: Vec<Disk>,
}

/// The write cache of the strict spaces that survive as much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriteCache {
    /// Disks that the spaces that it is for may lose.
    pub survives: u8,
    /// Bytes that it holds when it is full.
    pub size_bytes: u64,
    /// Bytes in it that are not in place yet.
    pub waiting_bytes: u64,
    /// Room that it takes on all disks, copies and tables included.
    pub footprint_bytes: u64,
    /// Copies of what lies in it, on different disks.
    #[serde(default)]
    pub copies: u8,
    /// The disks on which it lies, by slot.
    #[serde(default)]
    pub disks: Vec<u16>,
    /// Percent of it that wait to be put in place before that begins.
    #[serde(default)]
    pub fill_percent: u8,
    /// Bytes a second that are put in place at most while nobody waits for room; 0 for as many as the disks take.
    #[serde(default)]
    pub drain_bytes_per_s_max: u64,
    /// Bytes written to it since the pool was opened.
    #[serde(default)]
    pub filled_bytes: u64,
    /// The same for each of the last ten seconds, on the average.
    #[serde(default)]
    pub filled_bytes_per_s: u64,
    /// Bytes put in place out of it since the pool was opened.
    #[serde(default)]
    pub destaged_bytes: u64,
    /// The same for each of the last ten seconds, on the average.
    #[serde(default)]
    pub destaged_bytes_per_s: u64,
}

/// Gives a write cache another size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeWriteCache {
    /// Bytes that it is to hold when it is full, each of them with its copies; what is no whole row of it becomes one.
    pub size_bytes: u64,
    /// Disks that the spaces that it is for may lose; may be left out where the pool has one write cache.
    #[serde(default)]
    pub survives: Option<u8>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Sets from how much on a write cache is emptied, and how fast. What is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainWriteCache {
    /// Percent of it that wait to be put in place before that begins, 5 to 90.
    #[serde(default)]
    pub fill_percent: Option<u8>,
    /// Bytes a second that are put in place at most while nobody waits for room, 1 MiB or more; 0 for as many as the disks take.
    #[serde(default)]
    pub bytes_per_s_max: Option<u64>,
    /// Disks that the spaces that it is for may lose; may be left out where the pool has one write cache.
    #[serde(default)]
    pub survives: Option<u8>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Sets how long a disk may be absent before what it had is rebuilt on the other disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRepairAfter {
    /// Seconds, up to 365 days; 0 for ever.
    pub seconds: u64,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Sets the percents of fullness at which a pool warns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAlertAt {
    /// Percents of what can be used, up to four from 1 to 99; empty for never.
    pub percents: Vec<u8>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Sets for how many lost disks a pool keeps room, so that they can be repaired on the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetKeepRoom {
    /// Disks, the largest first; 0 to keep none.
    pub losses: u32,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

impl SetRepairAfter {
    /// The longest time, in seconds.
    pub const SECONDS_MAX: u64 = 365 * 24 * 3600;
}

/// All pools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pools {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By name.
    pub pools: Vec<Pool>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolDocument {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// The pool.
    pub pool: Pool,
}

/// Makes a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// Absolute paths of disks, partitions or files.
    pub disks: Vec<String>,
    /// Those of `disks`, as written there, whose content may be destroyed.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// The `identity` of each of `destroy` as it was listed, in that order: the change is refused where another device, or other
    /// content, is at the path by now. Empty, or left out, for one that is not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<String>,
    /// A fault domain for each disk; 0, or missing, for itself alone.
    #[serde(default)]
    pub fault_domains: Vec<u32>,
    /// What each disk is in, in the order of `disks`: those with the same name may fail together. Empty for a disk by itself, as
    /// are those that are left out. Not beside `fault_domains`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enclosures: Vec<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a pool is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImportMode {
    /// To use it; refused where the rule of epochs forbids writing.
    #[default]
    Write,
    /// To look, without changing anything.
    Read,
    /// To use it although the rule forbids it: somebody knows that the rest of it lives on nowhere else.
    Confirmed,
}

/// Opens a pool that this daemon does not have open.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportPool {
    /// Its name or identity; may be left out when the disks named belong to one pool only, or, where none is named, when those
    /// of the system do.
    #[serde(default)]
    pub pool: Option<String>,
    /// Where to look: disks, files, or folders of them, beside all disks of the system.
    #[serde(default)]
    pub paths: Vec<String>,
    /// What for.
    #[serde(default)]
    pub mode: ImportMode,
    /// Another name that it gets, for good where it is opened for writing; as it is called when absent.
    #[serde(default)]
    pub rename: Option<String>,
    /// Also accept what another host set: mount points of its volumes, and rights over NFS on its shares; they are held otherwise.
    #[serde(default)]
    pub accept: bool,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Destroys a pool or deletes a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Destroy {
    /// Its name, typed again. Not needed for a dry run.
    #[serde(default)]
    pub destroy: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Does without a disk that is gone for good.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetDisk {
    /// Also where something was on it alone: that is lost then, and cannot be read before it is written again.
    #[serde(default)]
    pub accept_data_loss: bool,
    /// To give something up, the name of the pool, typed again. Not needed for a dry run.
    #[serde(default)]
    pub destroy: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Adds disks to a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDisks {
    /// Absolute paths of disks, partitions or files.
    pub disks: Vec<String>,
    /// Those of `disks`, as written there, whose content may be destroyed.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// The `identity` of each of `destroy` as it was listed, in that order: the change is refused where another device, or other
    /// content, is at the path by now. Empty, or left out, for one that is not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<String>,
    /// Whether rows that are there stay where they are; otherwise a rebalance of the pool begins behind this.
    // Left out where it says nothing: daemons that do not know it refuse what they do not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
    /// Whether they are to be spares, which take no rows before a disk is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spare: bool,
    /// What each disk is in, in the order of `disks`; empty, or left out, for a disk by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enclosures: Vec<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Puts another disk in the place of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceDisk {
    /// Absolute path of the disk that takes its place.
    pub with: String,
    /// That path again when its content may be destroyed.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// The `identity` of each of `destroy` as it was listed, in that order: the change is refused where another device, or other
    /// content, is at the path by now. Empty, or left out, for one that is not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Takes a disk that was away back in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OnlineDisk {
    /// Where it is now, if that is not where it was.
    #[serde(default)]
    pub path: Option<String>,
    /// Also where content that no other disk has is older than what was written last: the spaces show the old content then.
    #[serde(default)]
    pub accept_old_content: bool,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a device of the system is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// It holds nothing: it can become a disk.
    Empty,
    /// It holds somebody's data.
    Foreign,
    /// It is a disk of a pool that is not open here, or that misses it; or was one of such a pool, and has left it.
    Member,
    /// It is a disk of a pool, and its labels cannot be used.
    Unusable,
    /// The system uses it.
    InUse,
    /// It is too small, or cannot be opened.
    Unfit,
}

/// A device of the system that belongs to no open pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Device {
    /// Where it is.
    pub path: String,
    /// Its size, where it could be opened.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// What it is good for.
    pub state: DeviceState,
    /// What it holds, or why it cannot be used.
    pub what: String,
    /// The pool that it says it belongs to.
    #[serde(default)]
    pub pool: Option<String>,
    /// How many disks it says that pool has.
    #[serde(default)]
    pub pool_disk_count: Option<u64>,
    /// Whether that pool is open here and does not have it any more: it was removed, replaced or done without.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_left: bool,
    /// Text that another device at this path, or other content, does not have. It means nothing by itself; `seen` of a change takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// Devices that belong to no open pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Devices {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By path.
    pub devices: Vec<Device>,
}
