// Disks: the bays as people named them, and one disk with its SMART values and its latency compared with its peers.

import { can, known, onceKnown, refresh } from './api.js';
import { bar } from './chart.js';
import { diskHealth, diskTroubles } from './disk_health.js';
import { diskActions } from './disk_actions.js';
import { h } from './dom.js';
import { diskKey, latencies, median, points, recent } from './figures.js';
import { bytes, count, diskName, duration, latency, percent, rate, words } from './format.js';
import { diskOf, live, poolOf, pools } from './live.js';
import { latencyChart, throughput } from './load_charts.js';
import { action, card, empty, facts, health, pageHead, pill, table } from './parts.js';
import { addDisks } from './wizard_add.js';
import { replaceDisk } from './wizard_replace.js';

const NATURAL = new Intl.Collator('en', { numeric: true });

const loadOf = (pool, slot) => live.figures?.disks.find((disk) => disk.pool === pool && disk.slot === slot)?.load;
const timesOf = (pool, slot) => latencies(diskKey(pool, slot), loadOf(pool, slot));

/** The latency of a disk, and the median of the others of its pool. */
export function withPeers(pool, disk, kind) {
  const of = (slot) => timesOf(pool.name, slot)[kind];
  const own = of(disk.slot);
  if (!own) return null;
  const peers = median(pool.disks.filter((each) => each.slot !== disk.slot).map((each) => of(each.slot)?.p95));
  return { own: own.p95, peers, isRecent: own.isRecent };
}

function againstPeers(pool, disk, kind) {
  const times = withPeers(pool, disk, kind);
  if (!times) return null;
  return [latency(times.own), times.peers === null ? '' : h('span', { class: 'quiet' }, ` / ${latency(times.peers)}`)];
}

function bay(pool, disk) {
  const used = disk.data_bytes - disk.free_bytes;
  const kind = diskHealth(disk);
  const isHere = disk.state !== 'absent';
  const troubles = diskTroubles(disk);
  return h(
    'li',
    { class: `bay ${kind}`, key: `${pool.name}-${disk.slot}` },
    h(
      'div',
      { class: 'bay-head' },
      h('a', { href: `#/disks/${encodeURIComponent(pool.name)}/${disk.slot}` }, diskName(disk)),
      pill(kind === 'idle' ? '' : kind, words(disk.state)),
    ),
    isHere &&
      bar([['used', used]], disk.data_bytes, `${percent(used, disk.data_bytes)} of ${bytes(disk.data_bytes)} used`),
    facts(
      ['Size', bytes(disk.size_bytes)],
      isHere && ['Used', percent(used, disk.data_bytes)],
      !isHere && ['Last seen at', disk.last_path],
      disk.smart?.serial && ['Serial number', disk.smart.serial],
      disk.score !== null && disk.score !== undefined && ['Score', `${disk.score} of 100`],
      disk.smart?.temperature_c && ['Temperature', `${disk.smart.temperature_c} °C`],
      ['Read / peers', againstPeers(pool, disk, 'reads')],
      ['Write / peers', againstPeers(pool, disk, 'writes')],
    ),
    troubles.length ? h('p', { class: kind === 'unhealthy' ? 'bad-text' : 'warn-text' }, troubles.join(', ')) : null,
  );
}

function shelves(pool) {
  const groups = new Map();
  const place = (disk) => disk.bay ?? '';
  for (const disk of [...pool.disks].sort(
    (a, b) => Number(!a.bay) - Number(!b.bay) || NATURAL.compare(place(a), place(b)) || a.slot - b.slot,
  )) {
    const name = disk.enclosure ?? '';
    groups.set(name, [...(groups.get(name) ?? []), disk]);
  }
  return [...groups].sort(([a], [b]) => Number(!a) - Number(!b) || NATURAL.compare(a, b));
}

