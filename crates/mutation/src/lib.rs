//! Mutants: each breaks one rule on purpose, and the tests have to find it (`scripts/mutants.txt`, `scripts/incidents.txt`).
//!
//! Invariant: a mutant is in builds with debug assertions alone. There [`mutation!`] asks whether the environment variable
//! `DOLMEN_MUTANT` named it when the process first asked; so one build serves the tests and the mutants. Elsewhere it is the
//! constant `false`, and neither the names nor the variable are in the program (`scripts/unmutated.sh`).

/// Defines the mutants: what each breaks, its name in code, and the name by which tables and the environment call it.
macro_rules! mutants {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal,)+) => {
        /// A rule that can be broken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant {
            $($(#[$doc])+ $variant,)+
        }

        #[cfg(debug_assertions)]
        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the name in `DOLMEN_MUTANT`, `scripts/mutants.txt` and `scripts/incidents.txt`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

mutants! {
    /// The lock of a flush and those of rows with parity change places in the order of locks.
    RanksSwapped = "ranks-swapped",
    /// A flush that records blocks again keeps the locks of a freed row while it locks the next one.
    FreedRowStaysLocked = "freed-row-stays-locked",
    /// A write leaves the table entry of its first block as it was.
    ApplySkipsABlock = "apply-skips-a-block",
    /// A writer does not look at its row again when it has the lock.
    RecheckSkipped = "recheck-skipped",
    /// A flush counts for writes that are under way.
    SettleAhead = "settle-ahead",
    /// Writes count as unflushed after the flush that covers them.
    SettleKeepsWrites = "settle-keeps-writes",
    /// A write-back takes from the pages what a write after its flush says.
    WriteBackAhead = "write-back-ahead",
    /// A page waits to be written back although it was.
    SealNotNoted = "seal-not-noted",
    /// Pages that say more than their disks are dropped from memory.
    TrimDropsDirty = "trim-drops-dirty",
    /// The log is trimmed beyond the place from which the map needs it.
    TrimPastNeed = "trim-past-need",
    /// The log says *settled* before the disks were flushed.
    MarkBeforeFlush = "mark-before-flush",
    /// A flush leaves one disk out.
    FlushSkipsADisk = "flush-skips-a-disk",
    /// A flush does not wait for writes that began before it.
    FlushWaitsForNone = "flush-waits-for-none",
    /// A flush counts for a write whose record it has not marked.
    ConcurrentRecordUnmarked = "concurrent-record-unmarked",
    /// Flushed content is overwritten before the intent is durable.
    IntentNotWaited = "intent-not-waited",
    /// Acknowledged content is overwritten before the new record is written.
    RewriteInParallel = "rewrite-in-parallel",
    /// What a read brings is not compared with its checksum.
    ChecksumNotChecked = "checksum-not-checked",
    /// A bad copy is "healed" with what it holds.
    HealFromBadCopy = "heal-from-bad-copy",
    /// A scrub takes a checkpoint before what it has healed is flushed.
    ScrubCheckpointUnflushed = "scrub-checkpoint-unflushed",
    /// Nobody commits that a slab misses what was written without its disk.
    AbsenceNotCommitted = "absence-not-committed",
    /// A resync leaves out what was written last.
    ResyncSkipsNewest = "resync-skips-newest",
    /// A refilled slab is trusted before its content was flushed.
    TrustBeforeFlush = "trust-before-flush",
    /// Blocks of a column are counted wrongly at the end of a stretch.
    RowOffByOne = "row-off-by-one",
    /// The change that deletes a space leaves its attributes in the map.
    AttributeSurvivesSpace = "attribute-survives-space",
    /// A change of attributes deletes in one change of the map and puts in another.
    AttributesInParts = "attributes-in-parts",
    /// An address of a device is taken for an address of btrfs.
    DeviceAddressAsLogical = "device-address-as-logical",
    /// `mkfs` runs with force over content of another origin.
    MkfsWithoutUuidCheck = "mkfs-without-uuid-check",
    /// `mkfs` runs on an adopted volume.
    AdoptedFormatted = "adopted-formatted",
    /// A device is mounted without a look at the UUID of its file system.
    MountedWithoutUuid = "mounted-without-uuid",
    /// The record of a volume says that it is ready before mkfs has begun.
    ReadyBeforeMkfs = "ready-before-mkfs",
    /// A space is made smaller than the file system of the volume on it.
    ShrunkBelowVolume = "shrunk-below-volume",
    /// Services of spaces do not ask whether the volume of a space is in use.
    VolumeUseIgnored = "volume-use-ignored",
    /// A volume is shown as mounted while the job of its creation goes on.
    MountedBeforeJobEnds = "mounted-before-job-ends",
    /// A unit of systemd that Dolmen did not write is overwritten.
    ForeignUnitOverwritten = "foreign-unit-overwritten",
    /// A unit of systemd mounts a volume that is to be unmounted.
    UnwantedVolumeMounted = "unwanted-volume-mounted",
    /// A volume that is restored from the trash stays one that is being deleted.
    RestoredAsDeleting = "restored-as-deleting",
    /// Devices and set-user-id programs of a volume are obeyed though its record does not ask for it.
    MountedWithDevices = "mounted-with-devices",
    /// A worker takes whatever device has the name of the one that its order means.
    DeviceTakenByName = "device-taken-by-name",
    /// The lock of a volume ends with its worker, though a tool of the worker goes on.
    LockEndsWithWorker = "lock-ends-with-worker",
    /// A check does not ask the kernel whether the device is in use.
    CheckedWhileInUse = "checked-while-in-use",
    /// Content that no tool knows counts as that of a `mkfs` cut short, though none was begun.
    UnknownContentFormatted = "unknown-content-formatted",
    /// The target of a mount is looked up by its path a second time.
    MountedByPath = "mounted-by-path",
    /// A mount of any kind counts as that of the device that its source names.
    MountKnownByText = "mount-known-by-text",
    /// Every mount option of a record is obeyed.
    RecordOptionsObeyed = "record-options-obeyed",
    /// Two volumes get one mount point if they ask at the same time, or come back.
    PlaceTakenTwice = "place-taken-twice",
    /// Each mount lets a file system use all of its space.
    GrownUnasked = "grown-unasked",
    /// A volume is unmounted by its path, whatever mount the path leads to.
    UnmountedByPath = "unmounted-by-path",
    /// An image is written to the device of a name, whatever device that is by now.
    ImageToAnyDevice = "image-to-any-device",
    /// A share counts as taken off when no export has its path.
    ExportLeft = "export-left",
    /// A mount point that another host chose is obeyed.
    ForeignPlaceObeyed = "foreign-place-obeyed",
    /// A volume is mounted wherever its record says, also over settings of the system.
    SystemTreeMounted = "system-tree-mounted",
    /// Every `mkfs` option of a record is obeyed.
    RecordMkfsOptionsObeyed = "record-mkfs-options-obeyed",
    /// A look at a share does not look at the way to its folder.
    SharedFolderSeenOnce = "shared-folder-seen-once",
    /// A section of Samba without the mark of a share counts as the share's.
    ForeignSectionDeleted = "foreign-section-deleted",
    /// A share that no account was granted is available.
    UngrantedShareAvailable = "ungranted-share-available",
    /// An export that no client was granted is written, and a path alone is for everybody.
    UngrantedExportWritten = "ungranted-export-written",
    /// A share is available before its grants are written.
    ShareOpenBeforeGrants = "share-open-before-grants",
    /// A share is put although its volume is not mounted.
    ShareOfUnmountedVolume = "share-of-unmounted-volume",
    /// A volume is unmounted while servers offer its shares.
    UnmountedWhileShared = "unmounted-while-shared",
    /// Orders of shares and quotas wait for the process that has the file system of their volume.
    OneLaneOfOrders = "one-lane-of-orders",
    /// The server for NFS exports a folder although the volume is not mounted there.
    ExportWithoutMount = "export-without-mount",
    /// Servers keep shares over a start of the daemon whose volumes are not mounted.
    UnmountedShareKept = "unmounted-share-kept",
    /// A volume is mounted at another place before its record names the place.
    MountedBeforeRecord = "mounted-before-record",
    /// A file system is mounted as a volume before its record is written.
    AdoptedBeforeRecord = "adopted-before-record",
    /// A volume whose space is served is unmounted before its deletion is refused.
    ServedSpaceUnmounted = "served-space-unmounted",
    /// A volume that was deleted before it was made counts as made when it is restored.
    RestoredUnmadeAsReady = "restored-unmade-as-ready",
    /// The record of a share is deleted while servers still offer the share.
    ShareRecordDeletedFirst = "share-record-deleted-first",
    /// A mount does not ask the file system again for a quota that it was not seen to take.
    PendingQuotaForgotten = "pending-quota-forgotten",
    /// A quota is removed from its file system before its record says so.
    QuotaRemovalUnrecorded = "quota-removal-unrecorded",
    /// A mount makes a folder with a quota again that people deleted.
    DeletedFolderRemade = "deleted-folder-remade",
    /// A repair drops the log of a file system though nobody asked for that.
    LogDroppedUnasked = "log-dropped-unasked",
    /// An undo of a deduplication takes more room than its pool has.
    UndoBeyondPool = "undo-beyond-pool",
    /// A quota that failed half-way leaves its bound in the file system, without a record.
    HalfSetQuotaForgotten = "half-set-quota-forgotten",
    /// A grant over NFS that another host gave is served.
    ForeignGrantServed = "foreign-grant-served",
    /// A volume of a pool that is open for reading is changed.
    ReadOnlyVolumeChanged = "read-only-volume-changed",
    /// The space of a mounted volume grows without its file system.
    SpaceGrownAlone = "space-grown-alone",
    /// Damaged ranges that meet are looked up one by one.
    DamagedRangesApart = "damaged-ranges-apart",
    /// A file of exports counts as Dolmen's by its name alone.
    ForeignFileReplaced = "foreign-file-replaced",
    /// An export of another folder keeps the number under which Ganesha knows the old one.
    ExportNumberKept = "export-number-kept",
    /// A copy has its final name while it is made.
    CopyUnderFinalName = "copy-under-final-name",
    /// A copy has the mode of its source without its access list.
    CopyWithoutAccessList = "copy-without-access-list",
    /// A grant over NFS takes the short name of a host.
    ShortHostNameGranted = "short-host-name-granted",
    /// A copy gives a mode to whatever its name leads to.
    CopyModeThroughLink = "copy-mode-through-link",
    /// An image has its name while it is filled.
    ImageNamedEarly = "image-named-early",
    /// An image library follows symbolic links.
    ImageLinkFollowed = "image-link-followed",
    /// An image that names a backing file is given to the program that converts it.
    BackingFileOpened = "backing-file-opened",
    /// A file that changed while it was copied becomes an image.
    ChangedSourceKept = "changed-source-kept",
    /// A clone may be smaller than its image.
    CloneShrunk = "clone-shrunk",
    /// An image may take the last free byte of its volume.
    LastRoomTaken = "last-room-taken",
    /// A folder becomes a library without the volume that was mounted on it.
    UnmountedLibraryOpened = "unmounted-library-opened",
    /// A share is put on a server that makes guests of unknown clients.
    GuestMapAccepted = "guest-map-accepted",
    /// Tables go to their disks before a flush covered what they say.
    TableBeforeFlush = "table-before-flush",
    /// The log is trimmed before the tables that take its place were flushed.
    TableNotFlushed = "table-not-flushed",
    /// A table page that one slab alone has is believed to be there because its disk said so.
    SoleTableTrusted = "sole-table-trusted",
    /// A table page is always written to the same slot, over the one that stands.
    PageInPlace = "page-in-place",
    /// Recovery lets the oldest state of a block win.
    OldestStateWins = "oldest-state-wins",
    /// Two rules of the table for blocks in doubt match one input.
    RuleOverlaps = "rule-overlaps",
    /// What recovery decided is marked settled before it is durable.
    RecoveryNotFinal = "recovery-not-final",
    /// Allocation units are handed out again before the commit that freed them is durable.
    FreeBeforeCommit = "free-before-commit",
    /// A checkpoint trims what was logged while it was being made.
    TrimAhead = "trim-ahead",
    /// A slab whose disk was away while tables were written back counts as having them.
    MissedTables = "missed-tables",
    /// A checkpoint trims changes of the map that are durable and not in the map yet.
    TrimUnapplied = "trim-unapplied",
    /// A batch of the log counts when one voter has it.
    OneVoterIsEnough = "one-voter-is-enough",
    /// A durable batch of the log stays in the disks' caches.
    DurableIsCached = "durable-is-cached",
    /// An opening reads the log of one voter only.
    OneLogIsEnough = "one-log-is-enough",
    /// The block of a checkpoint is written before its pages were flushed.
    BlockBeforePages = "block-before-pages",
    /// A checkpoint in parts says with its first part that it has all changes.
    PartAnchoredAsWhole = "part-anchored-as-whole",
    /// A page that a checkpoint gives up is used again by that same checkpoint.
    PageReusedEarly = "page-reused-early",
    /// A commit counts when a majority of the voters holds it.
    CommitByMajority = "commit-by-majority",
    /// An export writes the disks first and withdraws the host's record last.
    ExportRecordLast = "export-record-last",
    /// An opening does not look whether another host has the pool open.
    NoWatch = "no-watch",
    /// An opening does not look whether another host began one in the same moment.
    NoHold = "no-hold",
    /// A heartbeat does not look whether another host has the pool by now.
    BlindHeartbeat = "blind-heartbeat",
    /// A disk that was away decides what is in force.
    StaleDiskWins = "stale-disk-wins",
    /// A member whose label is older than its entry takes part.
    OldMemberTrusted = "old-member-trusted",
    /// An opening names labels of members before they are durable.
    MemberNamedEarly = "member-named-early",
    /// A stamp is committed before the labels that it names are durable.
    StampBeforeLabels = "stamp-before-labels",
    /// An opening does not compare the voters' labels with those that the host's record names.
    StaleLabelsTrusted = "stale-labels-trusted",
    /// The host's record names labels before they are durable.
    LabelsRecordedEarly = "labels-recorded-early",
    /// A stamp writes labels without looking whether another host has the pool by now.
    BlindStamp = "blind-stamp",
    /// An opening writes labels without looking whether another host wrote some since it watched.
    BlindOpening = "blind-opening",
    /// The label after a failed write goes to the slot of the newest durable label.
    LabelOverDurable = "label-over-durable",
    /// The hold compares labels that could not be written.
    HoldOfUnlabelled = "hold-of-unlabelled",
    /// A disk that comes back to an open pool as it was long ago is filled as if it had only been absent.
    OldImageAsAbsent = "old-image-as-absent",
    /// A row that takes a place while a returned disk is being distrusted keeps its trust in that disk.
    DistrustScansOnce = "distrust-scans-once",
    /// A disk that is taken back in counts before its label says so.
    ReturnUnstamped = "return-unstamped",
    /// Some of the disks can be written on a host that does not own them.
    ForeignHalfWrites = "foreign-half-writes",
    /// A line that was left half in place is finished without the parity that it had recorded.
    RedoOfNewDataOnly = "redo-of-new-data-only",
    /// The difference of parity is applied twice.
    DifferenceTwice = "difference-twice",
    /// Parity is computed from whatever the disks have.
    InputsNotVerified = "inputs-not-verified",
    /// A discarded block becomes *never* and the parity of its line stays as it was.
    NeverOnOneColumn = "never-on-one-column",
    /// A flush that marks the record of lines about to be written in place counts as their end.
    RedoEndsWithMark = "redo-ends-with-mark",
    /// Lines are written in place before a flush has covered their record.
    RedoNotFlushed = "redo-not-flushed",
    /// What is in flight of a line is decided block by block.
    StripeInParts = "stripe-in-parts",
    /// The second parity is computed with the factors of the first.
    SecondParityAsFirst = "second-parity-as-first",
    /// A loss is judged by the number of columns that lack a slab, not by the columns that lack all.
    DecodableByCount = "decodable-by-count",
    /// A change of a block with parity locks that block alone.
    LockRangeShort = "lock-range-short",
    /// A block with parity counts as one that stands alone.
    UnitOfCopies = "unit-of-copies",
    /// Whole stripes go to a slot although blocks of them are cached.
    PlanMissesCached = "plan-misses-cached",
    /// The second parity of a line stays as it was when parity is carried on.
    SecondParityNotUpdated = "second-parity-not-updated",
    /// A line that was left half in place is finished without its second parity.
    SecondParityNotRedone = "second-parity-not-redone",
    /// A strict space is written over in place, as a relaxed one.
    StrictInPlace = "strict-in-place",
    /// Copies are put in place before a flush has covered what is cached of them.
    CopiesBeforeFlush = "copies-before-flush",
    /// What the cache had of copies ends before they were flushed in their place.
    CopiesNotFlushed = "copies-not-flushed",
    /// A shadow row is promoted before what it holds was flushed.
    ShadowBeforeFlush = "shadow-before-flush",
    /// A shadow row is promoted before its tables are on its disks.
    ShadowBeforeTables = "shadow-before-tables",
    /// A replacement knows the rows that were filled from nothing by their place.
    ReplacedByPlace = "replaced-by-place",
    /// A refill goes on with a slab that its row has dropped.
    RefillOfADroppedSlab = "refill-of-a-dropped-slab",
    /// A conversion shadow is promoted while its own lock is held.
    ConversionShadowUnlocked = "conversion-shadow-unlocked",
    /// A row that was promoted or freed since it was looked up is freed all the same.
    FreeWithoutRecheck = "free-without-recheck",
    /// A row is exchanged although its place names another row by then.
    ExchangeOfDetached = "exchange-of-detached",
    /// A row is exchanged while blocks of it, or of its shadow row, are in doubt.
    ExchangeInDoubt = "exchange-in-doubt",
    /// A shadow row is promoted or dropped while a stripe of it, or of its row, is half destaged.
    ExchangeHalfDestaged = "exchange-half-destaged",
    /// A shadow row is promoted without a stripe that its row has.
    PromotionLacksStripes = "promotion-lacks-stripes",
    /// A conversion shadow is promoted although a disk of it is absent.
    ConversionDegrades = "conversion-degrades",
    /// A shadow row is dropped with a stripe.
    DropWithAStripe = "drop-with-a-stripe",
    /// A promotion does not mark slabs of the shadow row that miss table pages.
    PromotionMarksNothing = "promotion-marks-nothing",
    /// A shadow row is promoted although it lacks more columns than its row.
    PromotionDegrades = "promotion-degrades",
    /// A shadow row is promoted while something of that is cached.
    ShadowBeforeCached = "shadow-before-cached",
    /// A discard that waited for a row that was moved meanwhile finds nothing to discard.
    DiscardOfFreedRow = "discard-of-freed-row",
    /// The parity of a line of a shadow row in which everything was discarded becomes *never*.
    ShadowForgetsStripes = "shadow-forgets-stripes",
    /// What is cached is put in place of the row, also where its shadow row has the line.
    ShadowSkipped = "shadow-skipped",
    /// A conversion shadow is promoted before what it holds was flushed.
    ConversionShadowBeforeFlush = "conversion-shadow-before-flush",
    /// A conversion shadow is promoted before its tables are on its disks.
    ConversionShadowBeforeTables = "conversion-shadow-before-tables",
    /// A conversion shadow is promoted while something of it is cached.
    ConversionShadowWhileCached = "conversion-shadow-while-cached",
    /// A conversion shadow is promoted without what clients have written meanwhile.
    ConversionShadowMissesWrites = "conversion-shadow-misses-writes",
    /// What nobody can read becomes whatever was read, in the conversion shadow of its row.
    ConversionShadowOfDamage = "conversion-shadow-of-damage",
    /// A copy on a disk that has become slow is asked like any other.
    SlowIsAsked = "slow-is-asked",
    /// A read waits for a disk that does not answer although another has what it wants.
    HungIsAwaited = "hung-is-awaited",
    /// What a disk that leaves has is dropped before what takes its place is trusted.
    DroppedUntrusted = "dropped-untrusted",
    /// What a disk that leaves has is dropped although it may be the last good copy.
    LastCopyDropped = "last-copy-dropped",
    /// A disk is struck although something lies on it.
    EvictedWhileNamed = "evicted-while-named",
    /// Whatever stands in a label where no field is, is passed over.
    LabelSpareTrusted = "label-spare-trusted",
    /// A label of an older format is read as if it had the format of today.
    OldFormatOpened = "old-format-opened",
    /// A row is read whatever number of places its record says that name it.
    ReferencesNotChecked = "references-not-checked",
    /// The bit of a log entry that says that content follows is passed over.
    CarriesRead = "carries-read",
    /// A row is claimed, and no place names it.
    RecordWithoutPlace = "record-without-place",
    /// A redo of a shadow row does not name the row whose blocks it has.
    OwnerNotNamed = "owner-not-named",
    /// A batch of the log counts although it is more than a lap ahead of the tail.
    BatchBeyondLap = "batch-beyond-lap",
    /// Where the slabs of a row end is the map's word alone.
    SlabBeyondItsDisk = "slab-beyond-its-disk",
    /// A write that finds no room for its row is acknowledged.
    NoRoomAcknowledged = "no-room-acknowledged",
    /// A pool that is full takes no change that gives room back.
    ReleaseNeedsRoom = "release-needs-room",
    /// A host opens its own pool only with all of its disks.
    AllOrNothing = "all-or-nothing",
    /// An opening does not ask the host's record how far the pool had come.
    ArbiterNotAsked = "arbiter-not-asked",
    /// A disk that was absent already when its pool was opened is not reported.
    AbsentUnreported = "absent-unreported",
    /// A resync copies what a disk has, whether it has missed it or not.
    ResyncCopiesAll = "resync-copies-all",
    /// A write cache has one copy, whatever its spaces survive.
    CacheOfOneCopy = "cache-of-one-copy",
    /// Something is destroyed whatever name was typed.
    AnyNameDestroys = "any-name-destroys",
    /// A disk is emptied only while it is here itself.
    DrainNeedsItsDisk = "drain-needs-its-disk",
    /// An old disk that alone holds content of a space is taken back without a word for its old content.
    OldContentUnasked = "old-content-unasked",
    /// A lost table of a stripe in flight stays damaged, where the stripe is what it was.
    InFlightStaysDamaged = "in-flight-stays-damaged",
    /// A fresh stripe whose write failed waits in doubt.
    FreshWriteInDoubt = "fresh-write-in-doubt",
    /// The room that a disk has gained is given before its labels say so.
    RoomBeforeLabels = "room-before-labels",
    /// A disk from before its growth is let back in on a device that ends before its slabs.
    ShorterThanMap = "shorter-than-map",
    /// An opening leaves a growth of a disk as a crash left it.
    GrowthNotCompleted = "growth-not-completed",
    /// An opening that completes a growth leaves the labels where the device ended before.
    OldEndNotCleared = "old-end-not-cleared",
    /// The labels at the end of a device that has grown are not looked for where that end was.
    OldEndNotLookedAt = "old-end-not-looked-at",
    /// A disk that is failing keeps what it has.
    FailingDiskKeepsAll = "failing-disk-keeps-all",
    /// New rows are laid on disks that are slow or failing as on others.
    NewRowsAnywhere = "new-rows-anywhere",
    /// Claims take the room that is kept for the repair of lost disks.
    KeptRoomIsClaimed = "kept-room-is-claimed",
    /// A row of a space that it needs for what is reserved for it is given back.
    ReserveReleased = "reserve-released",
    /// A row that holds something takes the place of another, as one that is reserved.
    ReserveTakesWritten = "reserve-takes-written",
    /// Rows are laid on spares.
    SpareTakesRows = "spare-takes-rows",
    /// A row that became another one while it was to be freed counts as freed.
    RenewedSkipped = "renewed-skipped",
    /// What another owner left on the disk that takes a lost one's place is taken for what was being written.
    LostAcceptedUnverified = "lost-accepted-unverified",
    /// Tables that stood where a slab takes a lost one's place are believed.
    LostTablesKept = "lost-tables-kept",
    /// A row is written while what the log says of it is being read, because it cannot be decided.
    DeferredWhileWritten = "deferred-while-written",
    /// Nobody says of blocks that were lost with a disk that they are.
    DeclaredLostUnlogged = "declared-lost-unlogged",
    /// A recovery takes for what it was a block that is said to be lost.
    LossForgotten = "loss-forgotten",
    /// What a slab has that was not filled to its end is lost with the only other one.
    PartFilledDropped = "part-filled-dropped",
    /// A line is not where it was, whether or not it is where it should have gone.
    SwitchByHalves = "switch-by-halves",
    /// A line goes to the slot that it has left before a flush has covered that it left.
    SlotBeforeFlush = "slot-before-flush",
    /// Nobody keeps where a line was, of which nobody can tell whether it is where it went.
    SourceNotKept = "source-not-kept",
    /// A shadow row is given back before what came from it was flushed.
    ShadowDroppedBeforeFlush = "shadow-dropped-before-flush",
    /// Nobody says that a line is where it was, when it could not go elsewhere.
    FailedSwitchKeeps = "failed-switch-keeps",
    /// A recovery writes tables that lack a line before others say where it is.
    SourceDroppedEarly = "source-dropped-early",
    /// A scrub leaves damaged copies of labels as they are.
    ScrubSkipsLabels = "scrub-skips-labels",
    /// A file that lies on a space may become a disk of a pool.
    DiskOnSpace = "disk-on-space",
    /// A line of the log waits until the one before it was read.
    LogWaits = "log-waits",
    /// The host's record of an epoch is written over the one in force.
    RecordOverInForce = "record-over-in-force",
    /// A disk that the system does not let the daemon open, for want of descriptors, counts as absent.
    UnopenedIsAbsent = "unopened-is-absent",
    /// A disk that came back is taken in although another device has its label too.
    CopyTakenIn = "copy-taken-in",
    /// A disk that a command took offline is taken in when it comes back.
    OfflineTakenIn = "offline-taken-in",
    /// A disk that failed and did not go away is taken in again.
    FailedTakenIn = "failed-taken-in",
    /// A disk that is as it was before is taken in without a command.
    OldTakenIn = "old-taken-in",
    /// A pool that was exported is opened when its disks appear.
    ExportedOpened = "exported-opened",
    /// What a block holds around the bytes that are written in it becomes zeros.
    NeighboursZeroed = "neighbours-zeroed",
    /// A part of a block is written without the lock of the block.
    PartOfBlockUnlocked = "part-of-block-unlocked",
    /// A trim waits until what is in memory is written, in a pool without room for it too.
    TrimNeedsRoom = "trim-needs-room",
    /// A resize of a write cache notes that it waits for writers, where there are none.
    WaitsForNobody = "waits-for-nobody",
    /// A file that changed since the scan is shared.
    ChangedFileShared = "changed-file-shared",
    /// The file system of the model shares ranges without comparing them.
    SharedWithoutCompare = "shared-without-compare",
    /// Files are pointed to copies that are not durable.
    PackUnsynced = "pack-unsynced",
    /// Packs go to unclaimed rows while rows that stay have room.
    HolesUnused = "holes-unused",
    /// A compaction trims nothing between its passes, and nothing before an error.
    TrimmedAtEnd = "trimmed-at-end",
    /// A compaction takes the room that a file system keeps for itself for room of writers.
    ReserveTaken = "reserve-taken",
    /// A pack on btrfs reserves room, which is written without compression.
    PackUncompressed = "pack-uncompressed",
    /// A run after an undo takes the places of files from the index.
    UndoneStaysIndexed = "undone-stays-indexed",
    /// The end of a file is shared with a copy that goes on after it.
    TailSharedMidFile = "tail-shared-mid-file",
    /// An index of history may name more slots than a pool has room for.
    HistoryIndexUnbounded = "history-index-unbounded",
    /// Slots of history that a save has not deleted stay in the map.
    HistoryDeletesLost = "history-deletes-lost",
    /// The index of history is written before the slots that it names.
    HistoryIndexFirst = "history-index-first",
    /// What a killed save has left in the map is not deleted.
    HistoryLeftoversKept = "history-leftovers-kept",
    /// The file of samples is not begun again when it is lost.
    HistoryTailStaysLost = "history-tail-stays-lost",
}

/// Tells whether a mutant is awake in this process: `if mutation!(FlushSkipsADisk) { … }`.
#[cfg(debug_assertions)]
#[macro_export]
macro_rules! mutation {
    ($mutant:ident) => {
        $crate::is_awake($crate::Mutant::$mutant)
    };
}

/// Tells whether a mutant is awake in this process: none is in a build without debug assertions.
#[cfg(not(debug_assertions))]
#[macro_export]
macro_rules! mutation {
    ($mutant:ident) => {{
        const _: $crate::Mutant = $crate::Mutant::$mutant;
        false
    }};
}

#[cfg(debug_assertions)]
mod awake {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::Mutant;

    /// No process has as many mutants.
    const UNREAD: u16 = u16::MAX;
    const NONE: u16 = u16::MAX - 1;
    const _: () = assert!(Mutant::ALL.len() < NONE as usize, "each mutant has a number of its own");

    /// Number of the mutant that is awake; the environment is read once.
    static AWAKE: AtomicU16 = AtomicU16::new(UNREAD);

    /// Returns whether `DOLMEN_MUTANT` names this mutant; see [`mutation!`](crate::mutation).
    ///
    /// # Panics
    /// When `DOLMEN_MUTANT` names no mutant: a run that wakes nothing must not look like one that found nothing.
    #[must_use]
    #[inline]
    pub fn is_awake(mutant: Mutant) -> bool {
        match AWAKE.load(Ordering::Relaxed) {
            NONE => false,
            UNREAD => read() == Some(mutant),
            awake => awake == mutant as u16,
        }
    }

    #[cold]
    fn read() -> Option<Mutant> {
        let found = std::env::var("DOLMEN_MUTANT").ok().map(|name| {
            let found = Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name);
            assert!(found.is_some(), "DOLMEN_MUTANT is '{name}', which is the name of no mutant");
            found
        });
        let found = found.flatten();
        AWAKE.store(found.map_or(NONE, |mutant| mutant as u16), Ordering::Relaxed);
        found
    }
}

#[cfg(debug_assertions)]
pub use awake::is_awake;

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn lines_of(table: &str) -> Vec<Vec<&str>> {
        let lines = table.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(|line| line.split('|').map(str::trim).collect()).collect()
    }

    /// Scenario: a bug is planted that nobody looks for, a line names one that is not there, or two lines are alike. A bug may have
    /// several lines, where it has to be found in more than one kind of space.
    #[test]
    fn every_mutant_has_its_lines_in_a_table() {
        let lines = lines_of(include_str!("../../../scripts/mutants.txt"));
        let incidents = lines_of(include_str!("../../../scripts/incidents.txt"));
        let named = lines.iter().filter_map(|fields| fields.get(1).copied());
        let named: BTreeSet<&str> =
            named.chain(incidents.iter().filter_map(|fields| fields.get(2).copied())).collect();
        let known: BTreeSet<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        assert_eq!(named, known);
        let runs: BTreeSet<_> = lines.iter().map(|fields| fields.get(1..4)).collect();
        assert_eq!(runs.len(), lines.len(), "a bug is looked for twice by one test with the same settings");
        let runs: BTreeSet<_> = incidents.iter().map(|fields| fields.get(1..3)).collect();
        assert_eq!(runs.len(), incidents.len(), "a bug is looked for twice by one incident");
    }
}
