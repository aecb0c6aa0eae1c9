// What disks of these sizes give at each level of protection, before there is a pool that could tell.
//
// Rows lie on as many disks as have room, so a mirror of k copies fills T bytes where the disks, each counted up to T, hold
// k times T. Rows with p parities lose the least when there are as many as the (p+1)th largest disk has room for. The table
// calls these figures approximate: metadata, write caches and whole rows take a little more.

const LEVELS = [
  { resiliency: 'mirror', copies: 2, parity: 0, survives: 1 },
  { resiliency: 'mirror', copies: 3, parity: 0, survives: 2 },
  { resiliency: 'parity', copies: 1, parity: 1, survives: 1 },
  { resiliency: 'parity', copies: 1, parity: 2, survives: 2 },
  { resiliency: 'simple', copies: 1, parity: 0, survives: 0 },
];

// Of a disk, what is left for rows: the rest is kept for moves and repairs.
const USABLE = 0.93;

function mirror(sizes, copies) {
  if (sizes.length < copies) return 0;
  let low = 0;
  let high = sizes.reduce((sum, size) => sum + size, 0) / copies;
  for (let round = 0; round < 50; round += 1) {
    const middle = (low + high) / 2;
    const held = sizes.reduce((sum, size) => sum + Math.min(size, middle), 0);
    if (held >= copies * middle) low = middle;
    else high = middle;
  }
  return low;
}

function parity(sizes, parities) {
  if (sizes.length < parities + 2) return 0;
  const rows = [...sizes].sort((a, b) => b - a)[parities];
  return sizes.reduce((sum, size) => sum + Math.min(size, rows), 0) - parities * rows;
}

/** Returns the levels with `usable_bytes`; `mirrorBytes` is the exact size with two copies, where a plan gave it. */
export function estimate(diskSizes, mirrorBytes = null) {
  const sizes = diskSizes.map((size) => size * USABLE);
  const own = mirror(sizes, 2);
  const factor = mirrorBytes && own ? mirrorBytes / own : 1;
  return LEVELS.map((level) => {
    const usable =
      level.resiliency === 'mirror'
        ? mirror(sizes, level.copies)
        : level.resiliency === 'parity'
          ? parity(sizes, level.parity)
          : sizes.reduce((sum, size) => sum + size, 0);
    return { ...level, usable_bytes: Math.floor(usable * factor) };
  });
}

export const disksNeeded = (level) =>
  level.resiliency === 'mirror' ? level.copies : level.resiliency === 'parity' ? level.parity + 2 : 1;
