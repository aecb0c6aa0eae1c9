"""Documents of the API: a class for each object, a `Literal` for each enumeration.

Made by generate.py from the OpenAPI document of the API. Change that, and run generate.py again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Optional, Sequence

from ._wire import Unsigned

# What shows an attached space as a block device.
AttachedBy = Literal["loop", "ublk", "loop_uring"]

# What has become of what a disk lies on, while its pool is open.
BackingState = Literal["removed", "cut_short", "unplugged"]

# Kind of a check.
CheckKind = Literal["check", "repair", "scrub"]

# Outcome of a check.
CheckResult = Literal["clean", "damaged", "log_not_replayed", "failed"]

# Severity of a finding of a check.
CheckSeverity = Literal["unknown", "warning", "error"]

# Load that a deduplication may cause.
DedupMode = Literal["background", "throughput"]

# What a device of the system is good for.
DeviceState = Literal["empty", "foreign", "member", "unusable", "in_use", "unfit"]

# What a disk is to its pool.
DiskRole = Literal["member", "spare", "retired"]

# Whether a disk takes part.
DiskState = Literal["present", "retired", "absent", "spare", "idle"]

# What kind of error it is. The names are stable; programs decide by them, people read the message.
ErrorCode = Literal[
    "no_such_route",
    "bad_request",
    "bad_name",
    "bad_size",
    "no_such_pool",
    "no_such_space",
    "no_such_disk",
    "no_such_device",
    "no_such_job",
    "no_such_object",
    "name_taken",
    "too_few_disks",
    "no_space",
    "needs_confirmation",
    "foreign_data",
    "unfit_device",
    "device_in_use",
    "read_only",
    "pool_stopped",
    "busy",
    "not_empty",
    "io",
    "permission",
    "missing",
    "unsupported",
    "stopping",
    "config",
    "internal",
]

# What has happened. The names are stable; programs decide by them, people read the text.
EventCode = Literal[
    "daemon_started",
    "daemon_ended",
    "pool_created",
    "pool_opened",
    "pool_left_closed",
    "pool_exported",
    "pool_destroyed",
    "pool_unknown",
    "disk_added",
    "disk_leaves",
    "disk_excluded",
    "disk_stays",
    "disk_removed",
    "disk_offline",
    "disk_online",
    "disk_left_out",
    "disk_grew",
    "setting_changed",
    "space_created",
    "space_deleted",
    "space_trashed",
    "space_restored",
    "space_purged",
    "space_renamed",
    "space_resized",
    "volume_mounted",
    "volume_unmounted",
    "space_attached",
    "space_detached",
    "space_served",
    "space_unserved",
    "job_begun",
    "job_paused",
    "job_resumed",
    "job_done",
    "job_called_off",
    "job_failed",
    "trouble_began",
    "trouble_grew",
    "trouble_over",
]

# File system of a volume.
FileSystemKind = Literal["xfs", "btrfs", "ext4"]

# Whether a pool fills.
FillState = Literal["unknown", "steady", "filling"]

# What is the matter. The names are stable; programs decide by them, people read the text.
FindingCode = Literal[
    "pool_read_only",
    "pool_stopped",
    "pool_not_open",
    "disk_absent",
    "disk_unfit",
    "disk_file_removed",
    "disk_cut_short",
    "disk_unplugged",
    "disk_grown",
    "disk_errors",
    "disk_slow",
    "disk_failing",
    "disk_defects",
    "disk_backing_full",
    "disk_labels_lost",
    "rows_stale",
    "metadata_on_few_disks",
    "replacement_waits",
    "removal_waits",
    "space_out_of_reach",
    "space_degraded",
    "space_data_lost",
    "space_accepted_unverified",
    "space_corrupt_here",
    "rows_share_enclosure",
    "pool_nearly_full",
    "pool_filling",
    "room_for_repair_used",
    "space_lacks_reserve",
    "space_lacks_disks",
    "space_full",
    "space_nearly_full",
    "attached_waits",
    "attachment_ended",
    "volume_not_mounted",
    "volume_not_understood",
    "volume_slow",
    "volume_nearly_full",
    "volume_filling",
    "volume_inodes_nearly_used",
    "volume_errors",
    "share_down",
    "listener_closed",
    "certificate_trouble",
]

# How something is. Ordered: the worst of several is their maximum.
Health = Literal["healthy", "warning", "unhealthy"]

# What a pool is opened for.
ImportMode = Literal["write", "read", "confirmed"]

# How content that a flush has covered is written over.
Integrity = Literal["relaxed", "strict"]

# What a job does, in one word, such as `resync`, `replace`, `drain`, `scrub`, `write_cache`, `rebalance`, `convert`,
# `purge` or `empty`. A later daemon may have others.
JobKind = str

# How much of the disks' time a job takes at most while clients use the pool.
JobPriority = Literal["low", "normal", "high"]

# How far a job is.
JobState = Literal["waiting", "running", "paused", "done", "called_off", "failed"]

# State of the mount of a volume. While it is `mounted` or `unmounted`, no step is under way: the next request for the
# volume waits for none.
MountState = Literal["making", "mounting", "mounted", "unmounting", "unmounted"]

# What a finding, an event or an answer is about.
ObjectKind = Literal["daemon", "pool", "disk", "space", "job"]

# Whether a pool can be written.
PoolState = Literal["writable", "read_only", "stopped", "closed"]

# Whether rows are claimed when they are first written, or all at once.
Provisioning = Literal["thin", "fixed"]

# How a space survives the loss of disks.
ResiliencyKind = Literal["simple", "span", "mirror", "parity"]

# Rights on a share.
ShareAccess = Literal["read_only", "read_write"]

# Kind of an account.
ShareAccountKind = Literal["user", "group"]

# Protocol of a share.
ShareProtocol = Literal["smb", "nfs"]

# State of a share over one protocol.
ShareState = Literal["unknown", "up", "answers", "down", "off"]

# Step of a share that can fail.
ShareStep = Literal["change", "probe", "configuration", "connection", "protocol", "listing"]

# What slabs are for.
SlabPurpose = Literal["space", "trash", "deleted", "write_cache", "shadow", "conversion"]

# How a space is to be attached.
Transport = Literal["auto", "loop", "ublk", "loop_uring"]

# Purpose of a volume, which decides its file system and options.
VolumePurpose = Literal["files", "documents", "vms", "database", "backup"]

# State of a volume.
VolumeState = Literal["making", "ready", "foreign", "deleting", "not_understood"]


@dataclass
class AddDisks:
    """Adds disks to a pool."""

    disks: Sequence[str]
    """Absolute paths of disks, partitions or files."""

    destroy: Optional[Sequence[str]] = None
    """Those of `disks`, as written there, whose content may be destroyed."""

    enclosures: Optional[Sequence[str]] = None
    """What each disk is in, in the order of `disks`; empty, or left out, for a disk by itself."""

    seen: Optional[Sequence[str]] = None
    """The `identity` of each of `destroy` as it was listed, in that order: the change is refused where another device,
    or other content, is at the path by now. Empty, or left out, for one that is not compared."""

    spare: Optional[bool] = None
    """Whether they are to be spares, which take no rows before a disk is lost."""

    stays: Optional[bool] = None
    """Whether rows that are there stay where they are; otherwise a rebalance of the pool begins behind this."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class AdoptVolume:
    """Makes a volume of a space with a file system."""

    mount_point: Optional[str] = None
    """Place to mount it on; `/srv/POOL/NAME` when left out."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class AttachSpace:
    """Attaches a space as a block device."""

    transport: Optional[Transport] = None
    """In which way."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Attachment:
    """A space that is attached as a block device."""

    device: str
    """The device behind it."""

    path: str
    """The stable name: `/dev/dolmen/POOL/SPACE`."""

    pool: str
    """The pool."""

    space: str
    """The space."""

    survives_daemon: bool
    """Whether I/O only pauses when the daemon dies, and goes on with the next one."""

    used_by: List[str]
    """Where file systems on it are mounted, and who else uses it."""

    limits: List[str] = field(default_factory=list)
    """What this kernel cannot do."""

    not_faster_because: Optional[str] = None
    """Why a faster way was not taken, in the answer to an attach that left the choice."""

    transport: Optional[AttachedBy] = None
    """What kind of device that is."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Attachments:
    """All attached spaces."""

    attachments: List[Attachment]
    """By pool and space."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchSpace:
    """Measures a space under load. Profiles that write overwrite it."""

    against: Optional[str] = None
    """A second space, as POOL/SPACE: it is compared with the first."""

    destroy: Optional[Sequence[str]] = None
    """Names of all measured spaces as POOL/SPACE, to confirm that their content is lost; for profiles that write."""

    outstanding: Optional[Sequence[Unsigned]] = None
    """Outstanding I/Os in place of those of the profiles."""

    profiles: Optional[Sequence[str]] = None
    """Profiles, or groups of them; usually `load`."""

    rounds: Optional[Unsigned] = None
    """Rounds; usually 3, and 5 with two spaces."""

    runtime_s: Optional[Unsigned] = None
    """Seconds that each load is measured; usually 10."""

    size_bytes: Optional[Unsigned] = None
    """Bytes of each space that are used, at most; usually 32 GiB."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class BenchmarkComparison:
    """A space against the first one, under one load."""

    against: str
    """The first one."""

    flush: str
    """Flushes beside writes."""

    outstanding: Unsigned
    """Outstanding I/Os of all workers."""

    profile: str
    """Name of the profile."""

    ratio: BenchmarkRatio
    """Rates of the space divided by those of the first one."""

    target: str
    """Space, as POOL/SPACE."""

    file_bytes: Optional[Unsigned] = None
    """Bytes of the file that was read or written once; absent otherwise."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkFigure:
    """Figure of several rounds."""

    least: float
    """The least."""

    median: float
    """Median of the rounds."""

    most: float
    """The largest."""

    spread_percent: Optional[float] = None
    """Largest less least, in percent of the median; absent with one round."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkFigures:
    """Figures of a benchmark."""

    comparisons: List[BenchmarkComparison]
    """Comparisons with the first space."""

    is_complete: bool
    """Whether everything was measured."""

    knees: List[BenchmarkKnee]
    """Knees of curves."""

    points: List[BenchmarkPoint]
    """Points of all curves."""

    profiles: List[BenchmarkProfile]
    """Profiles."""

    rounds: Unsigned
    """Rounds."""

    runtime_s: Unsigned
    """Seconds that each load was measured."""

    started_s: Unsigned
    """Begin, in seconds since 1970."""

    targets: List[BenchmarkTarget]
    """Measured spaces."""

    warnings: List[str]
    """Remarks that a conclusion needs."""

    fio_version: Optional[str] = None
    """Version of fio."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkGroup:
    """Group of profiles."""

    name: str
    """Its name."""

    title: str
    """What its profiles have in common."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkKnee:
    """Load with the greatest power of a curve: throughput divided by mean latency."""

    flush: str
    """Flushes beside writes."""

    profile: str
    """Name of the profile."""

    target: str
    """Space, as POOL/SPACE."""

    outstanding: Optional[Unsigned] = None
    """Outstanding I/Os; absent where the curve was not followed that far."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkPoint:
    """All rounds of one load on one space. Latencies are medians of the rounds."""

    bytes_per_s: BenchmarkFigure
    """Bytes a second."""

    flush: str
    """Flushes beside writes: `none`, `every 32` or `end`."""

    ios_per_s: BenchmarkFigure
    """I/Os a second."""

    is_noisy: bool
    """Whether the rounds lie too far apart."""

    mean_ns: float
    """Mean latency."""

    outstanding: Unsigned
    """Outstanding I/Os of all workers."""

    p50_ns: float
    """Latency within which 50 % of the I/Os were done."""

    p95_ns: float
    """Of 95 %."""

    p999_ns: float
    """Of 99.9 %."""

    p99_ns: float
    """Of 99 %."""

    profile: str
    """Name of the profile."""

    rounds: Unsigned
    """Rounds."""

    target: str
    """Space, as POOL/SPACE."""

    file_bytes: Optional[Unsigned] = None
    """Bytes of the file that was read or written once; absent otherwise."""

    writes_per_flush: Optional[float] = None
    """Writes for each flush, as they happened; absent without flushes."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkProfile:
    """Profile of load."""

    name: str
    """Its name."""

    reads_percent: Unsigned
    """Percent of reads. Below 100, it overwrites what it runs on."""

    summary: str
    """Its load in words."""

    title: str
    """What it stands for."""

    group: Optional[str] = None
    """Group that it belongs to; absent in a report."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkRatio:
    """Ratio of the rates of two spaces, round by round."""

    least: float
    """The least."""

    median: float
    """Median of the rounds."""

    most: float
    """The largest."""

    verdict: str
    """Verdict: `faster`, `slower`, `equal`, `too_noisy`, `too_few_rounds` or `other_flushes`."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkReport:
    """Report of a benchmark."""

    figures: BenchmarkFigures
    """Figures."""

    file: str
    """File on the host of the daemon with each measurement by itself, as `dolmen bench --json` writes it."""

    job: Unsigned
    """Number of the job that measured."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkSummary:
    """Report in the list."""

    is_complete: bool
    """Whether everything was measured."""

    job: Unsigned
    """Number of the job that measured."""

    points: Unsigned
    """Points that were measured."""

    profiles: List[str]
    """Names of its profiles."""

    spaces: List[str]
    """Spaces, as POOL/SPACE."""

    started_s: Unsigned
    """Begin, in seconds since 1970."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkTarget:
    """Measured space."""

    name: str
    """Its name, as POOL/SPACE."""

    notes: List[str]
    """Remarks about caches."""

    what: str
    """What the load was sent to."""

    working_set_bytes: Unsigned
    """Bytes of it that were used."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class BenchmarkWork:
    """Benchmark under way."""

    done: Unsigned
    """Measurements done."""

    job: Unsigned
    """Number of its job."""

    total: Unsigned
    """Measurements in all."""

    left_s: Optional[Unsigned] = None
    """Seconds that it may still take, as far as that is known."""

    step: Optional[str] = None
    """Step that it is at, in words; absent before the first."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Benchmarks:
    """Profiles, the benchmark under way, and reports that are kept."""

    groups: List[BenchmarkGroup]
    """Groups of profiles."""

    profiles: List[BenchmarkProfile]
    """Profiles."""

    reports: List[BenchmarkSummary]
    """Reports, the newest first; 20 at most."""

    schema: Unsigned
    """Version of the documents of the API."""

    work: Optional[BenchmarkWork] = None
    """Benchmark under way."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Cause:
    """Something that is so, with what it comes from."""

    text: str
    """In words."""

    causes: List[Cause] = field(default_factory=list)
    """What it comes from."""

    code: Optional[FindingCode] = None
    """What is the matter, where this is a finding of its own."""

    since_s: Optional[Unsigned] = None
    """Since when, in seconds since 1970 by the clock of the system, where that was seen."""

    todo: List[str] = field(default_factory=list)
    """What somebody can do about it."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Change:
    """The answer to a request for a change."""

    is_changed: bool
    """Whether anything was changed; `false` for a dry run, and when all was as wanted before."""

    message: str
    """One sentence for people."""

    plan: Plan
    """What would happen, or has happened."""

    schema: Unsigned
    """Version of the documents of the API."""

    attachment: Optional[Attachment] = None
    """How the space is attached."""

    export: Optional[Export] = None
    """How the space is served."""

    further_jobs: List[Job] = field(default_factory=list)
    """Further jobs that go on with it beside that one or behind it."""

    job: Optional[Job] = None
    """The job that goes on with it."""

    pool: Optional[Pool] = None
    """The pool, afterwards."""

    share: Optional[Share] = None
    """The share, afterwards."""

    space: Optional[Space] = None
    """The space, afterwards."""

    volume: Optional[Volume] = None
    """The volume, afterwards."""

    volume_plan: Optional[VolumePlan] = None
    """How the file system of a volume is made and mounted."""

    warnings: List[str] = field(default_factory=list)
    """What they should know beside."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class CheckFinding:
    """One finding of a check."""

    severity: CheckSeverity
    """Its severity."""

    text: str
    """Line of the tool."""

    inode: Optional[Unsigned] = None
    """Inode that it names."""

    path: Optional[str] = None
    """Path in the volume that it names."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class CheckVolume:
    """Checks a volume that is not mounted, or scrubs a mounted btrfs."""

    destroy: Optional[str] = None
    """To repair it, its name, typed again by whoever wants that."""

    drop_log: Optional[bool] = None
    """Drop the log in the repair, with the changes in it, where no mount replays it."""

    repair: Optional[bool] = None
    """Repair what is found, which may lose parts of files."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class CompactVolume:
    """Empties rows that hold little, and gives them back to the pool."""

    budget_bytes: Optional[Unsigned] = None
    """Bytes that may be moved; no bound when left out."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class ConvertSpace:
    """Converts a space while it is used. What is left out stays as it is, as far as it fits the rest; without anything,
    its rows are laid again as they are, as wide as the pool allows."""

    columns: Optional[Unsigned] = None
    """Data columns, 0 for automatic; automatic when left out and the resiliency is of another kind."""

    copies: Optional[Unsigned] = None
    """Copies of a mirror, 2 to 4; when left out those that it has, else 2."""

    integrity: Optional[Integrity] = None
    """Relaxed or strict; as usual when left out and the resiliency is of another kind."""

    interleave_bytes: Optional[Unsigned] = None
    """Bytes written to one column before the next; as usual when left out and the resiliency is of another kind."""

    parity: Optional[Unsigned] = None
    """Parity columns of a space with parity, 1 or 2; when left out those that it has, else 1."""

    provisioning: Optional[Provisioning] = None
    """Thin or fixed."""

    resiliency: Optional[ResiliencyKind] = None
    """How it is to survive the loss of disks."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Counters:
    """What was counted."""

    driver: str
    """How requests reach the kernel: `io_uring` or `threads`."""

    messages: Unsigned
    """Messages from other threads to the engine's."""

    polls: Unsigned
    """Times that a task was polled."""

    pools: List[PoolTally]
    """By pool."""

    schema: Unsigned
    """Version of the documents of the API."""

    unparks: Unsigned
    """Times that another thread had to wake it."""

    fillings: Optional[Unsigned] = None
    """Simulated fillings of a pool on the engine's thread, for which clients waited."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class CreatePool:
    """Makes a pool."""

    disks: Sequence[str]
    """Absolute paths of disks, partitions or files."""

    name: str
    """Its name."""

    destroy: Optional[Sequence[str]] = None
    """Those of `disks`, as written there, whose content may be destroyed."""

    enclosures: Optional[Sequence[str]] = None
    """What each disk is in, in the order of `disks`: those with the same name may fail together. Empty for a disk by
    itself, as are those that are left out. Not beside `fault_domains`."""

    fault_domains: Optional[Sequence[Unsigned]] = None
    """A fault domain for each disk; 0, or missing, for itself alone."""

    seen: Optional[Sequence[str]] = None
    """The `identity` of each of `destroy` as it was listed, in that order: the change is refused where another device,
    or other content, is at the path by now. Empty, or left out, for one that is not compared."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class CreateShare:
    """Shares a folder of a volume."""

    name: str
    """Name that clients see."""

    protocols: Sequence[ShareProtocol]
    """Protocols that are to offer it."""

    accounts: Optional[Sequence[ShareAccountGrant]] = None
    """Rights of accounts, over SMB."""

    folder: Optional[str] = None
    """Folder in the volume; all of it when left out."""

    is_encryption_optional: Optional[bool] = None
    """Let clients of SMB in that do not encrypt."""

    networks: Optional[Sequence[ShareNetworkGrant]] = None
    """Rights of hosts and networks, over NFS."""

    time_machine_bytes: Optional[Unsigned] = None
    """Offer Time Machine over SMB, with this bound in bytes for all backups of Macs."""

    dry_run: Optional[bool] = None
    """Return only the plan."""


