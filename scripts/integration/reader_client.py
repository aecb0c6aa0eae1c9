"""Fills served spaces with known data, and compares with what was read of them: the client of reader.sh.

reader_client.py fill FOLDER SEED NAME=URI...    writes, rewrites, discards and flushes each of the spaces, then ends
reader_client.py storm FOLDER SEED NAME=URI...   the same without end, many requests at a time, until the server is gone
reader_client.py fetch FOLDER NAME=URI...         reads all of each space into FOLDER/NAME.served
reader_client.py flip FOLDER NAME DISK...         turns a bit of a copy of one of the space's blocks
reader_client.py compare FOLDER OUTPUTS MESSAGES NAME...

What each space has to hold stands in FOLDER/NAME.image. Requests that were not answered when the server went may have been
done or not, block by block: what they wrote stands in FOLDER/NAME.maybe, and where in FOLDER/NAME.flying. All that a storm has
asked for, answered or not, stands in FOLDER/NAME.touched: until a flush, an answered write is in flight for the pool. `storm`
makes FOLDER/going when every space was written to often enough. Compared are OUTPUTS/NAME; the ranges that MESSAGES, which is what
read_pool said, call missing need not be right.
"""

import os
import random
import re
import socket
import struct
import sys
import threading
import urllib.parse

BLOCK = 4096
READ, WRITE, FLUSH, TRIM = 0, 1, 3, 4
GOING_AFTER = 250
FLUSH_EACH = 100
HOT_BLOCKS = 48
QUIET_BLOCKS = 32
WINDOW = 12


class Gone(Exception):
    """The server is."""


class Client:
    """A connection over a Unix socket, with simple replies."""

    def __init__(self, uri):
        parts = urllib.parse.urlsplit(uri)
        path = urllib.parse.parse_qs(parts.query)["socket"][0]
        name = urllib.parse.unquote(parts.path.lstrip("/")).encode()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        magic, option_magic, flags = struct.unpack(">8s8sH", self._take(18))
        expect("the greeting", (magic, option_magic, flags & 1), (b"NBDMAGIC", b"IHAVEOPT", 1))
        self.socket.sendall(struct.pack(">I", 1))
        body = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        self.socket.sendall(struct.pack(">8sII", b"IHAVEOPT", 7, len(body)) + body)
        self.size = self._negotiated()
        self.number = 0
        self.flying = {}

    def _negotiated(self):
        size = None
        while True:
            _, _, kind, length = struct.unpack(">QIII", self._take(20))
            body = self._take(length)
            if kind == 1:
                return size
            expect("the answer to the option", kind, 3)
            if struct.unpack(">H", body[:2])[0] == 0:
                (size,) = struct.unpack(">Q", body[2:10])

    def _take(self, length):
        data = b""
        while len(data) < length:
            try:
                more = self.socket.recv(length - len(data))
            except ConnectionError:
                raise Gone from None
            if not more:
                raise Gone
            data += more
        return data

    def begin(self, kind, at, length, data=b""):
        self.number += 1
        self.flying[self.number] = (kind, at, length, data)
        try:
            self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, self.number, at, length) + data)
        except ConnectionError:
            raise Gone from None

    def end_one(self):
        """The request that is answered next."""
        magic, error, number = struct.unpack(">IIQ", self._take(16))
        expect("an answer", (magic, error), (0x67446698, 0))
        return self.flying.pop(number)

    def read(self, at, length):
        self.begin(READ, at, length)
        self.end_one()
        return self._take(length)

    def close(self):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))
        self.socket.close()


def expect(what, found, expected):
    if found != expected:
        raise AssertionError(f"{what}: found {found!r}, expected {expected!r}")


