"""Verbs of the API: what each is, and a method for each.

Made by generate.py from the OpenAPI document of the API. Change that, and run generate.py again.
"""

from __future__ import annotations

from typing import Mapping, Optional, Sequence, TypeVar

from . import types
from ._wire import Unsigned, Verb

A = TypeVar("A")

_ACCEPT_SHARE = Verb(
    name="AcceptShare",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/shares/{share}/accept",
    parameters={"pool": str, "space": str, "share": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_such_object", "name_taken", "no_space", "foreign_data",
        "read_only", "pool_stopped", "busy", "io", "permission", "missing", "unsupported", "stopping", "config",
        "internal",
    ),
)
_ACKNOWLEDGE_ERRORS = Verb(
    name="AcknowledgeErrors",
    method="POST",
    path="/v1/pools/{pool}/acknowledge",
    parameters={"pool": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_ADD_DISKS = Verb(
    name="AddDisks",
    method="POST",
    path="/v1/pools/{pool}/disks",
    parameters={"pool": str},
    request=types.AddDisks,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_device", "no_space", "foreign_data", "unfit_device", "device_in_use",
        "read_only", "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_ADOPT_VOLUME = Verb(
    name="AdoptVolume",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/adopt",
    parameters={"pool": str, "space": str},
    request=types.AdoptVolume,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "bad_size", "no_such_pool", "no_such_space", "name_taken", "no_space", "foreign_data",
        "read_only", "pool_stopped", "busy", "io", "permission", "missing", "stopping", "config", "internal",
    ),
)
_ATTACH_SPACE = Verb(
    name="AttachSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/attach",
    parameters={"pool": str, "space": str},
    request=types.AttachSpace,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "bad_size", "no_such_pool", "no_such_space", "name_taken", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "missing", "stopping", "config", "internal",
    ),
)
_BENCH_SPACE = Verb(
    name="BenchSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/bench",
    parameters={"pool": str, "space": str},
    request=types.BenchSpace,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "needs_confirmation", "foreign_data",
        "device_in_use", "read_only", "pool_stopped", "busy", "io", "permission", "missing", "unsupported", "stopping",
        "config", "internal",
    ),
)
_CANCEL_REBALANCE = Verb(
    name="CancelRebalance",
    method="POST",
    path="/v1/pools/{pool}/rebalance/cancel",
    parameters={"pool": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_CANCEL_REMOVE = Verb(
    name="CancelRemove",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/remove/cancel",
    parameters={"pool": str, "disk": str},
    request=types.Simple,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "stopping", "internal",
    ),
)
_CANCEL_REPLACE = Verb(
    name="CancelReplace",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/replace/cancel",
    parameters={"pool": str, "disk": str},
    request=types.Simple,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_such_device", "no_space", "read_only", "pool_stopped",
        "busy", "io", "permission", "stopping", "internal",
    ),
)
_CHECK_VOLUME = Verb(
    name="CheckVolume",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/check",
    parameters={"pool": str, "space": str},
    request=types.CheckVolume,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "needs_confirmation", "read_only", "pool_stopped",
        "busy", "io", "permission", "unsupported", "stopping", "internal",
    ),
)
_COMPACT_VOLUME = Verb(
    name="CompactVolume",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/compact",
    parameters={"pool": str, "space": str},
    request=types.CompactVolume,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_CONVERT_SPACE = Verb(
    name="ConvertSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/convert",
    parameters={"pool": str, "space": str},
    request=types.ConvertSpace,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "bad_size", "no_such_pool", "no_such_space", "too_few_disks", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_CREATE_POOL = Verb(
    name="CreatePool",
    method="POST",
    path="/v1/pools",
    parameters={},
    request=types.CreatePool,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "bad_name", "no_such_device", "name_taken", "no_space", "foreign_data", "unfit_device",
        "device_in_use", "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_CREATE_SHARE = Verb(
    name="CreateShare",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/shares",
    parameters={"pool": str, "space": str},
    request=types.CreateShare,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "name_taken", "no_space", "foreign_data", "read_only",
        "pool_stopped", "busy", "io", "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_CREATE_SPACE = Verb(
    name="CreateSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces",
    parameters={"pool": str},
    request=types.CreateSpace,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "bad_name", "bad_size", "no_such_pool", "name_taken", "too_few_disks", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_CREATE_VOLUME = Verb(
    name="CreateVolume",
    method="POST",
    path="/v1/pools/{pool}/volumes",
    parameters={"pool": str},
    request=types.CreateVolume,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "bad_name", "bad_size", "no_such_pool", "name_taken", "too_few_disks", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "missing", "stopping", "internal",
    ),
)
_DELETE_SHARE = Verb(
    name="DeleteShare",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/shares/{share}/delete",
    parameters={"pool": str, "space": str, "share": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_such_object", "no_space", "foreign_data", "read_only",
        "pool_stopped", "busy", "io", "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_DELETE_SPACE = Verb(
    name="DeleteSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/delete",
    parameters={"pool": str, "space": str},
    request=types.DeleteSpace,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "needs_confirmation", "read_only", "pool_stopped",
        "busy", "io", "permission", "stopping", "internal",
    ),
)
_DELETE_VOLUME = Verb(
    name="DeleteVolume",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/delete",
    parameters={"pool": str, "space": str},
    request=types.Simple,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "foreign_data", "read_only", "pool_stopped", "busy",
        "io", "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_DESTROY_POOL = Verb(
    name="DestroyPool",
    method="POST",
    path="/v1/pools/{pool}/destroy",
    parameters={"pool": str},
    request=types.Destroy,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "needs_confirmation", "read_only", "pool_stopped", "busy", "io",
        "permission", "stopping", "internal",
    ),
)
_DETACH_SPACE = Verb(
    name="DetachSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/detach",
    parameters={"pool": str, "space": str},
    request=types.DetachSpace,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "needs_confirmation", "read_only", "pool_stopped",
        "busy", "io", "permission", "stopping", "internal",
    ),
)
_DRAIN_WRITE_CACHE = Verb(
    name="DrainWriteCache",
    method="POST",
    path="/v1/pools/{pool}/write_cache/drain",
    parameters={"pool": str},
    request=types.DrainWriteCache,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_ENABLE_DEDUP = Verb(
    name="EnableDedup",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/dedup/enable",
    parameters={"pool": str, "space": str},
    request=types.EnableDedup,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "unsupported", "stopping", "config", "internal",
    ),
)
_ESTIMATE_DEDUP = Verb(
    name="EstimateDedup",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/dedup/estimate",
    parameters={"pool": str, "space": str},
    request=types.EstimateDedup,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_EXPLAIN_OBJECT = Verb(
    name="ExplainObject",
    method="GET",
    path="/v1/why/{object}",
    parameters={"object": str},
    request=None,
    answer=types.Why,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_object", "busy", "io", "permission", "stopping", "internal",
    ),
)
_EXPORT_POOL = Verb(
    name="ExportPool",
    method="POST",
    path="/v1/pools/{pool}/export",
    parameters={"pool": str},
    request=types.Simple,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "foreign_data", "read_only", "pool_stopped", "busy", "io",
        "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_FORGET_DISK = Verb(
    name="ForgetDisk",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/forget",
    parameters={"pool": str, "disk": str},
    request=types.ForgetDisk,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_such_device", "too_few_disks", "no_space",
        "needs_confirmation", "read_only", "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_GRANT_SHARE = Verb(
    name="GrantShare",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/shares/{share}/grant",
    parameters={"pool": str, "space": str, "share": str},
    request=types.GrantShare,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_such_object", "name_taken", "no_space",
        "needs_confirmation", "foreign_data", "read_only", "pool_stopped", "busy", "io", "permission", "missing",
        "unsupported", "stopping", "config", "internal",
    ),
)
_GROW_DISK = Verb(
    name="GrowDisk",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/grow",
    parameters={"pool": str, "disk": str},
    request=types.Simple,
    answer=types.Change,
    role="admin",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_such_device", "no_space", "read_only", "pool_stopped",
        "busy", "io", "permission", "stopping", "internal",
    ),
)
_GROW_VOLUME = Verb(
    name="GrowVolume",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/grow",
    parameters={"pool": str, "space": str},
    request=types.ResizeSpace,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "bad_size", "no_such_pool", "no_such_space", "too_few_disks", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_IMPORT_POOL = Verb(
    name="ImportPool",
    method="POST",
    path="/v1/pools/import",
    parameters={},
    request=types.ImportPool,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "bad_name", "no_such_pool", "no_such_device", "name_taken", "no_space", "needs_confirmation",
        "unfit_device", "device_in_use", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_LIST_ALL_SHARES = Verb(
    name="ListAllShares",
    method="GET",
    path="/v1/shares",
    parameters={},
    request=None,
    answer=types.Shares,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_ALL_SPACES = Verb(
    name="ListAllSpaces",
    method="GET",
    path="/v1/spaces",
    parameters={},
    request=None,
    answer=types.Spaces,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_ALL_TRASH = Verb(
    name="ListAllTrash",
    method="GET",
    path="/v1/trash",
    parameters={},
    request=None,
    answer=types.Trash,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_ALL_VOLUMES = Verb(
    name="ListAllVolumes",
    method="GET",
    path="/v1/volumes",
    parameters={},
    request=None,
    answer=types.Volumes,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_ATTACHMENTS = Verb(
    name="ListAttachments",
    method="GET",
    path="/v1/attachments",
    parameters={},
    request=None,
    answer=types.Attachments,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_BENCHMARKS = Verb(
    name="ListBenchmarks",
    method="GET",
    path="/v1/benchmarks",
    parameters={},
    request=None,
    answer=types.Benchmarks,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_DEVICES = Verb(
    name="ListDevices",
    method="GET",
    path="/v1/devices",
    parameters={},
    request=None,
    answer=types.Devices,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_DISKS = Verb(
    name="ListDisks",
    method="GET",
    path="/v1/pools/{pool}/disks",
    parameters={"pool": str},
    request=None,
    answer=types.Disks,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_EVENTS = Verb(
    name="ListEvents",
    method="GET",
    path="/v1/events",
    parameters={},
    request=types.ListEventsQuery,
    answer=types.Events,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_EXPORTS = Verb(
    name="ListExports",
    method="GET",
    path="/v1/exports",
    parameters={},
    request=None,
    answer=types.Exports,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_JOBS = Verb(
    name="ListJobs",
    method="GET",
    path="/v1/jobs",
    parameters={},
    request=None,
    answer=types.Jobs,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_POOLS = Verb(
    name="ListPools",
    method="GET",
    path="/v1/pools",
    parameters={},
    request=None,
    answer=types.Pools,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_QUOTAS = Verb(
    name="ListQuotas",
    method="GET",
    path="/v1/pools/{pool}/volumes/{space}/quotas",
    parameters={"pool": str, "space": str},
    request=None,
    answer=types.Quotas,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "busy", "io", "permission", "missing", "unsupported",
        "stopping", "internal",
    ),
)
_LIST_SHARE_SESSIONS = Verb(
    name="ListShareSessions",
    method="GET",
    path="/v1/pools/{pool}/volumes/{space}/shares/{share}/sessions",
    parameters={"pool": str, "space": str, "share": str},
    request=None,
    answer=types.ShareSessions,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_such_object", "foreign_data", "busy", "io", "permission",
        "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_LIST_SHARES = Verb(
    name="ListShares",
    method="GET",
    path="/v1/pools/{pool}/volumes/{space}/shares",
    parameters={"pool": str, "space": str},
    request=None,
    answer=types.Shares,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "busy", "io", "permission", "unsupported", "stopping",
        "internal",
    ),
)
_LIST_SPACES = Verb(
    name="ListSpaces",
    method="GET",
    path="/v1/pools/{pool}/spaces",
    parameters={"pool": str},
    request=None,
    answer=types.Spaces,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_TRASH = Verb(
    name="ListTrash",
    method="GET",
    path="/v1/pools/{pool}/trash",
    parameters={"pool": str},
    request=None,
    answer=types.Trash,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LIST_VOLUMES = Verb(
    name="ListVolumes",
    method="GET",
    path="/v1/pools/{pool}/volumes",
    parameters={"pool": str},
    request=None,
    answer=types.Volumes,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "busy", "io", "permission", "stopping", "internal",
    ),
)
_LOCATE_DISK = Verb(
    name="LocateDisk",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/locate",
    parameters={"pool": str, "disk": str},
    request=types.LocateDisk,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_such_device", "no_space", "read_only", "pool_stopped",
        "busy", "io", "permission", "stopping", "internal",
    ),
)
_MOUNT_VOLUME = Verb(
    name="MountVolume",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/mount",
    parameters={"pool": str, "space": str},
    request=types.MountVolume,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "bad_size", "no_such_pool", "no_such_space", "name_taken", "no_space", "needs_confirmation",
        "foreign_data", "read_only", "pool_stopped", "busy", "io", "permission", "missing", "unsupported", "stopping",
        "config", "internal",
    ),
)
_OFFLINE_DISK = Verb(
    name="OfflineDisk",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/offline",
    parameters={"pool": str, "disk": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "stopping", "internal",
    ),
)
_ONLINE_DISK = Verb(
    name="OnlineDisk",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/online",
    parameters={"pool": str, "disk": str},
    request=types.OnlineDisk,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_such_device", "no_space", "needs_confirmation",
        "unfit_device", "device_in_use", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_PAUSE_JOB = Verb(
    name="PauseJob",
    method="POST",
    path="/v1/jobs/{job}/pause",
    parameters={"job": Unsigned},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_job", "busy", "io", "permission", "stopping", "internal",
    ),
)
_PURGE_TRASH = Verb(
    name="PurgeTrash",
    method="POST",
    path="/v1/pools/{pool}/trash/purge",
    parameters={"pool": str},
    request=types.PurgeTrash,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "needs_confirmation", "read_only", "pool_stopped",
        "busy", "io", "permission", "stopping", "internal",
    ),
)
_REBALANCE_POOL = Verb(
    name="RebalancePool",
    method="POST",
    path="/v1/pools/{pool}/rebalance",
    parameters={"pool": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_REMOVE_DISK = Verb(
    name="RemoveDisk",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/remove",
    parameters={"pool": str, "disk": str},
    request=types.Simple,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_such_device", "too_few_disks", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_REMOVE_QUOTA = Verb(
    name="RemoveQuota",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/quotas/remove",
    parameters={"pool": str, "space": str},
    request=types.RemoveQuota,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_such_object", "no_space", "read_only", "pool_stopped",
        "busy", "io", "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_RENAME_SPACE = Verb(
    name="RenameSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/rename",
    parameters={"pool": str, "space": str},
    request=types.RenameSpace,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "bad_name", "no_such_pool", "no_such_space", "name_taken", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_REPLACE_DISK = Verb(
    name="ReplaceDisk",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/replace",
    parameters={"pool": str, "disk": str},
    request=types.ReplaceDisk,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_such_device", "no_space", "foreign_data", "unfit_device",
        "device_in_use", "read_only", "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_RESIZE_SPACE = Verb(
    name="ResizeSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/resize",
    parameters={"pool": str, "space": str},
    request=types.ResizeSpace,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=True,
    error_codes=(
        "bad_request", "bad_size", "no_such_pool", "no_such_space", "too_few_disks", "no_space", "read_only",
        "pool_stopped", "busy", "not_empty", "io", "permission", "missing", "unsupported", "stopping", "config",
        "internal",
    ),
)
_RESIZE_WRITE_CACHE = Verb(
    name="ResizeWriteCache",
    method="POST",
    path="/v1/pools/{pool}/write_cache/resize",
    parameters={"pool": str},
    request=types.ResizeWriteCache,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "bad_size", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission",
        "stopping", "internal",
    ),
)
_RESTORE_SPACE = Verb(
    name="RestoreSpace",
    method="POST",
    path="/v1/pools/{pool}/trash/{space}/restore",
    parameters={"pool": str, "space": str},
    request=types.RestoreSpace,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "bad_name", "no_such_pool", "no_such_space", "name_taken", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_RESUME_JOB = Verb(
    name="ResumeJob",
    method="POST",
    path="/v1/jobs/{job}/resume",
    parameters={"job": Unsigned},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_job", "busy", "io", "permission", "stopping", "internal",
    ),
)
_RESYNC_POOL = Verb(
    name="ResyncPool",
    method="POST",
    path="/v1/pools/{pool}/resync",
    parameters={"pool": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_REVOKE_SHARE = Verb(
    name="RevokeShare",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/shares/{share}/revoke",
    parameters={"pool": str, "space": str, "share": str},
    request=types.RevokeShare,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_such_object", "name_taken", "no_space", "foreign_data",
        "read_only", "pool_stopped", "busy", "io", "permission", "missing", "unsupported", "stopping", "config",
        "internal",
    ),
)
_RUN_DEDUP = Verb(
    name="RunDedup",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/dedup/run",
    parameters={"pool": str, "space": str},
    request=types.RunDedup,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_SCRUB_POOL = Verb(
    name="ScrubPool",
    method="POST",
    path="/v1/pools/{pool}/scrub",
    parameters={"pool": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_SERVE_SPACE = Verb(
    name="ServeSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/serve",
    parameters={"pool": str, "space": str},
    request=types.ServeSpace,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "stopping", "internal",
    ),
)
_SET_ALERT_AT = Verb(
    name="SetAlertAt",
    method="POST",
    path="/v1/pools/{pool}/alert_at",
    parameters={"pool": str},
    request=types.SetAlertAt,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_SET_DISK = Verb(
    name="SetDisk",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/set",
    parameters={"pool": str, "disk": str},
    request=types.SetDisk,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "bad_name", "no_such_pool", "no_such_disk", "name_taken", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SET_DISK_ROLE = Verb(
    name="SetDiskRole",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/role",
    parameters={"pool": str, "disk": str},
    request=types.SetDiskRole,
    answer=types.Change,
    role="admin",
    is_idempotent=True,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "no_such_device", "too_few_disks", "no_space", "read_only",
        "pool_stopped", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SET_ENCLOSURE = Verb(
    name="SetEnclosure",
    method="POST",
    path="/v1/pools/{pool}/disks/{disk}/enclosure",
    parameters={"pool": str, "disk": str},
    request=types.SetEnclosure,
    answer=types.Change,
    role="admin",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_disk", "too_few_disks", "no_space", "read_only", "pool_stopped", "busy",
        "io", "permission", "stopping", "internal",
    ),
)
_SET_JOB = Verb(
    name="SetJob",
    method="POST",
    path="/v1/jobs/{job}/set",
    parameters={"job": Unsigned},
    request=types.SetJob,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_job", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SET_KEEP_ROOM = Verb(
    name="SetKeepRoom",
    method="POST",
    path="/v1/pools/{pool}/keep_room",
    parameters={"pool": str},
    request=types.SetKeepRoom,
    answer=types.Change,
    role="admin",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_SET_LIMITS = Verb(
    name="SetLimits",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/limits",
    parameters={"pool": str, "space": str},
    request=types.SetLimits,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "stopping", "internal",
    ),
)
_SET_QUOTA = Verb(
    name="SetQuota",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/quotas",
    parameters={"pool": str, "space": str},
    request=types.SetQuota,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "name_taken", "no_space", "foreign_data", "read_only",
        "pool_stopped", "busy", "io", "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_SET_REPAIR_AFTER = Verb(
    name="SetRepairAfter",
    method="POST",
    path="/v1/pools/{pool}/repair_after",
    parameters={"pool": str},
    request=types.SetRepairAfter,
    answer=types.Change,
    role="admin",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_space", "read_only", "pool_stopped", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_SET_RESERVE = Verb(
    name="SetReserve",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/reserve",
    parameters={"pool": str, "space": str},
    request=types.SetReserve,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "bad_size", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy",
        "io", "permission", "stopping", "internal",
    ),
)
_SHOW_BENCHMARK = Verb(
    name="ShowBenchmark",
    method="GET",
    path="/v1/benchmarks/{job}",
    parameters={"job": Unsigned},
    request=None,
    answer=types.BenchmarkReport,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_job", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_COUNTERS = Verb(
    name="ShowCounters",
    method="GET",
    path="/v1/counters",
    parameters={},
    request=None,
    answer=types.Counters,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_DEDUP = Verb(
    name="ShowDedup",
    method="GET",
    path="/v1/pools/{pool}/volumes/{space}/dedup",
    parameters={"pool": str, "space": str},
    request=None,
    answer=types.Dedup,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "busy", "io", "permission", "unsupported", "stopping",
        "internal",
    ),
)
_SHOW_FIGURES = Verb(
    name="ShowFigures",
    method="GET",
    path="/v1/figures",
    parameters={},
    request=None,
    answer=types.Figures,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_HISTORY = Verb(
    name="ShowHistory",
    method="GET",
    path="/v1/pools/{pool}/history",
    parameters={"pool": str},
    request=types.ShowHistoryQuery,
    answer=types.History,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_such_disk", "busy", "io", "permission", "stopping",
        "internal",
    ),
)
_SHOW_JOB = Verb(
    name="ShowJob",
    method="GET",
    path="/v1/jobs/{job}",
    parameters={"job": Unsigned},
    request=None,
    answer=types.JobDocument,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_job", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_POOL = Verb(
    name="ShowPool",
    method="GET",
    path="/v1/pools/{pool}",
    parameters={"pool": str},
    request=None,
    answer=types.PoolDocument,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_ROOM = Verb(
    name="ShowRoom",
    method="GET",
    path="/v1/pools/{pool}/df",
    parameters={"pool": str},
    request=None,
    answer=types.Df,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_SHARE = Verb(
    name="ShowShare",
    method="GET",
    path="/v1/pools/{pool}/volumes/{space}/shares/{share}",
    parameters={"pool": str, "space": str, "share": str},
    request=None,
    answer=types.ShareDocument,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_such_object", "busy", "io", "permission", "unsupported",
        "stopping", "internal",
    ),
)
_SHOW_SLAB_MAP = Verb(
    name="ShowSlabMap",
    method="GET",
    path="/v1/pools/{pool}/slabs",
    parameters={"pool": str},
    request=types.ShowSlabMapQuery,
    answer=types.SlabMap,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_SPACE = Verb(
    name="ShowSpace",
    method="GET",
    path="/v1/pools/{pool}/spaces/{space}",
    parameters={"pool": str, "space": str},
    request=None,
    answer=types.SpaceDocument,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_STATUS = Verb(
    name="ShowStatus",
    method="GET",
    path="/v1/status",
    parameters={},
    request=None,
    answer=types.Status,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_VERSION = Verb(
    name="ShowVersion",
    method="GET",
    path="/v1/version",
    parameters={},
    request=None,
    answer=types.Version,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "busy", "io", "permission", "stopping", "internal",
    ),
)
_SHOW_VOLUME = Verb(
    name="ShowVolume",
    method="GET",
    path="/v1/pools/{pool}/volumes/{space}",
    parameters={"pool": str, "space": str},
    request=None,
    answer=types.VolumeDocument,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "busy", "io", "permission", "unsupported", "stopping",
        "internal",
    ),
)
_SHOW_VOLUME_CHECK = Verb(
    name="ShowVolumeCheck",
    method="GET",
    path="/v1/pools/{pool}/volumes/{space}/check",
    parameters={"pool": str, "space": str},
    request=None,
    answer=types.VolumeCheck,
    role="viewer",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_such_object", "busy", "io", "permission", "unsupported",
        "stopping", "internal",
    ),
)
_STOP_DAEMON = Verb(
    name="StopDaemon",
    method="POST",
    path="/v1/shutdown",
    parameters={},
    request=types.Shutdown,
    answer=types.Change,
    role="admin",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "foreign_data", "busy", "io", "permission", "missing", "unsupported", "stopping", "config",
        "internal",
    ),
)
_STOP_JOB = Verb(
    name="StopJob",
    method="POST",
    path="/v1/jobs/{job}/stop",
    parameters={"job": Unsigned},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_job", "busy", "io", "permission", "stopping", "internal",
    ),
)
_TRIM_VOLUME = Verb(
    name="TrimVolume",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/trim",
    parameters={"pool": str, "space": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_UNDO_DEDUP = Verb(
    name="UndoDedup",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/dedup/undo",
    parameters={"pool": str, "space": str},
    request=types.UndoDedup,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=True,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_UNMOUNT_VOLUME = Verb(
    name="UnmountVolume",
    method="POST",
    path="/v1/pools/{pool}/volumes/{space}/unmount",
    parameters={"pool": str, "space": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=False,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "foreign_data", "read_only", "pool_stopped", "busy",
        "io", "permission", "missing", "unsupported", "stopping", "config", "internal",
    ),
)
_UNSERVE_SPACE = Verb(
    name="UnserveSpace",
    method="POST",
    path="/v1/pools/{pool}/spaces/{space}/unserve",
    parameters={"pool": str, "space": str},
    request=types.Simple,
    answer=types.Change,
    role="operator",
    is_idempotent=True,
    has_job=False,
    error_codes=(
        "bad_request", "no_such_pool", "no_such_space", "no_space", "read_only", "pool_stopped", "busy", "io",
        "permission", "stopping", "internal",
    ),
)

VERBS: Mapping[str, Verb[object]] = {
    "accept_share": _ACCEPT_SHARE,
    "acknowledge_errors": _ACKNOWLEDGE_ERRORS,
    "add_disks": _ADD_DISKS,
    "adopt_volume": _ADOPT_VOLUME,
    "attach_space": _ATTACH_SPACE,
    "bench_space": _BENCH_SPACE,
    "cancel_rebalance": _CANCEL_REBALANCE,
    "cancel_remove": _CANCEL_REMOVE,
    "cancel_replace": _CANCEL_REPLACE,
    "check_volume": _CHECK_VOLUME,
    "compact_volume": _COMPACT_VOLUME,
    "convert_space": _CONVERT_SPACE,
    "create_pool": _CREATE_POOL,
    "create_share": _CREATE_SHARE,
    "create_space": _CREATE_SPACE,
    "create_volume": _CREATE_VOLUME,
    "delete_share": _DELETE_SHARE,
    "delete_space": _DELETE_SPACE,
    "delete_volume": _DELETE_VOLUME,
    "destroy_pool": _DESTROY_POOL,
    "detach_space": _DETACH_SPACE,
    "drain_write_cache": _DRAIN_WRITE_CACHE,
    "enable_dedup": _ENABLE_DEDUP,
    "estimate_dedup": _ESTIMATE_DEDUP,
    "explain_object": _EXPLAIN_OBJECT,
    "export_pool": _EXPORT_POOL,
    "forget_disk": _FORGET_DISK,
    "grant_share": _GRANT_SHARE,
    "grow_disk": _GROW_DISK,
    "grow_volume": _GROW_VOLUME,
    "import_pool": _IMPORT_POOL,
    "list_all_shares": _LIST_ALL_SHARES,
    "list_all_spaces": _LIST_ALL_SPACES,
    "list_all_trash": _LIST_ALL_TRASH,
    "list_all_volumes": _LIST_ALL_VOLUMES,
    "list_attachments": _LIST_ATTACHMENTS,
    "list_benchmarks": _LIST_BENCHMARKS,
    "list_devices": _LIST_DEVICES,
    "list_disks": _LIST_DISKS,
    "list_events": _LIST_EVENTS,
    "list_exports": _LIST_EXPORTS,
    "list_jobs": _LIST_JOBS,
    "list_pools": _LIST_POOLS,
    "list_quotas": _LIST_QUOTAS,
    "list_share_sessions": _LIST_SHARE_SESSIONS,
    "list_shares": _LIST_SHARES,
    "list_spaces": _LIST_SPACES,
    "list_trash": _LIST_TRASH,
    "list_volumes": _LIST_VOLUMES,
    "locate_disk": _LOCATE_DISK,
    "mount_volume": _MOUNT_VOLUME,
    "offline_disk": _OFFLINE_DISK,
    "online_disk": _ONLINE_DISK,
    "pause_job": _PAUSE_JOB,
    "purge_trash": _PURGE_TRASH,
    "rebalance_pool": _REBALANCE_POOL,
    "remove_disk": _REMOVE_DISK,
    "remove_quota": _REMOVE_QUOTA,
    "rename_space": _RENAME_SPACE,
    "replace_disk": _REPLACE_DISK,
    "resize_space": _RESIZE_SPACE,
    "resize_write_cache": _RESIZE_WRITE_CACHE,
    "restore_space": _RESTORE_SPACE,
    "resume_job": _RESUME_JOB,
    "resync_pool": _RESYNC_POOL,
    "revoke_share": _REVOKE_SHARE,
    "run_dedup": _RUN_DEDUP,
    "scrub_pool": _SCRUB_POOL,
    "serve_space": _SERVE_SPACE,
    "set_alert_at": _SET_ALERT_AT,
    "set_disk": _SET_DISK,
    "set_disk_role": _SET_DISK_ROLE,
    "set_enclosure": _SET_ENCLOSURE,
    "set_job": _SET_JOB,
    "set_keep_room": _SET_KEEP_ROOM,
    "set_limits": _SET_LIMITS,
    "set_quota": _SET_QUOTA,
    "set_repair_after": _SET_REPAIR_AFTER,
    "set_reserve": _SET_RESERVE,
    "show_benchmark": _SHOW_BENCHMARK,
    "show_counters": _SHOW_COUNTERS,
    "show_dedup": _SHOW_DEDUP,
    "show_figures": _SHOW_FIGURES,
    "show_history": _SHOW_HISTORY,
    "show_job": _SHOW_JOB,
    "show_pool": _SHOW_POOL,
    "show_room": _SHOW_ROOM,
    "show_share": _SHOW_SHARE,
    "show_slab_map": _SHOW_SLAB_MAP,
    "show_space": _SHOW_SPACE,
    "show_status": _SHOW_STATUS,
    "show_version": _SHOW_VERSION,
    "show_volume": _SHOW_VOLUME,
    "show_volume_check": _SHOW_VOLUME_CHECK,
    "stop_daemon": _STOP_DAEMON,
    "stop_job": _STOP_JOB,
    "trim_volume": _TRIM_VOLUME,
    "undo_dedup": _UNDO_DEDUP,
    "unmount_volume": _UNMOUNT_VOLUME,
    "unserve_space": _UNSERVE_SPACE,
}
"""Verbs by the names of their methods."""


class Verbs:
    """A method for each verb. `timeout` is how long a call may take in seconds, of the client where it is left out."""

    def _call(
        self, verb: Verb[A], path: Mapping[str, object], fields: Mapping[str, object], timeout: Optional[float]
    ) -> A:
        raise NotImplementedError

    def accept_share(
        self,
        pool: str,
        space: str,
        share: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Accepts the rights over NFS on a share that another host gave.

        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_space, no_such_object, name_taken, no_space, foreign_data,
        read_only, pool_stopped, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(_ACCEPT_SHARE, {"pool": pool, "space": space, "share": share}, {"dry_run": dry_run}, timeout)

    def acknowledge_errors(
        self,
        pool: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Ends the warnings about errors of disks that the caller has seen.

        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission, stopping,
        internal.
        """
        return self._call(_ACKNOWLEDGE_ERRORS, {"pool": pool}, {"dry_run": dry_run}, timeout)

    def add_disks(
        self,
        pool: str,
        *,
        disks: Sequence[str],
        destroy: Optional[Sequence[str]] = None,
        enclosures: Optional[Sequence[str]] = None,
        seen: Optional[Sequence[str]] = None,
        spare: Optional[bool] = None,
        stays: Optional[bool] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Adds disks to a pool, and evens out what is on it.

        disks: Absolute paths of disks, partitions or files.
        destroy: Those of `disks`, as written there, whose content may be destroyed.
        enclosures: What each disk is in, in the order of `disks`; empty, or left out, for a disk by itself.
        seen: The `identity` of each of `destroy` as it was listed, in that order: the change is refused where another
            device, or other content, is at the path by now. Empty, or left out, for one that is not compared.
        spare: Whether they are to be spares, which take no rows before a disk is lost.
        stays: Whether rows that are there stay where they are; otherwise a rebalance of the pool begins behind this.
        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_device, no_space, foreign_data, unfit_device, device_in_use,
        read_only, pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(
            _ADD_DISKS,
            {"pool": pool},
            {
                "disks": disks,
                "destroy": destroy,
                "enclosures": enclosures,
                "seen": seen,
                "spare": spare,
                "stays": stays,
                "dry_run": dry_run,
            },
            timeout,
        )

    def adopt_volume(
        self,
        pool: str,
        space: str,
        *,
        mount_point: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Makes a volume of a space with a file system, and mounts it. Nothing is written to the space.

        mount_point: Place to mount it on; `/srv/POOL/NAME` when left out.
        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, bad_size, no_such_pool, no_such_space, name_taken, no_space, foreign_data, read_only,
        pool_stopped, busy, io, permission, missing, stopping, config, internal.
        """
        return self._call(
            _ADOPT_VOLUME,
            {"pool": pool, "space": space},
            {"mount_point": mount_point, "dry_run": dry_run},
            timeout,
        )

    def attach_space(
        self,
        pool: str,
        space: str,
        *,
        transport: Optional[types.Transport] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Attaches a space as a block device.

        transport: In which way.
        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, bad_size, no_such_pool, no_such_space, name_taken, no_space, read_only, pool_stopped,
        busy, io, permission, missing, stopping, config, internal.
        """
        return self._call(
            _ATTACH_SPACE,
            {"pool": pool, "space": space},
            {"transport": transport, "dry_run": dry_run},
            timeout,
        )

    def bench_space(
        self,
        pool: str,
        space: str,
        *,
        against: Optional[str] = None,
        destroy: Optional[Sequence[str]] = None,
        outstanding: Optional[Sequence[int]] = None,
        profiles: Optional[Sequence[str]] = None,
        rounds: Optional[int] = None,
        runtime_s: Optional[int] = None,
        size_bytes: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Measures a space under load with fio, or compares it with another one. Profiles that write overwrite both.

        against: A second space, as POOL/SPACE: it is compared with the first.
        destroy: Names of all measured spaces as POOL/SPACE, to confirm that their content is lost; for profiles that
            write.
        outstanding: Outstanding I/Os in place of those of the profiles.
        profiles: Profiles, or groups of them; usually `load`.
        rounds: Rounds; usually 3, and 5 with two spaces.
        runtime_s: Seconds that each load is measured; usually 10.
        size_bytes: Bytes of each space that are used, at most; usually 32 GiB.
        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, needs_confirmation, foreign_data,
        device_in_use, read_only, pool_stopped, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _BENCH_SPACE,
            {"pool": pool, "space": space},
            {
                "against": against,
                "destroy": destroy,
                "outstanding": outstanding,
                "profiles": profiles,
                "rounds": rounds,
                "runtime_s": runtime_s,
                "size_bytes": size_bytes,
                "dry_run": dry_run,
            },
            timeout,
        )

    def cancel_rebalance(
        self,
        pool: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Calls a rebalance off.

        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission, stopping,
        internal.
        """
        return self._call(_CANCEL_REBALANCE, {"pool": pool}, {"dry_run": dry_run}, timeout)

    def cancel_remove(
        self,
        pool: str,
        disk: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Calls the removal of a disk off.

        dry_run: Only tell what would happen.

        Least role: admin.
        Error codes: bad_request, no_such_pool, no_such_disk, no_space, read_only, pool_stopped, busy, io, permission,
        stopping, internal.
        """
        return self._call(_CANCEL_REMOVE, {"pool": pool, "disk": disk}, {"dry_run": dry_run}, timeout)

    def cancel_replace(
        self,
        pool: str,
        disk: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Calls a replacement off.

        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_disk, no_such_device, no_space, read_only, pool_stopped, busy,
        io, permission, stopping, internal.
        """
        return self._call(_CANCEL_REPLACE, {"pool": pool, "disk": disk}, {"dry_run": dry_run}, timeout)

    def check_volume(
        self,
        pool: str,
        space: str,
        *,
        destroy: Optional[str] = None,
        drop_log: Optional[bool] = None,
        repair: Optional[bool] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Checks a volume, or repairs one that is not mounted. A mounted btrfs is scrubbed.

        destroy: To repair it, its name, typed again by whoever wants that.
        drop_log: Drop the log in the repair, with the changes in it, where no mount replays it.
        repair: Repair what is found, which may lose parts of files.
        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, needs_confirmation, read_only, pool_stopped,
        busy, io, permission, unsupported, stopping, internal.
        """
        return self._call(
            _CHECK_VOLUME,
            {"pool": pool, "space": space},
            {"destroy": destroy, "drop_log": drop_log, "repair": repair, "dry_run": dry_run},
            timeout,
        )

    def compact_volume(
        self,
        pool: str,
        space: str,
        *,
        budget_bytes: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Empties rows of a volume that hold little, and gives them back to its pool.

        budget_bytes: Bytes that may be moved; no bound when left out.
        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io, permission,
        missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _COMPACT_VOLUME,
            {"pool": pool, "space": space},
            {"budget_bytes": budget_bytes, "dry_run": dry_run},
            timeout,
        )

    def convert_space(
        self,
        pool: str,
        space: str,
        *,
        columns: Optional[int] = None,
        copies: Optional[int] = None,
        integrity: Optional[types.Integrity] = None,
        interleave_bytes: Optional[int] = None,
        parity: Optional[int] = None,
        provisioning: Optional[types.Provisioning] = None,
        resiliency: Optional[types.ResiliencyKind] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Converts a space to another layout while it is used.

        columns: Data columns, 0 for automatic; automatic when left out and the resiliency is of another kind.
        copies: Copies of a mirror, 2 to 4; when left out those that it has, else 2.
        integrity: Relaxed or strict; as usual when left out and the resiliency is of another kind.
        interleave_bytes: Bytes written to one column before the next; as usual when left out and the resiliency is of
            another kind.
        parity: Parity columns of a space with parity, 1 or 2; when left out those that it has, else 1.
        provisioning: Thin or fixed.
        resiliency: How it is to survive the loss of disks.
        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, bad_size, no_such_pool, no_such_space, too_few_disks, no_space, read_only,
        pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(
            _CONVERT_SPACE,
            {"pool": pool, "space": space},
            {
                "columns": columns,
                "copies": copies,
                "integrity": integrity,
                "interleave_bytes": interleave_bytes,
                "parity": parity,
                "provisioning": provisioning,
                "resiliency": resiliency,
                "dry_run": dry_run,
            },
            timeout,
        )

    def create_pool(
        self,
        *,
        disks: Sequence[str],
        name: str,
        destroy: Optional[Sequence[str]] = None,
        enclosures: Optional[Sequence[str]] = None,
        fault_domains: Optional[Sequence[int]] = None,
        seen: Optional[Sequence[str]] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Creates a pool.

        disks: Absolute paths of disks, partitions or files.
        name: Its name.
        destroy: Those of `disks`, as written there, whose content may be destroyed.
        enclosures: What each disk is in, in the order of `disks`: those with the same name may fail together. Empty for
            a disk by itself, as are those that are left out. Not beside `fault_domains`.
        fault_domains: A fault domain for each disk; 0, or missing, for itself alone.
        seen: The `identity` of each of `destroy` as it was listed, in that order: the change is refused where another
            device, or other content, is at the path by now. Empty, or left out, for one that is not compared.
        dry_run: Only tell what would happen.

        Least role: admin.
        Error codes: bad_request, bad_name, no_such_device, name_taken, no_space, foreign_data, unfit_device,
        device_in_use, pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(
            _CREATE_POOL,
            {},
            {
                "disks": disks,
                "name": name,
                "destroy": destroy,
                "enclosures": enclosures,
                "fault_domains": fault_domains,
                "seen": seen,
                "dry_run": dry_run,
            },
            timeout,
        )

    def create_share(
        self,
        pool: str,
        space: str,
        *,
        name: str,
        protocols: Sequence[types.ShareProtocol],
        accounts: Optional[Sequence[types.ShareAccountGrant]] = None,
        folder: Optional[str] = None,
        is_encryption_optional: Optional[bool] = None,
        networks: Optional[Sequence[types.ShareNetworkGrant]] = None,
        time_machine_bytes: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Shares a folder of a volume over SMB and NFS.

        name: Name that clients see.
        protocols: Protocols that are to offer it.
        accounts: Rights of accounts, over SMB.
        folder: Folder in the volume; all of it when left out.
        is_encryption_optional: Let clients of SMB in that do not encrypt.
        networks: Rights of hosts and networks, over NFS.
        time_machine_bytes: Offer Time Machine over SMB, with this bound in bytes for all backups of Macs.
        dry_run: Return only the plan.

        Least role: operator.
        Error codes: bad_request, no_such_pool, no_such_space, name_taken, no_space, foreign_data, read_only,
        pool_stopped, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _CREATE_SHARE,
            {"pool": pool, "space": space},
            {
                "name": name,
                "protocols": protocols,
                "accounts": accounts,
                "folder": folder,
                "is_encryption_optional": is_encryption_optional,
                "networks": networks,
                "time_machine_bytes": time_machine_bytes,
                "dry_run": dry_run,
            },
            timeout,
        )

    def create_space(
        self,
        pool: str,
        *,
        name: str,
        resiliency: types.ResiliencyKind,
        size_bytes: int,
        columns: Optional[int] = None,
        copies: Optional[int] = None,
        integrity: Optional[types.Integrity] = None,
        interleave_bytes: Optional[int] = None,
        parity: Optional[int] = None,
        provisioning: Optional[types.Provisioning] = None,
        row_bytes: Optional[int] = None,
        sector_bytes: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Creates a space.

        name: Its name.
        resiliency: How it survives the loss of disks.
        size_bytes: Its size, a multiple of 4 KiB.
        columns: Data columns; automatic when left out.
        copies: Copies of a mirror, 2 to 4; 2 when left out.
        integrity: Relaxed or strict; with parity strict, otherwise relaxed, when left out.
        interleave_bytes: Bytes written to one column before the next; when left out 256 KiB, with parity 64 KiB.
        parity: Parity columns of a space with parity, 1 or 2; 1 when left out.
        provisioning: Thin or fixed.
        row_bytes: Bytes of a row, fixed when the space is made. When left out: of a thin space 8 MiB up to 2 TiB, then
            a 2^18th of its size up to 64 MiB, and never below 32 MiB with two parities; of a fixed one 64 MiB; of
            either 256 MiB above 64 TiB.
        sector_bytes: Logical sector, 512 or 4096. When left out: 512, and 4096 where every disk of the pool has sectors
            of 4096 bytes.
        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, bad_name, bad_size, no_such_pool, name_taken, too_few_disks, no_space, read_only,
        pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(
            _CREATE_SPACE,
            {"pool": pool},
            {
                "name": name,
                "resiliency": resiliency,
                "size_bytes": size_bytes,
                "columns": columns,
                "copies": copies,
                "integrity": integrity,
                "interleave_bytes": interleave_bytes,
                "parity": parity,
                "provisioning": provisioning,
                "row_bytes": row_bytes,
                "sector_bytes": sector_bytes,
                "dry_run": dry_run,
            },
            timeout,
        )

    def create_volume(
        self,
        pool: str,
        *,
        name: str,
        purpose: types.VolumePurpose,
        resiliency: types.ResiliencyKind,
        size_bytes: int,
        columns: Optional[int] = None,
        copies: Optional[int] = None,
        file_system: Optional[types.FileSystemKind] = None,
        integrity: Optional[types.Integrity] = None,
        interleave_bytes: Optional[int] = None,
        label: Optional[str] = None,
        mount_point: Optional[str] = None,
        oldest_kernel: Optional[str] = None,
        parity: Optional[int] = None,
        provisioning: Optional[types.Provisioning] = None,
        row_bytes: Optional[int] = None,
        sector_bytes: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Makes a volume: a file system on a new space.

        name: Its name, and that of its space.
        purpose: What the volume is for.
        resiliency: How the space survives the loss of disks.
        size_bytes: Size of the space, a multiple of 4 KiB.
        columns: Data columns; automatic when left out.
        copies: Copies of a mirror, 2 to 4; 2 when left out.
        file_system: File system; that of the purpose when left out.
        integrity: Relaxed or strict; with parity strict, otherwise relaxed, when left out.
        interleave_bytes: Bytes written to one column before the next; when left out as for a space.
        label: Label of the file system; none when left out.
        mount_point: Place to mount it on, an absolute path; `/srv/POOL/NAME` when left out.
        oldest_kernel: Oldest kernel that is to mount it, on this host or another, such as `6.1`; that of this host when
            left out.
        parity: Parity columns of a space with parity, 1 or 2; 1 when left out.
        provisioning: Thin or fixed.
        row_bytes: Bytes of a row; when left out as for a space, but 4 MiB of a thin mirror, simple or span for files or
            documents up to 1 TiB.
        sector_bytes: Logical sector, 512 or 4096; when left out as for a space.
        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, bad_name, bad_size, no_such_pool, name_taken, too_few_disks, no_space, read_only,
        pool_stopped, busy, io, permission, missing, stopping, internal.
        """
        return self._call(
            _CREATE_VOLUME,
            {"pool": pool},
            {
                "name": name,
                "purpose": purpose,
                "resiliency": resiliency,
                "size_bytes": size_bytes,
                "columns": columns,
                "copies": copies,
                "file_system": file_system,
                "integrity": integrity,
                "interleave_bytes": interleave_bytes,
                "label": label,
                "mount_point": mount_point,
                "oldest_kernel": oldest_kernel,
                "parity": parity,
                "provisioning": provisioning,
                "row_bytes": row_bytes,
                "sector_bytes": sector_bytes,
                "dry_run": dry_run,
            },
            timeout,
        )

    def delete_share(
        self,
        pool: str,
        space: str,
        share: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Deletes a share. Its folder stays.

        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, no_such_pool, no_such_space, no_such_object, no_space, foreign_data, read_only,
        pool_stopped, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(_DELETE_SHARE, {"pool": pool, "space": space, "share": share}, {"dry_run": dry_run}, timeout)

    def delete_space(
        self,
        pool: str,
        space: str,
        *,
        destroy: Optional[str] = None,
        purge: Optional[bool] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Deletes a space: into the trash, or for good.

        destroy: To purge it, its name, typed again by whoever wants it gone.
        purge: For good and at once, instead of into the trash.
        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, needs_confirmation, read_only, pool_stopped,
        busy, io, permission, stopping, internal.
        """
        return self._call(
            _DELETE_SPACE,
            {"pool": pool, "space": space},
            {"destroy": destroy, "purge": purge, "dry_run": dry_run},
            timeout,
        )

    def delete_volume(
        self,
        pool: str,
        space: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Deletes a volume: its space goes into the trash with its record.

        dry_run: Only tell what would happen.

        Least role: admin.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, foreign_data, read_only, pool_stopped, busy,
        io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(_DELETE_VOLUME, {"pool": pool, "space": space}, {"dry_run": dry_run}, timeout)

    def destroy_pool(
        self,
        pool: str,
        *,
        destroy: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Destroys a pool.

        destroy: Its name, typed again. Not needed for a dry run.
        dry_run: Only tell what would happen.

        Least role: admin.
        Error codes: bad_request, no_such_pool, no_space, needs_confirmation, read_only, pool_stopped, busy, io,
        permission, stopping, internal.
        """
        return self._call(_DESTROY_POOL, {"pool": pool}, {"destroy": destroy, "dry_run": dry_run}, timeout)

    def detach_space(
        self,
        pool: str,
        space: str,
        *,
        discard_unflushed: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Detaches a space.

        discard_unflushed: Its name, typed again: what was written and cannot be flushed, because disks are away, is
            discarded.
        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, needs_confirmation, read_only, pool_stopped,
        busy, io, permission, stopping, internal.
        """
        return self._call(
            _DETACH_SPACE,
            {"pool": pool, "space": space},
            {"discard_unflushed": discard_unflushed, "dry_run": dry_run},
            timeout,
        )

    def drain_write_cache(
        self,
        pool: str,
        *,
        bytes_per_s_max: Optional[int] = None,
        fill_percent: Optional[int] = None,
        survives: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Sets at which fill a write cache is destaged, and how fast.

        bytes_per_s_max: Bytes a second that are put in place at most while nobody waits for room, 1 MiB or more; 0 for
            as many as the disks take.
        fill_percent: Percent of it that wait to be put in place before that begins, 5 to 90.
        survives: Disks that the spaces that it is for may lose; may be left out where the pool has one write cache.
        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission, stopping,
        internal.
        """
        return self._call(
            _DRAIN_WRITE_CACHE,
            {"pool": pool},
            {
                "bytes_per_s_max": bytes_per_s_max,
                "fill_percent": fill_percent,
                "survives": survives,
                "dry_run": dry_run,
            },
            timeout,
        )

    def enable_dedup(
        self,
        pool: str,
        space: str,
        *,
        excluded_folders: Optional[Sequence[str]] = None,
        excluded_names: Optional[Sequence[str]] = None,
        memory_bytes: Optional[int] = None,
        min_age_days: Optional[int] = None,
        min_file_bytes: Optional[int] = None,
        mode: Optional[types.DedupMode] = None,
        off: Optional[bool] = None,
        schedule: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Sets the policy of the deduplication of a volume, or takes it away.

        excluded_folders: Folders that it leaves out, with all below them; paths within the volume.
        excluded_names: Patterns of names that it leaves out: `*` is any number of bytes, `?` is one.
        memory_bytes: Memory that it may take, 40 MiB at least; usually 256 MiB.
        min_age_days: Days since the last change of a file, at least; usually 3.
        min_file_bytes: Bytes of a file, at least; usually 32 KiB.
        mode: Load that it may cause; usually `background`.
        off: Take the policy and its schedule away; nothing else may be set.
        schedule: Times of runs: `never`, `hourly`, `daily 03:00` or `weekly sunday 02:00`; usually `weekly sunday
            02:00`.
        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io, permission,
        unsupported, stopping, config, internal.
        """
        return self._call(
            _ENABLE_DEDUP,
            {"pool": pool, "space": space},
            {
                "excluded_folders": excluded_folders,
                "excluded_names": excluded_names,
                "memory_bytes": memory_bytes,
                "min_age_days": min_age_days,
                "min_file_bytes": min_file_bytes,
                "mode": mode,
                "off": off,
                "schedule": schedule,
                "dry_run": dry_run,
            },
            timeout,
        )

    def estimate_dedup(
        self,
        pool: str,
        space: str,
        *,
        sample_bytes: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Estimates what a deduplication of a volume would save.

        sample_bytes: Bytes that are read at least; 256 MiB when left out. A hundredth of the files is read in any case.
        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io, permission,
        missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _ESTIMATE_DEDUP,
            {"pool": pool, "space": space},
            {"sample_bytes": sample_bytes, "dry_run": dry_run},
            timeout,
        )

    def explain_object(
        self,
        object: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.Why:
        """Explains why a pool, a disk, a space or a job is as it is.

        Least role: viewer.
        Error codes: bad_request, no_such_object, busy, io, permission, stopping, internal.
        """
        return self._call(_EXPLAIN_OBJECT, {"object": object}, {}, timeout)

    def export_pool(
        self,
        pool: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Closes a pool and gives it up, so that any host may open it.

        dry_run: Only tell what would happen.

        Least role: admin.
        Error codes: bad_request, no_such_pool, no_space, foreign_data, read_only, pool_stopped, busy, io, permission,
        missing, unsupported, stopping, config, internal.
        """
        return self._call(_EXPORT_POOL, {"pool": pool}, {"dry_run": dry_run}, timeout)

    def forget_disk(
        self,
        pool: str,
        disk: str,
        *,
        accept_data_loss: Optional[bool] = None,
        destroy: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Removes a lost disk; declares data lost that was on it alone, where the request says so.

        accept_data_loss: Also where something was on it alone: that is lost then, and cannot be read before it is
            written again.
        destroy: To give something up, the name of the pool, typed again. Not needed for a dry run.
        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_disk, no_such_device, too_few_disks, no_space,
        needs_confirmation, read_only, pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(
            _FORGET_DISK,
            {"pool": pool, "disk": disk},
            {"accept_data_loss": accept_data_loss, "destroy": destroy, "dry_run": dry_run},
            timeout,
        )

    def grant_share(
        self,
        pool: str,
        space: str,
        share: str,
        *,
        accounts: Optional[Sequence[types.ShareAccountGrant]] = None,
        networks: Optional[Sequence[types.ShareNetworkGrant]] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Grants rights on a share, or changes them.

        accounts: Rights of accounts, over SMB.
        networks: Rights of hosts and networks, over NFS.
        dry_run: Return only the plan.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_space, no_such_object, name_taken, no_space, needs_confirmation,
        foreign_data, read_only, pool_stopped, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _GRANT_SHARE,
            {"pool": pool, "space": space, "share": share},
            {"accounts": accounts, "networks": networks, "dry_run": dry_run},
            timeout,
        )

    def grow_disk(
        self,
        pool: str,
        disk: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Takes the room into use that the device of a disk has gained.

        dry_run: Only tell what would happen.

        Least role: admin. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_disk, no_such_device, no_space, read_only, pool_stopped, busy,
        io, permission, stopping, internal.
        """
        return self._call(_GROW_DISK, {"pool": pool, "disk": disk}, {"dry_run": dry_run}, timeout)

    def grow_volume(
        self,
        pool: str,
        space: str,
        *,
        size_bytes: int,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Grows a volume: its space, its device and its file system.

        size_bytes: The size wanted, a multiple of 4 KiB.
        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, bad_size, no_such_pool, no_such_space, too_few_disks, no_space, read_only,
        pool_stopped, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _GROW_VOLUME,
            {"pool": pool, "space": space},
            {"size_bytes": size_bytes, "dry_run": dry_run},
            timeout,
        )

    def import_pool(
        self,
        *,
        accept: Optional[bool] = None,
        mode: Optional[types.ImportMode] = None,
        paths: Optional[Sequence[str]] = None,
        pool: Optional[str] = None,
        rename: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Opens a pool that is not open here.

        accept: Also accept what another host set: mount points of its volumes, and rights over NFS on its shares; they
            are held otherwise.
        mode: What for.
        paths: Where to look: disks, files, or folders of them, beside all disks of the system.
        pool: Its name or identity; may be left out when the disks named belong to one pool only, or, where none is
            named, when those of the system do.
        rename: Another name that it gets, for good where it is opened for writing; as it is called when absent.
        dry_run: Only tell what would happen.

        Least role: admin.
        Error codes: bad_request, bad_name, no_such_pool, no_such_device, name_taken, no_space, needs_confirmation,
        unfit_device, device_in_use, read_only, pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(
            _IMPORT_POOL,
            {},
            {"accept": accept, "mode": mode, "paths": paths, "pool": pool, "rename": rename, "dry_run": dry_run},
            timeout,
        )

    def list_all_shares(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Shares:
        """Lists the shares of all pools.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_ALL_SHARES, {}, {}, timeout)

    def list_all_spaces(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Spaces:
        """Lists all spaces.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_ALL_SPACES, {}, {}, timeout)

    def list_all_trash(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Trash:
        """Lists what is in the trash of all pools.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_ALL_TRASH, {}, {}, timeout)

    def list_all_volumes(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Volumes:
        """Lists the volumes of all pools.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_ALL_VOLUMES, {}, {}, timeout)

    def list_attachments(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Attachments:
        """Lists spaces that are attached as block devices.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_ATTACHMENTS, {}, {}, timeout)

    def list_benchmarks(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Benchmarks:
        """Lists profiles of load, the benchmark under way, and the reports of benchmarks.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_BENCHMARKS, {}, {}, timeout)

    def list_devices(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Devices:
        """Lists devices that belong to no open pool.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_DEVICES, {}, {}, timeout)

    def list_disks(
        self,
        pool: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.Disks:
        """Lists the disks of a pool.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_DISKS, {"pool": pool}, {}, timeout)

    def list_events(
        self,
        *,
        pool: Optional[str] = None,
        since: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> types.Events:
        """Lists what has happened since an event.

        pool: Pool whose events are listed; those of all pools without it.
        since: Number of the last event that the caller knows; events from the first on without it.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_EVENTS, {}, {"pool": pool, "since": since}, timeout)

    def list_exports(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Exports:
        """Lists spaces that are served over NBD.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_EXPORTS, {}, {}, timeout)

    def list_jobs(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Jobs:
        """Lists jobs that run, wait, or ended lately.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_JOBS, {}, {}, timeout)

    def list_pools(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Pools:
        """Lists all pools.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_POOLS, {}, {}, timeout)

    def list_quotas(
        self,
        pool: str,
        space: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.Quotas:
        """Lists the quotas of a volume, with what its folders hold.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, no_such_space, busy, io, permission, missing, unsupported, stopping,
        internal.
        """
        return self._call(_LIST_QUOTAS, {"pool": pool, "space": space}, {}, timeout)

    def list_share_sessions(
        self,
        pool: str,
        space: str,
        share: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.ShareSessions:
        """Lists the clients of a share.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, no_such_space, no_such_object, foreign_data, busy, io, permission,
        missing, unsupported, stopping, config, internal.
        """
        return self._call(_LIST_SHARE_SESSIONS, {"pool": pool, "space": space, "share": share}, {}, timeout)

    def list_shares(
        self,
        pool: str,
        space: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.Shares:
        """Lists the shares of a volume.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, no_such_space, busy, io, permission, unsupported, stopping, internal.
        """
        return self._call(_LIST_SHARES, {"pool": pool, "space": space}, {}, timeout)

    def list_spaces(
        self,
        pool: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.Spaces:
        """Lists the spaces of a pool.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_SPACES, {"pool": pool}, {}, timeout)

    def list_trash(
        self,
        pool: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.Trash:
        """Lists what is in the trash of a pool.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_TRASH, {"pool": pool}, {}, timeout)

    def list_volumes(
        self,
        pool: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.Volumes:
        """Lists the volumes of a pool.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, busy, io, permission, stopping, internal.
        """
        return self._call(_LIST_VOLUMES, {"pool": pool}, {}, timeout)

    def locate_disk(
        self,
        pool: str,
        disk: str,
        *,
        off: Optional[bool] = None,
        seconds: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Lets a disk show where it is, or ends that.

        off: Whether it is to end.
        seconds: For how long, up to an hour; a minute if left out.
        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, no_such_pool, no_such_disk, no_such_device, no_space, read_only, pool_stopped, busy,
        io, permission, stopping, internal.
        """
        return self._call(
            _LOCATE_DISK,
            {"pool": pool, "disk": disk},
            {"off": off, "seconds": seconds, "dry_run": dry_run},
            timeout,
        )

    def mount_volume(
        self,
        pool: str,
        space: str,
        *,
        mount_point: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Mounts a volume, now and whenever its pool is opened.

        mount_point: Place to mount it on from now on; the one on record when left out.
        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, bad_size, no_such_pool, no_such_space, name_taken, no_space, needs_confirmation,
        foreign_data, read_only, pool_stopped, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _MOUNT_VOLUME,
            {"pool": pool, "space": space},
            {"mount_point": mount_point, "dry_run": dry_run},
            timeout,
        )

    def offline_disk(
        self,
        pool: str,
        disk: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Closes a disk that stays a member.

        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_disk, no_space, read_only, pool_stopped, busy, io, permission,
        stopping, internal.
        """
        return self._call(_OFFLINE_DISK, {"pool": pool, "disk": disk}, {"dry_run": dry_run}, timeout)

    def online_disk(
        self,
        pool: str,
        disk: str,
        *,
        accept_old_content: Optional[bool] = None,
        path: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Opens a disk that was absent again.

        accept_old_content: Also where content that no other disk has is older than what was written last: the spaces
            show the old content then.
        path: Where it is now, if that is not where it was.
        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_disk, no_such_device, no_space, needs_confirmation,
        unfit_device, device_in_use, read_only, pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(
            _ONLINE_DISK,
            {"pool": pool, "disk": disk},
            {"accept_old_content": accept_old_content, "path": path, "dry_run": dry_run},
            timeout,
        )

    def pause_job(
        self,
        job: int,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Pauses a job until it is resumed.

        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_job, busy, io, permission, stopping, internal.
        """
        return self._call(_PAUSE_JOB, {"job": job}, {"dry_run": dry_run}, timeout)

    def purge_trash(
        self,
        pool: str,
        *,
        all: Optional[bool] = None,
        destroy: Optional[str] = None,
        spaces: Optional[Sequence[str]] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Deletes spaces in the trash for good.

        all: All of them, instead.
        destroy: Typed again by whoever wants them gone: the name of the one space, or with several or all that of the
            pool.
        spaces: Which, by name or number.
        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, needs_confirmation, read_only, pool_stopped,
        busy, io, permission, stopping, internal.
        """
        return self._call(
            _PURGE_TRASH,
            {"pool": pool},
            {"all": all, "destroy": destroy, "spaces": spaces, "dry_run": dry_run},
            timeout,
        )

    def rebalance_pool(
        self,
        pool: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Moves slabs from full disks to emptier ones.

        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission, stopping,
        internal.
        """
        return self._call(_REBALANCE_POOL, {"pool": pool}, {"dry_run": dry_run}, timeout)

    def remove_disk(
        self,
        pool: str,
        disk: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Moves everything from a disk to the others, and removes it from the pool.

        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_disk, no_such_device, too_few_disks, no_space, read_only,
        pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(_REMOVE_DISK, {"pool": pool, "disk": disk}, {"dry_run": dry_run}, timeout)

    def remove_quota(
        self,
        pool: str,
        space: str,
        *,
        folder: str,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Removes the bound of a folder of a volume.

        folder: Folder in the volume; empty for all of it.
        dry_run: Return only the plan.

        Least role: operator.
        Error codes: bad_request, no_such_pool, no_such_space, no_such_object, no_space, read_only, pool_stopped, busy,
        io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _REMOVE_QUOTA,
            {"pool": pool, "space": space},
            {"folder": folder, "dry_run": dry_run},
            timeout,
        )

    def rename_space(
        self,
        pool: str,
        space: str,
        *,
        name: str,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Renames a space.

        name: The name wanted.
        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, bad_name, no_such_pool, no_such_space, name_taken, no_space, read_only, pool_stopped,
        busy, io, permission, stopping, internal.
        """
        return self._call(_RENAME_SPACE, {"pool": pool, "space": space}, {"name": name, "dry_run": dry_run}, timeout)

    def replace_disk(
        self,
        pool: str,
        disk: str,
        *,
        with_: str,
        destroy: Optional[Sequence[str]] = None,
        seen: Optional[Sequence[str]] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Replaces a disk by another one.

        with_: Absolute path of the disk that takes its place.
        destroy: That path again when its content may be destroyed.
        seen: The `identity` of each of `destroy` as it was listed, in that order: the change is refused where another
            device, or other content, is at the path by now. Empty, or left out, for one that is not compared.
        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_disk, no_such_device, no_space, foreign_data, unfit_device,
        device_in_use, read_only, pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(
            _REPLACE_DISK,
            {"pool": pool, "disk": disk},
            {"with_": with_, "destroy": destroy, "seen": seen, "dry_run": dry_run},
            timeout,
        )

    def resize_space(
        self,
        pool: str,
        space: str,
        *,
        size_bytes: int,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Changes the size of a space. One that carries a volume grows with its file system.

        size_bytes: The size wanted, a multiple of 4 KiB.
        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing. The answer may hold a job.
        Error codes: bad_request, bad_size, no_such_pool, no_such_space, too_few_disks, no_space, read_only,
        pool_stopped, busy, not_empty, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _RESIZE_SPACE,
            {"pool": pool, "space": space},
            {"size_bytes": size_bytes, "dry_run": dry_run},
            timeout,
        )

    def resize_write_cache(
        self,
        pool: str,
        *,
        size_bytes: int,
        survives: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Changes the size of a write cache.

        size_bytes: Bytes that it is to hold when it is full, each of them with its copies; what is no whole row of it
            becomes one.
        survives: Disks that the spaces that it is for may lose; may be left out where the pool has one write cache.
        dry_run: Only tell what would happen.

        Least role: admin. The answer may hold a job.
        Error codes: bad_request, bad_size, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission,
        stopping, internal.
        """
        return self._call(
            _RESIZE_WRITE_CACHE,
            {"pool": pool},
            {"size_bytes": size_bytes, "survives": survives, "dry_run": dry_run},
            timeout,
        )

    def restore_space(
        self,
        pool: str,
        space: str,
        *,
        name: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Takes a space out of the trash.

        name: The name that it is to have; the one that it had when left out.
        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, bad_name, no_such_pool, no_such_space, name_taken, no_space, read_only, pool_stopped,
        busy, io, permission, stopping, internal.
        """
        return self._call(_RESTORE_SPACE, {"pool": pool, "space": space}, {"name": name, "dry_run": dry_run}, timeout)

    def resume_job(
        self,
        job: int,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Lets a paused job continue.

        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, no_such_pool, no_such_job, busy, io, permission, stopping, internal.
        """
        return self._call(_RESUME_JOB, {"job": job}, {"dry_run": dry_run}, timeout)

    def resync_pool(
        self,
        pool: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Copies to disks what they have missed.

        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission, stopping,
        internal.
        """
        return self._call(_RESYNC_POOL, {"pool": pool}, {"dry_run": dry_run}, timeout)

    def revoke_share(
        self,
        pool: str,
        space: str,
        share: str,
        *,
        accounts: Optional[Sequence[types.ShareAccount]] = None,
        clients: Optional[Sequence[str]] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Revokes rights on a share.

        accounts: Accounts that lose their rights.
        clients: Hosts and networks that lose their rights.
        dry_run: Return only the plan.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_space, no_such_object, name_taken, no_space, foreign_data,
        read_only, pool_stopped, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _REVOKE_SHARE,
            {"pool": pool, "space": space, "share": share},
            {"accounts": accounts, "clients": clients, "dry_run": dry_run},
            timeout,
        )

    def run_dedup(
        self,
        pool: str,
        space: str,
        *,
        mode: Optional[types.DedupMode] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Shares equal bytes of the files of a volume, and gives what becomes free back to its pool.

        mode: Load that it may cause; that of the policy when left out.
        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io, permission,
        missing, unsupported, stopping, config, internal.
        """
        return self._call(_RUN_DEDUP, {"pool": pool, "space": space}, {"mode": mode, "dry_run": dry_run}, timeout)

    def scrub_pool(
        self,
        pool: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Reads and verifies everything in a pool.

        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission, stopping,
        internal.
        """
        return self._call(_SCRUB_POOL, {"pool": pool}, {"dry_run": dry_run}, timeout)

    def serve_space(
        self,
        pool: str,
        space: str,
        *,
        network: Optional[types.ServeNetwork] = None,
        read_only: Optional[bool] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Serves a space over NBD.

        network: Where on a network as well.
        read_only: Take no changes.
        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io, permission,
        stopping, internal.
        """
        return self._call(
            _SERVE_SPACE,
            {"pool": pool, "space": space},
            {"network": network, "read_only": read_only, "dry_run": dry_run},
            timeout,
        )

    def set_alert_at(
        self,
        pool: str,
        *,
        percents: Sequence[int],
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Sets the percents of fullness at which a pool warns.

        percents: Percents of what can be used, up to four from 1 to 99; empty for never.
        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission, stopping,
        internal.
        """
        return self._call(_SET_ALERT_AT, {"pool": pool}, {"percents": percents, "dry_run": dry_run}, timeout)

    def set_disk(
        self,
        pool: str,
        disk: str,
        *,
        bay: str,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Changes what people note of a disk.

        bay: What its bay is called: up to 64 bytes of text in one line; empty for nothing.
        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, bad_name, no_such_pool, no_such_disk, name_taken, no_space, read_only, pool_stopped,
        busy, io, permission, stopping, internal.
        """
        return self._call(_SET_DISK, {"pool": pool, "disk": disk}, {"bay": bay, "dry_run": dry_run}, timeout)

    def set_disk_role(
        self,
        pool: str,
        disk: str,
        *,
        role: types.DiskRole,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Sets whether a disk takes rows, is a spare or stays empty.

        role: What it is to be.
        dry_run: Only tell what would happen.

        Least role: admin. A second time it succeeds and changes nothing. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_disk, no_such_device, too_few_disks, no_space, read_only,
        pool_stopped, busy, io, permission, stopping, internal.
        """
        return self._call(_SET_DISK_ROLE, {"pool": pool, "disk": disk}, {"role": role, "dry_run": dry_run}, timeout)

    def set_enclosure(
        self,
        pool: str,
        disk: str,
        *,
        name: Optional[str] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Sets what a disk is in: an enclosure, a shelf, whatever may fail as one.

        name: Its name; left out for a disk by itself.
        dry_run: Only tell what would happen.

        Least role: admin. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_disk, too_few_disks, no_space, read_only, pool_stopped, busy,
        io, permission, stopping, internal.
        """
        return self._call(_SET_ENCLOSURE, {"pool": pool, "disk": disk}, {"name": name, "dry_run": dry_run}, timeout)

    def set_job(
        self,
        job: int,
        *,
        latency_limit_ms: Optional[int] = None,
        priority: Optional[types.JobPriority] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Sets how a job shares the disks with clients.

        latency_limit_ms: How long one in twenty of the clients' reads and writes may take before it takes less, in
            milliseconds: 1 to 60000, or 0 for no limit.
        priority: How much of the disks' time it takes at most while clients use the pool.
        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_job, busy, io, permission, stopping, internal.
        """
        return self._call(
            _SET_JOB,
            {"job": job},
            {"latency_limit_ms": latency_limit_ms, "priority": priority, "dry_run": dry_run},
            timeout,
        )

    def set_keep_room(
        self,
        pool: str,
        *,
        losses: int,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Sets for how many lost disks a pool keeps room.

        losses: Disks, the largest first; 0 to keep none.
        dry_run: Only tell what would happen.

        Least role: admin. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission, stopping,
        internal.
        """
        return self._call(_SET_KEEP_ROOM, {"pool": pool}, {"losses": losses, "dry_run": dry_run}, timeout)

    def set_limits(
        self,
        pool: str,
        space: str,
        *,
        bytes_per_s_max: Optional[int] = None,
        bytes_per_s_min: Optional[int] = None,
        iops_max: Optional[int] = None,
        iops_min: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Sets the most and the least that a space gets of the disks of its pool.

        bytes_per_s_max: Bytes in a second that it gets at most, a multiple of 1 KiB.
        bytes_per_s_min: Bytes in a second that others leave to it, a multiple of 1 KiB.
        iops_max: Requests in a second that it gets at most.
        iops_min: Requests in a second that others leave to it.
        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io, permission,
        stopping, internal.
        """
        return self._call(
            _SET_LIMITS,
            {"pool": pool, "space": space},
            {
                "bytes_per_s_max": bytes_per_s_max,
                "bytes_per_s_min": bytes_per_s_min,
                "iops_max": iops_max,
                "iops_min": iops_min,
                "dry_run": dry_run,
            },
            timeout,
        )

    def set_quota(
        self,
        pool: str,
        space: str,
        *,
        folder: str,
        limit_bytes: Optional[int] = None,
        limit_files: Optional[int] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Bounds a folder of a volume.

        folder: Folder in the volume; empty for all of it.
        limit_bytes: Bytes, at most; no bound when left out.
        limit_files: Files and folders, at most; no bound when left out.
        dry_run: Return only the plan.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_space, name_taken, no_space, foreign_data, read_only,
        pool_stopped, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(
            _SET_QUOTA,
            {"pool": pool, "space": space},
            {"folder": folder, "limit_bytes": limit_bytes, "limit_files": limit_files, "dry_run": dry_run},
            timeout,
        )

    def set_repair_after(
        self,
        pool: str,
        *,
        seconds: int,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Sets how long a disk may be absent before the others take over what it held.

        seconds: Seconds, up to 365 days; 0 for ever.
        dry_run: Only tell what would happen.

        Least role: admin. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_space, read_only, pool_stopped, busy, io, permission, stopping,
        internal.
        """
        return self._call(_SET_REPAIR_AFTER, {"pool": pool}, {"seconds": seconds, "dry_run": dry_run}, timeout)

    def set_reserve(
        self,
        pool: str,
        space: str,
        *,
        bytes: int,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Reserves room for a thin space.

        bytes: Bytes of it that can be written however full its pool is, in whole rows; 0 for none.
        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, bad_size, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io,
        permission, stopping, internal.
        """
        return self._call(_SET_RESERVE, {"pool": pool, "space": space}, {"bytes": bytes, "dry_run": dry_run}, timeout)

    def show_benchmark(
        self,
        job: int,
        *,
        timeout: Optional[float] = None,
    ) -> types.BenchmarkReport:
        """Shows the report of a benchmark.

        Least role: viewer.
        Error codes: bad_request, no_such_job, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_BENCHMARK, {"job": job}, {}, timeout)

    def show_counters(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Counters:
        """Shows what the daemon has counted since it was started.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_COUNTERS, {}, {}, timeout)

    def show_dedup(
        self,
        pool: str,
        space: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.Dedup:
        """Shows the deduplication of a volume: its policy, its last run, and what is under way.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, no_such_space, busy, io, permission, unsupported, stopping, internal.
        """
        return self._call(_SHOW_DEDUP, {"pool": pool, "space": space}, {}, timeout)

    def show_figures(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Figures:
        """Shows the load of spaces and disks, and how long requests took.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_FIGURES, {}, {}, timeout)

    def show_history(
        self,
        pool: str,
        *,
        from_s: Optional[int] = None,
        name: Optional[str] = None,
        of: Optional[str] = None,
        step_s: Optional[int] = None,
        to_s: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> types.History:
        """Shows what a pool, a space or a disk did over time.

        from_s: First moment, in seconds since 1970; an hour before the last without it.
        name: Name of the space; path, id, its first digits, or slot of the disk.
        of: `pool`, `space` or `disk`; `pool` without it.
        step_s: Seconds of a point, at least: of 10, 60, 600, 3,600 and 86,400 the first that is no less. Without it,
            the least of which points are kept that far back, and few enough fit into an answer.
        to_s: Last moment; now without it.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, no_such_space, no_such_disk, busy, io, permission, stopping, internal.
        """
        return self._call(
            _SHOW_HISTORY,
            {"pool": pool},
            {"from_s": from_s, "name": name, "of": of, "step_s": step_s, "to_s": to_s},
            timeout,
        )

    def show_job(
        self,
        job: int,
        *,
        timeout: Optional[float] = None,
    ) -> types.JobDocument:
        """Shows a job.

        Least role: viewer.
        Error codes: bad_request, no_such_job, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_JOB, {"job": job}, {}, timeout)

    def show_pool(
        self,
        pool: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.PoolDocument:
        """Shows a pool.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_POOL, {"pool": pool}, {}, timeout)

    def show_room(
        self,
        pool: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.Df:
        """Shows where the bytes of a pool are, and what still fits.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_ROOM, {"pool": pool}, {}, timeout)

    def show_share(
        self,
        pool: str,
        space: str,
        share: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.ShareDocument:
        """Shows a share, after a new look at its servers.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, no_such_space, no_such_object, busy, io, permission, unsupported,
        stopping, internal.
        """
        return self._call(_SHOW_SHARE, {"pool": pool, "space": space, "share": share}, {}, timeout)

    def show_slab_map(
        self,
        pool: str,
        *,
        cells: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> types.SlabMap:
        """Shows where on the disks of a pool slabs of which space lie.

        cells: Cells of each disk, from 1 to 512; 64 without it.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_SLAB_MAP, {"pool": pool}, {"cells": cells}, timeout)

    def show_space(
        self,
        pool: str,
        space: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.SpaceDocument:
        """Shows a space.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, no_such_space, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_SPACE, {"pool": pool, "space": space}, {}, timeout)

    def show_status(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Status:
        """Shows the state of everything.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_STATUS, {}, {}, timeout)

    def show_version(
        self,
        *,
        timeout: Optional[float] = None,
    ) -> types.Version:
        """Shows the versions of the daemon and of the API.

        Least role: viewer.
        Error codes: bad_request, busy, io, permission, stopping, internal.
        """
        return self._call(_SHOW_VERSION, {}, {}, timeout)

    def show_volume(
        self,
        pool: str,
        space: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.VolumeDocument:
        """Shows a volume.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, no_such_space, busy, io, permission, unsupported, stopping, internal.
        """
        return self._call(_SHOW_VOLUME, {"pool": pool, "space": space}, {}, timeout)

    def show_volume_check(
        self,
        pool: str,
        space: str,
        *,
        timeout: Optional[float] = None,
    ) -> types.VolumeCheck:
        """Shows what the last check of a volume found.

        Least role: viewer.
        Error codes: bad_request, no_such_pool, no_such_space, no_such_object, busy, io, permission, unsupported,
        stopping, internal.
        """
        return self._call(_SHOW_VOLUME_CHECK, {"pool": pool, "space": space}, {}, timeout)

    def stop_daemon(
        self,
        *,
        hand_over: Optional[bool] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Ends the daemon, or names what keeps it from ending.

        hand_over: Leave attached spaces for the next daemon to take up: their I/O pauses, and goes on with it. Without
            this, an attached space that is in use keeps the daemon from ending.
        dry_run: Only tell what would happen.

        Least role: admin.
        Error codes: bad_request, foreign_data, busy, io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(_STOP_DAEMON, {}, {"hand_over": hand_over, "dry_run": dry_run}, timeout)

    def stop_job(
        self,
        job: int,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Ends a job before it is done.

        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_job, busy, io, permission, stopping, internal.
        """
        return self._call(_STOP_JOB, {"job": job}, {"dry_run": dry_run}, timeout)

    def trim_volume(
        self,
        pool: str,
        space: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Gives free room of a mounted volume back to its pool.

        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io, permission,
        missing, unsupported, stopping, config, internal.
        """
        return self._call(_TRIM_VOLUME, {"pool": pool, "space": space}, {"dry_run": dry_run}, timeout)

    def undo_dedup(
        self,
        pool: str,
        space: str,
        *,
        paths: Optional[Sequence[str]] = None,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Gives files of a volume bytes of their own again.

        paths: Files and folders, as paths within the volume or below its mount point; all of the volume when left out.
        dry_run: Only tell what would happen.

        Least role: operator. The answer may hold a job.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io, permission,
        missing, unsupported, stopping, config, internal.
        """
        return self._call(_UNDO_DEDUP, {"pool": pool, "space": space}, {"paths": paths, "dry_run": dry_run}, timeout)

    def unmount_volume(
        self,
        pool: str,
        space: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Unmounts a volume, and leaves it so.

        dry_run: Only tell what would happen.

        Least role: operator.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, foreign_data, read_only, pool_stopped, busy,
        io, permission, missing, unsupported, stopping, config, internal.
        """
        return self._call(_UNMOUNT_VOLUME, {"pool": pool, "space": space}, {"dry_run": dry_run}, timeout)

    def unserve_space(
        self,
        pool: str,
        space: str,
        *,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> types.Change:
        """Stops serving a space.

        dry_run: Only tell what would happen.

        Least role: operator. A second time it succeeds and changes nothing.
        Error codes: bad_request, no_such_pool, no_such_space, no_space, read_only, pool_stopped, busy, io, permission,
        stopping, internal.
        """
        return self._call(_UNSERVE_SPACE, {"pool": pool, "space": space}, {"dry_run": dry_run}, timeout)
