//! What is the matter with pools, disks and spaces, as far as anything is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::Object as Subject;
use crate::code::codes;
use crate::status::Health;

codes! {
    /// What is the matter. The names are stable; programs decide by them, people read the text.
    pub enum FindingCode {
        PoolReadOnly = "pool_read_only" {
            "The pool is open for reading only: it was opened so, or disks are missing and another host used it last."
            "Nothing: reading goes on, and no write is taken."
            "Attach the disks that are missing, `dolmen pool export POOL`, then `dolmen pool import` with its disks."
        }
        PoolStopped = "pool_stopped" {
            "The pool has lost what it cannot go on without, such as its last disk, and answers no request any more."
            "Nothing is written any more, so that what was acknowledged stays as it is; clients get errors."
            "See to its disks, `dolmen stop --hand-over`, and start the daemon again: it opens the pool again."
        }
        PoolNotOpen = "pool_not_open" {
            "The pool was open here before and could not be opened: its disks are missing, in use elsewhere, or are copies."
            "It is opened when enough of its disks are here, unless it was exported meanwhile."
            "Attach its disks, or `dolmen pool import --pool POOL` to see what is in the way; if it is gone for good, `dolmen pool export POOL` has it forgotten."
        }
        DiskAbsent = "disk_absent" {
            "A disk of the pool is not here, has failed, or was taken offline. What is written meanwhile it will lack."
            "Spaces go on with their other copies. A disk that comes back is taken in, unless a command took it offline. Once the disk was away for the time that `dolmen pool set --repair-after` gives, usually half an hour, what it had is rebuilt on the others, if they have room."
            "Attach it and `dolmen disk online POOL DISK`, which copies only what it missed; or `dolmen disk replace POOL DISK NEW`."
        }
        DiskUnfit = "disk_unfit" {
            "A device with the label of this disk is here and cannot be used: cut short, damaged, or out of step with the pool."
            "It counts as absent, and nothing is written to it."
            "Mend what is said of it, or replace the disk: `dolmen disk replace POOL DISK NEW`."
        }
        DiskFileRemoved = "disk_file_removed" {
            "The file that the disk is was removed. It can be read and written for as long as the daemon has it open, and is lost then."
            "Nothing: as long as it works, its copies are worth something."
            "`dolmen disk replace POOL DISK NEW` before the daemon ends."
        }
        DiskCutShort = "disk_cut_short" {
            "The file that the disk is has become shorter, so a part of what was on it is lost."
            "The disk leaves the pool with the next command that fails on it; what it had is read from other copies."
            "`dolmen disk replace POOL DISK NEW`, which rebuilds what it had from the other disks."
        }
        DiskUnplugged = "disk_unplugged" {
            "The system has no such device any more."
            "The disk leaves the pool with the next command that it is given."
            "Plug it in again and `dolmen disk online POOL DISK`, or `dolmen disk replace POOL DISK NEW`."
        }
        DiskGrown = "disk_grown" {
            "The device of a disk has become larger, and what it has gained is not used."
            "Nothing: the disk is used as it was, and the device may be made as small again."
            "`dolmen disk grow POOL DISK` takes the room into use; the device must not become smaller afterwards."
        }
        DiskErrors = "disk_errors" {
            "Commands failed on a disk that is here, or blocks on it did not match their checksums."
            "What could not be read was read from another copy and rewritten. From ten errors on others are read in its place, new rows go to others, and what it has is moved to the other disks, if they have room; it stays in the pool."
            "`dolmen scrub POOL` to see whether all is sound; replace the disk if it happens again; `dolmen pool acknowledge POOL` ends the warning until there are more."
        }
        DiskSlow = "disk_slow" {
            "A disk takes many times as long as the others of its sort in the pool: it is failing, or something beside the pool keeps it busy."
            "Reads ask it only for what no other disk has or can compute, and new rows go to others as far as that takes no room. Writes to what it has still wait for it."
            "Find out what keeps it busy; or `dolmen disk replace POOL DISK NEW`, or `dolmen pool remove POOL DISK`. The warning ends when it is well again, or with `dolmen pool acknowledge POOL`."
        }
        DiskFailing = "disk_failing" {
            "A disk says of itself (SMART) that it is about to fail: its own test has failed, or it has little spare left, is unreliable or takes no more writes."
            "Reads ask it only for what no other disk has or can compute, new rows go to others, and what it has is moved to the other disks, if they have room. It stays in the pool."
            "`dolmen disk replace POOL DISK NEW`, or `dolmen pool remove POOL DISK`. `dolmen disk list POOL -o json` shows what it says."
        }
        DiskDefects = "disk_defects" {
            "A disk says of itself (SMART) that places on it have gone bad: sectors that were reallocated, cannot be read, or could not be mended, or errors of its media."
            "Nothing: what cannot be read there is read from another copy and rewritten."
            "`dolmen scrub POOL` to see whether all is sound; replace the disk if there are more of them; `dolmen pool acknowledge POOL` ends the warning until then."
        }
        DiskBackingFull = "disk_backing_full" {
            "Writes to a disk failed because what it lies on, a file system or a thin pool, is full. The disk itself is sound."
            "What could not be written there is on the other copies; the disk may leave the pool."
            "Free some room there; then `dolmen disk online POOL DISK` if it left, and `dolmen pool acknowledge POOL`."
        }
        DiskLabelsLost = "disk_labels_lost" {
            "When the disk was taken in, something else was written over one of its labels, and perhaps over data that it holds."
            "The label is rewritten, and everything in the pool is verified by a scrub that begins by itself."
            "See what the scrub says: `dolmen jobs`; `dolmen scrub POOL` verifies it again. Find out what writes to the disk; `dolmen pool acknowledge POOL` ends the warning."
        }
        RowsStale = "rows_stale" {
            "Rows are not on all of their disks: a part of them is stale, or is on a disk that is away."
            "What is on disks that are here is brought up to date by a resync, which `dolmen jobs` shows."
            "Bring disks back that are away. Where a job is paused, `dolmen job resume JOB`."
        }
        MetadataOnFewDisks = "metadata_on_few_disks" {
            "The metadata of the pool is on no more disks than spaces may lose, because the others are too small to carry it."
            "Nothing: disks that could carry it would be taken by themselves."
            "Add a disk that is large enough, or replace one of the small ones by a larger one."
        }
        ReplacementWaits = "replacement_waits" {
            "A replacement has done all that it can: what is left only the old disk has, and that is away."
            "It goes on by itself when the old disk is back, or the spaces that need it are deleted."
            "Attach the old disk and `dolmen disk online POOL DISK`, or delete those spaces."
        }
        RemovalWaits = "removal_waits" {
            "A disk is to leave the pool, and something on it finds no place on the others."
            "It goes on by itself when there is room, or a disk more."
            "Add a disk, or delete something; or keep it: `dolmen pool remove POOL DISK --cancel`."
        }
        SpaceOutOfReach = "space_out_of_reach" {
            "More disks are absent than the space survives the loss of: parts of it may not be readable."
            "What can be read and written goes on; what cannot fails, and nothing wrong is read."
            "Bring the absent disks back; `dolmen why SPACE` names them."
        }
        SpaceDegraded = "space_degraded" {
            "The space has all of its data, and survives the loss of fewer disks than it was made to."
            "When the disk is back it gets what it missed; when it stays away, what it had is rebuilt on the others."
            "Bring the absent disk back or replace it; `dolmen why SPACE` names it."
        }
        SpaceDataLost = "space_data_lost" {
            "Blocks of the space cannot be read from any copy. Reading them fails; nothing wrong is read."
            "It is looked at again when the pool is opened, scrubbed or acknowledged, and forgotten once it can be read."
            "Write those ranges again from a backup; `dolmen pool acknowledge POOL` then sees that they can be read."
        }
        SpaceAcceptedUnverified = "space_accepted_unverified" {
            "Blocks that were being written when power failed were accepted unverified, because no second copy could tell."
            "Their copies were made the same."
            "See whether the content is sound, with the check of its file system for instance; `dolmen pool acknowledge POOL` ends the warning."
        }
        SpaceCorruptHere = "space_corrupt_here" {
            "No copy of some blocks that is here is good; disks that are absent may have one."
            "They are healed when such a disk is back."
            "Bring the absent disks back before anything is given up or replaced."
        }
        RowsShareEnclosure = "rows_share_enclosure" {
            "Rows have slabs that should be apart on disks that may fail as one, although there are enclosures enough to keep them apart: disks were put in other ones since."
            "New rows are laid apart. Those that are there stay where they are: were that enclosure lost, a part of them would be."
            "`dolmen pool rebalance POOL` moves them apart."
        }
        PoolNearlyFull = "pool_nearly_full" {
            "More of the pool is used than a threshold of `dolmen pool set POOL --alert-at` allows, and thin spaces may ask for more."
            "Nothing: writes go on until the pool is full."
            "Add a disk, purge the trash, or trim something; `dolmen df` shows what fits; `dolmen pool set POOL --alert-at` sets other thresholds."
        }
        PoolFilling = "pool_filling" {
            "At the rate of the last week the pool will be full within two weeks."
            "Nothing: writes go on until it is."
            "Add a disk, purge the trash, or trim something before that; `dolmen df` shows what fits."
        }
        RoomForRepairUsed = "room_for_repair_used" {
            "The pool is to keep room so that lost disks can be repaired on the others, and has it no more: a repair has used it, or a disk left."
            "Nothing: writes go on. Were another disk lost, a part of what it had might find no place before a disk is added."
            "Add a disk as large as the largest: `dolmen pool add POOL DISK`; or purge or trim something; or `dolmen pool set POOL --keep-room-for N` with fewer."
        }
        SpaceLacksReserve = "space_lacks_reserve" {
            "A part of what is reserved for a thin space is not claimed: others took the room before it was, or the space became smaller."
            "Nothing: what is claimed of the reserve can be written, and all else as in any thin space."
            "Add a disk, purge the trash, or trim something, then set it again: `dolmen space set POOL/SPACE --reserve SIZE`; or reserve less."
        }
        SpaceLacksDisks = "space_lacks_disks" {
            "A thin space needs more disks for a new row than the pool has in use."
            "What was written before can be read and written over; only what was never written cannot be written."
            "Bring absent disks back, replace them, or add others."
        }
        SpaceFull = "space_full" {
            "A thin space has met the end of its pool: there is no room for one row more."
            "What was written before can be read, written over and discarded; only what was never written cannot be written."
            "Add a disk, purge the trash, or delete something with --purge or trim it; `dolmen df` shows what fits."
        }
        SpaceNearlyFull = "space_nearly_full" {
            "The pool has room for less than a tenth of what a thin space has claimed already, and the space may ask for more."
            "Nothing: writes go on until the pool is full."
            "Add a disk, purge the trash, or delete something with --purge or trim it; `dolmen df` shows what fits."
        }
        AttachedWaits = "attached_waits" {
            "A space is attached as a block device, and its pool is not open: what is asked of the device waits."
            "It goes on when the pool is opened."
            "Open its pool, or detach the space, which discards what waits."
        }
        AttachmentEnded = "attachment_ended" {
            "A space was attached in the way that ends with the daemon (loop-uring), and the daemon ended."
            "Nothing: it was attached so by somebody's wish."
            "`dolmen space attach SPACE` attaches it again; `dolmen space detach SPACE` says that it is not to be."
        }
        VolumeNotMounted = "volume_not_mounted" {
            "A volume is to be mounted, and is not: a step failed, a tool is absent, or somebody unmounted it."
            "It is mounted when its pool is opened the next time."
            "`dolmen volume show VOLUME` says which step failed; mend that, and `dolmen volume mount VOLUME`; or `dolmen volume unmount VOLUME` if it is not to be mounted."
        }
        VolumeNotUnderstood = "volume_not_understood" {
            "The record of a volume is of a later version, or damaged. The volume is not mounted."
            "Nothing: its space and its record stay as they are."
            "Use the build that wrote the record, or a later one."
        }
        VolumeSlow = "volume_slow" {
            "A process that works on a volume takes more than a minute: its device waits, or its work is long."
            "It is never ended; no other volume waits for it."
            "`dolmen volume show VOLUME` names the process; `dolmen why VOLUME` says whether its disks answer."
        }
        VolumeNearlyFull = "volume_nearly_full" {
            "More than 90 percent of the file system of a volume is used."
            "Nothing: writes go on until it is full."
            "Delete files, or `dolmen volume grow VOLUME SIZE`."
        }
        VolumeFilling = "volume_filling" {
            "At the rate of the last week the file system of a volume will be full within two weeks."
            "Nothing: writes go on until it is full."
            "Delete files, or `dolmen volume grow VOLUME SIZE`."
        }
        VolumeInodesNearlyUsed = "volume_inodes_nearly_used" {
            "More than 90 percent of the inodes of a volume are used: soon it takes no new files, although it has free bytes."
            "Nothing: new files are made until none is free."
            "Delete files, or `dolmen volume grow VOLUME SIZE`: larger file systems have more inodes."
        }
        VolumeErrors = "volume_errors" {
            "The kernel found errors in the file system of a volume, or has shut it down."
            "Nothing: the kernel refuses what it cannot trust."
            "`dolmen why VOLUME` names damaged files; `dolmen volume unmount VOLUME`, then `dolmen volume check VOLUME`, which can repair."
        }
        ShareDown = "share_down" {
            "A share is to be offered, and a client on this host does not see it."
            "Its servers are looked at again each minute. Its record stays as it is."
            "`dolmen share show VOLUME SHARE` names the step that failed; mend that. `dolmen volume mount VOLUME` puts the shares again."
        }
        ListenerClosed = "listener_closed" {
            "Spaces are to be served at an address of a network, and nobody can connect there."
            "It is tried again every few seconds."
            "Mend what is said of the address or of its files."
        }
        CertificateTrouble = "certificate_trouble" {
            "A certificate by which spaces are served has expired, is about to, or could not be read again."
            "Files are read again by themselves when they change; until then the ones read last are used."
            "Put new files in the place of those that are named."
        }
    }
}

