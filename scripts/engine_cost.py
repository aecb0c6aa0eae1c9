#!/usr/bin/env python3
"""Processor time of two builds of dolmen-bench-io for each I/O, side by side.

engine_cost.py BEFORE AFTER FOLDER [ROUNDS]: runs the two programs in turn, ROUNDS times (default: 10), on files in FOLDER, which
should be in memory. Prints for each case the median of AFTER / BEFORE: of user time, of all processor time, and of processor time
over that of the same disks without the engine in the same run, which takes the other load of the machine out. Commands to disks
for each I/O are beside, which are exact.
"""

import json
import math
import statistics
import subprocess
import sys

CASES = ["--layout", "mirror2", "--size", "4K", "--seconds", "1"]


def cases(program, folder):
    text = subprocess.run([program, "--folder", folder, *CASES, "--json"], capture_output=True, check=True, text=True).stdout
    found = {}
    for case in json.loads(text)["cases"]:
        engine, raw = case["engine"], case["raw"]
        count = engine["operations"]
        user, whole = engine["user_us"] / count, (engine["user_us"] + engine["system_us"]) / count
        bare = (raw["user_us"] + raw["system_us"]) / raw["operations"]
        commands = (engine["disk_reads"] + engine["disk_writes"] + engine["disk_flushes"]) / count
        found[case["kind"], case["depth"], case["flush_every"]] = (user, whole, whole / bare, commands)
    return found


def main():
    before, after, folder = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 10
    ratios, commands = {}, {}
    for number in range(rounds):
        # Each is the first in every other round.
        order = [before, after] if number % 2 == 0 else [after, before]
        found = {program: cases(program, folder) for program in order}
        for case, old in found[before].items():
            new = found[after][case]
            ratios.setdefault(case, []).append([new[part] / old[part] for part in range(3)])
            commands.setdefault(case, []).append((old[3], new[3]))
    print(f"{'case':28} {'user':>7} {'all':>7} {'over raw':>9} {'commands before':>16} {'after':>7}")
    medians = []
    for case, of_case in ratios.items():
        median = [statistics.median(one[part] for one in of_case) for part in range(3)]
        medians.append(median)
        old, new = (statistics.median(one[part] for one in commands[case]) for part in range(2))
        kind, depth, flush = case
        name = f"{kind}, depth {depth}" + (f", flush 1/{flush}" if flush else "")
        print(f"{name:28} {median[0]:7.3f} {median[1]:7.3f} {median[2]:9.3f} {old:16.2f} {new:7.2f}")
    means = [math.exp(statistics.fmean(math.log(median[part]) for median in medians)) for part in range(3)]
    print(f"{'geometric mean':28} {means[0]:7.3f} {means[1]:7.3f} {means[2]:9.3f}")


main()
