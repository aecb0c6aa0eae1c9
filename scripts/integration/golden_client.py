"""Golden images as files, and what was read of them: the client of golden.sh.

golden_client.py unpack IMAGES FOLDER       makes the disks of each image, sparse files in a folder of its name
golden_client.py compare CONTENT FOLDER     compares what was read of the spaces of an image, files of their names

How images are stored and what contents say stands in crates/space/tests/golden/README.md.
"""

import os
import struct
import sys

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


def compare(content, folder):
    spaces = []
    with open(content, encoding="ascii") as lines:
        for line in lines:
            kind, *words = line.split()
            if kind == "space":
                spaces.append((int(words[0]), words[1], int(words[2]), {}))
            elif kind == "blocks":
                first, count, *fills = map(int, words)
                spaces[-1][3].update((block, fills) for block in range(first, first + count))
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


if __name__ == "__main__":
    {"unpack": unpack, "compare": compare}[sys.argv[1]](*sys.argv[2:])
