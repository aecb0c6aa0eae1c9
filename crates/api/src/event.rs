//! Events: what has happened to pools, disks, spaces and jobs of this host, by number.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::code::codes;
use crate::finding::{FindingCode, Object, Object as Subject};

codes! {
    /// What has happened. The names are stable; programs decide by them, people read the text.
    pub enum EventCode {
        DaemonStarted = "daemon_started" {
            "The daemon was started; the text says whether the one before had ended well."
            "Pools that were open are opened, and jobs go on."
            "Nothing. Where the one before was killed, its log may say why."
        }
        DaemonEnded = "daemon_ended" {
            "The daemon ended as requested; all pools were closed."
            "The next daemon opens them again."
            "Nothing."
        }
        PoolCreated = "pool_created" {
            "A pool was made."
            "Nothing."
            "Nothing."
        }
        PoolOpened = "pool_opened" {
            "A pool was opened: at the start of the daemon, when its disks appeared, or by an import."
            "What was in flight at a crash was decided block by block before anybody was served."
            "Nothing."
        }
        PoolLeftClosed = "pool_left_closed" {
            "Disks of a pool are here that is not open, and they were not used; the text says why."
            "It is tried again when other disks appear."
            "Do what the text says."
        }
        PoolExported = "pool_exported" {
            "A pool was closed and given up, so that any host may import it; or one that was not open was forgotten."
            "Nothing."
            "`dolmen pool import` opens it again, here or elsewhere."
        }
        PoolDestroyed = "pool_destroyed" {
            "A pool was destroyed with all that it held."
            "Nothing."
            "Nothing."
        }
        PoolUnknown = "pool_unknown" {
            "A pool that was open here is not known here any more, and how it went is not on record."
            "Nothing."
            "`dolmen pool import` finds it, if its disks are here."
        }
        DiskAdded = "disk_added" {
            "A disk became a member of the pool."
            "Data is moved to it by a rebalance or a replacement, unless that was not wanted."
            "Nothing."
        }
        DiskLeaves = "disk_leaves" {
            "A disk is about to leave the pool, because somebody wants that; what it has is moved to the others."
            "A job moves it."
            "`dolmen pool remove POOL DISK --cancel` keeps it."
        }
        DiskExcluded = "disk_excluded" {
            "A disk stayed away for too long; what it had is rebuilt on the others."
            "A job rebuilds it. If the disk comes back before that has ended, it takes data again."
            "Look for the disk, or see to a new one; `dolmen pool set POOL --repair-after` says how long is too long."
        }
        DiskStays = "disk_stays" {
            "A disk that was about to leave stays: that was called off, or it is back."
            "It takes data again."
            "Nothing."
        }
        DiskRemoved = "disk_removed" {
            "A disk is no member of the pool any more."
            "Nothing."
            "It may be taken away, or used for something else."
        }
        DiskOffline = "disk_offline" {
            "A disk was taken offline by a command, and may be taken away; the text names the user."
            "It stays a disk of the pool. What is written meanwhile is copied to it when it is back."
            "`dolmen disk online POOL DISK` takes it back in."
        }
        DiskOnline = "disk_online" {
            "A disk was taken back in: it came back, or a command said so; the text names the user of a command."
            "A job copies to it what it has missed."
            "Nothing."
        }
        DiskLeftOut = "disk_left_out" {
            "A disk came back and was not taken in; the text says why."
            "It stays absent, and nothing is written to it."
            "Do what the text says, then `dolmen disk online POOL DISK`."
        }
        DiskGrew = "disk_grew" {
            "Room that the device of a disk has gained was taken into use by a command; the text names the user."
            "New rows are laid there too."
            "Nothing. `dolmen pool rebalance POOL` moves rows there that are on fuller disks."
        }
        SettingChanged = "setting_changed" {
            "A setting of a pool, a disk or a space was changed by a command; the text names the user."
            "It is in force at once, and kept."
            "Nothing."
        }
        SpaceCreated = "space_created" {
            "A space was made."
            "Nothing."
            "Nothing."
        }
        SpaceDeleted = "space_deleted" {
            "A space was deleted with all that it held."
            "A job gives its room back."
            "Nothing."
        }
        SpaceTrashed = "space_trashed" {
            "A space was deleted, and is in the trash with all that it holds."
            "It keeps its room, and is purged by itself when it was there for a while, usually seven days."
            "`dolmen trash restore POOL/SPACE` brings it back; `dolmen trash purge POOL/SPACE` gives its room back."
        }
        SpaceRestored = "space_restored" {
            "A space was taken out of the trash."
            "It can be used as before."
            "Attach or serve it again."
        }
        SpacePurged = "space_purged" {
            "A space in the trash was deleted for good, by somebody or because its time was over."
            "A job gives its room back."
            "Nothing."
        }
        SpaceRenamed = "space_renamed" {
            "A space has another name."
            "Nothing."
            "Nothing."
        }
        SpaceResized = "space_resized" {
            "A space has another size."
            "The file system of a volume that is mounted grows with it."
            "Another file system on it has to be told, with `resize2fs` for instance."
        }
        VolumeMounted = "volume_mounted" {
            "A volume was mounted: by a command, at its creation, or when its pool was opened."
            "It is mounted again whenever its pool is opened, unless a command unmounts it."
            "Nothing."
        }
        VolumeUnmounted = "volume_unmounted" {
            "A volume was unmounted: by a command, by its deletion, or because another program did so."
            "Its shares are taken off, and its space is detached."
            "`dolmen volume show POOL/NAME` says whether it is to be mounted; `dolmen volume mount POOL/NAME` mounts it."
        }
        SpaceAttached = "space_attached" {
            "A space was attached as a block device."
            "Nothing."
            "Nothing."
        }
        SpaceDetached = "space_detached" {
            "A space is no block device any more."
            "Nothing."
            "`dolmen space attach SPACE` attaches it again."
        }
        SpaceServed = "space_served" {
            "A space is served over NBD."
            "It is served again when the daemon is started again."
            "Nothing."
        }
        SpaceUnserved = "space_unserved" {
            "A space is served over NBD no more."
            "Nothing."
            "`dolmen serve SPACE` serves it again."
        }
        JobBegun = "job_begun" {
            "A job was begun, by somebody or by the pool itself."
            "It shares the disks with clients as its priority says."
            "`dolmen jobs JOB` shows how far it is."
        }
        JobPaused = "job_paused" {
            "A job was paused, and stands until it is resumed."
            "Nothing."
            "`dolmen job resume JOB`"
        }
        JobResumed = "job_resumed" {
            "A job that was paused goes on when the slot is free."
            "Nothing."
            "Nothing."
        }
        JobDone = "job_done" {
            "A job has done what it was to do."
            "Nothing."
            "Nothing."
        }
        JobCalledOff = "job_called_off" {
            "A job was ended before it was done, because somebody wanted that or nobody needs it any more."
            "What it did stays done, unless the text says otherwise."
            "Nothing."
        }
        JobFailed = "job_failed" {
            "A job has ended with an error."
            "What it did stays done. What the pool needs by itself is begun again."
            "See to what the text says, then begin it again."
        }
        TroubleBegan = "trouble_began" {
            "Something is the matter that was not before; `finding` says what."
            "See the explanation of the finding."
            "`dolmen why OBJECT` shows the causes, and what to do."
        }
        TroubleGrew = "trouble_grew" {
            "What is the matter has at least doubled since it was reported; `finding` says what."
            "See the explanation of the finding."
            "`dolmen why OBJECT` shows the causes, and what to do."
        }
        TroubleOver = "trouble_over" {
            "Something is the matter no more; `finding` says what was."
            "Nothing."
            "Nothing."
        }
    }
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number. Numbers grow by one, also over restarts of the daemon.
    pub number: u64,
    /// When it was seen, in seconds since 1970 by the clock of the system.
    pub at_s: u64,
    /// What.
    pub code: EventCode,
    /// Of a trouble, what is or was the matter.
    #[serde(default)]
    pub finding: Option<FindingCode>,
    /// With what.
    #[schema(value_type = Subject)]
    pub object: Object,
    /// That, in words.
    pub text: String,
}

impl Event {
    /// The word that says most: of a trouble what is the matter.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.code, self.finding) {
            (EventCode::TroubleBegan | EventCode::TroubleGrew, Some(finding)) => finding.word(),
            (code, _) => code.word(),
        }
    }
}

/// The query of a question about events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct EventsQuery {
    /// Number of the last event that the caller knows; events from the first on without it.
    #[serde(default)]
    pub since: u64,
    /// Pool whose events are listed; those of all pools without it.
    #[serde(default)]
    pub pool: Option<String>,
}

/// Events with numbers behind the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By number.
    pub events: Vec<Event>,
    /// The number of the last event of all, of other pools as well: to ask for what comes behind it.
    pub last: u64,
    /// Events behind the number that was asked for that are kept no more.
    pub dropped: u64,
    /// When this was said, in seconds since 1970 by the clock of the system.
    pub now_s: u64,
}
