"""What a listener with TLS answers to a client that knows the protocol by its document alone: plaintext, injected options,
half-open connections by the thousand, and extended headers, which no distribution's client speaks yet.

nbd_tls_client.py checks ADDRESS PORT EXPORT PKI [PLAIN_PORT PLAIN_EXPORT]: a space of at least 8 GiB whose content may be
lost, and a folder with ca-cert.pem, client-cert.pem and client-key.pem; a space on a listener without TLS to try limits on.
Each check says what holds; the first that does not ends the program with 1.

nbd_tls_client.py size ADDRESS PORT EXPORT PKI: what a client is told that the space has; 1 if it is not let in. A folder
without client-cert.pem is of a client that has none.
"""

import errno
import os
import resource
import socket
import ssl
import struct
import sys

OPTION, REPLY = b"IHAVEOPT", 0x3E889045565A9
ACK, ERROR = 1, 1 << 31
POLICY, INVALID, TLS_REQUIRED, EXTENDED_REQUIRED = ERROR + 2, ERROR + 3, ERROR + 5, ERROR + 10
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES, STATUS = range(8)
FUA, PAYLOAD = 1, 32
BLOCK, MIB, GIB = 4096, 1 << 20, 1 << 30
HOLE = 3


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: found {found!r}, expected {expected!r}")


class Client:
    def __init__(self, address):
        self.stream = socket.create_connection(address, timeout=30)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        expect("the greeting", self.take(18), b"NBDMAGICIHAVEOPT\0\3")
        self.stream.sendall(struct.pack(">I", 3))

    def take(self, count):
        data = b""
        while len(data) < count:
            part = self.stream.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def option(self, number, data=b""):
        """Sends an option; the type of its last reply, the data of all of them."""
        self.stream.sendall(OPTION + struct.pack(">II", number, len(data)) + data)
        return self.answer()

    def answer(self):
        items = []
        while True:
            magic, _, kind, length = struct.unpack(">QIII", self.take(20))
            expect("the magic of a reply", magic, REPLY)
            items.append(self.take(length))
            if kind == ACK or kind >= ERROR:
                return kind, items

    def start_tls(self, pki):
        expect("STARTTLS", self.option(5)[0], ACK)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(f"{pki}/ca-cert.pem")
        if os.path.exists(f"{pki}/client-cert.pem"):
            context.load_cert_chain(f"{pki}/client-cert.pem", f"{pki}/client-key.pem")
        self.stream = context.wrap_socket(self.stream, server_hostname="localhost")
        expect("the version of TLS", self.stream.version(), "TLSv1.3")
        return self

    def closed(self):
        try:
            return self.stream.recv(1) == b""
        except OSError:
            return True


def named(name):
    return struct.pack(">I", len(name)) + name.encode() + b"\0\0"