@dataclass
class CreateSpace:
    """Makes a space."""

    name: str
    """Its name."""

    resiliency: ResiliencyKind
    """How it survives the loss of disks."""

    size_bytes: Unsigned
    """Its size, a multiple of 4 KiB."""

    columns: Optional[Unsigned] = None
    """Data columns; automatic when left out."""

    copies: Optional[Unsigned] = None
    """Copies of a mirror, 2 to 4; 2 when left out."""

    integrity: Optional[Integrity] = None
    """Relaxed or strict; with parity strict, otherwise relaxed, when left out."""

    interleave_bytes: Optional[Unsigned] = None
    """Bytes written to one column before the next; when left out 256 KiB, with parity 64 KiB."""

    parity: Optional[Unsigned] = None
    """Parity columns of a space with parity, 1 or 2; 1 when left out."""

    provisioning: Optional[Provisioning] = None
    """Thin or fixed."""

    row_bytes: Optional[Unsigned] = None
    """Bytes of a row, fixed when the space is made. When left out: of a thin space 8 MiB up to 2 TiB, then a 2^18th of
    its size up to 64 MiB, and never below 32 MiB with two parities; of a fixed one 64 MiB; of either 256 MiB above 64
    TiB."""

    sector_bytes: Optional[Unsigned] = None
    """Logical sector, 512 or 4096. When left out: 512, and 4096 where every disk of the pool has sectors of 4096
    bytes."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class CreateVolume:
    """Makes a volume on a new space."""

    name: str
    """Its name, and that of its space."""

    purpose: VolumePurpose
    """What the volume is for."""

    resiliency: ResiliencyKind
    """How the space survives the loss of disks."""

    size_bytes: Unsigned
    """Size of the space, a multiple of 4 KiB."""

    columns: Optional[Unsigned] = None
    """Data columns; automatic when left out."""

    copies: Optional[Unsigned] = None
    """Copies of a mirror, 2 to 4; 2 when left out."""

    file_system: Optional[FileSystemKind] = None
    """File system; that of the purpose when left out."""

    integrity: Optional[Integrity] = None
    """Relaxed or strict; with parity strict, otherwise relaxed, when left out."""

    interleave_bytes: Optional[Unsigned] = None
    """Bytes written to one column before the next; when left out as for a space."""

    label: Optional[str] = None
    """Label of the file system; none when left out."""

    mount_point: Optional[str] = None
    """Place to mount it on, an absolute path; `/srv/POOL/NAME` when left out."""

    oldest_kernel: Optional[str] = None
    """Oldest kernel that is to mount it, on this host or another, such as `6.1`; that of this host when left out."""

    parity: Optional[Unsigned] = None
    """Parity columns of a space with parity, 1 or 2; 1 when left out."""

    provisioning: Optional[Provisioning] = None
    """Thin or fixed."""

    row_bytes: Optional[Unsigned] = None
    """Bytes of a row; when left out as for a space, but 4 MiB of a thin mirror, simple or span for files or documents
    up to 1 TiB."""

    sector_bytes: Optional[Unsigned] = None
    """Logical sector, 512 or 4096; when left out as for a space."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Dedup:
    """Deduplication of a volume."""

    file_system: FileSystemKind
    """File system of the volume."""

    name: str
    """Name of the volume."""

    now_s: Unsigned
    """Seconds from 1970 to now, by the clock of the daemon."""

    pool: str
    """Pool of the volume."""

    schema: Unsigned
    """Version of the documents of the API."""

    last: Optional[DedupRun] = None
    """Last run."""

    next_s: Optional[Unsigned] = None
    """Seconds from 1970 to the next run of the schedule."""

    policy: Optional[DedupPolicy] = None
    """Policy; absent if deduplication is off."""

    unsupported: Optional[str] = None
    """Reason why its files cannot share bytes; absent if they can."""

    work: Optional[DedupWork] = None
    """Work under way."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class DedupPolicy:
    """Policy of the deduplication of a volume."""

    excluded_folders: List[str]
    """Folders that it leaves out, with all below them; paths within the volume."""

    excluded_names: List[str]
    """Patterns of names that it leaves out: `*` is any number of bytes, `?` is one."""

    memory_bytes: Unsigned
    """Memory that it may take."""

    min_age_days: Unsigned
    """Days since the last change of a file, at least."""

    min_file_bytes: Unsigned
    """Bytes of a file, at least."""

    mode: DedupMode
    """Load that it may cause."""

    schedule: str
    """Times of runs: `never`, `hourly`, `daily 03:00` or `weekly sunday 02:00`, in local time."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class DedupRun:
    """Last deduplication of a volume."""

    began_s: Unsigned
    """Seconds from 1970 to its beginning."""

    ended_s: Unsigned
    """Seconds from 1970 to its end."""

    held_bytes: Unsigned
    """Held elsewhere: bytes that lost an owner and have another one outside the run."""

    is_stopped: bool
    """Whether it ended before all files were looked at."""

    mode: DedupMode
    """Load that it caused."""

    released_bytes: Unsigned
    """Given back to the pool: claimed bytes of the space before the run less after it; writers change it too."""

    saved_bytes: Unsigned
    """Saved in the volume: bytes of the device that lost their last owner."""

    compressed_bytes: Optional[Unsigned] = None
    """Part of the saved bytes that was compressed; they are counted as files read them."""

    freed_bytes: Optional[Unsigned] = None
    """Bytes by which the free room of the volume grew; writers change it too."""

    undone_bytes: Optional[Unsigned] = None
    """Bytes that undos have given to files since the run."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class DedupWork:
    """Deduplication, compaction, estimate or undo under way."""

    done_bytes: Unsigned
    """Bytes that the step has done."""

    files: Unsigned
    """Files that the step has passed."""

    is_yielding: bool
    """Whether it stands so that clients get the disks."""

    job: Unsigned
    """Number of its job."""

    saved_bytes: Unsigned
    """Bytes saved so far."""

    total_bytes: Unsigned
    """Bytes that the step has to do; 0 if that is unknown."""

    step: Optional[str] = None
    """Step that its process is at; absent between two processes."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class DeleteSpace:
    """Deletes a space."""

    destroy: Optional[str] = None
    """To purge it, its name, typed again by whoever wants it gone."""

    purge: Optional[bool] = None
    """For good and at once, instead of into the trash."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Destroy:
    """Destroys a pool or deletes a space."""

    destroy: Optional[str] = None
    """Its name, typed again. Not needed for a dry run."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class DetachSpace:
    """Detaches a space."""

    discard_unflushed: Optional[str] = None
    """Its name, typed again: what was written and cannot be flushed, because disks are away, is discarded."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Device:
    """A device of the system that belongs to no open pool."""

    path: str
    """Where it is."""

    state: DeviceState
    """What it is good for."""

    what: str
    """What it holds, or why it cannot be used."""

    has_left: Optional[bool] = None
    """Whether that pool is open here and does not have it any more: it was removed, replaced or done without."""

    identity: Optional[str] = None
    """Text that another device at this path, or other content, does not have. It means nothing by itself; `seen` of a
    change takes it."""

    pool: Optional[str] = None
    """The pool that it says it belongs to."""

    pool_disk_count: Optional[Unsigned] = None
    """How many disks it says that pool has."""

    size_bytes: Optional[Unsigned] = None
    """Its size, where it could be opened."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Devices:
    """Devices that belong to no open pool."""

    devices: List[Device]
    """By path."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Df:
    """Where the bytes of a pool are. `raw` = `metadata` + `tail` + `data`, and `data` = `used` + `free`, over the disks
    that are here."""

    claimed_bytes: Unsigned
    """Of `used`, addresses of spaces for which room is claimed."""

    data_bytes: Unsigned
    """Of them, room for slabs."""

    disks: List[DiskRoom]
    """Room on each disk, by slot."""

    fits: List[Fits]
    """What still fits, at each level of protection."""

    free_bytes: Unsigned
    """Of `data`, not used."""

    metadata_bytes: Unsigned
    """Of them, labels, log and the pool's metadata."""

    pool: str
    """The pool."""

    promised_bytes: Unsigned
    """Sizes that thin spaces were given beyond what is claimed."""

    raw_bytes: Unsigned
    """The disks themselves."""

    redundancy_bytes: Unsigned
    """Of `used`, their further copies and parity."""

    reserve_bytes: Unsigned
    """Of `free`, kept for moves and repairs."""

    schema: Unsigned
    """Version of the documents of the API."""

    tables_bytes: Unsigned
    """Of `used`, checksums, states, headers, and rounding up."""

    tail_bytes: Unsigned
    """Of them, left empty at the end, so that a disk may lose a few megabytes there."""

    used_bytes: Unsigned
    """Of that, used by slabs."""

    absent_disks: List[str] = field(default_factory=list)
    """Names of disks that are absent. Of the figures, the parts of `used` alone count what lies on them."""

    kept_bytes: Optional[Unsigned] = None
    """Of `free`, kept beside that so that lost disks can be repaired on the others, as rows of two copies find it."""

    trash_bytes: Optional[Unsigned] = None
    """Of `used`, spaces in the trash and those that are being purged, copies and tables included: what a purge gives
    back."""

    write_cache_bytes: Optional[Unsigned] = None
    """Of `used`, write caches of spaces with parity, copies and tables included."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Disk:
    """A disk of a pool."""

    checksum_errors: Unsigned
    """Blocks that did not match their checksum."""

    data_bytes: Unsigned
    """Room for slabs."""

    fault_domain: Unsigned
    """What may fail as one with it; 0 for itself alone."""

    free_bytes: Unsigned
    """Of it, not used by any slab."""

    id: str
    """Its identity, which stands on it."""

    is_voter: bool
    """Whether it carries log and metadata."""

    read_errors: Unsigned
    """Reads that failed, as far as this host remembers: what it counted ends with an export of the pool."""

    size_bytes: Unsigned
    """Its size."""

    slot: Unsigned
    """Its place in the pool."""

    state: DiskState
    """Whether it takes part."""

    write_errors: Unsigned
    """Writes and flushes that failed."""

    backing_state: Optional[BackingState] = None
    """What has become of what it lies on, of one that takes part all the same."""

    bay: Optional[str] = None
    """What people call its bay."""

    enclosure: Optional[str] = None
    """The name of that, if it has one."""

    gained_bytes: Optional[Unsigned] = None
    """Room for slabs that its device has gained since, and that is not used: `GrowDisk` takes it into use."""

    last_path: Optional[str] = None
    """Where it was seen last, of one that is absent, as far as this host knows."""

    path: Optional[str] = None
    """Where it is found now."""

    score: Optional[Unsigned] = None
    """How well it is, from 0 to 100, by what is known of it here: errors that nobody has acknowledged, how fast it is
    beside the others, and what it lies on. Of one that is absent nothing is known."""

    smart: Optional[Smart] = None
    """What it says of itself, of one that does."""

    smart_silence: Optional[str] = None
    """Why nothing is known of that."""

    timed_out_reads: Optional[Unsigned] = None
    """Reads that were not answered in time, and were asked of other disks."""

    times_slower: Optional[Unsigned] = None
    """How many times as long it takes as the other disks of its sort, if that is many."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class DiskFigures:
    """What the engine asked of a disk: data, tables, log and labels, for clients, jobs and itself."""

    id: str
    """Its identity."""

    load: Load
    """What was asked of it."""

    name: str
    """Where it is."""

    pool: str
    """The pool."""

    slot: Unsigned
    """Its place in the pool."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class DiskRoom:
    """Room on one disk."""

    data_bytes: Unsigned
    """Room for slabs."""

    free_bytes: Unsigned
    """Of it, not used."""

    name: str
    """Where it is, or its identity."""

    raw_bytes: Unsigned
    """The disk itself."""

    reserve_bytes: Unsigned
    """Of that, kept for moves and repairs."""

    slot: Unsigned
    """Its place in the pool."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class DiskSlabs:
    """Cells of a disk."""

    cells: List[SlabCell]
    """Its cells, in order of address: as many as were asked for, but no more than it has allocation units. They differ
    by one allocation unit at most."""

    free_units: Unsigned
    """Of them, those that no slab has."""

    is_absent: bool
    """Whether it is absent: the cells are what the pool has on record of it."""

    name: str
    """Where it is, or its identity."""

    slot: Unsigned
    """Its place in the pool."""

    stale_units: Unsigned
    """Of them, those of slabs that miss something."""

    units: Unsigned
    """Its allocation units."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class DiskTally:
    """What was asked of a disk."""

    discards: Unsigned
    """Discards and zeroings."""

    durable_writes: Unsigned
    """Writes that had to be durable by themselves."""

    errors: Unsigned
    """Commands that failed."""

    flushes: Unsigned
    """Flushes."""

    name: str
    """Where it is, or its identity."""

    read_bytes: Unsigned
    """Bytes of reads."""

    reads: Unsigned
    """Reads."""

    slot: Unsigned
    """Its place in the pool."""

    write_bytes: Unsigned
    """Bytes of writes."""

    writes: Unsigned
    """Writes."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Disks:
    """The disks of a pool."""

    disks: List[Disk]
    """By slot."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class DrainWriteCache:
    """Sets from how much on a write cache is emptied, and how fast. What is left out stays as it is."""

    bytes_per_s_max: Optional[Unsigned] = None
    """Bytes a second that are put in place at most while nobody waits for room, 1 MiB or more; 0 for as many as the
    disks take."""

    fill_percent: Optional[Unsigned] = None
    """Percent of it that wait to be put in place before that begins, 5 to 90."""

    survives: Optional[Unsigned] = None
    """Disks that the spaces that it is for may lose; may be left out where the pool has one write cache."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class EnableDedup:
    """Sets the policy of deduplication. What is left out stays, or is as usual."""

    excluded_folders: Optional[Sequence[str]] = None
    """Folders that it leaves out, with all below them; paths within the volume."""

    excluded_names: Optional[Sequence[str]] = None
    """Patterns of names that it leaves out: `*` is any number of bytes, `?` is one."""

    memory_bytes: Optional[Unsigned] = None
    """Memory that it may take, 40 MiB at least; usually 256 MiB."""

    min_age_days: Optional[Unsigned] = None
    """Days since the last change of a file, at least; usually 3."""

    min_file_bytes: Optional[Unsigned] = None
    """Bytes of a file, at least; usually 32 KiB."""

    mode: Optional[DedupMode] = None
    """Load that it may cause; usually `background`."""

    off: Optional[bool] = None
    """Take the policy and its schedule away; nothing else may be set."""

    schedule: Optional[str] = None
    """Times of runs: `never`, `hourly`, `daily 03:00` or `weekly sunday 02:00`; usually `weekly sunday 02:00`."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class ErrorBody:
    """An error."""

    code: ErrorCode
    """What kind of error."""

    message: str
    """What was being done, on what, what was found, and what happens now. Lower case, no full stop."""

    causes: List[str] = field(default_factory=list)
    """Why, from the nearest cause to the first."""

    hint: Optional[str] = None
    """What to do about it."""

    object: Optional[str] = None
    """The name of the pool, space, disk or path that it is about."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ErrorDocument:
    """The answer to a request that failed."""

    error: ErrorBody
    """What went wrong."""

    schema: Optional[Unsigned] = None
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class EstimateDedup:
    """Estimates what a deduplication would save."""

    sample_bytes: Optional[Unsigned] = None
    """Bytes that are read at least; 256 MiB when left out. A hundredth of the files is read in any case."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Eta:
    """How long a job may still take: a range, because rates vary."""

    earliest_s: Unsigned
    """If it goes as fast as it ever went."""

    latest_s: Unsigned
    """If it goes as slowly as it ever went."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Event:
    """Something that has happened."""

    at_s: Unsigned
    """When it was seen, in seconds since 1970 by the clock of the system."""

    code: EventCode
    """What."""

    number: Unsigned
    """Its number. Numbers grow by one, also over restarts of the daemon."""

    object: Object
    """With what."""

    text: str
    """That, in words."""

    finding: Optional[FindingCode] = None
    """Of a trouble, what is or was the matter."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Events:
    """Events with numbers behind the one that was asked for."""

    dropped: Unsigned
    """Events behind the number that was asked for that are kept no more."""

    events: List[Event]
    """By number."""

    last: Unsigned
    """The number of the last event of all, of other pools as well: to ask for what comes behind it."""

    now_s: Unsigned
    """When this was said, in seconds since 1970 by the clock of the system."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Export:
    """A space that is served over NBD."""

    client_count: Unsigned
    """Clients that have it open."""

    is_read_only: bool
    """Whether it takes no changes."""

    name: str
    """The name that clients ask for: `POOL/SPACE`."""

    pool: str
    """The pool."""

    socket: str
    """The Unix socket."""

    space: str
    """The space."""

    uri: str
    """The address in the form that NBD clients take."""

    network: Optional[NetworkExport] = None
    """Where on a network it is served as well."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Exports:
    """All served spaces."""

    exports: List[Export]
    """By pool and space."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Figures:
    """What was asked of all spaces and disks of open pools."""

    at_us: Unsigned
    """When this was seen, in microseconds since the daemon began."""

    disks: List[DiskFigures]
    """Disks that are here, by pool and slot."""

    run: str
    """Which run of the daemon this is: no two have the same."""

    schema: Unsigned
    """Version of the documents of the API."""

    spaces: List[SpaceFigures]
    """By pool and name."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class FillForecast:
    """When a pool is full, as far as its history says."""

    state: FillState
    """Whether it fills."""

    earliest_s: Optional[Unsigned] = None
    """The same at a rate of two standard errors more."""

    full_at_s: Optional[Unsigned] = None
    """When it is full at the mean rate of the last four weeks, in seconds since 1970; left out unless it fills."""

    latest_s: Optional[Unsigned] = None
    """The same at a rate of two standard errors less; left out where it does not fill at that."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Finding:
    """Something that is the matter."""

    code: FindingCode
    """What."""

    health: Health
    """How bad it is; healthy where it is only worth a word."""

    object: Object
    """With what."""

    text: str
    """That, in words."""

    amount: Optional[Unsigned] = None
    """How much of it there is, for what can become more: errors of a disk, bytes of damage."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Fits:
    """What still fits at one level of protection."""

    copies: Unsigned
    """Copies of every block."""

    resiliency: ResiliencyKind
    """How it survives the loss of disks."""

    survives: Unsigned
    """Lost disks that it survives."""

    usable_bytes: Unsigned
    """Bytes that a space of this kind could still take; 0 also when there are too few disks."""

    parity: Optional[Unsigned] = None
    """Parity columns of every row."""

    usable_fixed_bytes: Optional[Unsigned] = None
    """The same as a fixed space, which has longer rows: the largest one that can be made now."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ForgetDisk:
    """Does without a disk that is gone for good."""

    accept_data_loss: Optional[bool] = None
    """Also where something was on it alone: that is lost then, and cannot be read before it is written again."""

    destroy: Optional[str] = None
    """To give something up, the name of the pool, typed again. Not needed for a dry run."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class FormerLayout:
    """What rows of a space have that is converted, as long as they have not been moved."""

    copies: Unsigned
    """Copies of every block."""

    integrity: Integrity
    """Relaxed or strict."""

    interleave_bytes: Unsigned
    """Bytes written to one column before the next."""

    resiliency: ResiliencyKind
    """How they survive the loss of disks."""

    columns: Optional[Unsigned] = None
    """Data columns; absent where each row chose its own."""

    parity: Optional[Unsigned] = None
    """Parity columns of every row."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class GrantShare:
    """Grants rights on a share, or changes them."""

    accounts: Optional[Sequence[ShareAccountGrant]] = None
    """Rights of accounts, over SMB."""

    networks: Optional[Sequence[ShareNetworkGrant]] = None
    """Rights of hosts and networks, over NFS."""

    dry_run: Optional[bool] = None
    """Return only the plan."""


