"""What the log says of blocks: docs/format/space.md, "RawBlockExtent" and "The write cache in records"."""

import struct

from .disk import Damage, Problem
from .rows import DAMAGED, NEVER, PAGE_ENTRIES, state_of

HEAD = struct.Struct("<QII3sBBBH")
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
        # Of shadow rows, the row whose blocks they have.
        self.owners = {}
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
            count, state, column = head[2], head[4], head[5]
            if not count or state > DONE or head[6] & ~15:
                raise Damage("")
            length = {1: 4 * count, CACHED: 20 + 4 * count, DISCARDED: 20, REDO: 28 * count}.get(state, 0)
            at += HEAD.size
            owner = None
            if state in (REDO, DONE) and column:
                (owner,) = struct.unpack_from("<Q", body, at)
                if column > 1 or not owner:
                    raise Damage("")
                at += 8
            if at + length > len(body):
                raise Damage("")
            yield head, body[at : at + length], owner
            at += length

    def _add(self, lsn, is_settled, head, rest, owner):
        row, first, count, _, state, column, _, generation = head
        if state >= CACHED:
            self.parity.setdefault(row, []).append((lsn, is_settled, head, rest))
            if owner:
                self.owners[row] = owner
            return
        self.extents.setdefault(row, []).append((is_settled, head, rest))
        name = (row, column, first // PAGE_ENTRIES)
        floor = self.floors.get(name, generation)
        if (generation - floor) % 65536 < 32768:
            self.floors[name] = generation

    def claims(self, row):
        """What the log says of each block of a row, by column and block, oldest first."""
        found = {}
        for is_settled, head, rest in self.extents.get(row.id, []):
            _, first, count, _, number, column, flags, _ = head
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
        for lsn, is_settled, head, rest in self.parity.get(row.id, []):
            if head[4] in (CACHED, DISCARDED):
                _add_mapping(versions, row, lsn, is_settled, head, rest)
        own_shadow = shadow.id if shadow else None
        for other in [other for other, owner in self.owners.items() if owner == row.id and other != own_shadow]:
            # A shadow row that was dropped: what was put in place there has ended versions all the same.
            try:
                self._lines(other, row, versions)
            except Problem:
                # It was of a row that had another shape, and none of these versions.
                continue
        own = self._lines(row.id, row, versions)
        of_shadow = self._lines(shadow.id, shadow, versions) if shadow else {}
        return versions, own, of_shadow

    def _lines(self, number, row, versions):
        """Lines of a row that may be half in place; versions that are in place there end."""
        redos, done = [], {}
        for lsn, is_settled, head, rest in self.parity.get(number, []):
            _, first, count, _, kind, _, flags, _ = head
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
    for column, number, checksum, *place, since in struct.iter_unpack("<BB2xIQIQ", rest):
        if column >= row.columns:
            raise Problem(f"the log writes a column {column} of row {row.index}, which has {row.columns}")
        blocks.append((column, state_of(number, checksum), tuple(place), since))
    return blocks


def _add_mapping(versions, row, lsn, is_settled, head, rest):
    """`RawMapping`."""
    _, first, count, _, kind, _, flags, _ = head
    cache_row, block, since = struct.unpack_from("<QIQ", rest)
    since = since or lsn
    for number in range(min(count, row.blocks - min(first, row.blocks))):
        of_block = versions.setdefault(first + number, {})
        if flags & VOID:
            of_block.pop(since, None)
            continue
        place = (cache_row, block + number) if kind == CACHED else None
        checksum = int.from_bytes(rest[20 + 4 * number : 24 + 4 * number], "little")
        version = of_block.setdefault(since, Version(place, checksum))
        version.marked = (version.marked or is_settled or bool(flags & COVERED)) and not flags & IN_DOUBT


def newest_known(states):
    """The newest state that is not damage, of states that stand newest first."""
    return next((state for state in states if state is NEVER or isinstance(state, int)), DAMAGED)
