"""Each verb of the document, once at least, against a real daemon.

DOLMEN_TEST_SOCKET   socket of a daemon without pools; the tests are left out without it
DOLMEN_TEST_FOLDER   folder with files `a` to `f` of 2 GiB that become disks, and room for mount points
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import unittest
from typing import Any, Dict, Iterator, Optional, Set

import dolmen

from .daemon import FOLDER, JOB_MAX, MIB, SOCKET, Compared
from .examples import OPERATIONS

POOL = "tank"
HAS_BTRFS = os.environ.get("DOLMEN_TEST_BTRFS", "no") == "yes"
# Bytes of a file that makes jobs last.
LARGE = 192 * MIB
# How often a pool may be busy with jobs of its own.
TRIES = 50


def disk(name: str) -> str:
    return os.path.join(FOLDER, name)


@unittest.skipUnless(SOCKET and FOLDER, "DOLMEN_TEST_SOCKET names no daemon")
class EachVerbOfARealDaemon(unittest.TestCase):
    maxDiff = None
    client: Compared
    # Questions that cannot be answered on this machine.
    without: Set[str] = set()
    # The same where fio is missing.
    unmeasured: Set[str] = set()

    @contextlib.contextmanager
    def refusal(self, code: str) -> Iterator[None]:
        with self.assertRaises(dolmen.Error) as caught:
            yield
        self.assertEqual(caught.exception.code, code, str(caught.exception))

    def test_each_verb_answers_as_the_document_says(self) -> None:
        """Scenario: the life of a pool. Expected: each question answers, each change plans, all of it fits the document."""
        self.client = Compared(SOCKET)
        steps = (self.host, self.pool, self.spaces, self.benchmarks, self.volume, self.dedup, self.shares, self.jobs)
        steps += (self.disks, self.trash, self.end)
        for step in steps:
            step()
            print(f"{step.__name__}: {len(self.client.answered)} verbs have answered", flush=True)
        self.assertEqual(self.client.faults, [])
        questions = {name for name, operation in OPERATIONS.items() if operation["method"] == "GET"}
        self.assertEqual(questions - self.client.answered, self.without | self.unmeasured, "questions without an answer")
        called = self.client.answered | set(self.client.refused)
        self.assertEqual(set(OPERATIONS) - called, set(), "verbs that were not called")
        left = {name: codes for name, codes in self.client.refused.items() if name not in self.client.answered}
        print("refused alone:", left)
        print(f"{len(called)} of {len(OPERATIONS)} verbs called, {len(self.client.answered)} answered")


    def host(self) -> None:
        """Nothing is there yet."""
        client = self.client
        self.assertEqual(client.show_version().api, 1)
        self.assertEqual(client.show_status().pools, [])
        client.show_counters()
        client.show_figures()
        client.list_devices()
        self.assertEqual(client.list_pools().pools, [])
        with self.refusal("no_such_pool"):
            client.show_pool("nowhere")
        with self.refusal("no_such_job"):
            client.show_job(4711)

    def pool(self) -> None:
        client = self.client
        client.do("create_pool", name=POOL, disks=[disk(name) for name in "abcd"])
        self.assertEqual([pool.name for pool in client.list_pools().pools], [POOL])
        self.assertEqual(client.show_pool(POOL).pool.state, "writable")
        self.assertEqual([each.slot for each in client.list_disks(POOL).disks], [0, 1, 2, 3])
        self.assertGreater(client.show_room(POOL).free_bytes, 0)
        self.assertEqual(client.show_history(POOL, of="disk", name="0").step_s, 10)
        self.assertEqual([len(disk.cells) for disk in client.show_slab_map(POOL, cells=16).disks], [16] * 4)
        client.do("set_repair_after", POOL, seconds=3600)
        client.do("set_keep_room", POOL, losses=0)
        client.do("set_alert_at", POOL, percents=[70, 90])
        client.do("acknowledge_errors", POOL)

    def spaces(self) -> None:
        client = self.client
        client.do("create_space", POOL, name="data", resiliency="mirror", size_bytes=128 * MIB)
        client.do("create_space", POOL, name="old", resiliency="simple", size_bytes=64 * MIB)
        with self.refusal("name_taken"):
            client.create_space(POOL, name="old", resiliency="simple", size_bytes=64 * MIB)
        client.do("resize_space", POOL, "data", size_bytes=192 * MIB)
        client.do("rename_space", POOL, "data", name="b")
        client.do("rename_space", POOL, "b", name="data")
        client.do("set_limits", POOL, "data", iops_max=100000)
        client.do("set_reserve", POOL, "data", bytes=64 * MIB)
        client.do("convert_space", POOL, "data", resiliency="mirror", copies=3)
        self.assertEqual(client.show_space(POOL, "data").space.copies, 3)
        self.assertEqual({each.name for each in client.list_spaces(POOL).spaces}, {"data", "old"})
        self.assertEqual(len(client.list_all_spaces().spaces), 2)
        client.do("attach_space", POOL, "old", transport="loop")
        (attached,) = client.list_attachments().attachments
        self.assertEqual((attached.pool, attached.space), (POOL, "old"))
        # A file system that others made, to be adopted.
        subprocess.run(["mkfs.ext4", "-q", attached.device], check=True, stdin=subprocess.DEVNULL, capture_output=True)
        client.do("detach_space", POOL, "old")
        client.do("serve_space", POOL, "data", read_only=True)
        self.assertEqual([each.space for each in client.list_exports().exports], ["data"])
        client.do("unserve_space", POOL, "data")
        # The first space with parity makes a write cache.
        client.do("create_space", POOL, name="wide", resiliency="parity", size_bytes=128 * MIB)
        client.do("resize_write_cache", POOL, size_bytes=192 * MIB)
        client.do("drain_write_cache", POOL, fill_percent=40)

    def benchmarks(self) -> None:
        client = self.client
        client.do("serve_space", POOL, "data")
        load = {"profiles": ["streaming"], "size_bytes": 16 * MIB, "rounds": 1, "runtime_s": 1, "outstanding": [1]}
        try:
            job = client.begin("bench_space", POOL, "data", **load).job
        except dolmen.Error as error:
            self.assertEqual(error.code, "missing", str(error))
            self.unmeasured = {"ShowBenchmark"}
        else:
            assert job is not None
            client.wait_for_job(job, timeout=JOB_MAX)
            self.assertEqual([each.job for each in client.list_benchmarks().reports], [job.id])
            self.assertEqual(len(client.show_benchmark(job.id).figures.points), 1)
        self.assertIn("streaming", [each.name for each in client.list_benchmarks().profiles])
        client.do("unserve_space", POOL, "data")

    def volume(self) -> None:
        client = self.client
        client.do("adopt_volume", POOL, "old", mount_point=disk("old"))
        client.do("delete_volume", POOL, "old")
        volume = {"purpose": "files", "resiliency": "mirror", "size_bytes": 512 * MIB}
        client.do("create_volume", POOL, name="home", **volume, mount_point=disk("home"), file_system="xfs")
        self.assertEqual([each.name for each in client.list_volumes(POOL).volumes], ["home"])
        self.assertEqual([each.name for each in client.list_all_volumes().volumes], ["home"])
        client.do("grow_volume", POOL, "home", size_bytes=640 * MIB)
        client.do("trim_volume", POOL, "home")
        os.mkdir(os.path.join(disk("home"), "docs"))
        self.quotas()
        client.do("compact_volume", POOL, "home")
        client.do("unmount_volume", POOL, "home")
        client.do("check_volume", POOL, "home")
        self.assertEqual(client.show_volume_check(POOL, "home").findings, [])
        client.do("mount_volume", POOL, "home")
        self.assertEqual(client.show_volume(POOL, "home").volume.mount_state, "mounted")

    def quotas(self) -> None:
        """On btrfs where it is here, because kernels are built without quotas of XFS; a refusal counts as a call there."""
        client = self.client
        if HAS_BTRFS:
            volume = {"purpose": "files", "resiliency": "simple", "size_bytes": 512 * MIB}
            client.do("create_volume", POOL, name="counted", **volume, mount_point=disk("counted"), file_system="btrfs")
            client.do("set_quota", POOL, "counted", folder="f", limit_bytes=16 * MIB)
            self.assertEqual([each.limit_bytes for each in client.list_quotas(POOL, "counted").quotas], [16 * MIB])
            client.do("remove_quota", POOL, "counted", folder="f")
            client.do("delete_volume", POOL, "counted")
            return
        client.list_quotas(POOL, "home")
        with contextlib.suppress(dolmen.Error):
            client.plan("set_quota", POOL, "home", folder="docs", limit_bytes=16 * MIB)
        with contextlib.suppress(dolmen.Error):
            client.plan("remove_quota", POOL, "home", folder="docs")

    def dedup(self) -> None:
        client = self.client
        for name in ("one", "two"):
            with open(os.path.join(disk("home"), "docs", name), "wb") as file:
                file.write(b"the same" * (1 << 18))
        client.do("estimate_dedup", POOL, "home")
        client.do("enable_dedup", POOL, "home", min_age_days=0, min_file_bytes=65536)
        client.do("run_dedup", POOL, "home", mode="throughput")
        self.assertIsNotNone(client.show_dedup(POOL, "home").last)
        client.do("undo_dedup", POOL, "home", paths=["docs"])

    def shares(self) -> None:
        """Over NFS, whose server need not run. Where it is not installed, its refusals count as calls."""
        client, share = self.client, (POOL, "home", "docs")
        grant, other = (dolmen.types.ShareNetworkGrant(access="read_only", client=f"127.0.0.{number}") for number in (1, 2))
        questions = ("show_share", "list_share_sessions")
        changes: Dict[str, Dict[str, Any]] = {
            "grant_share": {"networks": [other]},
            "revoke_share": {"clients": [other.client]},
            "accept_share": {},
            "delete_share": {},
        }
        client.plan("create_share", POOL, "home", name="docs", protocols=["nfs"], folder="docs", networks=[grant])
        try:
            client.create_share(POOL, "home", name="docs", protocols=["nfs"], folder="docs", networks=[grant])
        except dolmen.Error as error:
            self.assertEqual(error.code, "missing", str(error))
            for name in questions:
                with self.refusal("no_such_object"):
                    getattr(client, name)(*share)
            for name, fields in changes.items():
                with self.refusal("no_such_object"):
                    client.plan(name, *share, **fields)
            self.without = {"ShowShare", "ListShareSessions"}
        self.assertEqual(len(client.list_all_shares().shares), 0 if self.without else 1)
        client.list_shares(POOL, "home")
        if not self.without:
            for name in questions:
                getattr(client, name)(*share)
            for name, fields in changes.items():
                client.do(name, *share, **fields)

    def jobs(self) -> None:
        client = self.client
        # So much that a job is under way when the next request comes.
        with open(os.path.join(disk("home"), "large"), "wb") as file:
            for _ in range(LARGE // MIB):
                file.write(os.urandom(MIB))
            os.fsync(file.fileno())
        job = self.begun("scrub_pool", POOL)
        client.begin("set_job", job.id, priority="high")
        client.begin("resume_job", job.id)
        client.plan("stop_job", job.id)
        client.wait_for_job(job)
        job = self.begun("scrub_pool", POOL)
        client.stop_job(job.id)
        with self.assertRaises(dolmen.JobFailed) as caught:
            client.wait_for_job(job)
        self.assertEqual(caught.exception.job.state, "called_off")
        client.do("resync_pool", POOL)
        self.assertIn(job.id, [each.id for each in client.list_jobs().jobs])

    def begun(self, method: str, *path: str, **fields: Any) -> dolmen.types.Job:
        """Begins a job, and pauses it."""
        job = self.client.begin(method, *path, **fields).job
        assert job is not None
        self.client.begin("pause_job", job.id)
        return job

    def end_jobs(self) -> None:
        """Resumes what is paused, and waits until no job is left."""
        for job in self.client.list_jobs().jobs:
            if job.ended_s is not None:
                continue
            # It may end meanwhile.
            with contextlib.suppress(dolmen.Error):
                self.client.resume_job(job.id)
            with contextlib.suppress(dolmen.JobFailed):
                self.client.wait_for_job(job, timeout=JOB_MAX)

    def when_idle(self, method: str, *path: str, **fields: Any) -> None:
        """Makes a change that no job may be in the way of: the daemon begins some by itself."""
        for _ in range(TRIES):
            try:
                self.client.do(method, *path, **fields)
                return
            except dolmen.Error as error:
                self.assertEqual(error.code, "busy", str(error))
            self.end_jobs()
            time.sleep(0.2)
        self.fail(f"{method} found the pool busy {TRIES} times")

    def disks(self) -> None:
        client = self.client
        client.do("add_disks", POOL, disks=[disk("e")])
        client.do("set_disk", POOL, "0", bay="front 1")
        client.do("set_enclosure", POOL, "0", name="shelf")
        client.do("set_disk_role", POOL, "4", role="spare")
        client.do("set_disk_role", POOL, "4", role="member")
        os.truncate(disk("e"), 3 << 30)
        client.do("grow_disk", POOL, disk("e"))
        client.do("offline_disk", POOL, "4")
        client.plan("forget_disk", POOL, "4")
        client.do("online_disk", POOL, "4")
        client.plan("locate_disk", POOL, "0")
        self.begun("replace_disk", POOL, "1", with_=disk("f"))
        client.begin("cancel_replace", POOL, "1")
        self.end_jobs()
        self.begun("remove_disk", POOL, "1")
        client.begin("cancel_remove", POOL, "1")
        self.end_jobs()
        self.begun("rebalance_pool", POOL)
        client.begin("cancel_rebalance", POOL)
        self.end_jobs()

    def trash(self) -> None:
        client = self.client
        client.do("delete_space", POOL, "data")
        self.assertGreaterEqual({each.name for each in client.list_trash(POOL).spaces}, {"data", "old"})
        client.list_all_trash()
        client.do("restore_space", POOL, "data")
        client.do("purge_trash", POOL, all=True, destroy=POOL)
        self.assertEqual(client.list_trash(POOL).spaces, [])

    def end(self) -> None:
        client = self.client
        for name in (POOL, f"{POOL}/data", f"{POOL}/0"):
            client.explain_object(name)
        events = client.list_events(pool=POOL)
        self.assertTrue(all(each.number > events.last for each in client.list_events(since=events.last).events))
        client.do("delete_volume", POOL, "home")
        self.when_idle("export_pool", POOL)
        client.do("import_pool", paths=[FOLDER])
        with self.refusal("needs_confirmation"):
            client.destroy_pool(POOL)
        self.when_idle("destroy_pool", POOL, destroy=POOL)
        client.plan("stop_daemon")


if __name__ == "__main__":
    unittest.main()
