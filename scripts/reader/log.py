"""The log: docs/format/journal.md."""

import struct

from .codes import BLOCK, crc64
from .disk import Problem, TooNew

MAGIC = b"DOLMNLOG"
KIND, VERSION = 1, 1
HEADER = struct.Struct("<8sQBB2sI16sQQQQQIIQQ24s")
BATCH_MAX = 256 * 1024
HOLES = 0


class Batch:
    """A batch that is whole: `BatchHeader` and what follows."""

    def __init__(self, raw, at, pool):
        (magic, checksum, kind, version, front, self.record_count, of_pool, number, nonce, self.lsn, self.position, address,
         self.length, self.used, self.settled, self.durable_before, reserved) = HEADER.unpack_from(raw)  # fmt: skip
        self.epoch = (number, nonce)
        self.is_whole = False
        self.is_new = False
        if magic != MAGIC or of_pool != pool or address != at:
            return
        if self.length % BLOCK or not HEADER.size <= self.used <= self.length <= min(len(raw), BATCH_MAX):
            return
        if crc64(raw[:8], bytes(8), raw[16 : self.length]) != checksum:
            return
        # A bit that turned in the version makes no later version.
        if (kind, version) != (KIND, VERSION):
            self.is_new = True
            return
        self.bytes = raw[: self.length]
        self.is_whole = not any(front + reserved)

    @property
    def end(self):
        return self.position + self.length

    def records(self):
        """Kind and body of each record."""
        at = HEADER.size
        found = []
        for _ in range(self.record_count):
            if at + 8 > self.used:
                raise Problem(f"batch {self.lsn} of the log ends within a record")
            kind, length = struct.unpack_from("<B3xI", self.bytes, at)
            if at + 8 + length > self.used:
                raise Problem(f"batch {self.lsn} of the log ends within a record")
            found.append((kind, self.bytes[at + 8 : at + 8 + length]))
            at += 8 + -(-length // 8) * 8
        return found


class Log:
    """What the rings of all voters say together, from the tail on: batches that count, the durable mark, and damage."""

    def __init__(self, members, ring_at, tail_lsn, tail_position):
        self.pool = members.pool
        self.epoch = members.epoch
        self.ring_at, self.ring_length = ring_at, members.voters[0].label.log
        self.tail_lsn, self.tail_position = tail_lsn, tail_position
        self.damage = []
        found = {}
        self.known = {}
        for disk in members.voters:
            self._read_ring(disk, found)
        self.batches, recorded = self._chain(found)
        self.settled = max((batch.settled for batch in self.batches), default=0)
        self._find_damage(recorded)

    def _read_ring(self, disk, found):
        ring = disk.read_blocks(self.ring_at, self.ring_length // BLOCK)
        at = 0
        while at < self.ring_length:
            batch = self._batch(disk, ring, at)
            if batch is None:
                at += BLOCK
                continue
            at += batch.length
            if not self._counts(batch):
                continue
            first = found.setdefault(batch.lsn, batch)
            if first.bytes != batch.bytes:
                self.damage.append(f"{disk.path} has another batch {batch.lsn} than the other disks")

    def _batch(self, disk, ring, at):
        """The whole batch at an offset of the ring. What another voter has there too need not be summed up again."""
        if ring[at : at + 8] != MAGIC:
            return None
        known = self.known.get(at)
        if known and ring[at : at + known.length] == known.bytes:
            return known
        batch = Batch(ring[at : at + BATCH_MAX], self.ring_at + at, self.pool)
        if batch.is_new and self._counts(batch):
            raise Problem(f"the log on {disk.path} has a batch of a later version: it takes a newer reader")
        if not batch.is_whole:
            return None
        self.known.setdefault(at, batch)
        return batch

    def _counts(self, batch):
        return (
            batch.lsn >= self.tail_lsn
            and batch.position >= self.tail_position
            and batch.end - self.tail_position <= self.ring_length
            and self.epoch.writer_of(batch.lsn) == batch.epoch
        )

    @staticmethod
    def _chain(found):
        """Leaves out what a later batch lists as a hole, or begins before the end of."""
        kept, recorded = [], []
        for lsn in sorted(found, reverse=True):
            batch = found[lsn]
            is_hole = any(first <= lsn <= last for first, last in recorded)
            if is_hole or (kept and batch.end > kept[-1].position):
                continue
            for kind, body in batch.records():
                if kind == HOLES:
                    if len(body) % 16:
                        raise Problem(f"batch {lsn} of the log has a list of holes that makes no sense")
                    recorded += [(first, min(last, lsn - 1)) for first, last in struct.iter_unpack("<QQ", body)]
            kept.append(batch)
        return kept[::-1], recorded

    def _find_damage(self, recorded):
        """"What is missing": holes that nobody listed and that must not be."""
        have = sorted([(batch.lsn, batch.lsn) for batch in self.batches] + recorded)
        at = self.tail_lsn
        for first, last in have:
            if first > at and at <= self.settled:
                self.damage.append(f"batches {at} to {min(first - 1, self.settled)} of the log are gone")
            at = max(at, last + 1)
        if at <= self.settled:
            self.damage.append(f"batches {at} to {self.settled} of the log are gone")
        for batch in self.batches:
            lsn = batch.durable_before
            is_had = any(first <= lsn <= last for first, last in have)
            if lsn > self.settled and lsn >= self.tail_lsn and not is_had:
                self.damage.append(f"batch {lsn} of the log is gone, which batch {batch.lsn} says was there")

    def records(self):
        """Number of the batch, kind and body of each record, in order."""
        for batch in self.batches:
            for kind, body in batch.records():
                if kind != HOLES:
                    yield batch.lsn, kind, body
