"""What the log says of blocks: docs/format/space.md, "RawStretch" and "The write cache in records"."""

import struct

from .disk import Damage, Problem
from .pool import SHADOWS
from .rows import DAMAGED, NEVER, PAGE_ENTRIES, state_of

HEAD = struct.Struct("<QQQII3sBBBH")
# Kinds of entries, beside states of blocks.
CACHED, DISCARDED, REDO, DONE = 3, 4, 5, 6
INTENT, IN_DOUBT, SUPERSEDES, COVERED = 1, 2, 4, 8
VOID = SUPERSEDES


class Claim:
    """What a record says of one block."""

    def __init__(self, settled, state, intent):
        self.settled, self.state, self.intent = settled, state, intent


class Version:
    """What a block of a row of a strict space holds since a record: a place in the write cache, or nothing."""

    def __init__(self, place, checksum):
        self.place, self.checksum = place, checksum
        self.marked = False


class Records:
    """All entries of all records of blocks, by the row that they are of."""

    def __init__(self, pool):
        self.floors = {}
        self.extents, self.parity = {}, {}
        for lsn, body in pool.blocks:
            try:
                for entry in self._entries(body):
                    self._add(lsn, lsn <= pool.log.settled, *entry)
            except (Damage, struct.error):
                raise Problem(f"batch {lsn} of the log has a record of blocks that makes no sense") from None

    @staticmethod
    def _entries(body):
        """Head and what follows it, one after another."""
        at = 0
        while at < len(body):
            head = HEAD.unpack_from(body, at)
            count, state = head[4], head[6]
            if not count or state > DONE or head[8] & ~15:
                raise Damage("")
            length = {1: 4 * count, CACHED: 24 + 4 * count, DISCARDED: 24, REDO: 32 * count}.get(state, 0)
            at += HEAD.size
            if at + length > len(body):
                raise Damage("")
            yield head, body[at : at + length]
            at += length

    def _add(self, lsn, is_settled, head, rest):
        space, index, row, first, count, _, state, column, _, generation = head
        if state >= CACHED:
            self.parity.setdefault((space, index, row), []).append((lsn, is_settled, head, rest))
            return
        self.extents.setdefault((space, index, row), []).append((is_settled, head, rest))
        name = (row, column, first // PAGE_ENTRIES)
        floor = self.floors.get(name, generation)
        if (generation - floor) % 65536 < 32768:
            self.floors[name] = generation

    def claims(self, row):
        """What the log says of each block of a row, by column and block, oldest first."""
        found = {}
        for is_settled, head, rest in self.extents.get((row.space.id, row.index, row.id), []):
            _, _, _, first, count, _, number, column, flags, _ = head
            if column >= row.columns:
                continue
            settled = (is_settled or flags & COVERED) and not flags & IN_DOUBT
            for block in range(first, min(first + count, row.lengths[column])):
                checksum = int.from_bytes(rest[4 * (block - first) : 4 * (block - first) + 4], "little")
                claims = found.setdefault((column, block), [])
                if settled or flags & SUPERSEDES:
                    claims.clear()
                claims.append(Claim(bool(settled), state_of(number, checksum), bool(flags & INTENT)))
        return found

    def in_cache(self, row, shadow=None):
        """Of a row of a strict space: versions of its blocks, and, with parity, lines that may be half in place, in the row and in
        its shadow.

        Versions stand under the block of the row and the number of their first record; lines have, for each column that
        changes, its state and place."""
        versions = {}
        for lsn, is_settled, head, rest in self.parity.get((row.space.id, row.index, row.id), []):
            if head[6] in (CACHED, DISCARDED):
                _add_mapping(versions, row, lsn, is_settled, head, rest)
        here = (row.space.id | SHADOWS, row.index)
        for key in [key for key in self.parity if key[:2] == here and not (shadow and key[2] == shadow.id)]:
            # A shadow row that is no more: what was put in place there has ended versions all the same.
            try:
                self._lines(key, row, versions)
            except Problem:
                # It was of a row that had another shape, and none of these versions.
                continue
        own = self._lines((row.space.id, row.index, row.id), row, versions)
        of_shadow = self._lines((shadow.space.id, shadow.index, shadow.id), shadow, versions) if shadow else {}
        return versions, own, of_shadow

    def _lines(self, key, row, versions):
        """Lines of a row that may be half in place; versions that are in place there end."""
        redos, done = [], {}
        for lsn, is_settled, head, rest in self.parity.get(key, []):
            _, _, _, first, count, _, kind, _, flags, _ = head
            if kind == DONE:
                done[first] = lsn
            elif kind == REDO:
                blocks = _redo_blocks(rest, row)
                redos = [redo for redo in redos if (redo[1], redo[2]) != (first, blocks)]
                if not flags & VOID and (is_settled or flags & COVERED):
                    redos.append((lsn, first, blocks))
        lines = {}
        for lsn, line, blocks in redos:
            if done.get(line, -1) < lsn:
                lines.setdefault(line, {}).update({column: (state, place) for column, state, place, _ in blocks})
                continue
            for column, _, _, since in blocks:
                if column < row.data_columns and since:
                    of_block = versions.get(row.row_block(column, line), {})
                    for older in [one for one in of_block if one <= since]:
                        del of_block[older]
        return lines


def _redo_blocks(rest, row):
    """`RawRedo`: column, state, place and the first record of the version."""
    blocks = []
    for column, number, checksum, *place, since in struct.iter_unpack("<BB2xIQIIQ", rest):
        if column >= row.columns:
            raise Problem(f"the log writes a column {column} of row {row.index}, which has {row.columns}")
        blocks.append((column, state_of(number, checksum), tuple(place), since))
    return blocks


def _add_mapping(versions, row, lsn, is_settled, head, rest):
    """`RawMapping`."""
    _, _, _, first, count, _, kind, _, flags, _ = head
    cache_row, index, block, since = struct.unpack_from("<QIIQ", rest)
    since = since or lsn
    for number in range(min(count, row.blocks - min(first, row.blocks))):
        of_block = versions.setdefault(first + number, {})
        if flags & VOID:
            of_block.pop(since, None)
            continue
        place = (cache_row, index, block + number) if kind == CACHED else None
        checksum = int.from_bytes(rest[24 + 4 * number : 28 + 4 * number], "little")
        version = of_block.setdefault(since, Version(place, checksum))
        version.marked = (version.marked or is_settled or bool(flags & COVERED)) and not flags & IN_DOUBT


def newest_known(states):
    """The newest state that is not damage, of states that stand newest first."""
    return next((state for state in states if state is NEVER or isinstance(state, int)), DAMAGED)
