#!/usr/bin/env python3
"""Draws the picture of the README from a real run.

picture.py [--bin DOLMEN] [--to FILE]

Starts a daemon of its own on five files, makes a pool with a mirror and a parity space, writes to both over NBD, removes
the file of one disk, replaces that disk, and draws what `dolmen` and its documents report while the data is rebuilt.
Needs no root. The daemon and all files are removed at the end. TMPDIR names a folder for 6 GiB; one in memory, such as
/dev/shm, keeps a slow disk out of the picture.
"""

import argparse
import html
import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GIB = 1 << 30
MIB = 1 << 20
# Sizes of the disks in GiB.
DISKS = {"bay1": 3, "bay2": 2, "bay3": 2, "bay4": 1.5}
NEW = ("bay5", 3)
LOST = "bay4"
SPACES = {"home": [], "media": ["--resiliency", "parity"]}
WRITTEN_MIB = 900
# Progress of the rebuild from which on the picture is taken, in percent.
TAKEN_FROM = 30
WAIT_S = 400


class Run:
    """A daemon on files in a folder of its own."""

    def __init__(self, program):
        self.program = program
        # The folder has one name, so that two pictures differ in figures alone.
        self.folder = os.path.join(tempfile.gettempdir(), "disks")
        if os.path.exists(self.folder):
            raise SystemExit(f"{self.folder} is there already; remove it, or name another folder by TMPDIR")
        os.mkdir(self.folder)
        self.state = tempfile.mkdtemp(prefix="dolmen-picture-")
        self.socket = os.path.join(self.state, "sock")
        self.log = open(os.path.join(self.state, "log"), "w", encoding="utf-8")
        self.daemon = None

    def begin(self):
        folders = ["--state", self.state + "/state", "--run", self.state + "/run", "--links", self.state + "/links"]
        command = [self.program, "daemon", "--socket", self.socket, *folders, "--named-only", "--look-in", self.folder]
        self.daemon = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        until(lambda: os.path.exists(self.socket), "the daemon listens")

    def path(self, disk):
        return os.path.join(self.folder, disk)

    def ask(self, *arguments, fails=False):
        command = [self.program, "--socket", self.socket, *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        # 1 says that it is done, and something is unhealthy.
        if answer.returncode not in (0, 1) and not fails:
            raise SystemExit(f"{' '.join(command)}: {answer.stderr.strip()}")
        return answer.stdout

    def document(self, *arguments):
        return json.loads(self.ask("-o", "json", *arguments))

    def end(self):
        if self.daemon:
            self.ask("stop", fails=True)
            try:
                self.daemon.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        self.log.close()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.state)


