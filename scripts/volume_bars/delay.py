"""Disks with a fixed service time: a loop device over a file of delay_disk.py, which answers each request that much later.

The device has no write cache that a power cut empties, so a flush takes no time. It could take one only at the cost of all others:
the kernel lets no write to a file of FUSE begin while the file is flushed, which no disk does.
"""

import json
import os
import subprocess
import sys
import time

import rig


class Disks:
    """Loop devices that answer late."""

    def __init__(self):
        self.servers = {}
        self.loops = []

    def loop_over(self, file, *options):
        """Makes a loop device over a file, with words for losetup; several over one file are parts of one disk. Returns its path."""
        if file not in self.servers:
            self.servers[file] = self.begin(file)
        loop = rig.loop_over(late(file), *options)
        self.loops.append(loop)
        set_write_cache(loop, "write through")
        return loop

    @staticmethod
    def begin(file):
        """Starts the server of a file."""
        with open(late(file), "wb"):
            pass
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "delay_disk.py")
        server = subprocess.Popen([sys.executable, program, file, late(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not server.stdout.readline():
            rig.fail(f"{file} got no service time")
        return server

    def set(self, delay_ms):
        """Sets the service time; returns requests, their mean and longest time in ms, and the most at one time, since the last call."""
        seen = []
        for server in self.servers.values():
            server.stdin.write(f"{delay_ms}\n")
            server.stdin.flush()
            seen.append(json.loads(server.stdout.readline()))
        count = sum(one["count"] for one in seen)
        mean_ms = 1000 * sum(one["took_s"] for one in seen) / count if count else 0.0
        return {"count": count, "mean_ms": mean_ms, "longest_ms": 1000 * max(one["longest_s"] for one in seen),
                "most": max(one["most"] for one in seen)}

    def wait_idle(self):
        """Waits without delay until no request has come for a second, or half a minute has passed."""
        self.set(0)
        for _ in range(30):
            time.sleep(1)
            if self.set(0)["count"] == 0:
                break

    def pids(self):
        """Returns the processes that serve."""
        return [server.pid for server in self.servers.values()]

    def end(self):
        """Unmounts the files, and waits for their servers."""
        for file, server in self.servers.items():
            rig.run("umount", late(file))
            if server.wait(60) != 0:
                rig.fail(f"the server of {file} ended with {server.returncode}")
            os.unlink(late(file))
        # The kernel keeps the word with the number of the device, whatever file is under it next.
        for loop in self.loops:
            set_write_cache(loop, "write back")


def set_write_cache(loop, word):
    """Tells the kernel whether a device has a write cache that flushes empty."""
    with open(f"/sys/block/{os.path.basename(loop)}/queue/write_cache", "w", encoding="utf-8") as cache:
        cache.write(word)


def late(file):
    """Returns the path of the file that stands for another one."""
    return f"{file}.late"
