"""The map of a pool, with what the log says since its checkpoint: docs/format/pool.md."""

import bisect
import copy
import struct
import unicodedata

from .codes import BLOCK
from .disk import LOG_AT, Damage, Problem, check
from .log import Log
from .rows import CACHES_FROM, SHADOWS, Row, Space
from .tree import END, KEY, Tree, newest_checkpoint

COUNTER, FREE, FREE_TOTAL, SPACE, PLACE, ROW, STALE, ATTRIBUTE = 1, 2, 3, 4, 5, 6, 7, 8
CHANGE, BLOCKS, OPENED = 1, 2, 3
REMOVED = 65535
VALUE_MAX = 3072
ID_MAX = 2**64 - 1


def key(kind, a, b, c):
    return struct.pack(">BxH4xQQ", kind, a, b, c)


def key_parts(raw):
    return struct.unpack(">BxH4xQQ", raw)


def edits(body):
    """The edits of a change: key, and value or None."""
    at = 0
    while at < len(body):
        if at + KEY + 2 > len(body):
            raise Damage("ends within an edit")
        (length,) = struct.unpack_from("<H", body, at + KEY)
        name = body[at : at + KEY]
        at += KEY + 2
        if length == REMOVED:
            yield name, None
            continue
        if length > VALUE_MAX or at + length > len(body):
            raise Damage("has a value that is too long")
        yield name, body[at : at + length]
        at += length


class Pool:
    """A pool as an opening would find it, without having written anything."""

    def __init__(self, members):
        self.members = members
        self.notes = members.notes
        label = members.voters[0].label
        log_at, pages_at = LOG_AT, LOG_AT + label.log
        if any((disk.label.log, disk.label.pages) != (label.log, label.pages) for disk in members.voters):
            raise Problem("the disks that carry log and map do not agree on the lengths of these")
        checkpoint = newest_checkpoint(members.voters, pages_at)
        tail_lsn, tail_position, self.applied = struct.unpack_from("<QQQ", checkpoint.anchor)
        self.log = Log(members, log_at, tail_lsn, tail_position)
        tree = Tree(members.pool, members.voters, pages_at, checkpoint)
        self.map, self.lost = tree.entries, tree.lost
        self.blocks = []
        for lsn, kind, body in self.log.records():
            self._replay(lsn, kind, body)
        self.keys = sorted(self.map)
        # What makes it doubtful that all was found.
        self.faults = list(self.log.damage)
        if self.lost:
            self.faults.append("a part of the map cannot be read from any disk")

    def _replay(self, lsn, kind, body):
        """"Records in the log"."""
        if kind == BLOCKS:
            self.blocks.append((lsn, body))
        elif kind == CHANGE and lsn >= self.applied:
            try:
                for name, value in edits(body):
                    if value is None:
                        self.map.pop(name, None)
                    else:
                        self.map[name] = value
            except Damage as error:
                raise Problem(f"a change in batch {lsn} of the log {error}") from None
        elif kind not in (CHANGE, OPENED):
            raise Problem(f"batch {lsn} of the log has a record of the unknown kind {kind}")

    def _range(self, first, last):
        found = self.keys[bisect.bisect_left(self.keys, first) : bisect.bisect_right(self.keys, last)]
        return ((key_parts(name), self.map[name]) for name in found)

    def words_of(self, member):
        """What the map says of a member: that it takes no rows, and the name of its fault domain."""
        words = []
        value = self.map.get(key(COUNTER, 3, member.slot, 1), b"")
        if len(value) == 24 and value[:16] == member.disk:
            role = struct.unpack_from("<Q", value, 16)[0]
            words += {1: ["spare"], 2: ["stays empty"]}.get(role, [])
        if member.domain:
            name = self.map.get(key(COUNTER, 4, member.domain, 0))
            words.append(f"in {name.decode('ascii', 'replace')}" if name else f"in fault domain {member.domain}")
        return words

    def spaces(self, caches=False):
        """All spaces, those of write caches alone or left out."""
        found = []
        for (_, _, number, _), value in self._range(key(SPACE, 0, 0, 0), key(SPACE, 0, ID_MAX, ID_MAX)):
            if (number >= CACHES_FROM if caches else number < SHADOWS):
                try:
                    found.append(Space(number, value))
                except Damage as error:
                    raise Problem(f"space {number} makes no sense: {error}") from None
        return found

    def bay(self, member):
        """What people call the bay of a disk, or None; a record of another disk, or of another form, is none."""
        value = self.map.get(key(COUNTER, 5, 1, member.slot), b"")
        try:
            bay = value[16:].decode()
        except UnicodeDecodeError:
            return None
        is_fit = 1 <= len(value) - 16 <= 64 and not any(unicodedata.category(one) == "Cc" for one in bay)
        return bay if value[:16] == member.disk and is_fit else None

    def space(self, name):
        """The space of a name, or of an id: of several of one name, the whole one."""
        found = [space for space in self.spaces() if name in (space.name, str(space.id))]
        exact = [space for space in found if space.name == name and not space.standing]
        exact += [space for space in found if str(space.id) == name] + found
        if not exact:
            names = ", ".join(space.name for space in self.spaces()) or "none"
            raise Problem(f"pool {self.members.name} has no space {name}; it has {names}")
        return exact[0]

    def row_indices(self, space):
        first, last = key(PLACE, 0, space.id, 0), key(PLACE, 0, space.id, ID_MAX)
        return [index for (_, _, _, index), _ in self._range(first, last)]

    def row(self, space, index):
        """A row, or None where none was claimed. Raises Damage for one that makes no sense."""
        place = self.map.get(key(PLACE, 0, space.id, index))
        if place is None:
            return None
        check(len(place) == 24 and any(place[:8]) and not any(place[8:]), "its place is malformed")
        (row,) = struct.unpack_from("<Q", place)
        value = self.map.get(key(ROW, 0, row, 0))
        check(value is not None, f"its record {row} is not there")
        return Row(space, index, row, value)

    def attributes(self, space=None):
        """Attributes of a space, or of all: space, type, number and value of each, by type."""
        found = self._range(key(ATTRIBUTE, 0, 0, 0), key(ATTRIBUTE, 65535, ID_MAX, ID_MAX))
        return [(of, kind, number, value) for (_, kind, of, number), value in found if space is None or of == space.id]

    def row_of(self, space, number):
        """The row of a space that has this id, or None where the space has no such row."""
        value = self.map.get(key(ROW, 0, number, 0))
        if value is None:
            return None
        check(len(value) >= 40, "its value is cut off")
        of_space, index = struct.unpack_from("<QQ", value, 24)
        if of_space != space.seen_as:
            return None
        row = self.row(space, index)
        return row if row and row.id == number else None

    def shadows(self, space):
        """The space of the shadows of a space's rows."""
        shadows = copy.copy(space)
        shadows.id = space.id + SHADOWS
        return shadows

    def lost_rows(self, space):
        """Ranges of rows, first and last, of which nobody knows whether they were claimed."""
        ranges = []
        for first, behind in self.lost:
            low = max(first, key(PLACE, 0, space.id, 0))
            high = min(behind, key(PLACE, 0, space.id, ID_MAX) + b"\0")
            if low < high:
                last = ID_MAX if high == END or high[:16] != low[:16] else int.from_bytes(high[16:24], "big")
                ranges.append((int.from_bytes(low[16:24], "big"), last))
        return ranges

    def free_bytes(self, slot):
        total = self.map.get(key(FREE_TOTAL, slot, 0, 0))
        return int.from_bytes(total, "little") * BLOCK if total is not None and len(total) == 8 else None