@dataclass
class History:
    """History of a pool, a space or a disk."""

    from_s: Unsigned
    """First moment, in seconds since 1970."""

    name: str
    """Name of the space, path of the disk; that of the pool otherwise."""

    of: str
    """`pool`, `space` or `disk`."""

    points: List[HistoryPoint]
    """Points, by time. Where nothing was recorded, there is none."""

    pool: str
    """The pool."""

    schema: Unsigned
    """Version of the documents of the API."""

    step_s: Unsigned
    """Seconds of a point."""

    to_s: Unsigned
    """Last moment."""

    problem: Optional[str] = None
    """Why nothing is recorded now; left out where it is."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class HistoryBytes:
    """Bytes over a stretch of time."""

    max: Unsigned
    """Most."""

    mean: Unsigned
    """Mean."""

    min: Unsigned
    """Least."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class HistoryPoint:
    """What an object did in a stretch of time."""

    at_s: Unsigned
    """When it begins, in seconds since 1970."""

    busy_ms: Unsigned
    """Milliseconds in which a request was under way; of a pool, those of its busiest space at each moment."""

    covered_s: Unsigned
    """Seconds of it that were recorded: sums divided by them are means."""

    errors: Unsigned
    """Requests that failed."""

    queue_ms: Unsigned
    """Sum of the times for which requests were under way: divided by the time that was recorded, how many there were on
    average."""

    reads: HistoryRequests
    """Reads."""

    size_bytes: Unsigned
    """Bytes that there were at the end."""

    used: HistoryBytes
    """Bytes that were used: by slabs on all disks, of a space those that are claimed, of a disk those of its slabs."""

    waiting: HistoryBytes
    """Bytes that waited in write caches, of a pool."""

    writes: HistoryRequests
    """Writes."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class HistoryRequests:
    """Reads or writes."""

    bytes: Unsigned
    """Bytes of them."""

    bytes_per_s_max: Unsigned
    """The same in those with the most."""

    bytes_per_s_min: Unsigned
    """Bytes a second in the ten seconds with the fewest."""

    count: Unsigned
    """How many."""

    per_s_max: Unsigned
    """The same in those with the most."""

    per_s_min: Unsigned
    """Number a second in the ten seconds with the fewest."""

    average_us: Optional[Unsigned] = None
    """How long one took on average, in microseconds; left out of none."""

    p50_us: Optional[Unsigned] = None
    """The time that half of them did not exceed, at most a quarter too long."""

    p99_us: Optional[Unsigned] = None
    """The same of 99 in a hundred."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ImportPool:
    """Opens a pool that this daemon does not have open."""

    accept: Optional[bool] = None
    """Also accept what another host set: mount points of its volumes, and rights over NFS on its shares; they are held
    otherwise."""

    mode: Optional[ImportMode] = None
    """What for."""

    paths: Optional[Sequence[str]] = None
    """Where to look: disks, files, or folders of them, beside all disks of the system."""

    pool: Optional[str] = None
    """Its name or identity; may be left out when the disks named belong to one pool only, or, where none is named, when
    those of the system do."""

    rename: Optional[str] = None
    """Another name that it gets, for good where it is opened for writing; as it is called when absent."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class IoFigures:
    """Requests of one kind."""

    bytes: Unsigned
    """Bytes of them."""

    count: Unsigned
    """How many."""

    latency: List[LatencyBucket]
    """How long each took: buckets that hold one at least, shortest first."""

    total_us: Unsigned
    """How long all of them took together, in microseconds."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Job:
    """A job."""

    done_bytes: Unsigned
    """Bytes copied or verified so far."""

    elapsed_s: Unsigned
    """How long it has been running, without what it was paused or put off."""

    id: Unsigned
    """Its number. Numbers grow, also over restarts of the daemon, and none is given twice."""

    kind: JobKind
    """What it does."""

    pool: str
    """The pool that it works on."""

    rate_bytes_per_s: Unsigned
    """Bytes a second, lately."""

    rows_done: Unsigned
    """Rows done."""

    rows_total: Unsigned
    """Rows to look at."""

    state: JobState
    """How far it is."""

    subject: str
    """What it works on, in words, such as the disks that it moves between."""

    total_bytes: Unsigned
    """Bytes that it copies or verifies at most: those for which room is claimed. What of them was never written is
    passed over."""

    began_s: Optional[Unsigned] = None
    """When it began, in seconds since 1970 by the clock of the system; absent before."""

    ended_s: Optional[Unsigned] = None
    """When it ended, in the same way; absent before."""

    eta: Optional[Eta] = None
    """How long it may still take; absent when that cannot be told."""

    is_pausing: Optional[bool] = None
    """Whether it was asked to pause, and what is under way is not done yet."""

    is_stopping: Optional[bool] = None
    """Whether it was asked to end, and what is under way is not done yet."""

    latency_limit_ms: Optional[Unsigned] = None
    """How long one in twenty of the clients' reads and writes may take before it takes less, in milliseconds; absent
    for no limit."""

    priority: Optional[JobPriority] = None
    """How much of the disks' time it takes at most while clients use the pool."""

    result: Optional[str] = None
    """What came of it, when it has ended or is put off; what became of it, when it goes on behind a restart."""

    verb: Optional[str] = None
    """What it is to do, in a word in front of its subject; absent where that is the word of its kind."""

    waits_for: Optional[str] = None
    """What the rest of it waits for, such as an absent disk, when all that can be done now is done, or its pool is not
    open."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class JobDocument:
    """One job."""

    job: Job
    """The job."""

    schema: Unsigned
    """Version of the documents of the API."""

    now_s: Optional[Unsigned] = None
    """When this was said, in seconds since 1970 by the clock of the system."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Jobs:
    """All jobs that run, wait, or ended lately."""

    jobs: List[Job]
    """By number."""

    schema: Unsigned
    """Version of the documents of the API."""

    now_s: Optional[Unsigned] = None
    """When this was said, in seconds since 1970 by the clock of the system."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class LatencyBucket:
    """Requests that took about as long."""

    count: Unsigned
    """How many there were."""

    up_to_us: Unsigned
    """The longest that falls into it, in microseconds. The shortest is at most a sixteenth less."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ListEventsQuery:
    """Query of ListEvents."""

    pool: Optional[str] = None
    """Pool whose events are listed; those of all pools without it."""

    since: Optional[Unsigned] = None
    """Number of the last event that the caller knows; events from the first on without it."""


