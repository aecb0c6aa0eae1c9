// Slab map: for each disk of a pool, which spaces have slabs on it, from its first byte to its last.
//
// It is asked for while it is open, again each ten seconds: the daemon looks at all rows of the pool for it.

import { keep, pathOf } from './api.js';
import { legend } from './chart.js';
import { h, prose, s } from './dom.js';
import { baseName, bytes, diskName, percent } from './format.js';
import { card, pill, table } from './parts.js';
import { redraw } from './redraw.js';

const CELLS = 128;
const AGAIN_S = 10;
// Owners with a colour of their own; the others share one.
const COLOURS = 7;
const OTHERS = 'others';
// Height of a bar, and of the line below it that marks cells with stale slabs.
const HEIGHT = 20;
const MARK = { y: 22, height: 3 };

const openMaps = new Set();

const sum = (list, field) => list.reduce((total, one) => total + one[field], 0);

// A class for each owner, in the order of the map, so that colours stay while sizes change.
function kindsOf(owners) {
  const largest = owners
    .filter((owner) => owner.purpose !== 'write_cache')
    .sort((a, b) => b.used_bytes - a.used_bytes)
    .slice(0, COLOURS);
  let next = 0;
  return owners.map((owner) => {
    if (owner.purpose === 'write_cache') return 'cache';
    if (!largest.includes(owner)) return OTHERS;
    next += 1;
    return `owner-${next}`;
  });
}

const box = (x, y, height) => `M${x} ${y.toFixed(2)}h1v${height.toFixed(2)}h-1z`;

// A bar of a disk: in each cell, what is used stands on the ground, by owner.
function diskBar(disk, kinds, label) {
  const paths = new Map();
  const draw = (kind, part) => paths.set(kind, (paths.get(kind) ?? '') + part);
  disk.cells.forEach((cell, x) => {
    let top = HEIGHT;
    const stack = (kind, units) => {
      if (!units) return;
      // What is there is seen, however little it is.
      const height = Math.min(top, Math.max(0.8, (units / cell.units) * HEIGHT));
      top -= height;
      draw(kind, box(x, top, height));
    };
    const shares = [...(cell.owners ?? [])].sort((a, b) => a.owner - b.owner);
    for (const share of shares) stack(kinds[share.owner] ?? OTHERS, share.units);
    stack(OTHERS, cell.other_units ?? 0);
    if (cell.stale_units) draw('stale', box(x, MARK.y, MARK.height));
  });
  const width = Math.max(1, disk.cells.length);
  return s(
    'svg',
    {
      class: 'slabs',
      viewBox: `0 0 ${width} ${MARK.y + MARK.height}`,
      preserveAspectRatio: 'none',
      role: 'img',
      'aria-label': label,
    },
    s('rect', { class: 'fill-empty', x: 0, y: 0, width, height: HEIGHT }),
    [...paths].map(([kind, path]) => s('path', { class: `fill-${kind}`, d: path })),
  );
}

// What lies on a disk, the largest first: `[name, units]`.
function contentOf(disk, owners) {
  const units = new Map();
  const add = (name, more) => more && units.set(name, (units.get(name) ?? 0) + more);
  for (const cell of disk.cells) {
    for (const share of cell.owners ?? []) add(owners[share.owner]?.name ?? OTHERS, share.units);
    add(OTHERS, cell.other_units);
  }
  return [...units].sort((a, b) => b[1] - a[1]);
}

function mapView(pool, map) {
  const kinds = kindsOf(map.owners);
  const size = (units) => bytes(units * map.unit_bytes);
  const nameOf = (disk) => {
    const member = pool.disks.find((each) => each.slot === disk.slot);
    return member ? diskName(member) : baseName(disk.name);
  };
  const disks = map.disks.map((disk) => ({ ...disk, title: nameOf(disk), content: contentOf(disk, map.owners) }));
  const others = map.owners.filter((_, index) => kinds[index] === OTHERS);
  const isMixed = disks.some((disk) => disk.cells.some((cell) => cell.other_units));
  const stale = sum(map.owners, 'stale_bytes');
  return [
    legend(
      [
        ...map.owners.map(
          (owner, index) => kinds[index] !== OTHERS && [kinds[index], `${owner.name} ${bytes(owner.used_bytes)}`],
        ),
        others.length > 0 && [OTHERS, `${others.length} more ${bytes(sum(others, 'used_bytes'))}`],
        !others.length && isMixed && [OTHERS, 'small parts of several'],
        ['empty', `free ${size(sum(disks, 'free_units'))}`],
        stale > 0 && ['stale', `being filled or stale: ${bytes(stale)}`],
      ].filter(Boolean),
    ),
    disks.map((disk) =>
      h(
        'div',
        { class: 'slab-disk', key: `slabs-${disk.slot}` },
        h(
          'div',
          { class: 'card-head' },
          h('h3', null, disk.title),
          disk.is_absent ? pill('warning', 'absent') : null,
          h('span', { class: 'end number quiet' }, `${size(disk.free_units)} of ${size(disk.units)} free`),
        ),
        diskBar(
          disk,
          kinds,
          `${disk.title}: ${[...disk.content, ['free', disk.free_units]]
            .map(([name, units]) => `${name} ${percent(units, disk.units)}`)
            .join(', ')}`,
        ),
      ),
    ),
    table(
      'What lies on each disk',
      [
        { title: 'Disk', cell: (disk) => disk.title },
        {
          title: 'What lies on it',
          cell: (disk) => disk.content.map(([name, units]) => `${name} ${size(units)}`).join(' · ') || 'nothing',
        },
        {
          title: 'Being filled or stale',
          isNumber: true,
          cell: (disk) => (disk.stale_units ? size(disk.stale_units) : '–'),
        },
        { title: 'Free', isNumber: true, cell: (disk) => size(disk.free_units) },
      ],
      disks,
      (disk) => `content-${disk.slot}`,
    ),
  ];
}

function content(pool) {
  const { document: map, error } = keep(`${pathOf('ShowSlabMap', { pool: pool.name })}?cells=${CELLS}`, AGAIN_S);
  if (map) return mapView(pool, map);
  return h('p', { class: error ? 'bad-text' : 'quiet' }, error ? prose(error.message) : 'Looking at all rows …');
}

/** The slab map of a pool, which somebody opens. */
export function slabMapCard(pool) {
  const isOpen = openMaps.has(pool.id);
  const ontoggle = ({ currentTarget: fold }) => {
    // Each drawing makes an element that opens as well, and drops it where the page has one.
    if (!fold.isConnected || fold.open === openMaps.has(pool.id)) return;
    if (fold.open) openMaps.add(pool.id);
    else openMaps.delete(pool.id);
    redraw();
  };
  return card(
    null,
    h(
      'details',
      { class: 'fold', key: `slab-map-${pool.id}`, open: isOpen, ontoggle },
      h('summary', null, h('h2', null, 'Slab map')),
      isOpen ? h('div', { class: 'fold-body' }, content(pool)) : null,
    ),
  );
}