function poolSection(pool) {
  const groups = shelves(pool);
  return h(
    'section',
    { class: 'card', key: `pool-${pool.id}` },
    h(
      'div',
      { class: 'card-head' },
      h('h2', null, h('a', { href: `#/pools/${encodeURIComponent(pool.name)}` }, pool.name)),
      health(pool),
      h(
        'span',
        { class: 'actions end' },
        action('AddDisks', 'Add disks', () => addDisks(pool.name)),
        action('ReplaceDisk', 'Replace a disk', () => replaceDisk(pool.name)),
      ),
    ),
    groups.map(([name, disks]) => [
      groups.length > 1 || name ? h('h3', null, name || 'In no enclosure') : null,
      h(
        'ul',
        { class: 'bays' },
        disks.map((disk) => bay(pool, disk)),
      ),
    ]),
  );
}

const STATES = {
  empty: ['healthy', 'free'],
  foreign: ['warning', 'in use by others'],
  member: ['info', 'disk of a pool'],
  unusable: ['warning', 'unusable label'],
  in_use: ['', 'in use'],
  unfit: ['', 'unfit'],
};

function freeDevices() {
  const devices = onceKnown('ListDevices')?.devices;
  if (!devices?.length) return null;
  return card(
    'Devices of no open pool',
    h(
      'div',
      { class: 'actions' },
      h('button', { type: 'button', class: 'small', onclick: () => refresh('ListDevices') }, 'Look again'),
    ),
    table(
      'Devices that belong to no open pool',
      [
        { title: 'Device', cell: (device) => device.path },
        { title: 'State', cell: (device) => pill(...(STATES[device.state] ?? ['', words(device.state)])) },
        { title: 'Holds', cell: (device) => [device.what, device.pool ? ` (pool ${device.pool})` : ''] },
        { title: 'Size', isNumber: true, cell: (device) => (device.size_bytes ? bytes(device.size_bytes) : '–') },
      ],
      devices,
      (device) => device.path,
    ),
  );
}

function list() {
  return h(
    'div',
    null,
    pageHead('Disks', can('CreatePool') ? h('a', { class: 'button', href: '#/pools/new' }, 'New pool') : null),
    pools().length ? pools().map(poolSection) : empty('No pool is open, so there are no disks of one.'),
    pools().length
      ? h(
          'p',
          { class: 'quiet' },
          'Latencies are those within which 95 of 100 requests of the last minute were done, or, without any, since the daemon was started; after the slash, the median of the other disks of the pool.',
        )
      : null,
    freeDevices(),
  );
}

function latencyTable(pool) {
  const cell = (kind, part) => (disk) => {
    const times = timesOf(pool.name, disk.slot)[kind];
    return times ? latency(times[part]) : '–';
  };
  return table(
    'Latency of all disks of the pool',
    [
      {
        title: 'Disk',
        cell: (disk) => h('a', { href: `#/disks/${encodeURIComponent(pool.name)}/${disk.slot}` }, diskName(disk)),
      },
      { title: 'Read 50 %', isNumber: true, cell: cell('reads', 'p50') },
      { title: 'Read 95 %', isNumber: true, cell: cell('reads', 'p95') },
      { title: 'Read 99 %', isNumber: true, cell: cell('reads', 'p99') },
      { title: 'Write 50 %', isNumber: true, cell: cell('writes', 'p50') },
      { title: 'Write 95 %', isNumber: true, cell: cell('writes', 'p95') },
      { title: 'Write 99 %', isNumber: true, cell: cell('writes', 'p99') },
    ],
    pool.disks,
    (disk) => `latency-${disk.slot}`,
  );
}

function smart(disk) {
  const said = disk.smart;
  if (!said) return h('p', { class: 'quiet' }, disk.smart_silence ?? 'The disk reports no SMART values.');
  const number = (name, value) => value !== null && value !== undefined && [name, count(value)];
  return facts(
    said.passed !== null && [
      'Self-test',
      said.passed ? 'passed' : h('strong', { class: 'bad-text' }, 'predicts a failure'),
    ],
    ['Model', said.model],
    ['Serial number', said.serial],
    said.temperature_c !== null && ['Temperature', `${said.temperature_c} °C`],
    said.power_on_hours !== null && ['Powered on', duration(said.power_on_hours * 3600)],
    number('Reallocated sectors', said.reallocated_sectors),
    number('Pending sectors', said.pending_sectors),
    number('Uncorrectable sectors', said.uncorrectable_sectors),
    number('Media errors', said.media_errors),
    said.percentage_used !== null && ['Life used', `${said.percentage_used} %`],
  );
}

