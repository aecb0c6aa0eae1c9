"""Clients of a volume, the worker beside them, and what both took."""

import json
import os
import subprocess
import threading
import time

import groups
import rig


class Worker:
    """Watches the worker of a long operation: its peak of memory, and what it reads."""

    def __init__(self, limit_bytes=None):
        self.peak_bytes = 0
        self.reads = []
        self.alive = []
        self.group = groups.MemoryGroup(limit_bytes) if limit_bytes else None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        """Samples until it is stopped."""
        last, seen = None, set()
        while not self.ended.wait(0.1):
            for pid in workers():
                try:
                    if self.group and pid not in seen:
                        self.group.take(pid)
                    seen.add(pid)
                    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                        peak = [int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:")]
                    with open(f"/proc/{pid}/io", encoding="utf-8") as file:
                        read = int(file.readline().split()[1])
                except OSError:
                    continue
                self.peak_bytes = max([self.peak_bytes, *peak])
                self.alive.append(time.monotonic())
                if (pid, read) != last:
                    self.reads.append(time.monotonic())
                    last = (pid, read)

    def end(self):
        """Stops watching; ends the bar where the memory group killed the worker."""
        self.ended.set()
        self.thread.join()
        if self.group:
            self.group.end()


def workers():
    """Returns the processes of dolmen-worker that the daemon has."""
    with open(f"/proc/{os.environ['BARS_DAEMON']}/task/{os.environ['BARS_DAEMON']}/children", encoding="utf-8") as file:
        own = [int(pid) for pid in file.read().split()]
    found = []
    for task in os.listdir(f"/proc/{os.environ['BARS_DAEMON']}/task"):
        try:
            with open(f"/proc/{os.environ['BARS_DAEMON']}/task/{task}/children", encoding="utf-8") as file:
                own += [int(pid) for pid in file.read().split()]
        except OSError:
            continue
    for pid in set(own):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                if file.read().startswith("dolmen-worker"):
                    found.append(pid)
        except OSError:
            continue
    return found


class Client:
    """fio on a file of a volume."""

    def __init__(self, seconds, path=None, rate=100, depth=1, size="256M"):
        rig.need("fio")
        file = path or os.path.join(rig.MNT, "client")
        engine = ["--ioengine=libaio", f"--iodepth={depth}"] if depth > 1 else ["--ioengine=psync"]
        bound = [f"--rate_iops={rate},{rate}"] if rate else []
        self.process = subprocess.Popen(
            ["fio", "--name=client", f"--filename={file}", f"--size={size}", "--rw=randrw", "--rwmixread=70", "--bs=4k",
             "--direct=1", "--time_based", f"--runtime={seconds}", "--output-format=json", "--randseed=1", *engine, *bound],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @staticmethod
    def prepare(path=None, size="256M"):
        """Writes the file in full, so that no client writes into a hole."""
        rig.need("fio")
        rig.run("fio", "--name=fill", f"--filename={path or os.path.join(rig.MNT, 'client')}", f"--size={size}", "--rw=write", "--bs=1M",
            "--direct=1", "--ioengine=psync", "--end_fsync=1")

    def result(self):
        """Waits; returns p99 of reads and writes and the longest request in ms, and the requests of a second."""
        out, errors = self.process.communicate()
        text = out.decode()
        if self.process.returncode != 0:
            rig.fail(f"I/O of a client failed: {text[-1000:]} {errors.decode()[-1000:]}")
        job = json.loads(text[text.index("{"):])["jobs"][0]
        if job["error"] != 0:
            rig.fail(f"I/O of a client failed: {job['error']}")
        figures = {kind: job[kind]["clat_ns"] for kind in ("read", "write")}
        return {"read_p99_ms": figures["read"]["percentile"]["99.000000"] / 1e6,
                "write_p99_ms": figures["write"]["percentile"]["99.000000"] / 1e6,
                "longest_ms": max(figures["read"]["max"], figures["write"]["max"]) / 1e6,
                "iops": job["read"]["iops"] + job["write"]["iops"]}


def words(figures):
    """Returns the figures of a client as text."""
    return (f"p99 {figures['read_p99_ms']:.1f} ms reads, {figures['write_p99_ms']:.1f} ms writes; longest "
            f"{figures['longest_ms']:.0f} ms; {figures['iops']:.0f} IO/s")


def beside(command, client_options, limit_bytes=None):
    """Runs a command with a client beside it, again and again until it ends; returns its answer, the clients' figures, the worker."""
    worker = Worker(limit_bytes)
    process = subprocess.Popen([os.environ["BARS_BIN"], "-o", "json", "--timeout", "86400", *command],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    seen = []
    while process.poll() is None:
        seen.append(Client(**client_options).result())
    out, errors = process.communicate()
    worker.end()
    if process.returncode != 0:
        rig.fail(f"{' '.join(command)} ended with {process.returncode}: {errors.decode()}")
    return json.loads(out.decode().strip().splitlines()[-1]), seen, worker