def until(is_so, what):
    """Waits for a condition; ends the program where it does not come about."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = is_so()
        if found:
            return found
        time.sleep(0.2)
    raise SystemExit(f"{what}: not within {WAIT_S} s")


def received(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise SystemExit("the NBD connection ended")
        data += part
    return data


def write_over_nbd(path, export, mib):
    """Writes so many MiB of drawn bytes to an export, and flushes."""
    drawn = random.Random(export)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        received(connection, 18)
        name = export.encode()
        option = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        connection.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(option)) + option)
        kind = 0
        while kind != 1:
            _, _, kind, length = struct.unpack(">QIII", received(connection, 20))
            if kind >= 1 << 31:
                raise SystemExit(f"{export}: refused with {kind:#x}: {received(connection, length)}")
            received(connection, length)
        for number in range(mib + 1):
            last = number == mib
            kind, at, length = (3, 0, 0) if last else (1, number * MIB, MIB)
            data = b"" if last else drawn.randbytes(MIB)
            connection.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, number, at, length) + data)
            _, error, _ = struct.unpack(">IIQ", received(connection, 16))
            if error:
                raise SystemExit(f"{export}: request {number} failed with {error}")
        connection.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))


def taken(run):
    """Runs the pool into the loss of a disk, and returns what the program reports in the middle of the rebuild."""
    for disk, size in [*DISKS.items(), NEW]:
        with open(run.path(disk), "wb") as file:
            file.truncate(int(size * GIB))
    run.begin()
    run.ask("pool", "create", "tank", *[run.path(disk) for disk in DISKS])
    for space, kind in SPACES.items():
        run.ask("space", "create", f"tank/{space}", "--size", "2G", *kind)
        run.ask("serve", f"tank/{space}")
        write_over_nbd(run.state + "/run/nbd.sock", f"tank/{space}", WRITTEN_MIB)
    until(lambda: run.document("status")["health"] == "healthy", "the pool is healthy")
    os.truncate(run.path(LOST), 0)
    os.remove(run.path(LOST))
    for space in SPACES:
        write_over_nbd(run.state + "/run/nbd.sock", f"tank/{space}", 1)
    run.ask("disk", "replace", "tank", run.path(LOST), run.path(NEW[0]), "--no-wait")
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        text, status = run.ask("status"), run.document("status")
        if progress(text) >= TAKEN_FROM and "cannot be used" not in text:
            return text, status, progress(text), run.document("space", "list")["spaces"]
        time.sleep(0.1)
    raise SystemExit(f"the rebuild could not be drawn; try again. The last status was:\n{text}")


def progress(text):
    """The progress of the rebuild that a status names, in percent; 0 where it names none."""
    found = re.search(r"\(job \d+, (\d+) %", text)
    return int(found[1]) if found else 0


INK, PAPER, STONE = "#1b1f24", "#ffffff", "#d8dee4"
FILL, LOSS, NEWS, SOON = "#57708c", "#c0392b", "#2e8b57", "#a9d3bb"
SANS = "font-family='DejaVu Sans, Helvetica, Arial, sans-serif'"
MONO = "font-family='DejaVu Sans Mono, Menlo, Consolas, monospace'"
WIDTH = 1000


def size(count):
    return f"{count / GIB:.3g} GiB"


def text(x, y, words, style="", anchor="start", font=SANS, points=15, colour=INK):
    place = f"x='{x}' y='{y}' text-anchor='{anchor}' font-size='{points}' fill='{colour}'"
    return f"<text {place} {font} {style}>{html.escape(words)}</text>"


def box(x, y, width, height, fill, extra=""):
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' fill='{fill}' {extra}/>"


def column(x, floor, disk, percent):
    """One disk as a column: its height is its size, the filled part is what is claimed."""
    name = os.path.basename(disk["path"] or disk["last_path"])
    height = disk["size_bytes"] / GIB * 60
    wide, top = 130, floor - height
    absent = disk["state"] == "absent"
    new = name == NEW[0]
    colour = LOSS if absent else NEWS if new else INK
    dashes = "stroke-dasharray='6 5'" if absent else ""
    parts = [box(x, top, wide, height, PAPER if absent else STONE, f"stroke='{colour}' stroke-width='2' {dashes}")]
    if not absent:
        used = (disk["data_bytes"] - disk["free_bytes"]) / disk["size_bytes"] * height
        if new:
            # What is claimed on it, and how much of that is filled.
            parts.append(box(x, floor - used, wide, used, SOON))
            used = used * percent / 100
        parts.append(box(x, floor - used, wide, used, NEWS if new else FILL))
    says = "absent" if absent else f"filled to {percent} %" if new else "present"
    parts.append(text(x + wide / 2, floor + 20, f"{name}, {size(disk['size_bytes'])}", anchor="middle", points=14))
    parts.append(text(x + wide / 2, floor + 38, says, "font-weight='bold'", "middle", points=14, colour=colour))
    return "".join(parts)


def slab(x, y, wide, space):
    degraded = space["health"] != "healthy"
    kind = space["resiliency"]
    kind = f"mirror of {space['copies']}" if kind == "mirror" else kind
    words = f"{space['name']}: {size(space['size_bytes'])}, {kind}"
    says = "degraded, in use" if degraded else "healthy, in use"
    return "".join([
        box(x, y, wide, 34, STONE, f"stroke='{INK}' stroke-width='2' rx='4'"),
        text(x + 14, y + 22, words, "font-weight='bold'"),
        text(x + wide - 14, y + 22, says, anchor="end", colour=LOSS if degraded else NEWS),
    ])


def terminal(y, said):
    lines = ["$ dolmen"]
    for line in said:
        lines += textwrap.wrap(line, 114, subsequent_indent=" " * 9, drop_whitespace=False, replace_whitespace=False) or [""]
    high = 20 + 18 * len(lines)
    parts = [box(20, y, WIDTH - 40, high, "#10151b", "rx='8'")]
    for at, line in enumerate(lines):
        colour = "#8fd6a8" if at == 0 else "#e6edf3"
        parts.append(text(36, y + 24 + 18 * at, line, "xml:space='preserve'", font=MONO, points=13, colour=colour))
    return "".join(parts), high


def drawn(said, status, percent, spaces):
    pool = status["pools"][0]
    said = said.split("\n\n", 1)[0].splitlines()
    floor, parts = 350, []
    wide = WIDTH - 40
    for at, space in enumerate(spaces):
        parts.append(slab(20, 60 + 44 * at, wide, space))
    disks = sorted(pool["disks"], key=lambda disk: os.path.basename(disk["path"] or disk["last_path"]))
    step = (wide - 130) / (len(disks) - 1)
    for at, disk in enumerate(disks):
        parts.append(column(20 + step * at, floor, disk, percent))
    shown, high = terminal(floor + 64, said)
    total = floor + 64 + high + 20
    title = "Pool tank: the disk in bay4 is lost, bay5 takes its place, both spaces stay in use"
    return "\n".join([
        "<!-- Drawn by scripts/picture.py from a real run. SPDX-License-Identifier: Apache-2.0 -->",
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {total}' width='{WIDTH}' height='{total}' role='img'>",
        f"<title>{title}</title>",
        box(0, 0, WIDTH, total, PAPER),
        text(20, 36, title, "font-weight='bold'", points=17),
        *parts,
        shown,
        "</svg>",
        "",
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "target/release/dolmen"), help="the program")
    parser.add_argument("--to", default=os.path.join(ROOT, "docs/guide/src/rebuild.svg"), help="where the picture goes")
    options = parser.parse_args()
    run = Run(options.bin)
    try:
        picture = drawn(*taken(run))
    finally:
        run.end()
    with open(options.to, "w", encoding="utf-8") as file:
        file.write(picture)
    print(options.to)


if __name__ == "__main__":
    sys.exit(main())
