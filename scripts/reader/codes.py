"""Checksums and the arithmetic of parity: docs/format/label.md (CRC-64/NVME), docs/format/space.md (CRC-32C, parity)."""

BLOCK = 4096
# From so many blocks on they are summed up side by side.
SIDE_BY_SIDE_MIN = 32
SIDE_BY_SIDE_MAX = 2048


def _table(polynomial):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _table(0x82F63B78)
_CRC64 = _table(0x9A6C9329AC4BC9B5)
# Byte n of each entry of the table, for bytes.translate.
_CRC32C_BYTES = [bytes(entry >> 8 * n & 255 for entry in _CRC32C) for n in range(4)]


def crc64(*parts):
    """CRC-64/NVME of the parts behind each other."""
    table = _CRC64
    crc = 0xFFFFFFFFFFFFFFFF
    for part in parts:
        for byte in part:
            crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFFFFFFFFFF


def crc32c(data):
    """CRC-32C."""
    table = _CRC32C
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def crc32c_of_blocks(data):
    """CRC-32C of each block in data."""
    count = len(data) // BLOCK
    if count < SIDE_BY_SIDE_MIN:
        return [crc32c(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]
    if count > SIDE_BY_SIDE_MAX:
        pieces = range(0, len(data), SIDE_BY_SIDE_MAX * BLOCK)
        return [crc for at in pieces for crc in crc32c_of_blocks(data[at : at + SIDE_BY_SIDE_MAX * BLOCK])]
    return _side_by_side(data, count)


def _side_by_side(data, count):
    """All blocks go one byte on with each step: byte n of every block's sum stands in one number, for each n of four."""
    number = int.from_bytes
    zeroth, first, second, third = _CRC32C_BYTES
    ones = number(b"\xff" * count, "little")
    a, b, c, d = ones, ones, ones, ones
    for at in range(BLOCK):
        index = (a ^ number(data[at::BLOCK], "little")).to_bytes(count, "little")
        a = b ^ number(index.translate(zeroth), "little")
        b = c ^ number(index.translate(first), "little")
        c = d ^ number(index.translate(second), "little")
        d = number(index.translate(third), "little")
    planes = [(plane ^ ones).to_bytes(count, "little") for plane in (a, b, c, d)]
    return [w | x << 8 | y << 16 | z << 24 for w, x, y, z in zip(*planes)]


# --- parity: bytes are polynomials modulo x^8 + x^4 + x^3 + x^2 + 1, and 2 generates them ---------------------------

POWERS = [1]
while len(POWERS) < 255:
    POWERS.append(POWERS[-1] << 1 ^ (0x11D if POWERS[-1] & 128 else 0))
_LOGARITHMS = {power: exponent for exponent, power in enumerate(POWERS)}
_PRODUCTS = {}


def product(left, right):
    return POWERS[(_LOGARITHMS[left] + _LOGARITHMS[right]) % 255] if left and right else 0


def inverse(factor):
    return POWERS[-_LOGARITHMS[factor] % 255]


def times(factor, block):
    """Each byte of a block times a factor."""
    if factor == 1:
        return block
    if factor not in _PRODUCTS:
        _PRODUCTS[factor] = bytes(product(factor, byte) for byte in range(256))
    return block.translate(_PRODUCTS[factor])


def total(blocks):
    """The sum of blocks, which is their XOR."""
    number = 0
    for block in blocks:
        number ^= int.from_bytes(block, "little")
    return number.to_bytes(BLOCK, "little")


def rebuild(column, data_count, known):
    """A data block of a line from others: known has blocks by column, parity behind the data; None where they are too few.

    P is the sum of the data blocks, Q the sum of 2^c times block c.
    """
    p, q = data_count, data_count + 1
    missing = [other for other in range(data_count) if other not in known and other != column]
    data = {other: block for other, block in known.items() if other < data_count}
    if not missing and p in known:
        return total([*data.values(), known[p]])
    if q not in known or len(missing) > 1 or (missing and p not in known):
        return None
    from_q = total([*(times(POWERS[other], block) for other, block in data.items()), known[q]])
    if not missing:
        return times(inverse(POWERS[column]), from_q)
    # Two are gone, x (wanted) and y: x + y = s, and 2^x x + 2^y y = t.
    other = missing[0]
    from_p = total([*data.values(), known[p]])
    scaled = total([times(POWERS[other], from_p), from_q])
    return times(inverse(POWERS[column] ^ POWERS[other]), scaled)
