"""Golden images as files, and what was read of them: the client of golden.sh.

golden_client.py unpack IMAGES FOLDER       makes the disks of each image, sparse files in a folder of its name
golden_client.py compare CONTENT FOLDER     compares what was read of the spaces of an image, files of their names
golden_client.py flips CONTENT FOLDER COUNT SEED
                                            turns bits of the disks in a folder, each by itself: one in each kind of structure and
                                            COUNT more in what is stored. Each time the reader reads the pool: it never ends in a
                                            traceback, and every block is right, or named as missing

How images are stored and what contents say stands in crates/space/tests/golden/README.md.
"""

import os
import random
import shutil
import struct
import sys
import traceback

BLOCK = 4096
SECTOR = 512
VARIED = 1 << 15
ONES = (1 << 64) - 1


def unpack(images, folder):
    with open(images, "rb") as stored:
        data = memoryview(stored.read())
    magic, layout, _, block_count = struct.unpack_from("<8sIQI", data)
    if (magic, layout) != (b"DOLMGOLD", 1):
        raise SystemExit(f"{images}: no stored images that are known")
    at = 24
    blocks = []
    for _ in range(block_count):
        at, block = unpack_block(data, at)
        blocks.append(block)
    (image_count,) = struct.unpack_from("<I", data, at)
    at += 4
    for _ in range(image_count):
        name, disk_count = struct.unpack_from("<16sI", data, at)
        at += 20
        image = os.path.join(folder, name.rstrip(b"\0").decode())
        os.makedirs(image)
        for number in range(disk_count):
            at = unpack_disk(data, at, blocks, os.path.join(image, f"disk{number}"))
        print(os.path.basename(image))
    if at != len(data):
        raise SystemExit(f"{images}: something is behind the stored images")