@dataclass
class Load:
    """What was asked of an object."""

    busy_us: Unsigned
    """For how long there was one at least."""

    discards: IoFigures
    """Discards that ended well, and of spaces what was to read as zeros from then on."""

    errors: Unsigned
    """Requests that failed."""

    flushes: IoFigures
    """Flushes that ended well."""

    queue_us: Unsigned
    """The sum of the times for which requests were under way: divided by the time that passed, how many there were on
    average."""

    reads: IoFigures
    """Reads that ended well."""

    since_us: Unsigned
    """Since when it is counted, in microseconds since the daemon began."""

    under_way: Unsigned
    """Requests under way."""

    writes: IoFigures
    """Writes that ended well."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class LocateDisk:
    """Has a disk show where it is, or ends that."""

    off: bool = False
    """Whether it is to end."""

    seconds: Optional[Unsigned] = None
    """For how long, up to an hour; a minute if left out."""

    dry_run: bool = False
    """Only tell what would happen."""


@dataclass
class MissingPackage:
    """Package that the host lacks, and what is lost without it."""

    lost: str
    """What is lost, as a sentence."""

    needed: str
    """Version from which on it would do."""

    package: str
    """Its name, as Debian has it; `kernel` for the kernel."""

    found: Optional[str] = None
    """Version that is here."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class MountVolume:
    """Mounts a volume, now and whenever its pool is opened."""

    mount_point: Optional[str] = None
    """Place to mount it on from now on; the one on record when left out."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class NetworkExport:
    """A space that is served on an address and port."""

    allow: List[str]
    """The names of certificates that may open it; all that its authority has signed when empty."""

    is_tls: bool
    """Whether clients need TLS and a certificate."""

    listen: str
    """The address and port."""

    uri: str
    """The address in the form that NBD clients take."""

    problem: Optional[str] = None
    """Why nobody can connect at the moment."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Object:
    """What a finding or an event is about."""

    kind: ObjectKind
    """What kind of thing."""

    name: str
    """Its name: of a disk the slot, of a space the name without its pool, of a job the number; empty for the daemon."""

    pool: Optional[str] = None
    """The pool that it is, or belongs to."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class OfferedShare:
    """A share over one protocol."""

    protocol: ShareProtocol
    """Protocol."""

    state: ShareState
    """State."""

    finding: Optional[str] = None
    """Finding of the last look, in words."""

    step: Optional[ShareStep] = None
    """Step that failed, if it is down."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class OnlineDisk:
    """Takes a disk that was away back in."""

    accept_old_content: Optional[bool] = None
    """Also where content that no other disk has is older than what was written last: the spaces show the old content
    then."""

    path: Optional[str] = None
    """Where it is now, if that is not where it was."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Plan:
    """What a change would do."""

    is_reversible: bool
    """Whether a command of this version takes it back without loss, or there is nothing to take back."""

    moved_bytes: Unsigned
    """Bytes that would be copied between disks, at most: what is claimed there. What was never written is not
    copied."""

    steps: List[str]
    """What would happen, in order."""

    usable_after_bytes: Unsigned
    """The same afterwards."""

    usable_before_bytes: Unsigned
    """Bytes that the pool could still take as a mirror of two copies (or, on a single disk, as one copy) before."""

    undo: Optional[str] = None
    """The command that takes it back, if there is one."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Pool:
    """A pool."""

    data_bytes: Unsigned
    """Data areas of all disks."""

    disks: List[Disk]
    """Its disks, by slot."""

    epoch: str
    """The epoch in force."""

    free_bytes: Unsigned
    """Of them, free."""

    health: Health
    """How it is."""

    id: str
    """Its identity."""

    name: str
    """Its name."""

    space_count: Unsigned
    """Spaces on it."""

    state: PoolState
    """Whether it can be written."""

    used_bytes: Unsigned
    """Of them, used by slabs."""

    why: List[str]
    """Why, if it is not healthy."""

    fill: Optional[FillForecast] = None
    """When it is full, as far as its history says; left out of one that is not open."""

    has_room_for: Optional[Unsigned] = None
    """Lost disks for which it has room; as many as it is to keep it for, unless a repair has used some."""

    history_problem: Optional[str] = None
    """Why its history is not recorded now; left out where it is."""

    keep_room_for: Optional[Unsigned] = None
    """Lost disks for which it is to keep room."""

    repair_after_s: Optional[Unsigned] = None
    """Seconds that a disk may be absent before what it had is rebuilt on the others; 0 for ever. Left out of a pool
    that is not open, and by daemons that do not know it."""

    state_cause: Optional[str] = None
    """Why not, if it cannot."""

    trash_bytes: Optional[Unsigned] = None
    """Room that these take on all disks: what a purge gives back."""

    trash_count: Optional[Unsigned] = None
    """Spaces in the trash, and those that are being purged."""

    write_caches: List[WriteCache] = field(default_factory=list)
    """Write caches of its strict spaces, those with parity among them."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class PoolDocument:
    """One pool."""

    pool: Pool
    """The pool."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class PoolTally:
    """What was counted of a pool since it was opened."""

    disks: List[DiskTally]
    """Its disks, by slot."""

    pool: str
    """Its name."""

    spaces: SpaceTally
    """Over all its spaces."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Pools:
    """All pools."""

    pools: List[Pool]
    """By name."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class PurgeTrash:
    """Deletes spaces in the trash for good."""

    all: Optional[bool] = None
    """All of them, instead."""

    destroy: Optional[str] = None
    """Typed again by whoever wants them gone: the name of the one space, or with several or all that of the pool."""

    spaces: Optional[Sequence[str]] = None
    """Which, by name or number."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Quota:
    """A quota."""

    folder: str
    """Folder in the volume; empty for all of it."""

    limit_bytes: Optional[Unsigned] = None
    """Bytes, at most; absent for no bound."""

    limit_files: Optional[Unsigned] = None
    """Files and folders, at most; absent for no bound."""

    project_id: Optional[Unsigned] = None
    """Number that counts the folder: a project, or a subvolume of btrfs."""

    used_bytes: Optional[Unsigned] = None
    """Bytes that the folder holds, if they are counted."""

    used_files: Optional[Unsigned] = None
    """Files and folders in it, if they are counted."""

    why: List[str] = field(default_factory=list)
    """Reasons why it does not bound the folder as its record says."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Quotas:
    """Quotas of a volume."""

    quotas: List[Quota]
    """By folder."""

    schema: Unsigned
    """Version of the documents of the API."""

    unavailable: Optional[str] = None
    """Reason why nothing is counted, if that is so."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class RemoveQuota:
    """Removes the bound of a folder; its content stays."""

    folder: str
    """Folder in the volume; empty for all of it."""

    dry_run: Optional[bool] = None
    """Return only the plan."""


@dataclass
class RenameSpace:
    """Gives a space another name."""

    name: str
    """The name wanted."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class ReplaceDisk:
    """Puts another disk in the place of one."""

    with_: str
    """Absolute path of the disk that takes its place."""

    destroy: Optional[Sequence[str]] = None
    """That path again when its content may be destroyed."""

    seen: Optional[Sequence[str]] = None
    """The `identity` of each of `destroy` as it was listed, in that order: the change is refused where another device,
    or other content, is at the path by now. Empty, or left out, for one that is not compared."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class ResizeSpace:
    """Changes the size of a space."""

    size_bytes: Unsigned
    """The size wanted, a multiple of 4 KiB."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class ResizeWriteCache:
    """Gives a write cache another size."""

    size_bytes: Unsigned
    """Bytes that it is to hold when it is full, each of them with its copies; what is no whole row of it becomes
    one."""

    survives: Optional[Unsigned] = None
    """Disks that the spaces that it is for may lose; may be left out where the pool has one write cache."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class RestoreSpace:
    """Takes a space out of the trash."""

    name: Optional[str] = None
    """The name that it is to have; the one that it had when left out."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class RevokeShare:
    """Revokes rights on a share."""

    accounts: Optional[Sequence[ShareAccount]] = None
    """Accounts that lose their rights."""

    clients: Optional[Sequence[str]] = None
    """Hosts and networks that lose their rights."""

    dry_run: Optional[bool] = None
    """Return only the plan."""


