"""What a client of NBD may expect of a served space, asked through libnbd.

nbd_client.py URI READ_ONLY_URI OTHER_URI: a space of at least 64 MiB whose content may be lost, the same or another one
that is served read-only, and a third one. Each check says what holds; the first that does not ends the program with 1.
"""

import errno
import os
import random
import sys

import nbd

MIB = 1 << 20
BLOCK = 4096
SECTOR = 512
PAYLOAD_MAX = 64 * MIB
HOLE = nbd.STATE_HOLE | nbd.STATE_ZERO


def connect(uri, structured=True, strict=True):
    handle = nbd.NBD()
    handle.set_request_structured_replies(structured)
    if structured:
        handle.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    if not strict:
        # The server is to be asked, also what the library knows to be wrong.
        handle.set_strict_mode(0)
    handle.connect_uri(uri)
    return handle


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: found {found!r}, expected {expected!r}")


def refused(what, number, call, *arguments):
    """The server answers the call with this error, and goes on."""
    try:
        call(*arguments)
    except nbd.Error as error:
        expect(f"the error of {what}", error.errnum, number)
    else:
        sys.exit(f"{what}: was not refused")


def extents(handle, count, offset, flags=0):
    """Lengths and states from the offset on; the server may tell in several answers."""
    found = []
    end = offset + count
    while offset < end:
        answer = []
        handle.block_status(end - offset, offset, lambda _context, _at, entries, _error: answer.extend(entries), flags)
        lengths, states = answer[::2], answer[1::2]
        for length, state in zip(lengths, states):
            length = min(length, end - offset)
            if found and found[-1][1] == state:
                found[-1] = (found[-1][0] + length, state)
            elif length:
                found.append((length, state))
            offset += length
    return found


def negotiation(uri):
    handle = connect(uri)
    can = ["cache", "df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"]
    expect("what is offered", [one for one in can if getattr(handle, f"can_{one}")()], can)
    expect("structured replies", handle.get_structured_replies_negotiated(), True)
    expect("block status", handle.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION), True)
    expect("read-only", handle.is_read_only(), False)
    expect("smallest block", handle.get_block_size(nbd.SIZE_MINIMUM), SECTOR)
    expect("largest payload", handle.get_block_size(nbd.SIZE_MAXIMUM), PAYLOAD_MAX)
    expect("simple replies alone", connect(uri, structured=False).get_structured_replies_negotiated(), False)


def structured_reads(uri):
    """A read over data and holes arrives in chunks that make up the content, holes as holes."""
    handle = connect(uri)
    handle.zero(4 * MIB, 0)
    data = os.urandom(MIB)
    handle.pwrite(data, MIB)
    content = bytearray(b"\xaa" * (4 * MIB))
    kinds = set()

    def chunk(piece, offset, kind, _error):
        kinds.add(kind)
        content[offset : offset + len(piece)] = piece if kind == nbd.READ_DATA else bytes(len(piece))

    handle.pread_structured(4 * MIB, 0, chunk)
    # The library gives a hole no bytes; zeros written by the server stand for it in the whole answer.
    whole = handle.pread(4 * MIB, 0)
    expect("the content", bytes(whole), bytes(MIB) + data + bytes(2 * MIB))
    expect("data in the chunks", bytes(content[MIB : 2 * MIB]), data)
    expect("kinds of chunks", kinds, {nbd.READ_DATA, nbd.READ_HOLE})
    simple = connect(uri, structured=False)
    expect("the same in a simple reply", bytes(simple.pread(4 * MIB, 0)), bytes(whole))


def not_fragmented(uri):
    handle = connect(uri)
    data = os.urandom(64 * 1024)
    handle.pwrite(data, 0)
    chunks = []
    handle.pread_structured(64 * 1024, 0, lambda piece, at, _kind, _error: chunks.append((at, bytes(piece))), nbd.CMD_FLAG_DF)
    expect("the one chunk", chunks, [(0, data)])


def block_status(uri):
    handle = connect(uri)
    handle.zero(8 * MIB, 0)
    handle.pwrite(os.urandom(MIB), 2 * MIB)
    handle.pwrite(os.urandom(BLOCK), 5 * MIB)
    expected = [(2 * MIB, HOLE), (MIB, 0), (2 * MIB, HOLE), (BLOCK, 0), (3 * MIB - BLOCK, HOLE)]
    expect("extents", extents(handle, 8 * MIB, 0), expected)
    expect("extents, one at a time", extents(handle, 8 * MIB, 0, nbd.CMD_FLAG_REQ_ONE), expected)


