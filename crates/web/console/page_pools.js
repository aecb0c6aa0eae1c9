// Pools: what fits at each level of protection, the room on each disk, and the moves that go on.

import { can, known, onceKnown, refresh } from './api.js';
import { bar, legend } from './chart.js';
import { h, prose } from './dom.js';
import { bytes, diskName, duration, losses, percent, plural, protection, rate, words } from './format.js';
import { openJobs, poolOf, pools, spaces } from './live.js';
import { action, card, empty, facts, health, jobView, pageHead, pill, poolBar, reasons, table } from './parts.js';
import { diskHealth } from './disk_health.js';
import { jobActions } from './page_jobs.js';
import { importPool, poolMenu, simplePoolAction } from './pool_actions.js';
import { slabMapCard } from './slab_map.js';
import { addDisks } from './wizard_add.js';
import { newPool } from './wizard_pool.js';
import { replaceDisk } from './wizard_replace.js';

// Pools of which disks are here, by what their labels say.
function closedPools() {
  const found = new Map();
  for (const device of onceKnown('ListDevices')?.devices ?? []) {
    if (device.state === 'member' && device.pool && !device.has_left && !poolOf(device.pool))
      found.set(device.pool, [...(found.get(device.pool) ?? []), device]);
  }
  return found.size
    ? card(
        'Pools that are not open here',
        [...found].map(([name, devices]) =>
          h(
            'div',
            { class: 'card-head', key: `closed-${name}` },
            h('h3', null, name),
            h(
              'span',
              { class: 'quiet' },
              devices[0].pool_disk_count
                ? `${devices.length} of ${plural(devices[0].pool_disk_count, 'disk')} here`
                : `${plural(devices.length, 'disk')} here`,
            ),
            h(
              'span',
              { class: 'end' },
              action('ImportPool', 'Import', () => importPool(name), 'small', { 'aria-label': `Import ${name}` }),
            ),
          ),
        ),
      )
    : null;
}

function list() {
  return h(
    'div',
    null,
    pageHead(
      'Pools',
      action('ImportPool', 'Import a pool', () => importPool()),
      action('CreatePool', 'New pool', () => newPool(), 'primary'),
    ),
    pools().length
      ? pools().map((pool) =>
          h(
            'section',
            { class: 'card', key: pool.id },
            h(
              'div',
              { class: 'card-head' },
              h('h2', null, h('a', { href: `#/pools/${encodeURIComponent(pool.name)}` }, pool.name)),
              health(pool),
              pool.state === 'writable' ? null : pill('warning', words(pool.state)),
              h(
                'span',
                { class: 'end number' },
                `${bytes(pool.used_bytes)} of ${bytes(pool.data_bytes)}, ${percent(pool.used_bytes, pool.data_bytes)}`,
              ),
            ),
            poolBar(pool),
            h(
              'p',
              { class: 'quiet' },
              [
                plural(pool.disks.length, 'disk'),
                plural(pool.space_count, 'space'),
                `${bytes(pool.free_bytes)} free`,
                pool.trash_count > 0 && `${bytes(pool.trash_bytes)} in the trash`,
              ]
                .filter(Boolean)
                .join(' · '),
            ),
            reasons(pool.why),
            openJobs(pool.name).map((job) => jobView(job)),
          ),
        )
      : empty('There is no pool yet. A pool combines disks of any size; spaces lie on it.'),
    closedPools(),
  );
}

function roomCard(pool, room) {
  if (!room) return card('Room', poolBar(pool), h('p', { class: 'quiet' }, 'Asking where the bytes are …'));
  const parts = [
    ['used', room.claimed_bytes, 'data of spaces'],
    ['redundancy', room.redundancy_bytes, 'copies and parity'],
    ['cache', room.write_cache_bytes ?? 0, 'write caches'],
    ['tables', room.tables_bytes, 'tables'],
    ['trash', room.trash_bytes ?? 0, 'trash'],
    ['kept', room.reserve_bytes + (room.kept_bytes ?? 0), 'kept for moves and repairs'],
  ].filter(([, amount]) => amount > 0);
  return card(
    'Room',
    bar(parts, room.data_bytes, `${bytes(room.used_bytes)} of ${bytes(room.data_bytes)} used`),
    legend([
      ...parts.map(([kind, amount, text]) => [kind, `${text} ${bytes(amount)}`]),
      ['empty', `free ${bytes(room.free_bytes - room.reserve_bytes - (room.kept_bytes ?? 0))}`],
    ]),
    room.promised_bytes > 0
      ? h(
          'p',
          { class: room.promised_bytes > room.free_bytes ? 'warn-text' : 'quiet' },
          `Thin spaces may claim ${bytes(room.promised_bytes)} more${room.promised_bytes > room.free_bytes ? ', which is more than is free' : ''}.`,
        )
      : null,
    room.absent_disks?.length
      ? h('p', { class: 'warn-text' }, `Absent, and not counted: ${room.absent_disks.join(', ')}`)
      : null,
  );
}

function fitsCard(room) {
  if (!room) return null;
  return card(
    'What still fits',
    table(
      'Usable bytes at each level of protection',
      [
        { title: 'Protection', cell: (fit) => protection(fit) },
        { title: 'Lost disks', cell: (fit) => losses(fit.survives) },
        {
          title: 'As a thin space',
          isNumber: true,
          cell: (fit) => (fit.usable_bytes ? bytes(fit.usable_bytes) : 'too few disks or room'),
        },
        {
          title: 'As a fixed space',
          isNumber: true,
          cell: (fit) => (fit.usable_fixed_bytes ? bytes(fit.usable_fixed_bytes) : '–'),
        },
      ],
      room.fits,
      (fit) => `${fit.resiliency}-${fit.copies}-${fit.parity}`,
    ),
  );
}

