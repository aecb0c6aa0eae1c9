"""What processors and processes did in a time."""

import os
import time

TICKS = os.sysconf("SC_CLK_TCK")


def spent(pid):
    """Returns the processor seconds of a process: its own, its children's that ended, and those of children that live."""
    def fields(number):
        with open(f"/proc/{number}/stat", encoding="utf-8") as file:
            return [int(word) for word in file.read().rpartition(")")[2].split()[11:15]]

    ticks = sum(fields(pid))
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
            children = file.read().split()
    except OSError:
        children = []
    for child in children:
        try:
            ticks += sum(fields(child))
        except OSError:
            continue
    return ticks / TICKS


def each():
    """Returns the ticks of each processor, in all and without work."""
    found = []
    with open("/proc/stat", encoding="utf-8") as file:
        for line in file:
            name, *words = line.split()
            if name.startswith("cpu") and name != "cpu":
                ticks = [int(word) for word in words[:8]]
                found.append((sum(ticks), ticks[3] + ticks[4]))
    return found


class Watch:
    """Processor time since it was made: of each processor in per cent, of groups of processes in processors."""

    def __init__(self, **groups):
        self.groups = groups
        self.before = self.sums()
        self.all = each()
        self.begun = time.monotonic()

    def sums(self):
        """Returns the processor seconds of each group."""
        return {name: sum(spent(pid) for pid in pids) for name, pids in self.groups.items()}

    def result(self):
        """Returns the busy per cent of each processor, and the processors that each group used."""
        took = time.monotonic() - self.begun
        busy = [100 * (1 - (idle - idle_before) / (whole - whole_before))
                for (whole, idle), (whole_before, idle_before) in zip(each(), self.all)]
        return busy, {name: (after - self.before[name]) / took for name, after in self.sums().items()}
