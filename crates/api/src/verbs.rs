//! The verbs of the API: one declaration each, from which all that knows the API is made.
//!
//! `cargo test -p dolmen-api` compares `docs/api` with this table; with DOLMEN_UPDATE_GOLDEN set, it writes the documents again.

use crate::verb_declaration::declare_verbs;
use crate::{
    AddDisks, AdoptVolume, AttachSpace, Attachments, BenchSpace, BenchmarkReport, Benchmarks, CheckVolume,
    CompactVolume, ConvertSpace, Counters, CreatePool, CreateShare, CreateSpace, CreateVolume, Dedup,
    DeleteSpace, Destroy, DetachSpace, Devices, Df, Disks, DrainWriteCache, EnableDedup, EstimateDedup,
    Events, EventsQuery, Exports, Figures, ForgetDisk, GrantShare, History, HistoryQuery, ImportPool,
    JobDocument, Jobs, LocateDisk, MountVolume, Nothing, OnlineDisk, PoolDocument, Pools, PurgeTrash, Quotas,
    RemoveQuota, RenameSpace, ReplaceDisk, ResizeSpace, ResizeWriteCache, RestoreSpace, RevokeShare,
    RunDedup, ServeSpace, SetAlertAt, SetDisk, SetDiskRole, SetEnclosure, SetJob, SetKeepRoom, SetLimits,
    SetQuota, SetRepairAfter, SetReserve, ShareDocument, ShareSessions, Shares, Shutdown, Simple, SlabMap,
    SlabMapQuery, SpaceDocument, Spaces, Status, Trash, UndoDedup, Version, VolumeCheck, VolumeDocument,
    Volumes, Why,
};