class Space:
    """A space, and what it has to hold."""

    def __init__(self, folder, name, uri, seed):
        self.path = os.path.join(folder, name)
        self.chance = random.Random(f"{seed} {name}")
        self.client = Client(uri)
        self.image = bytearray(self.client.size)
        if os.path.exists(self.path + ".image"):
            self.image = bytearray(open(self.path + ".image", "rb").read())
        self.answered = 0
        self.touched = []

    def request(self):
        """A request that meets none of those under way: mostly small, sometimes a stripe or a discard. An extent in the middle keeps
        what the filling gave it, however long a storm lasts."""
        quiet = len(self.image) // 2
        quiet_end = quiet + QUIET_BLOCKS * BLOCK
        while True:
            draw = self.chance.random()
            blocks = 1 if draw < 0.5 else self.chance.randint(2, 16) if draw < 0.9 else self.chance.randint(17, 128)
            # Half of them go to a few blocks, so that these are written and discarded again and again between two flushes.
            room = HOT_BLOCKS if self.chance.random() < 0.5 else len(self.image) // BLOCK
            at = self.chance.randrange(room - min(blocks, room - 1)) * BLOCK
            length = min(blocks, room - 1) * BLOCK
            is_free = all(at + length <= other or other + size <= at for _, other, size, _ in self.client.flying.values())
            if is_free and (at + length <= quiet or quiet_end <= at):
                break
        self.touched.append((at, length))
        if self.chance.random() < 0.12:
            self.client.begin(TRIM, at, length)
        else:
            self.client.begin(WRITE, at, length, self.chance.randbytes(length))

    def end_one(self):
        kind, at, length, data = self.client.end_one()
        if kind == WRITE:
            self.image[at : at + length] = data
        elif kind == TRIM:
            self.image[at : at + length] = bytes(length)
        self.answered += kind != FLUSH

    def drain(self):
        while self.client.flying:
            self.end_one()

    def fill(self):
        """A large part from end to end, then rewrites with flushes between; what comes last is not flushed."""
        for at in range(0, len(self.image) * 5 // 8, 256 * 1024):
            self.client.begin(WRITE, at, 256 * 1024, self.chance.randbytes(256 * 1024))
            self.end_one()
        for turn in range(4):
            for _ in range(40):
                self.request()
                if len(self.client.flying) >= WINDOW:
                    self.end_one()
            self.drain()
            if turn < 3:
                self.client.begin(FLUSH, 0, 0)
                self.drain()
        self.client.close()

    def storm(self, going):
        """Until the server is gone. A flush now and then; a discard is under way alone with its blocks, as writes are."""
        try:
            while True:
                self.request()
                if self.answered % FLUSH_EACH == 0:
                    self.client.begin(FLUSH, 0, 0)
                if len(self.client.flying) >= WINDOW:
                    self.end_one()
                if self.answered == GOING_AFTER:
                    going.release()
        except Gone:
            pass

    def save(self):
        with open(self.path + ".image", "wb") as file:
            file.write(self.image)
        with open(self.path + ".maybe", "wb") as file, open(self.path + ".flying", "w") as ranges:
            for kind, at, length, data in self.client.flying.values():
                if kind != FLUSH:
                    file.seek(at)
                    file.write(data or bytes(length))
                    print(at, length, file=ranges)
        with open(self.path + ".touched", "w") as ranges:
            for at, length in self.touched:
                print(at, length, file=ranges)


def write(folder, seed, spaces, is_storm):
    spaces = [Space(folder, *one.split("=", 1), seed) for one in spaces]
    going = threading.Semaphore(0)
    failed = []

    def run(space):
        try:
            space.storm(going) if is_storm else space.fill()
        except Exception as error:
            failed.append(f"{space.path}: {error!r}")
            going.release()

    threads = [threading.Thread(target=run, args=[space]) for space in spaces]
    for thread in threads:
        thread.start()
    if is_storm:
        for _ in threads:
            going.acquire()
        open(os.path.join(folder, "going"), "w").close()
    for thread in threads:
        thread.join()
    for space in spaces:
        space.save()
    if failed:
        sys.exit("\n".join(failed))


def fetch(folder, spaces):
    for one in spaces:
        name, uri = one.split("=", 1)
        client = Client(uri)
        with open(os.path.join(folder, name + ".served"), "wb") as file:
            for at in range(0, client.size, 1 << 20):
                file.write(client.read(at, min(1 << 20, client.size - at)))
        client.close()


def flip(folder, name, paths):
    """The first block with data that is found on one of the disks, and that the last storm, or filling, did not touch."""
    expected = open(os.path.join(folder, name) + ".image", "rb").read()
    touched = blocks_in(os.path.join(folder, name) + ".touched")
    wanted = [number for number in range(len(expected) // BLOCK) if number not in touched]
    wanted = {expected[number * BLOCK : number * BLOCK + BLOCK] for number in wanted} - {bytes(BLOCK)}
    for path in paths:
        with open(path, "r+b") as file:
            for at in range(9 << 20, os.path.getsize(path), BLOCK):
                file.seek(at)
                block = file.read(BLOCK)
                if block in wanted:
                    file.seek(at + 1234)
                    file.write(bytes([block[1234] ^ 16]))
                    return
    sys.exit(f"{name}: no block of it is on {', '.join(paths)}")


def blocks_in(path):
    """The blocks of the ranges in a file."""
    ranges = [map(int, line.split()) for line in open(path)]
    return {block for at, length in ranges for block in range(at // BLOCK, (at + length) // BLOCK)}


def compare(folder, name, found, messages):
    path = os.path.join(folder, name)
    expected, maybe = open(path + ".image", "rb").read(), open(path + ".maybe", "rb").read()
    found = open(found, "rb").read()
    expect("the length", len(found), len(expected))
    flying = blocks_in(path + ".flying")
    missing = set()
    for first, last in re.findall(rf"MISSING {name}: bytes (\d+) to (\d+)", messages):
        missing.update(range(int(first) // BLOCK, int(last) // BLOCK + 1))
    wrong = new = 0
    for block in range(len(expected) // BLOCK):
        at = slice(block * BLOCK, block * BLOCK + BLOCK)
        if block in missing or found[at] == expected[at]:
            continue
        if block in flying and found[at] == maybe[at]:
            new += 1
            continue
        wrong += 1
        if wrong <= 8:
            kind = "zeros" if not any(found[at]) else "other data"
            print(f"{name}: block {block} has {kind}{', a third content' if block in flying else ''}", file=sys.stderr)
    if wrong:
        sys.exit(f"{name}: {wrong} blocks are wrong")
    print(f"{name}: {len(expected) // BLOCK} blocks, {len(flying)} in flight, {new} of them new, {len(missing)} missing")


def main():
    what, folder, *rest = sys.argv[1:]
    if what == "compare":
        messages = open(rest[1]).read()
        for name in rest[2:]:
            compare(folder, name, os.path.join(rest[0], name), messages)
    elif what == "fetch":
        fetch(folder, rest)
    elif what == "flip":
        flip(folder, rest[0], rest[1:])
    else:
        write(folder, rest[0], rest[1:], what == "storm")


main()