@dataclass
class RunDedup:
    """Runs a deduplication."""

    mode: Optional[DedupMode] = None
    """Load that it may cause; that of the policy when left out."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class ServeNetwork:
    """Where on a network a space is served, and to whom."""

    listen: str
    """Address and port, as numbers."""

    allow: Optional[Sequence[str]] = None
    """The names of certificates that may open it; all that the authority has signed when empty."""

    tls: Optional[TlsFiles] = None
    """The files of TLS; may be left out on a loopback address alone."""


@dataclass
class ServeSpace:
    """Serves a space over NBD on the daemon's own socket for that, and on a network where the request says so."""

    network: Optional[ServeNetwork] = None
    """Where on a network as well."""

    read_only: Optional[bool] = None
    """Take no changes."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SetAlertAt:
    """Sets the percents of fullness at which a pool warns."""

    percents: Sequence[Unsigned]
    """Percents of what can be used, up to four from 1 to 99; empty for never."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SetDisk:
    """Changes what people note of a disk."""

    bay: str
    """What its bay is called: up to 64 bytes of text in one line; empty for nothing."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SetDiskRole:
    """Sets what a disk is to its pool. What it holds goes to the other disks where it is to hold nothing."""

    role: DiskRole
    """What it is to be."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SetEnclosure:
    """Says what a disk is in: an enclosure, a shelf, whatever may fail as one."""

    name: Optional[str] = None
    """Its name; left out for a disk by itself."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SetJob:
    """Sets how a job shares the disks with clients. What is left out stays as it is."""

    latency_limit_ms: Optional[Unsigned] = None
    """How long one in twenty of the clients' reads and writes may take before it takes less, in milliseconds: 1 to
    60000, or 0 for no limit."""

    priority: Optional[JobPriority] = None
    """How much of the disks' time it takes at most while clients use the pool."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SetKeepRoom:
    """Sets for how many lost disks a pool keeps room, so that they can be repaired on the others."""

    losses: Unsigned
    """Disks, the largest first; 0 to keep none."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SetLimits:
    """Sets what a space may have of its pool's disks, and what others leave to it. What is left out stays; 0 takes a
    limit away."""

    bytes_per_s_max: Optional[Unsigned] = None
    """Bytes in a second that it gets at most, a multiple of 1 KiB."""

    bytes_per_s_min: Optional[Unsigned] = None
    """Bytes in a second that others leave to it, a multiple of 1 KiB."""

    iops_max: Optional[Unsigned] = None
    """Requests in a second that it gets at most."""

    iops_min: Optional[Unsigned] = None
    """Requests in a second that others leave to it."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SetQuota:
    """Bounds a folder of a volume. A folder that is missing is made."""

    folder: str
    """Folder in the volume; empty for all of it."""

    limit_bytes: Optional[Unsigned] = None
    """Bytes, at most; no bound when left out."""

    limit_files: Optional[Unsigned] = None
    """Files and folders, at most; no bound when left out."""

    dry_run: Optional[bool] = None
    """Return only the plan."""