def durable_writes(uri):
    writer, reader = connect(uri), connect(uri)
    data = os.urandom(MIB)
    writer.pwrite(data, 3 * MIB, nbd.CMD_FLAG_FUA)
    expect("what was written durably", bytes(reader.pread(MIB, 3 * MIB)), data)


def trims_and_zeros(uri):
    handle = connect(uri)
    for what, call in [
        ("trim", lambda: handle.trim(MIB, MIB)),
        ("durable trim", lambda: handle.trim(MIB, MIB, nbd.CMD_FLAG_FUA)),
        ("zero", lambda: handle.zero(MIB, MIB)),
        ("fast zero", lambda: handle.zero(MIB, MIB, nbd.CMD_FLAG_FAST_ZERO)),
    ]:
        handle.pwrite(b"\x55" * (3 * MIB), 0)
        call()
        expect(f"zeros after {what}", bytes(handle.pread(MIB, MIB)), bytes(MIB))
        expect(f"neighbours after {what}", bytes(handle.pread(MIB, 0) + handle.pread(MIB, 2 * MIB)), b"\x55" * (2 * MIB))
        expect(f"extents after {what}", extents(handle, 3 * MIB, 0), [(MIB, 0), (MIB, HOLE), (MIB, 0)])
    handle.pwrite(b"\x55" * (3 * MIB), 0)
    handle.zero(MIB, MIB, nbd.CMD_FLAG_NO_HOLE)
    expect("zeros that stay allocated", bytes(handle.pread(MIB, MIB)), bytes(MIB))
    expect("their extents", [state & nbd.STATE_HOLE for _, state in extents(handle, 3 * MIB, 0)], [0])
    # On a thin space zeros that have to be written are not fast, and the client wanted to know.
    refused("a fast zero without a hole", errno.EOPNOTSUPP, handle.zero, MIB, MIB, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)
    handle.cache(MIB, 0)


def connections_agree(uri):
    """What one connection has written and flushed, the other one reads; and the other way round, many times."""
    first, second = connect(uri), connect(uri)
    for turn in range(50):
        data = os.urandom(64 * 1024)
        at = (turn % 16) * 64 * 1024
        first.pwrite(data, at)
        first.flush()
        expect(f"turn {turn}", bytes(second.pread(len(data), at)), data)
        first, second = second, first


def deep_queues(uri):
    """300 writes under way at a time, then 300 reads, in a drawn order, from two connections."""
    handles = [connect(uri), connect(uri)]
    count, size = 300, 64 * 1024
    order = list(range(count))
    random.Random(7).shuffle(order)
    contents = [nbd.Buffer.from_bytearray(bytearray(os.urandom(size))) for _ in range(count)]
    finish([(handles[one % 2], handles[one % 2].aio_pwrite(contents[one], one * size)) for one in order])
    buffers = [nbd.Buffer(size) for _ in range(count)]
    turned = [(handles[(one + 1) % 2], one) for one in reversed(order)]
    finish([(handle, handle.aio_pread(buffers[one], one * size)) for handle, one in turned])
    for one in range(count):
        expect(f"block {one}", bytes(buffers[one].to_bytearray()), bytes(contents[one].to_bytearray()))


def finish(commands):
    """Waits for the end of commands; raises what the server has answered."""
    for handle, cookie in commands:
        while not handle.aio_command_completed(cookie):
            handle.poll(-1)


def name_of(uri):
    return uri.split("://", 1)[1].lstrip("/").split("?", 1)[0]


def listing(uri, others):
    handle = nbd.NBD()
    handle.set_opt_mode(True)
    handle.connect_uri(uri)
    names = []
    handle.opt_list(lambda name, _description: names.append(name))
    handle.opt_abort()
    expect("the exports", sorted(names), sorted({name_of(one) for one in [uri, *others]}))


def wrong_name(uri):
    handle = nbd.NBD()
    handle.set_opt_mode(True)
    handle.connect_uri(uri)
    handle.set_export_name("tank/nothing")
    refused("a name that is not served", errno.ENOENT, handle.opt_go)
    # The same connection may choose another one.
    handle.set_export_name(name_of(uri))
    handle.opt_go()
    expect("the second choice is served", handle.get_size() > 0, True)


