"""Control groups: a limit of memory for the worker, and bounds of reads for the daemon."""

import os
import time

import rig


def hierarchy(controller):
    """Returns version and folder of the control groups with a controller; none where there are none."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = [(line.split()[4], *line.split(" - ")[1].split()) for line in file]
    for place, kind, _, options in mounts:
        if kind == "cgroup" and controller in options.split(","):
            return 1, place
    for place, kind, *_ in mounts:
        if kind == "cgroup2" and os.path.exists(f"{place}/cgroup.controllers"):
            with open(f"{place}/cgroup.controllers", encoding="utf-8") as file:
                if {"blkio": "io"}.get(controller, controller) in file.read().split():
                    return 2, place
    return None, None


class Group:
    """A control group of one controller."""

    def __init__(self, controller):
        self.version, place = hierarchy(controller)
        if not place:
            rig.skip(f"control groups with {controller}")
        self.folder = f"{place}/dolmen-bars-{os.getpid()}"
        rig.note("cgroup", self.folder)
        if self.version == 2:
            name = {"blkio": "io"}.get(controller, controller)
            with open(f"{place}/cgroup.subtree_control", "w", encoding="utf-8") as file:
                file.write(f"+{name}")
        os.makedirs(self.folder, exist_ok=True)
        self.others = {}

    def put(self, name, value):
        """Writes a file of the group."""
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(value)

    def get(self, name):
        """Reads a file of the group."""
        with open(f"{self.folder}/{name}", encoding="utf-8") as file:
            return file.read()

    def take(self, pid):
        """Moves a process into it."""
        self.put("cgroup.procs", str(pid))

    def give_back(self):
        """Moves what is left in it to the top, and deletes it."""
        for _ in range(50):
            for pid in self.get("cgroup.procs").split():
                try:
                    with open(f"{os.path.dirname(self.folder)}/cgroup.procs", "w", encoding="utf-8") as file:
                        file.write(pid)
                except OSError:
                    continue
            try:
                os.rmdir(self.folder)
                return
            except OSError:
                time.sleep(0.1)


class MemoryGroup(Group):
    """A limit of memory, page cache and kernel's memory included."""

    def __init__(self, limit_bytes):
        super().__init__("memory")
        self.put("memory.max" if self.version == 2 else "memory.limit_in_bytes", str(limit_bytes))

    def end(self):
        """Ends the bar where a process was killed for the limit."""
        events = self.get("memory.events" if self.version == 2 else "memory.oom_control")
        killed = [int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill ")]
        self.give_back()
        if any(killed):
            rig.fail("the worker was killed for its limit of memory")


class Throttle(Group):
    """Bounds what the daemon reads from loop devices, as a spinning disk does."""

    READ_BYTES = 150 * rig.MIB
    READS = 200

    def __init__(self, loops):
        super().__init__("blkio")
        for loop in loops:
            device = os.stat(loop).st_rdev
            number = f"{os.major(device)}:{os.minor(device)}"
            if self.version == 2:
                self.put("io.max", f"{number} rbps={self.READ_BYTES} riops={self.READS}")
            else:
                self.put("blkio.throttle.read_bps_device", f"{number} {self.READ_BYTES}")
                self.put("blkio.throttle.read_iops_device", f"{number} {self.READS}")
        self.take(os.environ["BARS_DAEMON"])