@dataclass
class SetRepairAfter:
    """Sets how long a disk may be absent before what it had is rebuilt on the other disks."""

    seconds: Unsigned
    """Seconds, up to 365 days; 0 for ever."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SetReserve:
    """Reserves room for a thin space."""

    bytes: Unsigned
    """Bytes of it that can be written however full its pool is, in whole rows; 0 for none."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Share:
    """A share."""

    health: Health
    """Health."""

    number: Unsigned
    """Number of its record; no other share of the volume gets it."""

    pool: str
    """Pool of its volume."""

    volume: str
    """Name of its volume."""

    why: List[str]
    """Reasons, if it is not healthy."""

    accounts: List[ShareAccountGrant] = field(default_factory=list)
    """Rights of accounts, over SMB."""

    folder: Optional[str] = None
    """Folder in the volume; empty for all of it."""

    is_encryption_required: Optional[bool] = None
    """Whether clients of SMB have to encrypt."""

    is_held: Optional[bool] = None
    """Whether its rights over NFS wait until they are accepted, since another host gave them."""

    is_to_be_served: Optional[bool] = None
    """Whether servers are to offer it while its volume is mounted."""

    name: Optional[str] = None
    """Name that clients see; absent if its record is not understood, as all below that comes from the record."""

    networks: List[ShareNetworkGrant] = field(default_factory=list)
    """Rights of hosts and networks, over NFS."""

    path: Optional[str] = None
    """Folder on this host."""

    protocols: List[OfferedShare] = field(default_factory=list)
    """Its protocols, with what a client sees."""

    time_machine_bytes: Optional[Unsigned] = None
    """Bytes that backups of Macs may take, over SMB; absent if Time Machine is not offered."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ShareAccount:
    """Account without its rights."""

    name: str
    """Its name."""

    to: ShareAccountKind
    """User or group."""


@dataclass
class ShareAccountGrant:
    """Rights of an account, over SMB."""

    access: ShareAccess
    """Its rights."""

    name: str
    """Its name."""

    to: ShareAccountKind
    """User or group."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ShareDocument:
    """One share."""

    schema: Unsigned
    """Version of the documents of the API."""

    share: Share
    """The share."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ShareNetworkGrant:
    """Rights of a host or network, over NFS."""

    access: ShareAccess
    """Its rights."""

    client: str
    """Full name, address or network. Short names are refused: search domains choose their hosts."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ShareSession:
    """A client that uses a share."""

    client: str
    """Address or name of the client."""

    dialect: str
    """Version of the protocol, as the server names it."""

    open_files: Unsigned
    """Files of the share that the session has open."""

    protocol: ShareProtocol
    """Protocol."""

    since: str
    """Beginning, as the server writes it."""

    user: str
    """Account."""

    cipher: Optional[str] = None
    """Cipher of the connection; absent if it is not encrypted."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ShareSessions:
    """Clients of a share."""

    schema: Unsigned
    """Version of the documents of the API."""

    sessions: List[ShareSession]
    """One for each connection."""

    unavailable: List[str]
    """Sentences about servers that do not list their clients."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Shares:
    """Shares."""

    schema: Unsigned
    """Version of the documents of the API."""

    shares: List[Share]
    """By pool, volume and name."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class ShowHistoryQuery:
    """Query of ShowHistory."""

    from_s: Optional[Unsigned] = None
    """First moment, in seconds since 1970; an hour before the last without it."""

    name: Optional[str] = None
    """Name of the space; path, id, its first digits, or slot of the disk."""

    of: Optional[str] = None
    """`pool`, `space` or `disk`; `pool` without it."""

    step_s: Optional[Unsigned] = None
    """Seconds of a point, at least: of 10, 60, 600, 3,600 and 86,400 the first that is no less. Without it, the least
    of which points are kept that far back, and few enough fit into an answer."""

    to_s: Optional[Unsigned] = None
    """Last moment; now without it."""


@dataclass
class ShowSlabMapQuery:
    """Query of ShowSlabMap."""

    cells: Optional[Unsigned] = None
    """Cells of each disk, from 1 to 512; 64 without it."""


@dataclass
class Shutdown:
    """Ends the daemon."""

    hand_over: Optional[bool] = None
    """Leave attached spaces for the next daemon to take up: their I/O pauses, and goes on with it. Without this, an
    attached space that is in use keeps the daemon from ending."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Simple:
    """A request that has nothing to say but whether to try only."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class SlabCell:
    """A range of allocation units of a disk."""

    free_units: Unsigned
    """Of them, those that no slab has."""

    units: Unsigned
    """Its allocation units."""

    other_units: Optional[Unsigned] = None
    """What all other owners have of it; left out where there are none."""

    owners: List[SlabShare] = field(default_factory=list)
    """The three owners with the most of it, the largest first; left out where it is free."""

    stale_units: Optional[Unsigned] = None
    """Of them, those of slabs that miss something; left out where there are none."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class SlabMap:
    """Where on the disks of a pool slabs lie. Allocation units that are neither free nor of an owner were claimed or
    freed while the map was made."""

    age_s: Unsigned
    """Seconds since the map was made: questions within a few seconds get the same map."""

    disks: List[DiskSlabs]
    """The disks, by slot."""

    owners: List[SlabOwner]
    """What has slabs."""

    pool: str
    """The pool."""

    schema: Unsigned
    """Version of the documents of the API."""

    unit_bytes: Unsigned
    """Bytes of an allocation unit."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class SlabOwner:
    """What has slabs, with what it has on all disks."""

    name: str
    """What people call it: the name of the space, with what its slabs are for unless these are its rows."""

    purpose: SlabPurpose
    """What its slabs are for."""

    stale_bytes: Unsigned
    """Of them, bytes of slabs that miss something: they are being filled, or wait for a resync."""

    used_bytes: Unsigned
    """Bytes of its slabs."""

    space: Optional[str] = None
    """The space; left out of a write cache."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class SlabShare:
    """Part of a cell that one owner has."""

    owner: Unsigned
    """Place of the owner in the list of owners, from 0 on."""

    units: Unsigned
    """Its allocation units in the cell."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Smart:
    """What a disk says of itself. What it does not say is left out."""

    critical_warning: Optional[Unsigned] = None
    """NVMe: bits of what is critical; 1 spare low, 2 temperature, 4 unreliable, 8 read-only, 16 the backup of its
    memory."""

    media_errors: Optional[Unsigned] = None
    """NVMe: errors of its media."""

    model: Optional[str] = None
    """What it is."""

    passed: Optional[bool] = None
    """Whether it expects to go on working: `false` is a failure that it predicts."""

    pending_sectors: Optional[Unsigned] = None
    """Sectors that could not be read and wait to be written."""

    percentage_used: Optional[Unsigned] = None
    """NVMe: how much of its life is used, in percent; more than 100 is possible."""

    power_on_hours: Optional[Unsigned] = None
    """How long it has run."""

    reallocated_sectors: Optional[Unsigned] = None
    """Sectors that lie elsewhere now because they had gone bad."""

    serial: Optional[str] = None
    """Its serial number."""

    temperature_c: Optional[int] = None
    """Degrees Celsius."""

    uncorrectable_sectors: Optional[Unsigned] = None
    """Sectors that could not be mended."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Space:
    """A space."""

    claimed_bytes: Unsigned
    """Bytes of its own addresses for which room is claimed."""

    copies: Unsigned
    """Copies of every block."""

    footprint_bytes: Unsigned
    """Room that it takes on all disks, copies and tables included."""

    health: Health
    """How it is."""

    integrity: Integrity
    """Relaxed or strict."""

    interleave_bytes: Unsigned
    """Bytes written to one column before the next."""

    name: str
    """Its name."""

    pool: str
    """The pool that it lies on."""

    provisioning: Provisioning
    """Thin or fixed."""

    resiliency: ResiliencyKind
    """How it survives the loss of disks."""

    row_bytes: Unsigned
    """Bytes of a row."""

    sector_bytes: Unsigned
    """Logical sector that its devices present; the physical one has 4096 bytes. Requests over NBD may begin and end at
    any byte."""

    size_bytes: Unsigned
    """Its size."""

    why: List[str]
    """Why, if it is not healthy."""

    attached_at: Optional[str] = None
    """Where it is attached as a block device."""

    columns: Optional[Unsigned] = None
    """Data columns; absent when each row chooses its own."""

    converted_from: Optional[FormerLayout] = None
    """While it is converted, what those of its rows have that have not been moved yet; all of the above is what it is
    to be."""

    limits: Optional[SpaceLimits] = None
    """What it may have of its pool's disks, and what others leave to it; absent where there are no limits."""

    network_at: Optional[str] = None
    """Where on a network it is served as well."""

    parity: Optional[Unsigned] = None
    """Parity columns of every row."""

    reserve_bytes: Optional[Unsigned] = None
    """Bytes of a thin space that can be written however full its pool is; 0 for none."""

    reserve_unused_bytes: Optional[Unsigned] = None
    """What of that was never written."""

    served_at: Optional[str] = None
    """Where it is served on this machine."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class SpaceDocument:
    """One space."""

    schema: Unsigned
    """Version of the documents of the API."""

    space: Space
    """The space."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class SpaceFigures:
    """What clients asked of a space."""

    load: Load
    """What was asked of it."""

    name: str
    """Its name."""

    pool: str
    """The pool that it lies on."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class SpaceLimits:
    """What a space may have of its pool's disks, and what others leave to it. Reads, writes and discards count, flushes
    do not."""

    bytes_per_s_max: Optional[Unsigned] = None
    """Bytes in a second that it gets at most."""

    bytes_per_s_min: Optional[Unsigned] = None
    """Bytes in a second that others leave to it."""

    iops_max: Optional[Unsigned] = None
    """Requests in a second that it gets at most."""

    iops_min: Optional[Unsigned] = None
    """Requests in a second that others leave to it."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class SpaceTally:
    """What the spaces of a pool did."""

    accepted_unverified_blocks: Unsigned
    """Blocks accepted unverified after a crash."""

    checksum_errors: Unsigned
    """Blocks that did not match their checksum on one copy."""

    flushes: Unsigned
    """Flushes that reached the disks."""

    fresh_writes: Unsigned
    """Writes of blocks never written."""

    healed_blocks: Unsigned
    """Blocks rewritten from another copy."""

    lost_blocks: Unsigned
    """Blocks that no copy could give."""

    overwrites: Unsigned
    """Writes over flushed content."""

    page_reads: Unsigned
    """Table pages read."""

    page_writes: Unsigned
    """Table pages written."""

    resynced_blocks: Unsigned
    """Blocks copied to a disk that had missed them."""

    rewrites: Unsigned
    """Writes of blocks not flushed yet."""

    shared_flushes: Unsigned
    """Flushes that another one covered."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Spaces:
    """Spaces."""

    schema: Unsigned
    """Version of the documents of the API."""

    spaces: List[Space]
    """By pool and name."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Status:
    """The state of everything."""

    doing: List[str]
    """What is being done."""

    health: Health
    """How it is."""

    pid: Unsigned
    """Its process."""

    pools: List[Pool]
    """All pools, by name."""

    schema: Unsigned
    """Version of the documents of the API."""

    spaces: List[Space]
    """All spaces, by pool and name."""

    summary: str
    """That, in one sentence."""

    todo: List[str]
    """What somebody should do."""

    uptime_s: Unsigned
    """For how long the daemon has been running."""

    version: Version
    """Who answers."""

    why: List[str]
    """Why, if it is not healthy."""

    findings: List[Finding] = field(default_factory=list)
    """Findings of all pools and of the daemon, one by one; `why` has the same in words, where absent disks are one."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class TlsFiles:
    """The files of a listener with TLS, in PEM form, as paths from the root that the daemon reads."""

    certificate: str
    """The server's certificate, and those between it and its authority."""

    client_ca: str
    """The authorities that sign the certificates of clients."""

    key: str
    """Its key."""


