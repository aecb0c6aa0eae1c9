"""Disks and their labels: docs/format/label.md."""

import fcntl
import os
import stat
import struct

from .codes import BLOCK, crc64

MEBIBYTE = 1 << 20
SLOT = 64 * 1024
FRONT_AT = 64 * 1024
METADATA_AT = MEBIBYTE
LOG_AT = METADATA_AT + 64 * 1024
MAGIC = b"DOLMENLB"
VERSION = 4
MEMBERS_MAX = 240
VOTERS_MAX = 9
SPANS_MAX = 16
FIXED = 4096
MEMBER = 64


class Problem(Exception):
    """Something that a person has to know, in words for that person."""


class Damage(Exception):
    """A structure on a disk is not what it should be; another copy may be."""


class TooNew(Exception):
    """A structure on a disk is of a later version."""


class TooOld(Exception):
    """A label is of an older format."""


def text(raw):
    """A name filled up with zeros, with nothing in it that a terminal would obey."""
    name = raw.rstrip(b"\0").decode("utf-8", "replace")
    return "".join(one if one.isprintable() else "\ufffd" for one in name)


def check(holds, what):
    if not holds:
        raise Damage(what)


class Epoch:
    """`RawEpoch`."""

    def __init__(self, raw):
        self.id = struct.unpack_from("<QQ", raw, 0)
        self.predecessor = struct.unpack_from("<QQ", raw, 16)
        self.owner = raw[32:48]
        flags, voters, spans = struct.unpack_from("<IHH", raw, 48)
        check(flags & 1 and not flags & ~7, f"an epoch has the flags {flags:#x}")
        check(1 <= voters <= VOTERS_MAX, f"an epoch has {voters} voters")
        check(1 <= spans <= SPANS_MAX, f"an epoch has {spans} spans of the log")
        self.exported = bool(flags & 4)
        self.voters = [raw[56 + 16 * n : 72 + 16 * n] for n in range(voters)]
        check(sorted(set(self.voters)) == self.voters, "voters of an epoch are not in ascending order")
        entries = [struct.unpack_from("<QQQ", raw, 200 + 24 * n) for n in range(spans)]
        self.spans = [(first, (number, nonce)) for number, nonce, first in entries]
        check(sorted(self.spans) == self.spans, "spans of the log are not in order")
        check(self.spans[-1][1] == self.id, "the last span of the log is another epoch's")
        number, nonce, self.fork_root, log_voters = struct.unpack_from("<QQQI", raw, 584)
        check(log_voters == (1 << voters) - 1, f"of the voters of an epoch, {log_voters:#x} carry the log")
        self.fork = (number, nonce) if flags & 2 else None

    @classmethod
    def parse(cls, raw):
        return cls(raw) if any(raw) else None

    def continues(self, other):
        """Whether another epoch is surely this one or in its past ("Which label counts")."""
        same_line = self.fork == other.fork and other.id[0] <= self.id[0] and other.id[0] != self.id[0]
        before_the_fork = not other.fork and self.fork and other.id[0] <= self.fork_root
        named = self.predecessor == other.id or any(epoch == other.id for _, epoch in self.spans)
        return bool(self.id == other.id or same_line or before_the_fork or named)

    def writer_of(self, lsn):
        """The epoch whose batch counts at this place of the log."""
        return next((epoch for first, epoch in reversed(self.spans) if first <= lsn), None)

    def __str__(self):
        return f"{self.id[0]} ({self.id[1]:016x})"


class Member:
    """`RawMember`."""

    def __init__(self, raw):
        self.disk = raw[:16]
        self.capacity, self.slot, self.state, self.domain, self.left, self.successor = struct.unpack_from(
            "<QHHIQH", raw, 16
        )
        (self.sequence,) = struct.unpack_from("<Q", raw, 48)
        check(raw[42] <= 3, f"a member has the medium {raw[42]}")
        check(self.slot < MEMBERS_MAX, f"a member has the slot {self.slot}")
        check(self.state in (1, 2), f"a member has the state {self.state}")


def _members(raw):
    members = [Member(raw[at : at + MEMBER]) for at in range(0, len(raw), MEMBER)]
    check(len({one.slot for one in members}) == len(members), "two members have one slot")
    check(len({one.disk for one in members}) == len(members), "a member stands in the table twice")
    return members


