"""Writes to a space over NBD on a Unix socket and reads back, in a thread, until its block ends."""

import os
import socket
import struct
import threading
import time

OPTION = 0x49484156454F5054
REPLY = 0x3E889045565A9
REQUEST = 0x25609513
ANSWER = 0x67446698
GO, ACK = 7, 1
READ, WRITE, FLUSH = 0, 1, 3
BLOCK = 64 * 1024
FILL = 1 << 20


class Client:
    """A connection to one export."""

    def __init__(self, path, name):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.take(8 + 8 + 2)
        self.socket.sendall(struct.pack(">I", 3))
        data = struct.pack(">I", len(name)) + name.encode() + struct.pack(">H", 0)
        self.socket.sendall(struct.pack(">QII", OPTION, GO, len(data)) + data)
        while True:
            magic, _, kind, length = struct.unpack(">QIII", self.take(20))
            data = self.take(length)
            if magic != REPLY or kind & 0x80000000:
                raise OSError(f"the export {name} was refused: {data!r}")
            if kind == ACK:
                return
            if length >= 12 and struct.unpack(">H", data[:2])[0] == 0:
                self.size = struct.unpack(">Q", data[2:10])[0]

    def take(self, count):
        found = b""
        while len(found) < count:
            more = self.socket.recv(count - len(found))
            if not more:
                raise OSError("the server has closed the connection")
            found += more
        return found

    def fill(self, count):
        """Writes so many bytes from the start on."""
        for at in range(0, count, FILL):
            self.ask(WRITE, at, FILL, os.urandom(FILL))
        self.ask(FLUSH, 0, 0)

    def ask(self, kind, offset, length, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", REQUEST, 0, kind, 1, offset, length) + data)
        magic, error, _ = struct.unpack(">IIQ", self.take(16))
        if magic != ANSWER or error:
            raise OSError(error, f"request {kind} at {offset} failed")
        return self.take(length) if kind == READ else b""


class Load:
    """A load that goes on; `with` ends it. What went wrong is raised there."""

    def __init__(self, path, name):
        self.client = Client(path, name)
        self.error = None
        self.rounds = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        data = os.urandom(BLOCK)
        count = min(self.client.size, 64 << 20) // BLOCK
        try:
            while not self.is_over.is_set():
                at = self.rounds % count * BLOCK
                self.client.ask(WRITE, at, BLOCK, data)
                if self.client.ask(READ, at, BLOCK) != data:
                    raise OSError(f"block at {at} does not read back as it was written")
                if self.rounds % 16 == 0:
                    self.client.ask(FLUSH, 0, 0)
                self.rounds += 1
                time.sleep(0.005)
        except OSError as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join(60)
        self.client.socket.close()
        if self.error:
            raise self.error