function detail(poolName, slot) {
  const pool = poolOf(poolName);
  const disk = diskOf(poolName, slot);
  if (!pool || !disk)
    return h(
      'div',
      null,
      pageHead('Disk'),
      empty(`Pool ${poolName} has no disk ${slot} any more.`, h('a', { href: '#/disks' }, 'All disks')),
    );
  const key = diskKey(poolName, disk.slot);
  const history = points(key);
  const rates = recent(key);
  const troubles = diskTroubles(disk);
  const used = disk.data_bytes - disk.free_bytes;
  const room = known('ShowRoom', { pool: poolName }, 10)?.disks.find((each) => each.slot === disk.slot);
  return h(
    'div',
    null,
    h(
      'p',
      { class: 'crumbs' },
      h('a', { href: '#/disks' }, 'Disks'),
      ' / ',
      h('a', { href: `#/pools/${encodeURIComponent(poolName)}` }, poolName),
    ),
    pageHead(
      diskName(disk),
      pill(diskHealth(disk) === 'idle' ? '' : diskHealth(disk), words(disk.state)),
      diskActions(pool, disk),
    ),
    troubles.length ? h('div', { class: 'note warn' }, h('p', null, troubles.join(', '))) : null,
    h(
      'div',
      { class: 'columns' },
      h(
        'div',
        null,
        card(
          'Room',
          bar(
            [
              ['used', used],
              ['kept', room?.reserve_bytes ?? 0],
            ],
            disk.data_bytes,
            `${bytes(used)} of ${bytes(disk.data_bytes)} used`,
          ),
          facts(
            ['Size', bytes(disk.size_bytes)],
            ['Used by slabs', `${bytes(used)}, ${percent(used, disk.data_bytes)}`],
            ['Free', bytes(disk.free_bytes)],
            room && ['Kept for moves and repairs', bytes(room.reserve_bytes)],
            disk.gained_bytes > 0 && ['Gained by the device', bytes(disk.gained_bytes)],
          ),
        ),
        card(
          'Load',
          rates
            ? facts(
                ['Read', `${rate(rates.readBytes)}, ${count(rates.readIo)}/s`],
                ['Written', `${rate(rates.writeBytes)}, ${count(rates.writeIo)}/s`],
                ['Busy', percent(rates.busy, 1)],
              )
            : null,
          throughput(history),
          latencyChart(history, ['p50', 'p99']),
        ),
      ),
      h(
        'div',
        null,
        card(
          'Identity',
          facts(
            ['Bay', disk.bay],
            ['Enclosure', disk.enclosure],
            ['Number in the pool', disk.slot],
            ['Path', disk.path],
            !disk.path && ['Last seen at', disk.last_path],
            ['Id', h('code', null, disk.id)],
            ['Log and metadata', disk.is_voter ? 'carried by this disk' : 'on other disks'],
            disk.score !== null && ['Score', `${disk.score} of 100`],
          ),
        ),
        card('SMART', smart(disk)),
        card(
          'Errors since they were first counted',
          facts(
            ['Reads failed', count(disk.read_errors)],
            ['Writes failed', count(disk.write_errors)],
            ['Checksums wrong', count(disk.checksum_errors)],
            ['Reads timed out', count(disk.timed_out_reads ?? 0)],
          ),
        ),
      ),
    ),
    card('Latency compared with its peers', latencyTable(pool)),
  );
}

export function view(parts) {
  return parts.length >= 2 ? detail(parts[0], Number(parts[1])) : list();
}

/** Labels of devices are read when somebody opens the page, and after a change: each look may wake disks that sleep. */
export const opened = () => refresh('ListDevices');
