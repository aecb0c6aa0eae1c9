#!/usr/bin/env python3
"""Reads a Dolmen pool without Dolmen: written from docs/format alone, with Python's standard library.

  read_pool.py list DISK...                   what the disks are, and which spaces are on them
  read_pool.py extract SPACE OUTPUT DISK...   writes what a space holds to a new, sparse file
  read_pool.py extract-all FOLDER DISK...     the same of all spaces, into files of their names in a new folder

Disks are block devices or files, in any order; they are opened for reading only, and no daemon may have them open. What the
log says and no checkpoint has taken counts, and blocks that were in flight are decided in memory. Every block is verified
against its checksum, and taken from another copy or rebuilt from parity where that is needed.

Leaves with 0 if all went well, 1 if something cannot be had, which is named, and 2 if nothing could be done.
"""

import os
import sys

sys.dont_write_bytecode = True

from reader.content import Reader  # noqa: E402
from reader.disk import Disk, Members, Problem  # noqa: E402
from reader.pool import VALUE_MAX, Pool  # noqa: E402


def say(line):
    print(line, flush=True)


def warn(line):
    print(f"read_pool: {line}", file=sys.stderr, flush=True)


def open_pool(paths):
    pool = Pool(Members([Disk(path) for path in paths]))
    for note in pool.notes:
        warn(note)
    for fault in pool.faults:
        warn(fault)
    return pool


def show(paths):
    pool = open_pool(paths)
    members = pool.members
    owner = "nobody (exported)" if members.epoch.exported else members.epoch.owner.hex()
    say(f"pool {members.name}")
    say(f"  id        {members.pool.hex()}")
    say(f"  epoch     {members.epoch}, owner {owner}")
    say(f"  log       batches from {pool.log.tail_lsn} on, {len(pool.log.batches)} of them, settled to {pool.log.settled}")
    say("disks")
    for member in sorted(members.members, key=lambda member: member.slot):
        disk = members.disk(member.slot)
        words = [["active", "retired"][member.state - 1]]
        words += pool.words_of(member)
        words += ["carries log and map"] if member.disk in members.epoch.voters else []
        words += [f"gives its slabs to slot {member.successor - 1}"] if member.successor else []
        words += [f"missed what was written since epoch {member.left}"] if member.left else []
        place = disk.path if disk else "absent"
        bay = pool.bay(member)
        words += [f"bay {bay}"] if bay else []
        say(f"  slot {member.slot:<3}  {member.disk.hex()}  {member.capacity} bytes  {', '.join(words)}  {place}")
    say("spaces")
    attributes = [space for space, _, _, value in pool.attributes() if 1 <= len(value) <= VALUE_MAX]
    for space in pool.spaces():
        columns = space.now.columns or "chosen row by row"
        rows = pool.row_indices(space)
        say(f"  {space.name}")
        say(f"    id {space.id}, {space.size} bytes, {space.now.kind}, {space.provisioning}, columns: {columns}{space.standing_words}")
        if space.before:
            say(f"    being converted: rows that are not laid so yet are {space.before.kind}")
        say(f"    rows: {len(rows)} claimed of {-(-space.size // space.row_length)}, {space.row_length} bytes each")
        say(f"    attributes: {attributes.count(space.id)}")
    strays = set(attributes) - {space.id for space in pool.spaces()}
    for space in sorted(strays):
        warn(f"space {space} has {attributes.count(space)} attributes, and does not exist")
    return 1 if pool.faults or strays else 0


def extract(name, output, paths):
    pool = open_pool(paths)
    space = pool.space(name)
    return extract_spaces(pool, [(space, output)])


def extract_all(folder, paths):
    pool = open_pool(paths)
    try:
        os.mkdir(folder)
    except OSError as error:
        raise Problem(f"{folder} cannot be made: {error.strerror}") from None
    return extract_spaces(pool, [(space, os.path.join(folder, file_name(space))) for space in pool.spaces()])


def file_name(space):
    """The name of a space, unless that would lead out of the folder: a name on a disk is somebody's text. One that is not whole goes
    by its number: its name may be another's."""
    is_plain = space.name.strip(".") and "/" not in space.name and not space.standing
    return space.name if is_plain else f"space {space.id}"


def extract_spaces(pool, outputs):
    reader = Reader(pool)
    missing = [write_space(reader, space, output) for space, output in outputs]
    if pool.faults:
        warn("what was written last may be missing, or older than it was")
    return 1 if any(missing) or pool.faults else 0


def write_space(reader, space, output):
    """Writes the file; the bytes that are missing in it, which are named."""
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Problem(f"{output} cannot be made: {error.strerror}") from None
    try:
        os.ftruncate(file, space.size)
        missing, as_found = reader.extract(space, lambda at, data: write_all(file, at, data))
        os.fsync(file)
    except OSError as error:
        raise Problem(f"{output} cannot be written: {error.strerror}") from None
    finally:
        os.close(file)
    for what, ranges in (("", as_found), ("MISSING ", missing)):
        for at, length, why in ranges:
            warn(f"{what}{space.name}: bytes {at} to {at + length - 1} ({length}): {why}")
    lost = sum(length for _, length, _ in missing)
    say(f"{space.name}: {space.size} bytes to {output}" + (f", {lost} of them MISSING and zeros there" if lost else ""))
    return lost


def write_all(file, at, data):
    while data:
        written = os.pwrite(file, data, at)
        at, data = at + written, data[written:]


def main(arguments):
    try:
        if len(arguments) >= 2 and arguments[0] == "list":
            return show(arguments[1:])
        if len(arguments) >= 4 and arguments[0] == "extract":
            return extract(arguments[1], arguments[2], arguments[3:])
        if len(arguments) >= 3 and arguments[0] == "extract-all":
            return extract_all(arguments[1], arguments[2:])
    except Problem as problem:
        warn(problem)
        return 2
    except (KeyboardInterrupt, BrokenPipeError):
        return 2
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
