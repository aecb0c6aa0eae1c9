//! The families: one table of names, types, labels and texts.

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows, until what counts it begins again.
    Counter,
    /// A number of now.
    Gauge,
    /// Requests by how long they took.
    Histogram,
}

impl Kind {
    /// Returns its word in the text format.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Defines the families, in the order of the text.
macro_rules! families {
    ($($family:ident = $kind:ident $name:literal [$($label:literal)*] $help:literal;)*) => {
        /// A family of metrics.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Family {
            $(
                #[doc = $help]
                $family,
            )*
        }

        impl Family {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$family),*];

            /// Returns its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$family => $name,)*
                }
            }

            /// Returns its type.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self {
                    $(Self::$family => Kind::$kind,)*
                }
            }

            /// Returns the names of its labels.
            #[must_use]
            pub const fn labels(self) -> &'static [&'static str] {
                match self {
                    $(Self::$family => &[$($label),*],)*
                }
            }

            /// Returns its text.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$family => $help,)*
                }
            }
        }
    };
}

families! {
    Up = Gauge "dolmen_up" [] "1 if the daemon answered, 0 otherwise.";
    BuildInfo = Gauge "dolmen_build_info" ["version" "api"] "Version of the daemon and of its API; always 1.";
    UptimeSeconds = Gauge "dolmen_uptime_seconds" [] "Time for which the daemon has been running.";
    Health = Gauge "dolmen_health" [] "Health of the host: 0 healthy, 1 warning, 2 unhealthy.";
    Findings = Gauge "dolmen_findings" ["code" "severity"] "Findings by code and severity; one that never occurs is 0.";
    Finding = Gauge "dolmen_finding" ["code" "severity" "kind" "pool" "object"] "A finding that holds now; always 1.";
    CertificateExpiry = Gauge "dolmen_certificate_expiry_timestamp_seconds" ["certificate"] "Time at which a certificate expires.";
    EngineInfo = Gauge "dolmen_engine_info" ["driver"] "How requests reach the kernel; always 1.";
    EngineMessages = Counter "dolmen_engine_messages_total" [] "Messages from other threads to the thread of the engine.";
    EngineWakeups = Counter "dolmen_engine_wakeups_total" [] "Times that another thread woke the thread of the engine.";
    EnginePolls = Counter "dolmen_engine_polls_total" [] "Times that the engine polled a task.";
    SeriesLeftOut = Gauge "dolmen_series_left_out" [] "Label sets left out because their family has too many, or has the same one already.";

    PoolHealth = Gauge "dolmen_pool_health" ["pool"] "Health of a pool: 0 healthy, 1 warning, 2 unhealthy.";
    PoolState = Gauge "dolmen_pool_state" ["pool" "state"] "1 for the state of a pool, 0 for the others: writable, read_only, stopped, closed.";
    PoolBytes = Gauge "dolmen_pool_bytes" ["pool" "state"] "Room for slabs on all disks of a pool, by state: used, free.";
    PoolFull = Gauge "dolmen_pool_full_timestamp_seconds" ["pool" "estimate"] "Time at which a pool is full at the rate of the last four weeks, by estimate: expected, earliest, latest; absent if it does not fill, or if its history is shorter than two days.";
    PoolTrashBytes = Gauge "dolmen_pool_trash_bytes" ["pool"] "Room that a purge of the trash frees.";
    PoolUsedBytes = Gauge "dolmen_pool_used_bytes" ["pool" "part"] "Used room of a pool by part: claimed, redundancy, write_cache, trash, tables.";
    PoolReserveBytes = Gauge "dolmen_pool_reserve_bytes" ["pool"] "Free room of a pool that moves and repairs keep.";
    PoolPromisedBytes = Gauge "dolmen_pool_promised_bytes" ["pool"] "Sizes of thin spaces beyond what they have claimed.";
    PoolUsableBytes = Gauge "dolmen_pool_usable_bytes" ["pool" "resiliency" "copies" "parity"] "Bytes that a space of this kind can still take.";
    PoolDisks = Gauge "dolmen_pool_disks" ["pool" "state"] "Disks of a pool by state: present, retired, absent, spare, idle.";
    PoolSpaces = Gauge "dolmen_pool_spaces" ["pool"] "Spaces of a pool.";
    PoolRedundancyLeft = Gauge "dolmen_pool_redundancy_left_disks" ["pool"] "Disks that the pool may still lose before a space loses data: the least of its spaces that hold data.";
    PoolRoomForLost = Gauge "dolmen_pool_room_for_lost_disks" ["pool"] "Lost disks for which the pool has room to repair them on the others.";
    PoolKeepRoomFor = Gauge "dolmen_pool_keep_room_for_disks" ["pool"] "Lost disks for which the pool is set to keep room.";
    PoolChecksumErrors = Counter "dolmen_pool_checksum_errors_total" ["pool"] "Blocks that did not match their checksum on one copy.";
    PoolHealedBlocks = Counter "dolmen_pool_healed_blocks_total" ["pool"] "Blocks rewritten from another copy or from parity.";
    PoolLostBlocks = Counter "dolmen_pool_lost_blocks_total" ["pool"] "Blocks that no copy could give.";
    PoolUnverifiedBlocks = Counter "dolmen_pool_accepted_unverified_blocks_total" ["pool"] "Blocks accepted unverified after a crash.";
    PoolResyncedBlocks = Counter "dolmen_pool_resynced_blocks_total" ["pool"] "Blocks copied to a disk that had missed them.";
    PoolBlockWrites = Counter "dolmen_pool_block_writes_total" ["pool" "class"] "Writes by class: fresh, rewrite, overwrite.";
    PoolFlushes = Counter "dolmen_pool_flushes_total" ["pool" "kind"] "Flushes by kind: own reached the disks, shared was covered by another one.";
    PoolTablePageReads = Counter "dolmen_pool_table_page_reads_total" ["pool"] "Table pages read.";
    PoolTablePageWrites = Counter "dolmen_pool_table_page_writes_total" ["pool"] "Table pages written.";
    WriteCacheSizeBytes = Gauge "dolmen_write_cache_size_bytes" ["pool" "survives"] "Bytes that a write cache holds when it is full.";
    WriteCacheWaitingBytes = Gauge "dolmen_write_cache_waiting_bytes" ["pool" "survives"] "Bytes in a write cache that are not destaged.";
    WriteCacheFilledBytes = Counter "dolmen_write_cache_filled_bytes_total" ["pool" "survives"] "Bytes written to a write cache.";
    WriteCacheDestagedBytes = Counter "dolmen_write_cache_destaged_bytes_total" ["pool" "survives"] "Bytes destaged from a write cache.";

    DiskInfo = Gauge "dolmen_disk_info" ["pool" "slot" "id" "path" "model" "serial" "enclosure" "bay"] "Identity and place of a disk; always 1.";
    DiskState = Gauge "dolmen_disk_state" ["pool" "slot" "state"] "1 for the state of a disk, 0 for the others: present, retired, absent, spare, idle.";
    DiskSizeBytes = Gauge "dolmen_disk_size_bytes" ["pool" "slot"] "Size of a disk.";
    DiskBytes = Gauge "dolmen_disk_bytes" ["pool" "slot" "state"] "Room for slabs on a disk by state: used, free.";
    DiskScore = Gauge "dolmen_disk_score_ratio" ["pool" "slot"] "Score of a disk that is here: 1 is well, 0 is failing.";
    DiskTimesSlower = Gauge "dolmen_disk_times_slower" ["pool" "slot"] "Latency of a slow disk as a multiple of that of the others of its sort; absent for others.";
    DiskReadErrors = Counter "dolmen_disk_read_errors_total" ["pool" "slot"] "Reads that failed.";
    DiskWriteErrors = Counter "dolmen_disk_write_errors_total" ["pool" "slot"] "Writes and flushes that failed.";
    DiskChecksumErrors = Counter "dolmen_disk_checksum_errors_total" ["pool" "slot"] "Blocks that did not match their checksum.";
    DiskTimedOutReads = Counter "dolmen_disk_timed_out_reads_total" ["pool" "slot"] "Reads that timed out and that other disks answered.";
    DiskSmartPassed = Gauge "dolmen_disk_smart_passed" ["pool" "slot"] "1 if the disk expects to go on working (SMART), 0 if it predicts a failure.";
    DiskSmartFailing = Gauge "dolmen_disk_smart_failing" ["pool" "slot"] "1 if the disk reports that it fails (SMART): failed test, little spare, unreliable or read-only.";
    DiskTemperature = Gauge "dolmen_disk_temperature_celsius" ["pool" "slot"] "Temperature of a disk.";
    DiskWear = Gauge "dolmen_disk_wear_ratio" ["pool" "slot"] "Part of its life that an NVMe disk has used; may exceed 1.";
    DiskPowerOn = Gauge "dolmen_disk_power_on_seconds" ["pool" "slot"] "Time for which a disk has run.";
    DiskReallocated = Gauge "dolmen_disk_reallocated_sectors" ["pool" "slot"] "Sectors that were reallocated.";
    DiskPending = Gauge "dolmen_disk_pending_sectors" ["pool" "slot"] "Sectors that could not be read and wait to be written.";
    DiskUncorrectable = Gauge "dolmen_disk_uncorrectable_sectors" ["pool" "slot"] "Sectors that could not be repaired.";
    DiskMediaErrors = Gauge "dolmen_disk_media_errors" ["pool" "slot"] "Errors of the media of an NVMe disk.";

    DiskReads = Counter "dolmen_disk_reads_total" ["pool" "slot"] "Reads of a disk that succeeded.";
    DiskReadBytes = Counter "dolmen_disk_read_bytes_total" ["pool" "slot"] "Bytes of reads.";
    DiskReadDuration = Histogram "dolmen_disk_read_duration_seconds" ["pool" "slot"] "Latency of reads of a disk.";
    DiskWrites = Counter "dolmen_disk_writes_total" ["pool" "slot"] "Writes of a disk that succeeded.";
    DiskWrittenBytes = Counter "dolmen_disk_write_bytes_total" ["pool" "slot"] "Bytes of writes.";
    DiskWriteDuration = Histogram "dolmen_disk_write_duration_seconds" ["pool" "slot"] "Latency of writes of a disk.";
    DiskDiscards = Counter "dolmen_disk_discards_total" ["pool" "slot"] "Discards of a disk that succeeded.";
    DiskDiscardBytes = Counter "dolmen_disk_discard_bytes_total" ["pool" "slot"] "Bytes of discards.";
    DiskDiscardDuration = Histogram "dolmen_disk_discard_duration_seconds" ["pool" "slot"] "Latency of discards of a disk.";
    DiskFlushes = Counter "dolmen_disk_flushes_total" ["pool" "slot"] "Flushes of a disk that succeeded.";
    DiskFlushDuration = Histogram "dolmen_disk_flush_duration_seconds" ["pool" "slot"] "Latency of flushes of a disk.";
    DiskFailedCommands = Counter "dolmen_disk_failed_commands_total" ["pool" "slot"] "Commands of a disk that failed.";
    DiskQueueDepth = Gauge "dolmen_disk_queue_depth" ["pool" "slot"] "Commands under way.";
    DiskQueueSeconds = Counter "dolmen_disk_queue_seconds_total" ["pool" "slot"] "Sum of the times that commands were under way: its rate is the mean queue depth.";
    DiskBusySeconds = Counter "dolmen_disk_busy_seconds_total" ["pool" "slot"] "Time with at least one command under way.";

    SpaceHealth = Gauge "dolmen_space_health" ["pool" "space"] "Health of a space: 0 healthy, 1 warning, 2 unhealthy.";
    SpaceSizeBytes = Gauge "dolmen_space_size_bytes" ["pool" "space"] "Size of a space.";
    SpaceClaimedBytes = Gauge "dolmen_space_claimed_bytes" ["pool" "space"] "Bytes of a space for which room is claimed.";
    SpaceFootprintBytes = Gauge "dolmen_space_footprint_bytes" ["pool" "space"] "Room that a space takes on all disks.";
    SpaceRedundancy = Gauge "dolmen_space_redundancy_disks" ["pool" "space"] "Lost disks that a space is made to survive.";
    SpaceRedundancyLeft = Gauge "dolmen_space_redundancy_left_disks" ["pool" "space"] "Lost disks that a space still survives, at the least.";
    SpaceReads = Counter "dolmen_space_reads_total" ["pool" "space"] "Reads of clients that succeeded.";
    SpaceReadBytes = Counter "dolmen_space_read_bytes_total" ["pool" "space"] "Bytes of reads.";
    SpaceReadDuration = Histogram "dolmen_space_read_duration_seconds" ["pool" "space"] "Latency of reads of clients.";
    SpaceWrites = Counter "dolmen_space_writes_total" ["pool" "space"] "Writes of clients that succeeded.";
    SpaceWrittenBytes = Counter "dolmen_space_write_bytes_total" ["pool" "space"] "Bytes of writes.";
    SpaceWriteDuration = Histogram "dolmen_space_write_duration_seconds" ["pool" "space"] "Latency of writes of clients.";
    SpaceDiscards = Counter "dolmen_space_discards_total" ["pool" "space"] "Discards of clients that succeeded.";
    SpaceDiscardBytes = Counter "dolmen_space_discard_bytes_total" ["pool" "space"] "Bytes of discards.";
    SpaceDiscardDuration = Histogram "dolmen_space_discard_duration_seconds" ["pool" "space"] "Latency of discards of clients.";
    SpaceFlushes = Counter "dolmen_space_flushes_total" ["pool" "space"] "Flushes of clients that succeeded.";
    SpaceFlushDuration = Histogram "dolmen_space_flush_duration_seconds" ["pool" "space"] "Latency of flushes of clients.";
    SpaceFailedRequests = Counter "dolmen_space_failed_requests_total" ["pool" "space"] "Requests of clients that failed.";
    SpaceQueueDepth = Gauge "dolmen_space_queue_depth" ["pool" "space"] "Requests under way.";
    SpaceQueueSeconds = Counter "dolmen_space_queue_seconds_total" ["pool" "space"] "Sum of the times that requests were under way: its rate is the mean queue depth.";
    SpaceBusySeconds = Counter "dolmen_space_busy_seconds_total" ["pool" "space"] "Time with at least one request under way.";

    Jobs = Gauge "dolmen_jobs" ["pool" "state"] "Jobs by state: waiting, running, paused, done, called_off, failed. Ended ones stay for a while.";
    JobProgress = Gauge "dolmen_job_progress_ratio" ["pool" "job_id" "kind"] "Part of a job that is done; only of jobs that have not ended, as all families of a job.";
    JobRunning = Gauge "dolmen_job_running" ["pool" "job_id" "kind"] "1 if a job runs, 0 if it waits or is paused.";
    JobDoneBytes = Gauge "dolmen_job_done_bytes" ["pool" "job_id" "kind"] "Bytes that a job has copied or verified.";
    JobDoneRows = Gauge "dolmen_job_done_rows" ["pool" "job_id" "kind"] "Rows that a job has done.";
    JobElapsed = Gauge "dolmen_job_elapsed_seconds" ["pool" "job_id" "kind"] "Time for which a job has run.";
    JobRemaining = Gauge "dolmen_job_remaining_seconds" ["pool" "job_id" "kind" "estimate"] "Time that a job may still take, by estimate: earliest, latest.";

    VolumeHealth = Gauge "dolmen_volume_health" ["pool" "volume"] "Health of a volume: 0 healthy, 1 warning, 2 unhealthy.";
    VolumeMounted = Gauge "dolmen_volume_mounted" ["pool" "volume"] "1 if a volume is mounted, 0 otherwise.";
    VolumeWanted = Gauge "dolmen_volume_wanted" ["pool" "volume"] "1 if a volume is to be mounted, 0 otherwise.";
    VolumeSizeBytes = Gauge "dolmen_volume_size_bytes" ["pool" "volume"] "Bytes that the file system of a volume can hold.";
    VolumeFreeBytes = Gauge "dolmen_volume_free_bytes" ["pool" "volume"] "Bytes free in the file system of a volume.";
    VolumeInodes = Gauge "dolmen_volume_inodes" ["pool" "volume"] "Inodes that the file system of a volume can hold; absent without a limit.";
    VolumeFreeInodes = Gauge "dolmen_volume_free_inodes" ["pool" "volume"] "Inodes free in the file system of a volume.";
    VolumeUntilFull = Gauge "dolmen_volume_until_full_seconds" ["pool" "volume"] "Time until a volume is full at the rate of the last week; absent if it does not grow.";
}
