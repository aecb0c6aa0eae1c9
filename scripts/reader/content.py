"""What blocks hold: decided as an opening would (docs/format/space.md, "What a block holds"), read, and verified."""

from . import codes
from .codes import BLOCK
from .disk import Damage
from .pool import CACHES_FROM, SHADOWS
from .records import Records, Version, newest_known
from .rows import AWAY, DAMAGED, NEVER, RELAXED, Tables

ZEROS = bytes(BLOCK)
PIECE_BLOCKS = 2048

NO_DISK = "the disks that hold it are not here"
NO_COPY = "no copy here is what its checksum says"
IS_LOST = "it was lost, and not written since"
NO_MAP = "the map of it cannot be read"


def is_valid(state):
    return isinstance(state, int)


def runs(numbers):
    """First and count of numbers that follow each other; they ascend."""
    found = []
    for number in numbers:
        if found and found[-1][0] + found[-1][1] == number:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


class RowContent:
    """The blocks of a row."""

    def __init__(self, reader, row, shadow=None, is_shadow=False):
        self.shadow = RowContent(reader, shadow, is_shadow=True) if shadow else None
        # Lines that were left for the other of row and shadow, and what they are if they are not there.
        self.sources, self.has_other = {}, is_shadow or shadow is not None
        self.reader, self.row, self.members = reader, row, reader.pool.members
        tables = Tables(self.members, row, reader.records.floors)
        self.states = [tables.column(column) for column in range(row.columns)]
        self.versions, self.lines = {}, {}
        if row.laid.write_cache is not None and not row.space.id & SHADOWS:
            self.versions, self.lines, of_shadow = reader.records.in_cache(row, shadow)
            if self.shadow:
                self.shadow.lines = of_shadow
        self.as_found = []
        self._decide()
        if self.shadow:
            self._follow(self.shadow)
            self.shadow._follow(self)

    # --- deciding what was in flight

    def _decide(self):
        open_blocks, lines = {}, {}
        for (column, block), claims in self.reader.records.claims(self.row).items():
            if claims[0].settled:
                self.states[column][block] = claims[0].state
            if self.row.parity and not claims[-1].settled:
                lines.setdefault(block, {})[column] = claims
            claims = [one for one in claims if not one.settled]
            states = [claim.state for claim in claims]
            if any(claim.intent for claim in claims) or any(state != self.states[column][block] for state in states):
                open_blocks.setdefault(column, {})[block] = claims
        if self.row.parity:
            self._decide_lines(lines)
            return
        for column, of_column in open_blocks.items():
            for (block, claims), copies in zip(of_column.items(), self._copies(column, list(of_column))):
                self.states[column][block] = self._decided(column, block, claims, copies)

    def _decide_lines(self, lines):
        """Lines in flight are all of what was written, or what they were."""
        columns, needed = range(self.row.columns), self.row.data_columns
        here = sum(any(slab.trusted for slab in self._slabs(column)) for column in columns)
        for line, claims in lines.items():
            before = [self.states[column][line] if line < self.row.lengths[column] else NEVER for column in columns]
            newest = {column: of_block[-1].state for column, of_block in claims.items()}
            written = [newest.get(column, state) for column, state in enumerate(before)]
            in_flight = self._was_in_flight(line, claims)
            if AWAY in before:
                decided = [AWAY] * len(written)
            elif all(state is NEVER for state in newest.values()) and self.has_other and before[needed] is not NEVER:
                self.sources[line] = decided = before
            elif all(state is NEVER for state in newest.values()) or (before == written and not in_flight):
                decided = written
            elif here < needed:
                decided = [AWAY] * len(written)
            elif self._count_there(line, written) >= needed:
                decided = written
            else:
                decided = [NEVER if in_flight else state for state in before]
                if any(one.state == DAMAGED for of_block in claims.values() for one in of_block):
                    # What was declared lost stays so; a block that is damaged for want of its table was never written.
                    decided = [DAMAGED if state == DAMAGED else is_now for state, is_now in zip(before, decided)]
            for column, state in enumerate(decided):
                if line < self.row.lengths[column]:
                    self.states[column][line] = state

    def _follow(self, other):
        """Lines are never written here if the other of row and shadow has them, and what they were if it has not."""
        for line, before in self.sources.items():
            parity = other.states[self.row.data_columns][line]
            if parity is NEVER:
                continue
            if parity == DAMAGED:
                # The table of the target was lost: the source has the line.
                for column in range(self.row.columns):
                    if line < self.row.lengths[column]:
                        other.states[column][line] = NEVER
                continue
            for column in range(self.row.columns):
                if line < self.row.lengths[column]:
                    self.states[column][line] = AWAY if parity == AWAY else NEVER

    def _was_in_flight(self, line, claims):
        """Whether a line was written as a whole and no flush has covered that; blocks of one that a flush has covered may have been
        repeated."""
        is_whole = len(claims) == sum(line < length for length in self.row.lengths)
        is_settled = any(of_block[0].settled for of_block in claims.values())
        is_same = all(one.state == of_block[-1].state for of_block in claims.values() for one in of_block)
        return is_whole and not (is_settled and is_same)

    def _count_there(self, line, written):
        """How many blocks of a line are what was written."""
        return sum(
            state is NEVER or any(checksum == state for _, checksum in self._copies(column, [line])[0])
            for column, state in enumerate(written)
        )

    def _decided(self, column, block, claims, copies):
        """The state of a block of which the log says what no flush has covered; copies are the sums of what its slabs hold, and
        whether those hold everything."""
        base = self.states[column][block]
        candidates = [claim.state for claim in reversed(claims)] + [base]
        if not any(trusted for trusted, _ in copies):
            return AWAY
        sums = [checksum for _, checksum in copies]
        for state in candidates:
            if state is NEVER or state in sums:
                return state
        if not any(claim.intent for claim in claims):
            return newest_known(candidates)
        is_known = base != DAMAGED and all(claim.state != DAMAGED for claim in claims)
        if self.row.laid.integrity == RELAXED and is_known:
            self.as_found.append((column, block))
            return next(checksum for trusted, checksum in copies if trusted)
        return DAMAGED

    def _copies(self, column, blocks):
        """For each block, of every slab that is here and held something once, whether it holds everything, and the sum of what it
        has there."""
        found = [[] for _ in blocks]
        for slab in self._slabs(column):
            disk = self.members.disk(slab.slot)
            data = b"".join(slab.read(disk, first, count) for first, count in runs(blocks))
            for copies, checksum in zip(found, codes.crc32c_of_blocks(data)):
                copies.append((slab.trusted, checksum))
        return found

    def _slabs(self, column):
        """Slabs that are here, those that hold everything first."""
        here = [slab for slab in self.row.slabs[column] if slab.may_help and self.members.disk(slab.slot)]
        return sorted(here, key=lambda slab: not slab.trusted)

    # --- reading in place

    def own(self, column, wanted):
        """Blocks of a column from its own slabs, as (block, checksum), blocks ascending; None for those that no copy has."""
        found = [None] * len(wanted)
        missing = list(range(len(wanted)))
        for slab in self._slabs(column):
            if not missing:
                break
            disk = self.members.disk(slab.slot)
            places = runs([wanted[number][0] for number in missing])
            data = b"".join(slab.read(disk, first, count) for first, count in places)
            for nth, (number, checksum) in enumerate(zip(missing, codes.crc32c_of_blocks(data))):
                if checksum == wanted[number][1]:
                    found[number] = data[nth * BLOCK : nth * BLOCK + BLOCK]
            missing = [number for number in missing if found[number] is None]
        return found

    def _line_blocks(self, column, first, count):
        """Blocks of a column as parity is of them: zeros where nobody wrote, None where nobody here knows."""
        length = self.row.lengths[column]
        states = (self.states[column][first : min(first + count, length)] + [NEVER] * count)[:count]
        places = {}
        for line in range(first, first + count):
            # A line that may be half in place is what it was about to be.
            if column in self.lines.get(line, {}):
                states[line - first], places[line - first] = self.lines[line][column]
        valid = [number for number, state in enumerate(states) if is_valid(state)]
        found = [None] * count
        for number, block in zip(valid, self.own(column, [(first + number, states[number]) for number in valid])):
            found[number] = block
        for number, place in places.items():
            if is_valid(states[number]):
                found[number] = self.reader.cached_block(self.row, place, states[number]) or found[number]
        return states, [ZEROS if state is NEVER else block for state, block in zip(states, found)]

    def _rebuilt(self, column, line, others):
        """A data block from the others of its line; `others` keeps what was read of columns, from which line on."""
        known = {}
        for other in range(self.row.columns):
            if other == column:
                continue
            first, blocks = others.get(other) or (line, self._line_blocks(other, line, 1)[1])
            if blocks[line - first] is not None:
                known[other] = blocks[line - first]
        return codes.rebuild(column, self.row.data_columns, known)

    def column(self, column, first, count):
        """Blocks of a data column, and why those that are None cannot be had."""
        states, found = self._line_blocks(column, first, count)
        missing = [number for number, block in enumerate(found) if block is None]
        wanted = [number for number in missing if is_valid(states[number])]
        if wanted and self.row.parity:
            low, high = first + wanted[0], first + wanted[-1] + 1
            others = {
                other: (low, self._line_blocks(other, low, high - low)[1])
                for other in range(self.row.columns)
                if other != column
            }
            blocks = {number: self._rebuilt(column, first + number, others) for number in wanted}
            blocks = {number: block for number, block in blocks.items() if block}
            sums = codes.crc32c_of_blocks(b"".join(blocks.values()))
            for (number, block), checksum in zip(blocks.items(), sums):
                if checksum == states[number]:
                    found[number] = block
        is_away = any(
            slab.trusted and not self.members.disk(slab.slot)
            for slabs in (self.row.slabs if self.row.parity else [self.row.slabs[column]])
            for slab in slabs
        )
        why = {AWAY: NO_DISK, DAMAGED: IS_LOST}
        reasons = {
            number: why.get(states[number], NO_DISK if is_away else NO_COPY) for number in missing if found[number] is None
        }
        return found, reasons

    # --- reading through the write cache

    def _newest(self, versions):
        """The version of a block that counts, None for none, AWAY where nobody here can tell."""
        for since in sorted(versions, reverse=True):
            version = versions[since]
            if version.marked or version.place is None:
                return version
            state = self.reader.cached_state(self.row, version.place)
            if state == AWAY:
                return AWAY
            if state == DAMAGED or (is_valid(state) and state == version.checksum):
                return version
        return None

    def pieces(self):
        """The row in parts: the first block of the row, blocks, and reasons by block for those that are None."""
        row = self.row
        lines = max(PIECE_BLOCKS // row.data_columns // row.interleave, 1) * row.interleave
        for first in range(0, row.lengths[0], lines):
            base = row.row_block(0, first)
            end = min(row.row_block(0, first + lines), row.blocks)
            blocks, reasons = [None] * (end - base), {}
            for column in range(row.data_columns):
                count = min(lines, row.lengths[column] - first)
                if count <= 0:
                    continue
                found, missing = self.column(column, first, count)
                self._put_shadows(column, first, found, missing)
                for number, block in enumerate(found):
                    blocks[row.row_block(column, first + number) - base] = block
                reasons.update({row.row_block(column, first + number): why for number, why in missing.items()})
            self._put_cached(base, blocks, reasons)
            yield base, blocks, reasons

    def _put_shadows(self, column, first, blocks, reasons):
        """Blocks of lines that are the shadow's."""
        if not self.shadow:
            return
        found, missing = self.shadow.column(column, first, len(blocks))
        for number in range(len(blocks)):
            parity = self.shadow.states[self.row.data_columns][first + number]
            if parity is NEVER:
                continue
            reasons.pop(number, None)
            lacks = self.shadow.states[column][first + number] is NEVER
            if parity == AWAY or (parity == DAMAGED and lacks):
                blocks[number], reasons[number] = None, NO_DISK if parity == AWAY else IS_LOST
                continue
            blocks[number] = found[number]
            if number in missing:
                reasons[number] = missing[number]

    def _put_cached(self, base, blocks, reasons):
        """Blocks whose newest content is not in place yet."""
        places = {}
        for block in range(base, base + len(blocks)):
            version = self._newest(self.versions[block]) if block in self.versions else None
            if version is None:
                continue
            reasons.pop(block, None)
            if version == AWAY:
                blocks[block - base], reasons[block] = None, NO_DISK
            elif version.place is None:
                blocks[block - base] = ZEROS
            else:
                places[block] = version
        for block, content in self.reader.cached_blocks(self.row, places).items():
            blocks[block - base] = content
            if content is None:
                reasons[block] = self.reader.why_not_cached(self.row, places[block].place)


class Reader:
    """Reads the spaces of a pool."""

    def __init__(self, pool):
        self.pool = pool
        self.records = Records(pool)
        self.cache_rows = {}
        self.caches = {space.id: space for space in pool.spaces(caches=True)}

    # --- the write cache

    def _cache_row(self, row, place):
        """The row of the write cache in which a place is; None where there is none any more."""
        number, block = place
        space = self.caches.get(CACHES_FROM + row.laid.write_cache)
        if space is None:
            return None
        if number not in self.cache_rows:
            try:
                cache_row = self.pool.row_of(space, number)
            except Damage:
                cache_row = None
            self.cache_rows[number] = cache_row and RowContent(self, cache_row)
        content = self.cache_rows[number]
        return content if content and block < content.row.lengths[0] else None

    def cached_state(self, row, place):
        content = self._cache_row(row, place)
        return content.states[0][place[1]] if content else AWAY if self.pool.lost else NEVER

    def cached_block(self, row, place, checksum):
        return self.cached_blocks(row, {0: Version(place, checksum)})[0]

    def cached_blocks(self, row, versions):
        """The content of versions, by block of the row."""
        found = dict.fromkeys(versions)
        of_rows = {}
        for block, version in sorted(versions.items(), key=lambda item: item[1].place):
            of_rows.setdefault(version.place[0], []).append((block, version))
        for of_row in of_rows.values():
            of_row = [(block, version) for block, version in of_row if self._cache_row(row, version.place)]
            if of_row:
                content = self._cache_row(row, of_row[0][1].place)
                read = content.own(0, [(version.place[1], version.checksum) for _, version in of_row])
                found.update({block: data for (block, _), data in zip(of_row, read)})
        return found

    def why_not_cached(self, row, place):
        content = self._cache_row(row, place)
        slabs = content.row.slabs[0] if content else []
        is_away = any(slab.trusted and not self.pool.members.disk(slab.slot) for slab in slabs)
        return NO_DISK if is_away else NO_COPY

    # --- spaces

    def extract(self, space, write):
        """Gives the content of a space to `write`, piece by piece: address and bytes, zeros left out. The ranges that cannot be
        had, with the reason, and those that were accepted unverified."""
        missing, as_found = Ranges(space), Ranges(space)
        in_space = -(-space.size // space.row_length)
        shadows = self.pool.shadows(space)
        lost_shadows = self.pool.lost_rows(shadows) if space.has_parity else []
        for first, last in self.pool.lost_rows(space):
            for index in range(first, min(last + 1, in_space)):
                missing.add(index * space.row_length, space.row_length, NO_MAP)
        for index in self.pool.row_indices(space):
            start = index * space.row_length
            if index >= in_space:
                continue
            try:
                shadow = self.pool.row(shadows, index) if space.has_parity else None
                if not shadow and any(low <= index <= high for low, high in lost_shadows):
                    raise Damage("it may have a shadow row")
                content = RowContent(self, self.pool.row(space, index), shadow)
            except Damage as error:
                missing.add(start, space.row_length, f"{NO_MAP}: {error}")
                continue
            missing.forget(start, space.row_length)
            for base, blocks, reasons in content.pieces():
                self._write(space, start + base * BLOCK, blocks, write)
                for block, why in sorted(reasons.items()):
                    missing.add(start + block * BLOCK, BLOCK, why)
            for column, block in content.as_found:
                if column < content.row.data_columns:
                    at = start + content.row.row_block(column, block) * BLOCK
                    as_found.add(at, BLOCK, "accepted unverified: it was being overwritten when the pool stopped")
        return missing, as_found

    @staticmethod
    def _write(space, at, blocks, write):
        wanted = [number for number, block in enumerate(blocks) if block is not None and block != ZEROS]
        for first, count in runs(wanted):
            start = at + first * BLOCK
            data = b"".join(blocks[first : first + count])
            if start < space.size:
                write(start, data[: space.size - start])


class Ranges:
    """Ranges of a space, each with a reason."""

    def __init__(self, space):
        self.size = space.size
        self.found = []

    def add(self, at, length, why):
        length = min(length, self.size - at)
        if length <= 0:
            return
        if self.found and self.found[-1][2] == why and sum(self.found[-1][:2]) == at:
            self.found[-1][1] += length
        else:
            self.found.append([at, length, why])

    def forget(self, at, length):
        """A row that the log has after all."""
        kept = []
        for start, count, why in self.found:
            for low, high in ((start, min(start + count, at)), (max(start, at + length), start + count)):
                if low < high and [low, high - low, why] not in kept:
                    kept.append([low, high - low, why])
        self.found = kept

    def __iter__(self):
        return iter(sorted(self.found))

    def __bool__(self):
        return bool(self.found)


