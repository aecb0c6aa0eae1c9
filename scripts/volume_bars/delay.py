"""Disks with a fixed service time: a file behind delay_disk.py, which answers each request that much later."""

import json
import os
import subprocess
import sys

import rig


class Disks:
    """Files that stand for other files, and answer late."""

    def __init__(self):
        self.servers = []

    def over(self, file):
        """Makes the file that stands for another one; returns its path."""
        place = f"{file}.late"
        with open(place, "wb"):
            pass
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "delay_disk.py")
        server = subprocess.Popen([sys.executable, program, file, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True)
        self.servers.append((server, place))
        if not server.stdout.readline():
            rig.fail(f"{file} got no service time")
        return place

    def set(self, delay_ms):
        """Sets the service time; returns requests, their mean and longest time in ms, and the most at one time, since the last call."""
        seen = []
        for server, _ in self.servers:
            server.stdin.write(f"{delay_ms}\n")
            server.stdin.flush()
            seen.append(json.loads(server.stdout.readline()))
        count = sum(one["count"] for one in seen)
        mean_ms = 1000 * sum(one["took_s"] for one in seen) / count if count else 0.0
        return {"count": count, "mean_ms": mean_ms, "longest_ms": 1000 * max(one["longest_s"] for one in seen),
                "most": max(one["most"] for one in seen)}

    def pids(self):
        """Returns the processes that serve."""
        return [server.pid for server, _ in self.servers]

    def end(self):
        """Unmounts the files, and waits for their processes."""
        for server, place in self.servers:
            rig.run("umount", place)
            if server.wait(60) != 0:
                rig.fail(f"the process behind {place} ended with {server.returncode}")
            os.unlink(place)