def bad_requests(uri):
    handle = connect(uri, strict=False)
    size = handle.get_size()
    block = bytearray(BLOCK)
    handle.pwrite(b"\x77" * BLOCK, 0)
    refused("a read behind the end", errno.EINVAL, handle.pread, BLOCK, size)
    refused("a read across the end", errno.EINVAL, handle.pread, 2 * BLOCK, size - BLOCK)
    refused("a write behind the end", errno.ENOSPC, handle.pwrite, block, size)
    refused("a write across the end", errno.ENOSPC, handle.pwrite, bytearray(2 * BLOCK), size - BLOCK)
    refused("a read across the end by one byte", errno.EINVAL, handle.pread, 2, size - 1)
    refused("a write across the end by one byte", errno.ENOSPC, handle.pwrite, bytearray(2), size - 1)
    # libnbd sends no request above 64 MiB, which is the largest here: it refuses this one itself.
    refused("a read that is too large", errno.ERANGE, handle.pread, PAYLOAD_MAX + BLOCK, 0)
    refused("a trim behind the end", errno.EINVAL, handle.trim, BLOCK, size)
    refused("a zero behind the end", errno.ENOSPC, handle.zero, BLOCK, size)
    expect("the connection goes on", bytes(handle.pread(BLOCK, 0)), b"\x77" * BLOCK)
    expect("the largest payload", len(handle.pread(PAYLOAD_MAX, 0)), PAYLOAD_MAX)


def any_alignment(uri):
    """Requests of every command begin and end at any byte, and leave the bytes around them."""
    handle = connect(uri, strict=False)
    expected = bytearray(os.urandom(4 * MIB))
    handle.pwrite(expected, 0)
    draw = random.Random(7)
    for turn in range(300):
        length = draw.choice([draw.randrange(1, 600), draw.randrange(1, 9000), draw.randrange(1, 2 * MIB)])
        at = draw.randrange(4 * MIB - length)
        kind = draw.choice(["write", "write", "zero", "hole", "trim", "status"])
        if kind == "write":
            data = os.urandom(length)
            handle.pwrite(data, at, draw.choice([0, nbd.CMD_FLAG_FUA]))
            expected[at : at + length] = data
        elif kind in ("zero", "hole"):
            handle.zero(length, at, nbd.CMD_FLAG_NO_HOLE if kind == "zero" else 0)
            expected[at : at + length] = bytes(length)
        elif kind == "trim":
            handle.trim(length, at)
            first, end = -(-at // BLOCK) * BLOCK, (at + length) // BLOCK * BLOCK
            if first < end:
                expected[first:end] = bytes(end - first)
        else:
            expect("the length that block status covers", sum(one for one, _ in extents(handle, length, at)), length)
        around = slice(max(0, at - 5000), min(4 * MIB, at + length + 5000))
        found = handle.pread(around.stop - around.start, around.start)
        expect(f"turn {turn}, {kind} of {length} at {at}", bytes(found) == bytes(expected[around]), True)
    expect("all of it", bytes(handle.pread(4 * MIB, 0)) == bytes(expected), True)


def oversized_write(uri):
    """A payload that is too large is refused or ends the connection; the server goes on, and nothing was written."""
    before = bytes(connect(uri).pread(BLOCK, 0))
    handle = connect(uri, strict=False)
    try:
        handle.pwrite(bytearray(PAYLOAD_MAX + BLOCK), 0)
        sys.exit("a write that is too large was not refused")
    except nbd.Error:
        pass
    expect("the content after it", bytes(connect(uri).pread(BLOCK, 0)), before)


def read_only(uri):
    handle = connect(uri, strict=False)
    expect("read-only", handle.is_read_only(), True)
    refused("a write", errno.EPERM, handle.pwrite, bytearray(BLOCK), 0)
    refused("a trim", errno.EPERM, handle.trim, BLOCK, 0)
    refused("a zero", errno.EPERM, handle.zero, BLOCK, 0)
    expect("a read", len(handle.pread(BLOCK, 0)), BLOCK)
    handle.flush()


def main():
    uri, read_only_uri, other_uri = sys.argv[1:4]
    checks = [
        ("what is negotiated", negotiation, uri),
        ("structured reads", structured_reads, uri),
        ("a read in one chunk", not_fragmented, uri),
        ("block status", block_status, uri),
        ("writes that are durable at once", durable_writes, uri),
        ("trim, zero, fast zero, cache", trims_and_zeros, uri),
        ("two connections agree", connections_agree, uri),
        ("deep queues", deep_queues, uri),
        ("the list of exports", listing, uri, [read_only_uri, other_uri]),
        ("a wrong name is refused", wrong_name, uri),
        ("bad requests are refused, one by one", bad_requests, uri),
        ("requests of any alignment touch their own bytes alone", any_alignment, uri),
        ("a payload that is too large", oversized_write, uri),
        ("a read-only export", read_only, read_only_uri),
    ]
    for what, check, *arguments in checks:
        check(*arguments)
        print(f"   ok: libnbd: {what}", flush=True)


main()