@dataclass
class Trash:
    """What is in the trash."""

    now_s: Unsigned
    """When this was said, in seconds since 1970 by the clock of the system."""

    schema: Unsigned
    """Version of the documents of the API."""

    spaces: List[TrashedSpace]
    """By pool and number."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class TrashedSpace:
    """A space in the trash, or one that is purged."""

    can_be_restored: bool
    """Whether it can be restored: not once a purge was asked for."""

    copies: Unsigned
    """Copies of every block."""

    footprint_bytes: Unsigned
    """Room that it takes on all disks, and that a purge gives back."""

    id: Unsigned
    """Its number in the pool, which names it where several had one name."""

    name: str
    """The name that it had, and has when it is restored without another."""

    parity: Unsigned
    """Parity columns of every row."""

    pool: str
    """The pool that it lies on."""

    resiliency: ResiliencyKind
    """How it survives the loss of disks."""

    size_bytes: Unsigned
    """Its size."""

    stays_s: Optional[Unsigned] = None
    """How long it stays before it is purged by itself, in seconds in which the daemon runs and its pool is open; absent
    where that is never done."""

    trashed_s: Optional[Unsigned] = None
    """When it came into the trash, in seconds since 1970 by the clock of the host that put it there; absent of one that
    is being purged."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class UndoDedup:
    """Gives files bytes of their own again."""

    paths: Optional[Sequence[str]] = None
    """Files and folders, as paths within the volume or below its mount point; all of the volume when left out."""

    dry_run: Optional[bool] = None
    """Only tell what would happen."""


