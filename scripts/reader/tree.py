"""The metadata map as the newest checkpoint has it: docs/format/store.md."""

import struct

from .codes import BLOCK, crc64
from .disk import METADATA_AT, Damage, Problem, check

VERSION = 1
PAGE = 16 * 1024
HEADER = struct.Struct("<8sQIBBH16sQQII")
LEAF, INNER = 1, 2
LEVELS_MAX = 8
VALUE_MAX = 3072
KEY = 24
# Behind every key.
END = b"\xff" * KEY + b"\xff"


class Checkpoint:
    """`RawCheckpoint`."""

    def __init__(self, raw, disk, slot, pages_at):
        at = METADATA_AT + slot * BLOCK
        check(raw[:8] == b"DOLMENCP", "no checkpoint")
        (checksum,) = struct.unpack_from("<Q", raw, 4088)
        check(crc64(raw[:4088]) == checksum, "the checkpoint's checksum does not match")
        version, length = struct.unpack_from("<II", raw, 8)
        if version > VERSION:
            raise Problem(f"the map on {disk.path} has version {version}, this reader knows {VERSION}: it takes a newer reader")
        found, self.sequence, at_pages, pages_length = struct.unpack_from("<QQQQ", raw, 48)
        check(raw[16:32] == disk.label.pool and raw[32:48] == disk.label.disk, "the checkpoint is of another disk")
        check(found == at and self.sequence % 2 == slot and length == BLOCK, "the checkpoint was written for another place")
        check((at_pages, pages_length) == (pages_at, disk.label.pages), "the checkpoint is of a map that lies elsewhere")
        self.root_key = raw[80:104]
        self.root = struct.unpack_from("<QQQ", raw, 104)
        self.entry_count, self.used_pages, self.height, _ = struct.unpack_from("<QQHH", raw, 128)
        check(self.height <= LEVELS_MAX, f"the map has {self.height} levels")
        self.anchor = raw[152:216]


def newest_checkpoint(voters, pages_at):
    """The checkpoint with the highest number that any voter has."""
    newest, faults = None, []
    for disk in voters:
        for slot in (0, 1):
            raw = disk.read(METADATA_AT + slot * BLOCK, BLOCK)
            if raw is None or not any(raw):
                continue
            try:
                found = Checkpoint(raw, disk, slot, pages_at)
            except Damage as error:
                faults.append(f"{disk.path}: {error}")
                continue
            if newest is None or found.sequence > newest.sequence:
                newest = found
            elif found.sequence == newest.sequence and (found.root, found.anchor) != (newest.root, newest.anchor):
                raise Problem(f"{disk.path} has another checkpoint {found.sequence} than the other disks")
    if newest is None:
        raise Problem("no disk here has a checkpoint of the map that can be used: " + ("; ".join(faults) or "all are empty"))
    return newest


class Tree:
    """All entries of a checkpoint, and the ranges of keys that no voter can give."""

    def __init__(self, pool, voters, pages_at, checkpoint):
        self.pool, self.voters, self.pages_at = pool, voters, pages_at
        self.page_count = voters[0].label.pages // PAGE
        self.entries = {}
        self.lost = []
        if checkpoint.height:
            self._walk(checkpoint.root, checkpoint.height - 1, checkpoint.root_key, END)
        if not self.lost and len(self.entries) != checkpoint.entry_count:
            raise Problem(f"the map has {len(self.entries)} entries, its checkpoint says {checkpoint.entry_count}")

    def _walk(self, pointer, level, first, behind):
        page = self._page(pointer, level)
        try:
            check(page is not None, "no copy of the page is sound")
            entries = self._leaf(page) if level == 0 else self._inner(page)
            keys = [key for key, _ in entries]
            check(keys == sorted(set(keys)) and keys and first == keys[0] and keys[-1] < behind, "keys are out of order")
        except (Damage, struct.error):
            self.lost.append((first, behind))
            return
        if level == 0:
            self.entries.update(entries)
            return
        for (key, child), (end, _) in zip(entries, [*entries[1:], (behind, None)]):
            self._walk(child, level - 1, key, end)

    def _page(self, pointer, level):
        """The page that a pointer names, from whichever voter has it."""
        number, sequence, checksum = pointer
        if number >= self.page_count:
            return None
        for disk in self.voters:
            raw = disk.read(self.pages_at + number * PAGE, PAGE)
            if raw is None:
                continue
            magic, found, version, kind, found_level, count, pool, own, written, used, _ = HEADER.unpack_from(raw)
            expected = (b"DOLMENPG", checksum, LEAF if level == 0 else INNER, level, self.pool, number, sequence)
            if (magic, found, kind, found_level, pool, own, written) != expected or crc64(raw[16:]) != checksum:
                continue
            if version > VERSION:
                raise Problem(f"the map on {disk.path} has a page of version {version}: it takes a newer reader")
            return count, raw[: HEADER.size + min(used, PAGE - HEADER.size)]
        return None

    @staticmethod
    def _leaf(page):
        count, raw = page
        starts = [*struct.unpack_from(f"<{count}H", raw, HEADER.size), len(raw)]
        entries = []
        for start, end in zip(starts, starts[1:]):
            check(HEADER.size + 2 * count <= start and KEY <= end - start <= KEY + VALUE_MAX, "an entry has an odd length")
            entries.append((raw[start : start + KEY], raw[start + KEY : end]))
        return entries

    @staticmethod
    def _inner(page):
        count, raw = page
        places = range(HEADER.size, HEADER.size + 48 * count, 48)
        return [(raw[at : at + KEY], struct.unpack_from("<QQQ", raw, at + KEY)) for at in places]