def unpack_block(data, at):
    words = []
    length = 0
    while length < BLOCK:
        (head,) = struct.unpack_from("<H", data, at)
        count = head & ~VARIED
        taken = count if head & VARIED else 1
        words.append(bytes(data[at + 2 : at + 2 + 8 * taken]) * (count // taken))
        at += 2 + 8 * taken
        length += 8 * count
    return at, b"".join(words)


def unpack_disk(data, at, blocks, path):
    capacity, count = struct.unpack_from("<QI", data, at)
    at += 12
    with open(path, "wb") as disk:
        disk.truncate(capacity)
        for _ in range(count):
            place, number = struct.unpack_from("<II", data, at)
            at += 8
            disk.seek(place * BLOCK)
            disk.write(blocks[number])
    return at


def content_of(number, block, fill):
    if fill == 0:
        return bytes(BLOCK)
    return b"".join(word(number, block, fill, sector) * (SECTOR // 8) for sector in range(BLOCK // SECTOR))


def word(number, block, fill, sector):
    z = ((number << 56 | fill << 40 | block << 8 | sector) + 0x9E3779B97F4A7C15) & ONES
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & ONES
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & ONES
    return struct.pack("<Q", z ^ (z >> 31))


def spaces_of(content):
    """Number, name, size and fills by block of each space."""
    spaces = []
    with open(content, encoding="ascii") as lines:
        for line in lines:
            kind, *words = line.split()
            if kind == "space":
                spaces.append((int(words[0]), words[1], int(words[2]), {}))
            elif kind == "blocks":
                first, count, *fills = map(int, words)
                spaces[-1][3].update((block, fills) for block in range(first, first + count))
    return spaces


def compare(content, folder):
    spaces = spaces_of(content)
    wrong = []
    for number, name, size, blocks in spaces:
        with open(os.path.join(folder, name), "rb") as found:
            bytes_ = found.read()
        if len(bytes_) != size:
            wrong.append(f"{name} has {len(bytes_)} bytes instead of {size}")
            continue
        for block in range(size // BLOCK):
            here = bytes_[block * BLOCK : (block + 1) * BLOCK]
            if not any(here == content_of(number, block, fill) for fill in blocks.get(block, [0])):
                wrong.append(f"block {block} of {name} is none of what was written there")
    print(f"{len(spaces)} spaces, {len(wrong)} differences")
    if wrong:
        raise SystemExit("\n".join(wrong[:10]))


# --- bits that turn --------------------------------------------------------------------------------------------------

MAGICS = {
    b"DOLMENLB": "label",
    b"DOLMENCP": "checkpoint",
    b"DOLMENPG": "page of the map",
    b"DOLMNLOG": "batch of the log",
    b"DOLMENSL": "header of a slab",
    b"DTAB": "page of a table",
}
ANYTHING = "anything"
# More than any content has.
FILLS_MAX = 1000
# How a child says that the reader ended in a traceback.
TRACEBACK = 70


def stored_blocks(disks):
    """Blocks that are not zeros, by what they begin with: disk, address and how many bytes of it are up to the last that is not."""
    found = {ANYTHING: []}
    for disk in disks:
        with open(disk, "rb") as file:
            end = os.fstat(file.fileno()).st_size
            at = next_data(file, 0, end)
            while at < end:
                file.seek(at)
                used = len(file.read(BLOCK).rstrip(b"\0"))
                if used:
                    file.seek(at)
                    head = file.read(8)
                    kind = next((kind for magic, kind in MAGICS.items() if head.startswith(magic)), "data")
                    for of_kind in (kind, ANYTHING):
                        found.setdefault(of_kind, []).append((disk, at, used))
                at = next_data(file, at + BLOCK, end)
    return found


def next_data(file, at, end):
    """The next block that may not be zeros."""
    try:
        return os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK if at < end else end
    except OSError:
        return end


def flip(disk, at, bit):
    with open(disk, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def extracted(disks, folder, said):
    """Runs the reader in a process of its own; what it leaves with."""
    shutil.rmtree(folder, ignore_errors=True)
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = TRACEBACK
    try:
        with open(said, "w", encoding="utf-8") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        code = read_pool().main(["extract-all", folder, *disks])
    except BaseException:  # noqa: B036 whatever it is, it is told
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def read_pool():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    import read_pool as program

    return program


def in_flight(disks):
    """Blocks of spaces of which the log says what no flush had covered, as the reader reads the log: of the only copy of one nobody
    can tell a bit that turned from a write that never came, and the block is what it was before."""
    program = read_pool()
    pool = program.open_pool(disks)
    records = program.Reader(pool).records
    found = set()
    for space in pool.spaces():
        for index in pool.row_indices(space):
            row = pool.row(space, index)
            first = index * space.row_length // BLOCK
            for (column, block), claims in records.claims(row).items():
                if column < row.data_columns and not claims[-1].settled:
                    found.add((space.name, first + row.row_block(column, block)))
            shadow = pool.row(pool.shadows(space), index) if space.has_parity else None
            for (column, block), claims in (records.claims(shadow).items() if shadow else ()):
                if column < row.data_columns and not claims[-1].settled:
                    found.add((space.name, first + row.row_block(column, block)))
            if row.laid.write_cache is not None:
                for block, versions in records.in_cache(row)[0].items():
                    if not all(version.marked for version in versions.values()):
                        found.add((space.name, first + block))
    return found


def named_missing(said):
    """Blocks that the reader named as missing."""
    found = set()
    with open(said, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("read_pool: MISSING "):
                name, rest = line.removeprefix("read_pool: MISSING ").split(": bytes ", 1)
                low, _, high, *_ = rest.split()
                found.update((name, block) for block in range(int(low) // BLOCK, int(high) // BLOCK + 1))
    return found


def fault(spaces, folder, clean, said, in_doubt):
    """What is wrong with what the reader made of disks on which a bit had turned; None if nothing is, and how many blocks it named
    or took for what they were before."""
    missing = named_missing(said)
    older = 0
    for number, name, size, blocks in spaces:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                found = file.read()
        except OSError:
            return f"{name} was not extracted, and nothing says why", 0, 0
        if len(found) != size:
            return f"{name} has {len(found)} bytes", 0, 0
        for block in range(size // BLOCK) if found != clean[name] else ():
            here = found[block * BLOCK : (block + 1) * BLOCK]
            fills = blocks.get(block, [0])
            if any(here == content_of(number, block, fill) for fill in fills) or (name, block) in missing:
                continue
            is_some_fill = any(here == content_of(number, block, fill) for fill in range(FILLS_MAX))
            if (name, block) not in in_doubt or not is_some_fill:
                return f"block {block} of {name} is wrong, and is not named", 0, 0
            older += 1
    return None, len(missing), older


def flips(content, folder, count, seed):
    disks = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    out, said = folder.rstrip("/") + ".out", folder.rstrip("/") + ".said"
    spaces = spaces_of(content)
    if extracted(disks, out, said) != 0:
        raise SystemExit("the reader does not read what nobody has touched")
    compare(content, out)
    clean = {}
    for _, name, _, _ in spaces:
        with open(os.path.join(out, name), "rb") as file:
            clean[name] = file.read()
    in_doubt = in_flight(disks)
    places = stored_blocks(disks)
    draw = random.Random(f"{seed} {os.path.basename(content)}")
    kinds = [kind for kind in sorted(places) if kind != ANYTHING] + [ANYTHING] * int(count)
    tally = dict.fromkeys(("right", "with blocks named", "with blocks as they were before"), 0)
    wrong = []
    for kind in kinds:
        disk, at, used = draw.choice(places[kind])
        at, bit = at + draw.randrange(used), draw.randrange(8)
        flip(disk, at, bit)
        code = extracted(disks, out, said)
        flip(disk, at, bit)
        with open(said, encoding="utf-8") as file:
            words = file.read()
        why, named, older = None, 0, 0
        if code in (0, 1):
            why, named, older = fault(spaces, out, clean, said, in_doubt)
        if code == 2:
            why = "all of the pool was refused for it"
        elif code not in (0, 1):
            why = f"the reader left with {code}"
        elif code == 0 and named:
            why = "it named blocks as missing, and left as if all went well"
        if why:
            wrong.append(f"bit {bit} of byte {at} of {disk} ({kind}): {why}\n{words[-2000:]}")
            continue
        fate = "with blocks named" if named else "with blocks as they were before" if older else "right"
        tally[fate] += 1
    shutil.rmtree(out, ignore_errors=True)
    print(f"{len(kinds)} bits, seed {seed}: " + ", ".join(f"{number} {fate}" for fate, number in tally.items() if number))
    if wrong:
        raise SystemExit(f"{len(wrong)} bits were not borne:\n" + "\n".join(wrong[:5]))


if __name__ == "__main__":
    {"unpack": unpack, "compare": compare, "flips": flips}[sys.argv[1]](*sys.argv[2:])