class Label:
    """`RawLabel` with its tables of members, from the bytes of the slot at an address. Checks are made in the order that the
    document gives."""

    def __init__(self, raw, at):
        check(raw[:8] == MAGIC, "no label")
        version, length = struct.unpack_from("<II", raw, 8)
        if version > VERSION:
            raise TooNew(version)
        if version < VERSION:
            raise TooOld(f"it belongs to pool {text(raw[88:152])}, which has format {version}; this reader reads format {VERSION}")
        base, pending = struct.unpack_from("<HH", raw, 208)
        check(max(base, pending) <= MEMBERS_MAX, f"the label counts {max(base, pending)} members")
        check(length == -(-(FIXED + MEMBER * (base + pending)) // BLOCK) * BLOCK, f"the label says it has {length} bytes")
        check(length <= len(raw), "the label ends behind its slot")
        (checksum,) = struct.unpack_from("<Q", raw, 4088)
        check(crc64(raw[:4088], bytes(8), raw[4096:length]) == checksum, "the label's checksum does not match")
        found, self.sequence, *features = struct.unpack_from("<QQQQQ", raw, 48)
        check(found == at, f"the label was written for address {found}")
        if any(features):
            raise TooNew(f"{version} with features {', '.join(map(hex, features))}")
        self.pool, self.disk = raw[16:32], raw[32:48]
        self.pool_name = text(raw[88:152])
        self.capacity, self.metadata, self.data_start, self.data_end, self.log, self.pages = struct.unpack_from(
            "<QQQQQQ", raw, 152
        )
        self.base, self.pending = Epoch.parse(raw[248:888]), Epoch.parse(raw[888:1528])
        check(self.base is not None, "the label names no epoch")
        middle = FIXED + MEMBER * base
        self.members = _members(raw[FIXED:middle])
        self.pending_members = _members(raw[middle : middle + MEMBER * pending])
        self._check_cut()

    def _check_cut(self):
        check(self.data_start % BLOCK == 0 and self.data_end % BLOCK == 0, "data begins or ends within a block")
        check(METADATA_AT + self.metadata <= self.data_start <= self.data_end <= self.capacity, "areas overlap")
        check(self.log % BLOCK == 0 and self.log >= SLOT and self.pages % BLOCK == 0, "log or pages have an odd length")

    def knows(self, epoch):
        return epoch.id in (self.base.id, self.pending and self.pending.id)

    @property
    def has_room(self):
        """Whether log and pages end before data begins."""
        return LOG_AT + self.log + self.pages <= self.data_start


class Disk:
    """A disk that is only read."""

    def __init__(self, path):
        self.path = path
        try:
            self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            kind = os.fstat(self.file).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISBLK(kind)):
                raise Problem(f"{path} is neither a file nor a block device")
            self.size = os.lseek(self.file, 0, os.SEEK_END)
        except OSError as error:
            raise Problem(f"{path} cannot be opened: {error.strerror}") from None
        self._lock()
        self.label = None
        self.newest_label()

    def _lock(self):
        """Nobody writes while it is read: a daemon that has the pool open holds the lock."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Problem(f"{self.path} is in use; end the daemon, or export the pool, and try again") from None
        except OSError:
            pass  # A file system without locks.

    def read(self, at, length):
        """The bytes from an address on, or None where the disk does not give all of them."""
        try:
            data = os.pread(self.file, length, at)
            while 0 < len(data) < length:
                more = os.pread(self.file, length - len(data), at + len(data))
                if not more:
                    return None
                data += more
            return data if len(data) == length else None
        except (OSError, OverflowError):
            return None

    def read_blocks(self, at, count):
        """As many bytes; blocks that the disk does not give are zeros, which no checksum takes for data."""
        data = self.read(at, count * BLOCK)
        if data is None:
            data = b"".join(self.read(at + n * BLOCK, BLOCK) or bytes(BLOCK) for n in range(count))
        return data

    # --- "Where labels stand", "Reading"

    def newest_label(self):
        """Sets the label that counts; None where there is none, and `why` says why."""
        self.why = None
        too_new = {}
        sound = set()
        back = self.size // MEBIBYTE * MEBIBYTE - MEBIBYTE
        for number, at in enumerate([FRONT_AT, FRONT_AT + SLOT, back, back + SLOT]):
            self._look(at, number % 2, sound, too_new)
        if self.label is None:
            first = max(0, -(-(self.size - 16 * MEBIBYTE) // MEBIBYTE))
            for border in range(first * MEBIBYTE, self.size, MEBIBYTE):
                self._look(border, 0, sound, too_new)
                self._look(border + SLOT, 1, sound, too_new)
        # A flipped bit in a version is told from a later version by the other label of the same number.
        later = [version for slot, version in too_new.items() if slot not in sound]
        if later:
            raise Problem(
                f"{self.path} has format version {later[0]}, and this reader knows {VERSION}: it takes a newer reader"
            )

    def _look(self, at, slot, sound, too_new):
        raw = self.read(at, min(SLOT, max(self.size - at, 0))) if at >= 0 else None
        if not raw or raw[:8] != MAGIC:
            return
        try:
            check(len(raw) >= FIXED, "the label is cut off")
            label = Label(raw, at)
        except TooNew as error:
            too_new[slot] = str(error)
        except TooOld as error:
            self.why = self.why or str(error)
        except Damage as error:
            self.why = self.why or str(error)
        else:
            sound.add(slot)
            if self.label is None or label.sequence > self.label.sequence:
                self.label = label

    @property
    def is_cut_short(self):
        return self.size < self.label.data_end


# --- "Which label counts" ------------------------------------------------------------------------------------------


class Members:
    """What the labels of the disks at hand say together: the epoch that counts, and which disks are believed."""

    def __init__(self, disks):
        self.notes = []
        disks = self._with_labels(disks)
        self.name, self.pool = disks[0].label.pool_name, disks[0].label.pool
        self.epoch = max((disk.label.base for disk in disks), key=lambda epoch: epoch.id)
        for disk in disks:
            if not self.epoch.continues(disk.label.base):
                raise Problem(
                    f"{disk.path} is of epoch {disk.label.base}, which went on apart from epoch {self.epoch} of the others; "
                    "give the disks of one side alone"
                )
        whole = [disk for disk in disks if not self._note_cut(disk)]
        holder = next((disk for disk in disks if disk.label.base.id == self.epoch.id), None)
        self.members = holder.label.members
        self._name_newest_labels(disks)
        self.by_slot = {}
        for member in self.members:
            disk = next((disk for disk in whole if disk.label.disk == member.disk), None)
            if disk and not self._note_old(disk, member):
                self.by_slot[member.slot] = disk
        self._find_voters()
        known = {member.disk for member in self.members}
        for disk in disks:
            if disk.label.disk not in known:
                self.notes.append(f"{disk.path} is no member of epoch {self.epoch}; it is left out")

    def _with_labels(self, disks):
        for disk in disks:
            if disk.label is None and disk.why is None:
                raise Problem(f"{disk.path} is no member of a Dolmen pool: it has no label")
            if disk.label is None:
                self.notes.append(f"{disk.path} has labels, and none can be used: {disk.why}; it is left out")
        disks = [disk for disk in disks if disk.label]
        if not disks:
            raise Problem("no disk has a label that can be used: " + "; ".join(self.notes))
        seen = {}
        for disk in disks:
            label = disk.label
            if label.pool != disks[0].label.pool:
                raise Problem(
                    f"{disk.path} belongs to pool {label.pool_name} ({label.pool.hex()}), and {disks[0].path} to pool "
                    f"{disks[0].label.pool_name} ({disks[0].label.pool.hex()}); give the disks of one pool"
                )
            if label.disk in seen:
                raise Problem(f"{disk.path} and {seen[label.disk]} are the same disk, or one is a copy of the other")
            seen[label.disk] = disk.path
        return disks

    def _note_cut(self, disk):
        if disk.is_cut_short:
            self.notes.append(
                f"{disk.path} has {disk.size} bytes, and its data ends at {disk.label.data_end}: it was cut short, and is "
                "left out"
            )
        return disk.is_cut_short

    def _name_newest_labels(self, disks):
        """Has each entry name the newest label that any table of the epoch names for that member."""
        labels = [disk.label for disk in disks]
        tables = [label.members for label in labels if label.base.id == self.epoch.id]
        tables += [label.pending_members for label in labels if label.pending and label.pending.id == self.epoch.id]
        for member in self.members:
            same = (other for table in tables for other in table if other.disk == member.disk)
            member.sequence = max(other.sequence for other in same)

    def _note_old(self, disk, member):
        """Whether a disk is as it was long ago."""
        label = disk.label
        if label.sequence < member.sequence:
            self.notes.append(
                f"{disk.path} is as it was in epoch {label.base}, with its label {label.sequence}, before its label "
                f"{member.sequence}; it is left out"
            )
            return True
        was_left_out = member.left and member.left <= label.base.id[0]
        is_old = was_left_out or (label.disk in self.epoch.voters and not label.knows(self.epoch))
        if is_old:
            self.notes.append(f"{disk.path} is as it was in epoch {label.base}, before epoch {self.epoch}; it is left out")
        return is_old

    def _find_voters(self):
        """The disks that log and map are read from."""
        here = [
            disk
            for disk in self.by_slot.values()
            if disk.label.disk in self.epoch.voters and disk.label.knows(self.epoch)
        ]
        self.voters = [disk for disk in here if disk.label.has_room] or here
        if not self.voters:
            raise Problem(f"none of the {len(self.epoch.voters)} disks that carry log and map of pool {self.name} is here")
        if len(here) < len(self.epoch.voters):
            self.notes.append(
                f"{len(here)} of the {len(self.epoch.voters)} disks that carry log and map are here: if the pool went on "
                "with the others, what is read here is of before"
            )

    def disk(self, slot):
        return self.by_slot.get(slot)
