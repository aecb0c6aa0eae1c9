"""Spaces, rows, slabs and tables: docs/format/space.md."""

import struct

from .codes import BLOCK, crc64
from .disk import check, text

RESILIENCIES = {1: "simple", 2: "span", 3: "mirror", 4: "parity"}
PROVISIONINGS = {1: "thin", 2: "fixed"}
RELAXED = 1
# Ids of spaces of shadow rows have this bit, and those of write caches begin here.
SHADOWS = 1 << 63
CACHES_FROM = (1 << 64) - 256
# Standings of a space.
WHOLE, UNFINISHED, TRASHED = 0, 1, 2
PAGE_ENTRIES = 504
SLABS_OF_COLUMN_MAX = 5
NEVER_HELD_ANYTHING = 0

# What is known of a block: NEVER, DAMAGED, AWAY (nobody here knows), or its CRC-32C.
NEVER, DAMAGED, AWAY = None, "damaged", "away"


def state_of(number, checksum):
    return NEVER if number == 0 else checksum if number == 1 else DAMAGED


class Layout:
    """How rows are laid: the space's own fields, or its `before` ones."""

    def __init__(self, resiliency, copies, columns, parity, integrity):
        check(resiliency in RESILIENCIES, "its kind is unknown")
        self.resiliency, self.copies, self.columns = RESILIENCIES[resiliency], copies, columns
        self.parity, self.integrity = parity, integrity

    @property
    def kind(self):
        if self.resiliency == "mirror":
            return f"mirror of {self.copies}"
        return f"parity {self.parity}" if self.resiliency == "parity" else self.resiliency

    @property
    def write_cache(self):
        """The redundancy of the write cache that such rows need, None for none."""
        return None if self.integrity == RELAXED else self.copies - 1 + self.parity


class Space:
    """`RawSpace`."""

    def __init__(self, number, raw):
        check(len(raw) == 128, f"its value has {len(raw)} bytes")
        self.id = number
        (version, resiliency, copies, columns, provisioning, integrity, self.sector_shift, self.size,
         self.row_length, self.interleave, self.standing, parity) = struct.unpack_from("<HBBBBBBQQIBB", raw)  # fmt: skip
        before, before_copies, before_parity, before_columns, before_integrity, _, turn = struct.unpack_from("<7B", raw, 56)
        (self.trashed_at,) = struct.unpack_from("<Q", raw, 32)
        check(version == 2, f"it has version {version}")
        check(self.standing <= TRASHED and (self.standing == TRASHED or not self.trashed_at), "its standing is unknown")
        check(provisioning in PROVISIONINGS and turn <= 1, "its kind is unknown")
        check(self.row_length and self.row_length % BLOCK == 0 and self.size % BLOCK == 0, "its lengths are odd")
        check(self.row_length <= 1 << 30, "its rows are too long")
        self.provisioning = PROVISIONINGS[provisioning]
        self.now = Layout(resiliency, copies, columns, parity, integrity)
        self.before = Layout(before, before_copies, before_columns, before_parity, before_integrity) if before else None
        iops_max, iops_min, rate_max, rate_min = struct.unpack_from("<IIII", raw, 40)
        check(not iops_max or iops_min <= iops_max, "its least is above its most")
        check(not rate_max or rate_min <= rate_max, "its least is above its most")
        self.name = text(raw[64:128])

    @property
    def standing_words(self):
        return {WHOLE: "", UNFINISHED: "  unfinished: what is left of it is being freed", TRASHED: "  in the trash"}[self.standing]

    @property
    def seen_as(self):
        """The id of the space that people see whose rows, or shadows of rows, it has."""
        return self.id if self.id >= CACHES_FROM else self.id & ~SHADOWS

    @property
    def has_parity(self):
        return any(one and one.parity for one in (self.now, self.before))


class Slab:
    """`RawSlab` and its runs."""

    def __init__(self, raw, at):
        check(at + 16 <= len(raw), "a slab is cut off")
        self.slot, self.column, count, stale, self.since = struct.unpack_from("<HBBIQ", raw, at)
        check(stale <= 1 and 1 <= count <= 4 and at + 16 + 12 * count <= len(raw), "a slab is malformed")
        self.trusted = not stale
        self.runs = [struct.unpack_from("<QI", raw, at + 16 + 12 * n) for n in range(count)]
        self.bytes = 16 + 12 * count
        self.blocks = sum(length for _, length in self.runs)

    @property
    def may_help(self):
        """Whether it holds everything, or held something once."""
        return self.trusted or self.since != NEVER_HELD_ANYTHING

    def read(self, disk, first, count):
        """Blocks of the slab, from the disk that it is on."""
        parts = []
        start = 0
        for unit, length in self.runs:
            low, high = max(first, start), min(first + count, start + length)
            if low < high:
                parts.append(disk.read_blocks(disk.label.data_start + (unit + low - start) * BLOCK, high - low))
            start += length
        return b"".join(parts)