@dataclass
class Version:
    """Who answers."""

    api: Unsigned
    """The version of the API, `API_VERSION`."""

    daemon: str
    """The version of the daemon."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Volume:
    """A volume."""

    claimed_bytes: Unsigned
    """Bytes of its space for which room is claimed."""

    health: Health
    """Its health; that of its space stands with the space."""

    name: str
    """Name of its space, which is its own."""

    pool: str
    """Pool that it lies on."""

    size_bytes: Unsigned
    """Size of its space."""

    state: VolumeState
    """State."""

    why: List[str]
    """Reasons, if it is not healthy."""

    days_until_full: Optional[Unsigned] = None
    """Days until it is full at the rate of the last week; none if it does not grow, or less than a day is known."""

    device: Optional[str] = None
    """Device, while its space is attached."""

    errors: List[str] = field(default_factory=list)
    """Errors that the kernel found in the file system, a sentence each."""

    file_system: Optional[FileSystemKind] = None
    """File system; absent if its record is not understood, as all below that comes from the record."""

    free_bytes: Optional[Unsigned] = None
    """Bytes free in it, when they were counted last."""

    free_inodes: Optional[Unsigned] = None
    """Inodes free in it, when they were counted last."""

    inodes: Optional[Unsigned] = None
    """Inodes that it can hold, when they were counted last; none where that has no limit."""

    is_held: Optional[bool] = None
    """Whether it is neither made nor mounted because another host chose its mount point, and nobody has accepted that
    here."""

    is_to_be_mounted: Optional[bool] = None
    """Whether it is to be mounted whenever its pool is open."""

    label: Optional[str] = None
    """Label of the file system."""

    mkfs_options: List[str] = field(default_factory=list)
    """Options of mkfs."""

    mount_options: List[str] = field(default_factory=list)
    """Options of the mount."""

    mount_point: Optional[str] = None
    """Place to mount it on."""

    mount_state: Optional[MountState] = None
    """State of its mount."""

    mounted_at: Optional[str] = None
    """Place that it is mounted on; absent in every other state of its mount."""

    oldest_kernel: Optional[str] = None
    """Oldest kernel that is to mount it; absent if none was named."""

    purpose: Optional[VolumePurpose] = None
    """Purpose; absent if it was adopted."""

    total_bytes: Optional[Unsigned] = None
    """Bytes that the file system can hold, when they were counted last."""

    uuid: Optional[str] = None
    """UUID of the file system."""

    worker: Optional[VolumeWorker] = None
    """Process that works on it now."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class VolumeCheck:
    """What the last check or repair of a volume found."""

    ended_s: Unsigned
    """End of the check, in seconds since 1970."""

    file: str
    """File on the host of the daemon with all that the tool wrote, the middle of very much left out."""

    findings: List[CheckFinding]
    """Findings in the order of the tool, 1,000 at most."""

    job: Unsigned
    """Job that checked it."""

    kind: CheckKind
    """What was done."""

    now_s: Unsigned
    """Now, in the same way."""

    omitted: Unsigned
    """Findings that are left out here."""

    result: CheckResult
    """What came of it."""

    schema: Unsigned
    """Version of the documents of the API."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class VolumeDocument:
    """One volume."""

    schema: Unsigned
    """Version of the documents of the API."""

    volume: Volume
    """The volume."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class VolumePlan:
    """How the file system of a volume is made and mounted."""

    file_system: FileSystemKind
    """File system."""

    missing: List[MissingPackage]
    """What this host lacks."""

    mkfs: List[str]
    """Program that makes it, with its arguments; `DEVICE` stands for the device."""

    mount_options: List[str]
    """Options of the mount."""

    mount_point: str
    """Place to mount it on."""

    reasons: List[str]
    """Reasons for file system and options, as sentences."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class VolumeWorker:
    """A process that works on a volume."""

    elapsed_s: Unsigned
    """Seconds since it began."""

    operation: str
    """Operation, such as `mkfs`."""

    pid: Unsigned
    """Id of the process."""

    is_long: Optional[bool] = None
    """Whether the operation takes long by its nature, such as a deduplication: its job shows how far it is."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Volumes:
    """Volumes."""

    schema: Unsigned
    """Version of the documents of the API."""

    volumes: List[Volume]
    """By pool and name."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class Why:
    """Why a pool, a disk, a space or a job is as it is."""

    causes: List[Cause]
    """What that comes from, the worst first; none where nothing is the matter."""

    doing: List[str]
    """What is being done that has to do with it."""

    health: Health
    """How bad that is."""

    now_s: Unsigned
    """When this was said, in seconds since 1970 by the clock of the system."""

    object: Object
    """What it is about."""

    schema: Unsigned
    """Version of the documents of the API."""

    state: str
    """How it is, in a sentence."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""


@dataclass
class WriteCache:
    """The write cache of the strict spaces that survive as much."""

    footprint_bytes: Unsigned
    """Room that it takes on all disks, copies and tables included."""

    size_bytes: Unsigned
    """Bytes that it holds when it is full."""

    survives: Unsigned
    """Disks that the spaces that it is for may lose."""

    waiting_bytes: Unsigned
    """Bytes in it that are not in place yet."""

    copies: Optional[Unsigned] = None
    """Copies of what lies in it, on different disks."""

    destaged_bytes: Optional[Unsigned] = None
    """Bytes put in place out of it since the pool was opened."""

    destaged_bytes_per_s: Optional[Unsigned] = None
    """The same for each of the last ten seconds, on the average."""

    disks: List[Unsigned] = field(default_factory=list)
    """The disks on which it lies, by slot."""

    drain_bytes_per_s_max: Optional[Unsigned] = None
    """Bytes a second that are put in place at most while nobody waits for room; 0 for as many as the disks take."""

    fill_percent: Optional[Unsigned] = None
    """Percent of it that wait to be put in place before that begins."""

    filled_bytes: Optional[Unsigned] = None
    """Bytes written to it since the pool was opened."""

    filled_bytes_per_s: Optional[Unsigned] = None
    """The same for each of the last ten seconds, on the average."""

    extra: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Fields of a later daemon, which this version of the package does not know."""