function disksCard(pool, room) {
  const largest = Math.max(...pool.disks.map((disk) => disk.data_bytes), 1);
  return card(
    'Room on each disk',
    table(
      'Room on each disk',
      [
        {
          title: 'Disk',
          cell: (disk) => [
            h('a', { href: `#/disks/${encodeURIComponent(pool.name)}/${disk.slot}` }, diskName(disk)),
            ' ',
            diskHealth(disk) === 'healthy' ? null : pill(diskHealth(disk), words(disk.state)),
          ],
        },
        {
          title: 'Used, kept and free, to one scale',
          cell: (disk) => {
            const kept = room?.disks.find((each) => each.slot === disk.slot)?.reserve_bytes ?? 0;
            const used = disk.data_bytes - disk.free_bytes;
            return h(
              'div',
              { class: 'scale' },
              bar(
                [
                  ['used', used],
                  ['kept', kept],
                  ['free', disk.data_bytes - used - kept],
                ],
                largest,
                `${percent(used, disk.data_bytes)} of ${bytes(disk.data_bytes)} used, ${bytes(kept)} kept`,
              ),
            );
          },
        },
        { title: 'Used', isNumber: true, cell: (disk) => percent(disk.data_bytes - disk.free_bytes, disk.data_bytes) },
        { title: 'Free', isNumber: true, cell: (disk) => bytes(disk.free_bytes) },
        { title: 'Size', isNumber: true, cell: (disk) => bytes(disk.size_bytes) },
      ],
      pool.disks,
      (disk) => `room-${disk.slot}`,
    ),
  );
}

function cacheCard(pool) {
  if (!pool.write_caches?.length) return null;
  return card(
    'Write caches',
    table(
      'Write caches of strict spaces',
      [
        { title: 'For spaces that survive', cell: (cache) => `the loss of ${plural(cache.survives, 'disk')}` },
        { title: 'Size', isNumber: true, cell: (cache) => bytes(cache.size_bytes) },
        {
          title: 'Waiting',
          isNumber: true,
          cell: (cache) => `${bytes(cache.waiting_bytes)}, ${percent(cache.waiting_bytes, cache.size_bytes)}`,
        },
        { title: 'Filled', isNumber: true, cell: (cache) => rate(cache.filled_bytes_per_s) },
        { title: 'Destaged', isNumber: true, cell: (cache) => rate(cache.destaged_bytes_per_s) },
      ],
      pool.write_caches,
      (cache) => `cache-${cache.survives}`,
    ),
  );
}

function detail(name) {
  const pool = poolOf(name);
  if (!pool)
    return h(
      'div',
      null,
      pageHead('Pool'),
      empty(`No pool ${name} is open here.`, h('a', { href: '#/pools' }, 'All pools')),
    );
  const room = pool.state === 'closed' ? null : known('ShowRoom', { pool: name }, 5);
  const jobs = openJobs(name);
  const mine = spaces().filter((space) => space.pool === name);
  return h(
    'div',
    null,
    h('p', { class: 'crumbs' }, h('a', { href: '#/pools' }, 'Pools')),
    pageHead(
      name,
      health(pool),
      pool.state === 'writable' ? null : pill('warning', words(pool.state)),
      can('CreateSpace')
        ? h('a', { class: 'button primary', href: `#/spaces/new/${encodeURIComponent(name)}` }, 'New space or volume')
        : null,
      action('AddDisks', 'Add disks', () => addDisks(name)),
      action('ReplaceDisk', 'Replace a disk', () => replaceDisk(name)),
      action(
        'ScrubPool',
        'Scrub',
        simplePoolAction(
          'ScrubPool',
          pool,
          `Scrub ${name}`,
          'A job reads and verifies everything in the pool, and heals what can be healed.',
          'Scrub',
          ['scrub', name],
        ),
      ),
      poolMenu(pool),
    ),
    pool.state_cause ? h('p', { class: 'note bad' }, prose(pool.state_cause)) : null,
    pool.why.length ? h('div', { class: 'note warn' }, reasons(pool.why)) : null,
    roomCard(pool, room),
    jobs.length
      ? card(
          'Moves and other jobs',
          jobs.map((job) => jobView(job, jobActions(job))),
        )
      : null,
    fitsCard(room),
    disksCard(pool, room),
    pool.state === 'closed' ? null : slabMapCard(pool),
    cacheCard(pool),
    card(
      'Settings',
      facts(
        pool.repair_after_s !== undefined && [
          'Repair begins',
          pool.repair_after_s ? `when a disk was absent for ${duration(pool.repair_after_s)}` : 'only by a command',
        ],
        [
          'Room for repairs',
          pool.keep_room_for
            ? `of ${plural(pool.keep_room_for, 'lost disk')}; there is room for ${pool.has_room_for}`
            : 'none is kept',
        ],
        [
          'Spaces',
          mine.length
            ? mine.map((space, index) => [
                index ? ', ' : '',
                h('a', { href: `#/spaces/${encodeURIComponent(name)}/${encodeURIComponent(space.name)}` }, space.name),
              ])
            : 'none',
        ],
        ['Id', h('code', null, pool.id)],
        ['Epoch', h('code', null, pool.epoch)],
      ),
    ),
  );
}

export function view(parts) {
  if (parts[0] === 'new' && can('CreatePool') && !poolOf('new')) {
    history.replaceState(null, '', '#/pools');
    parts.length = 0;
    setTimeout(newPool, 0);
  }
  return parts[0] ? detail(parts[0]) : list();
}

/** Labels of devices are read when somebody opens the page, and after a change: each look may wake disks that sleep. */
export const opened = () => refresh('ListDevices');