class Row:
    """`RawRow` and its slabs, and where what is in it ("Where a block of a space is")."""

    def __init__(self, space, index, number, raw):
        check(len(raw) >= 48, "its value is cut off")
        self.space, self.index = space, index
        (version, formatted, layout, copies, self.data_columns, self.parity, integrity, shift, turn, _, references,
         self.id, of_space, of_index, self.blocks, _) = struct.unpack_from("<HBBBBBBBB2sIQQQII", raw)  # fmt: skip
        check(version == 2, f"it has version {version}")
        check(formatted <= 1 and self.data_columns and self.parity <= 2 and 12 <= shift <= 30, "it is malformed")
        check(turn <= 1 and integrity in (1, 2), "it is malformed")
        check(self.id == number, f"it is row {self.id}")
        check(references == 1, f"{references} places name it")
        check((of_space, of_index) == (space.seen_as, index), f"it is row {of_index} of space {of_space}")
        check(self.blocks * BLOCK == space.row_length, f"it has {self.blocks} blocks")
        self.formatted, self.laid = bool(formatted), Layout(layout, copies, self.data_columns, self.parity, integrity)
        self.interleave = (1 << shift) // BLOCK
        self.columns = self.data_columns + self.parity
        units = self.blocks // self.interleave
        check(self.blocks % self.interleave == 0 and self.data_columns <= units, "its interleave does not fit")
        rounds, longer = divmod(units, self.data_columns)
        lengths = [(rounds + (column < longer)) * self.interleave for column in range(self.data_columns)]
        self.lengths = lengths + [lengths[0]] * self.parity
        self.slabs = [[] for _ in range(self.columns)]
        at = 48
        while at < len(raw):
            slab = Slab(raw, at)
            check(slab.column < self.columns, "a slab serves a column that it does not have")
            check(slab.blocks == self.slab_blocks(slab.column), "a slab has not the units that its column needs")
            self.slabs[slab.column].append(slab)
            at += slab.bytes
        check(all(1 <= len(slabs) <= SLABS_OF_COLUMN_MAX for slabs in self.slabs), "a column has no slab, or too many")

    # --- arithmetic

    def locate(self, block):
        """Column, and block of it, of a block of the row."""
        unit, within = divmod(block, self.interleave)
        turn, column = divmod(unit, self.data_columns)
        return column, turn * self.interleave + within

    def row_block(self, column, block):
        turn, within = divmod(block, self.interleave)
        return (turn * self.data_columns + column) * self.interleave + within

    def _table_room(self, column):
        """Pages for which each table on a slab of the column has room."""
        blocks = self.lengths[column] + (self.interleave if self.parity else 0)
        return -(-blocks // PAGE_ENTRIES)

    def slab_blocks(self, column):
        return self.lengths[column] + 2 * (self.parity + 1) * self._table_room(column) + 1

    def page_count(self, column):
        return -(-self.lengths[column] // PAGE_ENTRIES)

    def table_places(self, column, page):
        """The slabs with a copy of a page, and the block of each at which its two slots begin."""
        for table in range(self.parity + 1):
            holder = (column + table) % self.columns
            at = self.lengths[holder] + 2 * (table * self._table_room(holder) + page)
            for slab in self.slabs[holder]:
                yield slab, at


class Tables:
    """What the tables on the disks say of a row."""

    def __init__(self, members, row, floors):
        self.members, self.row = members, row
        # Of pages that the log names, the low bits of the generation that they have at least.
        self.floors = floors
        self.summed = {}

    def column(self, column):
        """The states of all blocks of a column, and the ranges of pages that are lost."""
        row = self.row
        if not row.formatted:
            return [NEVER] * row.lengths[column]
        states = []
        for page in range(row.page_count(column)):
            states += self._page(column, page)
        return states[: row.lengths[column]]

    def _page(self, column, page):
        """"Which page is believed"."""
        best, is_away = None, False
        floor = self.floors.get((self.row.id, column, page))
        for slab, at in self.row.table_places(column, page):
            if not slab.trusted:
                continue
            disk = self.members.disk(slab.slot)
            if disk is None:
                is_away = True
                continue
            raw = slab.read(disk, at, 2)
            slots = [self._parse(raw[n * BLOCK : n * BLOCK + BLOCK], column, page, n) for n in (0, 1)]
            sound = [found for found in slots if found]
            newest = max(sound, default=None, key=lambda found: found[0])
            if newest is None:
                continue
            if floor is None:
                is_believed = len(sound) == 2
            else:
                is_believed = (newest[0] - floor) % 65536 < 32768
            if is_believed and (best is None or newest[0] > best[0]):
                best = newest
        if best is None:
            return [AWAY if is_away else DAMAGED] * PAGE_ENTRIES
        entries = struct.iter_unpack("<I3xB", best[1][64:])
        return [state_of(state, checksum) for checksum, state in entries]

    def _parse(self, raw, column, page, slot):
        """`RawPage`: generation and bytes, or None."""
        magic, version, of_column, pool, row, generation, index, reserved, checksum = struct.unpack_from("<4sHH16sQQI12sQ", raw)
        name = (b"DTAB", 1, column, self.members.pool, self.row.id, page, bytes(12))
        if (magic, version, of_column, pool, row, index, reserved) != name or generation % 2 != slot:
            return None
        if raw not in self.summed:
            self.summed[raw] = crc64(raw[:56], bytes(8), raw[64:])
        return (generation, raw) if self.summed[raw] == checksum else None