declare_verbs! {
    /// Number of a verb in the table.
    pub enum VerbId, mod verb, fn visit_verbs;

    /// Shows the versions of the daemon and of the API.
    ShowVersion = question "/version" [] Nothing => Version, Viewer, [];
    /// Shows the state of everything.
    ShowStatus = question "/status" [] Nothing => Status, Viewer, [];
    /// Explains why a pool, a disk, a space or a job is as it is.
    ExplainObject = question "/why/{object}" [object] Nothing => Why, Viewer, [];
    /// Lists what has happened since an event.
    ListEvents = question "/events" [] EventsQuery => Events, Viewer, [NoSuchPool];
    /// Shows what the daemon has counted since it was started.
    ShowCounters = question "/counters" [] Nothing => Counters, Viewer, [];
    /// Shows the load of spaces and disks, and how long requests took.
    ShowFigures = question "/figures" [] Nothing => Figures, Viewer, [];
    /// Ends the daemon, or names what keeps it from ending.
    StopDaemon = change "/shutdown" [] Shutdown, Admin, Other, Never, [ForeignData, Missing, Config, Unsupported];

    /// Lists devices that belong to no open pool.
    ListDevices = question "/devices" [] Nothing => Devices, Viewer, [];
    /// Lists spaces that are attached as block devices.
    ListAttachments = question "/attachments" [] Nothing => Attachments, Viewer, [];
    /// Lists spaces that are served over NBD.
    ListExports = question "/exports" [] Nothing => Exports, Viewer, [];

    /// Lists all pools.
    ListPools = question "/pools" [] Nothing => Pools, Viewer, [];
    /// Creates a pool.
    CreatePool = change "/pools" [] CreatePool, Admin, Other, Never,
        [BadName, NameTaken, NoSuchDevice, ForeignData, UnfitDevice, DeviceInUse, NoSpace, PoolStopped];
    /// Opens a pool that is not open here.
    ImportPool = change "/pools/import" [] ImportPool, Admin, Other, Never,
        [BadName, NameTaken, NoSuchPool, NoSuchDevice, NeedsConfirmation, UnfitDevice, DeviceInUse, NoSpace, ReadOnly, PoolStopped];
    /// Shows a pool.
    ShowPool = question "/pools/{pool}" [pool] Nothing => PoolDocument, Viewer, [];
    /// Shows what a pool, a space or a disk did over time.
    ShowHistory = question "/pools/{pool}/history" [pool] HistoryQuery => History, Viewer, [NoSuchSpace, NoSuchDisk];
    /// Shows where the bytes of a pool are, and what still fits.
    ShowRoom = question "/pools/{pool}/df" [pool] Nothing => Df, Viewer, [];
    /// Shows where on the disks of a pool slabs of which space lie.
    ShowSlabMap = question "/pools/{pool}/slabs" [pool] SlabMapQuery => SlabMap, Viewer, [];
    /// Closes a pool and gives it up, so that any host may open it.
    ExportPool = change "/pools/{pool}/export" [pool] Simple, Admin, Other, Never, [ForeignData, Missing, Config, Unsupported];
    /// Destroys a pool.
    DestroyPool = change "/pools/{pool}/destroy" [pool] Destroy, Admin, Other, Never, [NeedsConfirmation];
    /// Reads and verifies everything in a pool.
    ScrubPool = change "/pools/{pool}/scrub" [pool] Simple, Operator, Other, Maybe, [];
    /// Copies to disks what they have missed.
    ResyncPool = change "/pools/{pool}/resync" [pool] Simple, Operator, Other, Maybe, [];
    /// Moves slabs from full disks to emptier ones.
    RebalancePool = change "/pools/{pool}/rebalance" [pool] Simple, Operator, Other, Maybe, [];
    /// Calls a rebalance off.
    CancelRebalance = change "/pools/{pool}/rebalance/cancel" [pool] Simple, Operator, Other, Maybe, [];
    /// Ends the warnings about errors of disks that the caller has seen.
    AcknowledgeErrors = change "/pools/{pool}/acknowledge" [pool] Simple, Operator, Same, Never, [];
    /// Changes the size of a write cache.
    ResizeWriteCache = change "/pools/{pool}/write_cache/resize" [pool] ResizeWriteCache, Admin, Other, Maybe, [BadSize];
    /// Sets at which fill a write cache is destaged, and how fast.
    DrainWriteCache = change "/pools/{pool}/write_cache/drain" [pool] DrainWriteCache, Operator, Same, Never, [];
    /// Sets how long a disk may be absent before the others take over what it held.
    SetRepairAfter = change "/pools/{pool}/repair_after" [pool] SetRepairAfter, Admin, Same, Never, [];
    /// Sets for how many lost disks a pool keeps room.
    SetKeepRoom = change "/pools/{pool}/keep_room" [pool] SetKeepRoom, Admin, Same, Never, [];
    /// Sets the percents of fullness at which a pool warns.
    SetAlertAt = change "/pools/{pool}/alert_at" [pool] SetAlertAt, Operator, Same, Never, [];

    /// Lists the disks of a pool.
    ListDisks = question "/pools/{pool}/disks" [pool] Nothing => Disks, Viewer, [];
    /// Adds disks to a pool, and evens out what is on it.
    AddDisks = change "/pools/{pool}/disks" [pool] AddDisks, Admin, Other, Maybe,
        [NoSuchDevice, ForeignData, UnfitDevice, DeviceInUse];
    /// Replaces a disk by another one.
    ReplaceDisk = change "/pools/{pool}/disks/{disk}/replace" [pool, disk] ReplaceDisk, Admin, Other, Maybe,
        [NoSuchDevice, ForeignData, UnfitDevice, DeviceInUse];
    /// Calls a replacement off.
    CancelReplace = change "/pools/{pool}/disks/{disk}/replace/cancel" [pool, disk] Simple, Admin, Other, Maybe,
        [NoSuchDevice];
    /// Moves everything from a disk to the others, and removes it from the pool.
    RemoveDisk = change "/pools/{pool}/disks/{disk}/remove" [pool, disk] Simple, Admin, Other, Maybe,
        [TooFewDisks, NoSuchDevice];
    /// Calls the removal of a disk off.
    CancelRemove = change "/pools/{pool}/disks/{disk}/remove/cancel" [pool, disk] Simple, Admin, Other, Never, [];
    /// Opens a disk that was absent again.
    OnlineDisk = change "/pools/{pool}/disks/{disk}/online" [pool, disk] OnlineDisk, Operator, Same, Maybe,
        [NoSuchDevice, NeedsConfirmation, UnfitDevice, DeviceInUse];
    /// Closes a disk that stays a member.
    OfflineDisk = change "/pools/{pool}/disks/{disk}/offline" [pool, disk] Simple, Operator, Same, Never, [];
    /// Takes the room into use that the device of a disk has gained.
    GrowDisk = change "/pools/{pool}/disks/{disk}/grow" [pool, disk] Simple, Admin, Same, Never, [NoSuchDevice];
    /// Lets a disk show where it is, or ends that.
    LocateDisk = change "/pools/{pool}/disks/{disk}/locate" [pool, disk] LocateDisk, Operator, Other, Never,
        [NoSuchDevice];
    /// Changes what people note of a disk.
    SetDisk = change "/pools/{pool}/disks/{disk}/set" [pool, disk] SetDisk, Operator, Same, Never, [BadName, NameTaken];
    /// Sets whether a disk takes rows, is a spare or stays empty.
    SetDiskRole = change "/pools/{pool}/disks/{disk}/role" [pool, disk] SetDiskRole, Admin, Same, Maybe,
        [TooFewDisks, NoSuchDevice];
    /// Sets what a disk is in: an enclosure, a shelf, whatever may fail as one.
    SetEnclosure = change "/pools/{pool}/disks/{disk}/enclosure" [pool, disk] SetEnclosure, Admin, Same, Never,
        [TooFewDisks];
    /// Removes a lost disk; declares data lost that was on it alone, where the request says so.
    ForgetDisk = change "/pools/{pool}/disks/{disk}/forget" [pool, disk] ForgetDisk, Admin, Other, Maybe,
        [NeedsConfirmation, TooFewDisks, NoSuchDevice];

    /// Lists all spaces.
    ListAllSpaces = question "/spaces" [] Nothing => Spaces, Viewer, [];
    /// Lists the spaces of a pool.
    ListSpaces = question "/pools/{pool}/spaces" [pool] Nothing => Spaces, Viewer, [];
    /// Shows a space.
    ShowSpace = question "/pools/{pool}/spaces/{space}" [pool, space] Nothing => SpaceDocument, Viewer, [];
    /// Creates a space.
    CreateSpace = change "/pools/{pool}/spaces" [pool] CreateSpace, Operator, Other, Never,
        [BadName, BadSize, NameTaken, TooFewDisks];
    /// Changes the size of a space. One that carries a volume grows with its file system.
    ResizeSpace = change "/pools/{pool}/spaces/{space}/resize" [pool, space] ResizeSpace, Operator, Same, Maybe,
        [BadSize, NotEmpty, TooFewDisks, Missing, Config, Unsupported];
    /// Converts a space to another layout while it is used.
    ConvertSpace = change "/pools/{pool}/spaces/{space}/convert" [pool, space] ConvertSpace, Operator, Other, Maybe,
        [BadSize, TooFewDisks];
    /// Renames a space.
    RenameSpace = change "/pools/{pool}/spaces/{space}/rename" [pool, space] RenameSpace, Operator, Other, Never,
        [BadName, NameTaken];
    /// Sets the most and the least that a space gets of the disks of its pool.
    SetLimits = change "/pools/{pool}/spaces/{space}/limits" [pool, space] SetLimits, Operator, Same, Never, [];
    /// Reserves room for a thin space.
    SetReserve = change "/pools/{pool}/spaces/{space}/reserve" [pool, space] SetReserve, Operator, Same, Never, [BadSize];
    /// Deletes a space: into the trash, or for good.
    DeleteSpace = change "/pools/{pool}/spaces/{space}/delete" [pool, space] DeleteSpace, Admin, Other, Maybe,
        [NeedsConfirmation];
    /// Attaches a space as a block device.
    AttachSpace = change "/pools/{pool}/spaces/{space}/attach" [pool, space] AttachSpace, Operator, Other, Never,
        [BadSize, NameTaken, Missing, Config];
    /// Detaches a space.
    DetachSpace = change "/pools/{pool}/spaces/{space}/detach" [pool, space] DetachSpace, Operator, Other, Never, [NeedsConfirmation];
    /// Serves a space over NBD.
    ServeSpace = change "/pools/{pool}/spaces/{space}/serve" [pool, space] ServeSpace, Operator, Same, Never, [];
    /// Stops serving a space.
    UnserveSpace = change "/pools/{pool}/spaces/{space}/unserve" [pool, space] Simple, Operator, Same, Never, [];

    /// Measures a space under load with fio, or compares it with another one. Profiles that write overwrite both.
    BenchSpace = change "/pools/{pool}/spaces/{space}/bench" [pool, space] BenchSpace, Admin, Other, Maybe,
        [NeedsConfirmation, ForeignData, DeviceInUse, Missing, Config, Unsupported];

    /// Lists the volumes of all pools.
    ListAllVolumes = question "/volumes" [] Nothing => Volumes, Viewer, [];
    /// Lists the volumes of a pool.
    ListVolumes = question "/pools/{pool}/volumes" [pool] Nothing => Volumes, Viewer, [];
    /// Shows a volume.
    ShowVolume = question "/pools/{pool}/volumes/{space}" [pool, space] Nothing => VolumeDocument, Viewer, [Unsupported];
    /// Makes a volume: a file system on a new space.
    CreateVolume = change "/pools/{pool}/volumes" [pool] CreateVolume, Operator, Other, Maybe,
        [BadName, BadSize, NameTaken, TooFewDisks, Missing];
    /// Mounts a volume, now and whenever its pool is opened.
    MountVolume = change "/pools/{pool}/volumes/{space}/mount" [pool, space] MountVolume, Operator, Other, Maybe,
        [NeedsConfirmation, ForeignData, Missing, Config, NameTaken, BadSize, Unsupported];
    /// Unmounts a volume, and leaves it so.
    UnmountVolume = change "/pools/{pool}/volumes/{space}/unmount" [pool, space] Simple, Operator, Other, Never, [ForeignData, Missing, Config, Unsupported];
    /// Grows a volume: its space, its device and its file system.
    GrowVolume = change "/pools/{pool}/volumes/{space}/grow" [pool, space] ResizeSpace, Operator, Other, Maybe,
        [BadSize, TooFewDisks, Missing, Config, Unsupported];
    /// Gives free room of a mounted volume back to its pool.
    TrimVolume = change "/pools/{pool}/volumes/{space}/trim" [pool, space] Simple, Operator, Other, Never, [Missing, Config, Unsupported];
    /// Checks a volume, or repairs one that is not mounted. A mounted btrfs is scrubbed.
    CheckVolume = change "/pools/{pool}/volumes/{space}/check" [pool, space] CheckVolume, Admin, Other, Maybe,
        [NeedsConfirmation, Unsupported];
    /// Shows what the last check of a volume found.
    ShowVolumeCheck = question "/pools/{pool}/volumes/{space}/check" [pool, space] Nothing => VolumeCheck, Viewer, [NoSuchObject, Unsupported];
    /// Makes a volume of a space with a file system, and mounts it. Nothing is written to the space.
    AdoptVolume = change "/pools/{pool}/volumes/{space}/adopt" [pool, space] AdoptVolume, Operator, Other, Never,
        [ForeignData, Missing, Config, NameTaken, BadSize];
    /// Deletes a volume: its space goes into the trash with its record.
    DeleteVolume = change "/pools/{pool}/volumes/{space}/delete" [pool, space] Simple, Admin, Other, Never, [ForeignData, Missing, Config, Unsupported];

    /// Lists the quotas of a volume, with what its folders hold.
    ListQuotas = question "/pools/{pool}/volumes/{space}/quotas" [pool, space] Nothing => Quotas, Viewer, [Missing, Unsupported];
    /// Bounds a folder of a volume.
    SetQuota = change "/pools/{pool}/volumes/{space}/quotas" [pool, space] SetQuota, Operator, Same, Never,
        [ForeignData, Missing, Config, NameTaken, Unsupported];
    /// Removes the bound of a folder of a volume.
    RemoveQuota = change "/pools/{pool}/volumes/{space}/quotas/remove" [pool, space] RemoveQuota, Operator, Other, Never,
        [NoSuchObject, Missing, Config, Unsupported];

    /// Lists the shares of all pools.
    ListAllShares = question "/shares" [] Nothing => Shares, Viewer, [];
    /// Lists the shares of a volume.
    ListShares = question "/pools/{pool}/volumes/{space}/shares" [pool, space] Nothing => Shares, Viewer, [Unsupported];
    /// Shows a share, after a new look at its servers.
    ShowShare = question "/pools/{pool}/volumes/{space}/shares/{share}" [pool, space, share] Nothing => ShareDocument, Viewer, [Unsupported];
    /// Lists the clients of a share.
    ListShareSessions = question "/pools/{pool}/volumes/{space}/shares/{share}/sessions" [pool, space, share] Nothing => ShareSessions, Viewer,
        [Missing, Config, Unsupported, ForeignData];
    /// Shares a folder of a volume over SMB and NFS.
    CreateShare = change "/pools/{pool}/volumes/{space}/shares" [pool, space] CreateShare, Operator, Other, Never,
        [NameTaken, ForeignData, Missing, Config, Unsupported];
    /// Grants rights on a share, or changes them.
    GrantShare = change "/pools/{pool}/volumes/{space}/shares/{share}/grant" [pool, space, share] GrantShare, Operator, Same, Never,
        [NameTaken, NeedsConfirmation, ForeignData, Missing, Config, Unsupported];
    /// Accepts the rights over NFS on a share that another host gave.
    AcceptShare = change "/pools/{pool}/volumes/{space}/shares/{share}/accept" [pool, space, share] Simple, Operator, Same, Never,
        [NameTaken, ForeignData, Missing, Config, Unsupported];
    /// Revokes rights on a share.
    RevokeShare = change "/pools/{pool}/volumes/{space}/shares/{share}/revoke" [pool, space, share] RevokeShare, Operator, Same, Never,
        [NameTaken, ForeignData, Missing, Config, Unsupported];
    /// Deletes a share. Its folder stays.
    DeleteShare = change "/pools/{pool}/volumes/{space}/shares/{share}/delete" [pool, space, share] Simple, Operator, Other, Never,
        [ForeignData, Missing, Config, Unsupported];

    /// Empties rows of a volume that hold little, and gives them back to its pool.
    CompactVolume = change "/pools/{pool}/volumes/{space}/compact" [pool, space] CompactVolume, Operator, Other, Maybe,
        [Missing, Config, Unsupported];

    /// Shows the deduplication of a volume: its policy, its last run, and what is under way.
    ShowDedup = question "/pools/{pool}/volumes/{space}/dedup" [pool, space] Nothing => Dedup, Viewer, [Unsupported];
    /// Estimates what a deduplication of a volume would save.
    EstimateDedup = change "/pools/{pool}/volumes/{space}/dedup/estimate" [pool, space] EstimateDedup, Operator, Other, Maybe,
        [Missing, Config, Unsupported];
    /// Sets the policy of the deduplication of a volume, or takes it away.
    EnableDedup = change "/pools/{pool}/volumes/{space}/dedup/enable" [pool, space] EnableDedup, Operator, Other, Never, [Config, Unsupported];
    /// Shares equal bytes of the files of a volume, and gives what becomes free back to its pool.
    RunDedup = change "/pools/{pool}/volumes/{space}/dedup/run" [pool, space] RunDedup, Operator, Other, Maybe,
        [Missing, Config, Unsupported];
    /// Gives files of a volume bytes of their own again.
    UndoDedup = change "/pools/{pool}/volumes/{space}/dedup/undo" [pool, space] UndoDedup, Operator, Other, Maybe,
        [Missing, Config, Unsupported];

    /// Lists what is in the trash of all pools.
    ListAllTrash = question "/trash" [] Nothing => Trash, Viewer, [];
    /// Lists what is in the trash of a pool.
    ListTrash = question "/pools/{pool}/trash" [pool] Nothing => Trash, Viewer, [];
    /// Takes a space out of the trash.
    RestoreSpace = change "/pools/{pool}/trash/{space}/restore" [pool, space] RestoreSpace, Operator, Other, Never,
        [BadName, NameTaken];
    /// Deletes spaces in the trash for good.
    PurgeTrash = change "/pools/{pool}/trash/purge" [pool] PurgeTrash, Admin, Other, Maybe,
        [NoSuchSpace, NeedsConfirmation];

    /// Lists profiles of load, the benchmark under way, and the reports of benchmarks.
    ListBenchmarks = question "/benchmarks" [] Nothing => Benchmarks, Viewer, [];
    /// Shows the report of a benchmark.
    ShowBenchmark = question "/benchmarks/{job}" [job] Nothing => BenchmarkReport, Viewer, [];

    /// Lists jobs that run, wait, or ended lately.
    ListJobs = question "/jobs" [] Nothing => Jobs, Viewer, [];
    /// Shows a job.
    ShowJob = question "/jobs/{job}" [job] Nothing => JobDocument, Viewer, [];
    /// Pauses a job until it is resumed.
    PauseJob = change "/jobs/{job}/pause" [job] Simple, Operator, Same, Never, [NoSuchPool];
    /// Lets a paused job continue.
    ResumeJob = change "/jobs/{job}/resume" [job] Simple, Operator, Other, Never, [NoSuchPool];
    /// Ends a job before it is done.
    StopJob = change "/jobs/{job}/stop" [job] Simple, Operator, Same, Never, [NoSuchPool];
    /// Sets how a job shares the disks with clients.
    SetJob = change "/jobs/{job}/set" [job] SetJob, Operator, Same, Never, [NoSuchPool];
}