/// What a finding, an event or an answer is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// The daemon itself, or what belongs to no pool.
    Daemon,
    /// A pool.
    Pool,
    /// A disk of a pool.
    Disk,
    /// A space.
    Space,
    /// A job.
    Job,
}

/// What a finding or an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Object {
    /// What kind of thing.
    pub kind: ObjectKind,
    /// The pool that it is, or belongs to.
    #[serde(default)]
    pub pool: Option<String>,
    /// Its name: of a disk the slot, of a space the name without its pool, of a job the number; empty for the daemon.
    pub name: String,
}

impl Object {
    /// The daemon, or something of it that has this name.
    #[must_use]
    pub fn daemon(name: impl Into<String>) -> Self {
        Self { kind: ObjectKind::Daemon, pool: None, name: name.into() }
    }

    /// A pool.
    #[must_use]
    pub fn pool(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { kind: ObjectKind::Pool, pool: Some(name.clone()), name }
    }

    /// A disk of a pool.
    #[must_use]
    pub fn disk(pool: impl Into<String>, slot: u16) -> Self {
        Self { kind: ObjectKind::Disk, pool: Some(pool.into()), name: slot.to_string() }
    }

    /// A space of a pool.
    #[must_use]
    pub fn space(pool: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: ObjectKind::Space, pool: Some(pool.into()), name: name.into() }
    }

    /// A job of a pool.
    #[must_use]
    pub fn job(pool: impl Into<String>, number: u64) -> Self {
        Self { kind: ObjectKind::Job, pool: Some(pool.into()), name: number.to_string() }
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, pool) = (&self.name, self.pool.as_deref().unwrap_or_default());
        match self.kind {
            ObjectKind::Daemon if name.is_empty() => f.write_str("daemon"),
            ObjectKind::Daemon | ObjectKind::Pool => f.write_str(name),
            ObjectKind::Space => write!(f, "{pool}/{name}"),
            ObjectKind::Disk => write!(f, "disk {name} of {pool}"),
            ObjectKind::Job => write!(f, "job {name}"),
        }
    }
}

/// Something that is the matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// What.
    pub code: FindingCode,
    /// How bad it is; healthy where it is only worth a word.
    pub health: Health,
    /// With what.
    // utoipa takes a type of the name `Object` for any object.
    #[schema(value_type = Subject)]
    pub object: Object,
    /// That, in words.
    pub text: String,
    /// How much of it there is, for what can become more: errors of a disk, bytes of damage.
    #[serde(default)]
    pub amount: u64,
}