class Extended(Client):
    """A session with extended headers."""

    def enter(self, name):
        expect("extended headers", self.option(11)[0], ACK)
        expect("no way back", self.option(8)[0], EXTENDED_REQUIRED)
        query = b"base:allocation"
        contexts = struct.pack(">I", len(name)) + name.encode() + struct.pack(">II", 1, len(query)) + query
        expect("the context", self.option(10, contexts)[0], ACK)
        kind, items = self.option(7, named(name))
        expect("the choice of the export", kind, ACK)
        self.size = struct.unpack(">Q", next(item for item in items if item[:2] == b"\0\0")[2:10])[0]
        self.cookie = 0
        return self

    def ask(self, kind, offset, length, flags=0, payload=b""):
        """Error number, content of a read, extents."""
        self.cookie += 1
        self.stream.sendall(struct.pack(">IHHQQQ", 0x21E41C71, flags, kind, self.cookie, offset, length) + payload)
        error, content, extents = 0, bytearray(length if kind == READ and length <= 64 * MIB else 0), []
        done = False
        while not done:
            magic, chunk_flags, chunk, cookie, at, size = struct.unpack(">IHHQQQ", self.take(32))
            expect("the head of a reply", (magic, cookie, at), (0x6E8A278C, self.cookie, offset))
            data, done = self.take(size), chunk_flags & 1
            if chunk == 1:
                start = struct.unpack(">Q", data[:8])[0] - offset
                content[start : start + size - 8] = data[8:]
            elif chunk == 6:
                expect("the context and the count", struct.unpack(">II", data[:8]), (1, (size - 8) // 16))
                extents = [struct.unpack(">QQ", data[place : place + 16]) for place in range(8, size, 16)]
            elif chunk & 0x8000:
                error = struct.unpack(">I", data[:4])[0]
            elif chunk not in (0, 2):
                sys.exit(f"a chunk of type {chunk}")
        return error, bytes(content), extents


def plaintext(address, export):
    """Nothing but STARTTLS and ABORT is answered otherwise than by TLS_REQD; the old option ends the connection."""
    client = Client(address)
    for number, data in [(3, b""), (6, named(export)), (7, named(export)), (8, b""), (11, b""), (99, b"x" * 9)]:
        expect(f"option {number}", client.option(number, data)[0], TLS_REQUIRED)
    expect("an abort", client.option(2)[0], ACK)
    client = Client(address)
    client.stream.sendall(OPTION + struct.pack(">II", 1, len(export)) + export.encode())
    expect("the old option", client.closed(), True)


def injected(address, export, pki):
    """Options in the clear before and behind STARTTLS: refused, or the end; nothing of them is there behind TLS."""
    client = Client(address)
    expect("structured replies in the clear", client.option(8)[0], TLS_REQUIRED)
    expect("extended headers in the clear", client.option(11)[0], TLS_REQUIRED)
    client.start_tls(pki)
    expect("contexts without structured replies", client.option(9, named(export) + b"\0\0")[0], INVALID)
    expect("a second STARTTLS", client.option(5)[0], INVALID)
    client = Client(address)
    client.stream.sendall(b"".join(OPTION + struct.pack(">II", number, 0) for number in (5, 8, 3)))
    expect("STARTTLS", client.answer()[0], ACK)
    # What followed in the clear is no TLS: an alert, and the end, but no answer of the protocol.
    rest = b""
    try:
        while part := client.stream.recv(4096):
            rest += part
    except OSError:
        pass
    expect("answers in the clear", struct.pack(">Q", REPLY) in rest, False)


def extended_headers(address, export, pki):
    client = Extended(address).start_tls(pki).enter(export)
    size = client.size
    expect("a size above 32 bits", size >= 8 * GIB, True)
    expect("zeroes over all", client.ask(ZEROES, 0, size, FUA)[0], 0)
    data = os.urandom(MIB)
    expect("a write", client.ask(WRITE, 5 * GIB, MIB, PAYLOAD | FUA, data)[0], 0)
    expect("a read", client.ask(READ, 5 * GIB, MIB)[:2], (0, data))
    # The protocol wants a flag on writes, and QEMU's client leaves it out.
    expect("a write without the flag", client.ask(WRITE, 5 * GIB, MIB, 0, data)[0], 0)
    error, _, extents = client.ask(STATUS, 5 * GIB - MIB, 3 * MIB)
    expect("block status", (error, extents), (0, [(MIB, HOLE), (MIB, 0), (MIB, HOLE)]))
    expect("block status of all", client.ask(STATUS, 0, size)[2], [(4 * GIB, HOLE)])
    expect("zeroes over all", client.ask(ZEROES, 0, size, FUA)[0], 0)
    expect("zeros", client.ask(READ, 5 * GIB, MIB)[1], bytes(MIB))
    expect("a trim of all", client.ask(TRIM, 0, size)[0], 0)
    expect("a flush", client.ask(FLUSH, 0, 0)[0], 0)


def malformed(address, export, pki):
    client = Extended(address).start_tls(pki).enter(export)
    size = client.size
    for what, number, arguments in [
        ("a trim with a payload", errno.EINVAL, (TRIM, 0, BLOCK, PAYLOAD, bytes(BLOCK))),
        ("a flush with a payload", errno.EINVAL, (FLUSH, 0, 64 * MIB, PAYLOAD, bytes(64 * MIB))),
        ("block status with a payload", errno.EINVAL, (STATUS, 0, 12, PAYLOAD, bytes(12))),
        ("an unknown command", errno.EINVAL, (77, 0, BLOCK)),
        ("a read above the largest block", errno.EOVERFLOW, (READ, 0, 65 * MIB)),
        ("a read of everything there is", errno.EOVERFLOW, (READ, 0, (1 << 64) - BLOCK)),
        ("a trim beyond the end", errno.EINVAL, (TRIM, BLOCK, size)),
        ("a trim that wraps", errno.EINVAL, (TRIM, (1 << 64) - BLOCK, 2 * BLOCK)),
        ("zeroes beyond the end", errno.ENOSPC, (ZEROES, BLOCK, size)),
        ("a length of nothing", errno.EINVAL, (CACHE, 0, 0)),
        ("a length between blocks", 0, (TRIM, 0, GIB * 5 + 1)),
    ]:
        expect(what, client.ask(*arguments)[0], number)
    expect("the next request", client.ask(READ, 0, BLOCK)[:2], (0, bytes(BLOCK)))
    for length in (129 * MIB, 1 << 40, (1 << 64) - 1):
        client = Extended(address).start_tls(pki).enter(export)
        expect(f"a payload of {length}", client.ask(WRITE, 0, length, PAYLOAD)[0], errno.EINVAL)
        expect("the end behind it", client.closed(), True)


def half_open(address, export, pki):
    """2,000 connections that stay, in three stages; clients get in all the while."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = 2000 if hard == resource.RLIM_INFINITY or hard > 2200 else hard - 200
    inside = Extended(address).start_tls(pki).enter(export)
    words = struct.pack(">I", 3) + OPTION + struct.pack(">II", 5, 0) + b"\x16\x03\x01\x02\0\x01\0\x01\xfc"
    flood = []
    for number in range(count):
        stream = socket.create_connection(address, timeout=30)
        try:
            stream.sendall(words[: (0, 4, len(words))[number % 3]])
        except OSError:
            pass  # It was pushed out already.
        flood.append(stream)
        if number % 400 == 399:
            Extended(address).start_tls(pki).enter(export)
            expect("who is in", inside.ask(READ, 0, BLOCK)[0], 0)
    for stream in flood:
        stream.close()


def limit(address, export):
    """Connections up to the limit, and what the next one is told."""
    inside = []
    for _ in range(200):
        client = Client(address)
        kind, items = client.option(7, named(export))
        if kind != ACK:
            expect("the refusal", kind, POLICY)
            expect("its words", f"has {len(inside)} connections from your address already" in items[0].decode(), True)
            break
        inside.append(client)
    expect("the limit", len(inside), 128)


def size(address, export, pki):
    try:
        print(Extended(address).start_tls(pki).enter(export).size)
    except (OSError, EOFError) as error:
        sys.exit(f"not let in: {error}")


def main():
    command, host, port, export, pki = sys.argv[1:6]
    address = (host, int(port))
    if command == "size":
        size(address, export, pki)
        return
    checks = [
        ("plaintext is refused as the protocol names it", plaintext, address, export),
        ("nothing said in the clear is there behind TLS", injected, address, export, pki),
        ("extended headers", extended_headers, address, export, pki),
        ("malformed and oversized requests, one by one", malformed, address, export, pki),
        ("half-open connections by the thousand keep nobody out", half_open, address, export, pki),
    ]
    if len(sys.argv) > 7:
        checks.append(("the limit of connections says so", limit, (host, int(sys.argv[6])), sys.argv[7]))
    for what, check, *arguments in checks:
        check(*arguments)
        print(f"   ok: wire: {what}", flush=True)


main()
