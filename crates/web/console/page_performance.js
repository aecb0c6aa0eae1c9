// Performance: what spaces and disks do, and how long it takes, second by second, and over the time that pools remember.

import { lines } from './chart.js';
import { h } from './dom.js';
import { diskKey, points, poolKey, recent, spaceKey } from './figures.js';
import { ago, bytes, command, count, diskName, latency, percent, rate } from './format.js';
import { SPANS, chartPoints, historyOf } from './history.js';
import { diskOf, live, pools } from './live.js';
import { latencyChart, requests, slowest, throughput } from './load_charts.js';
import { commandLine } from './dialog.js';
import { card, pageHead, table } from './parts.js';
import { redraw } from './redraw.js';

const choice = { key: 'all', span: '' };

function subjects() {
  const figures = live.figures;
  const list = pools().filter((pool) => pool.state !== 'closed');
  // Each pool remembers by itself: over a time that has passed, there is no one history of all spaces.
  const wholes = [
    ...(choice.span && list.length ? [] : [['all', 'all spaces']]),
    ...list.map((pool) => [poolKey(pool.name), `pool ${pool.name}`]),
  ];
  if (!figures) return wholes;
  return [
    ...wholes,
    ...figures.spaces.map((space) => [spaceKey(space.pool, space.name), `space ${space.pool}/${space.name}`]),
    ...figures.disks.map((disk) => [
      diskKey(disk.pool, disk.slot),
      `disk ${disk.pool}: ${diskName(diskOf(disk.pool, disk.slot) ?? { path: disk.name, id: disk.id })}`,
    ]),
  ];
}

function charts(key, name) {
  const history = points(key);
  return h(
    'section',
    { class: 'card' },
    h('h2', null, name),
    h(
      'div',
      { class: 'charts' },
      throughput(history),
      requests(history),
      latencyChart(history, ['p50', 'p95', 'p99'], 'Latency of reads and writes'),
    ),
  );
}

// What history is asked of.
function subjectOf(key) {
  const space = live.figures?.spaces.find((each) => spaceKey(each.pool, each.name) === key);
  if (space) return { pool: space.pool, of: 'space', name: space.name };
  const disk = live.figures?.disks.find((each) => diskKey(each.pool, each.slot) === key);
  if (disk) return { pool: disk.pool, of: 'disk', name: String(disk.slot) };
  const pool = pools().find((each) => poolKey(each.name) === key);
  return pool ? { pool: pool.name, of: 'pool', name: null } : null;
}

function historyCharts(key, name, seconds) {
  const subject = subjectOf(key);
  if (!subject) return null;
  const { document, error } = historyOf(subject, seconds);
  const title = name;
  if (!document) {
    return card(title, h('p', { class: 'quiet', role: 'status' }, error ? error.message : 'The history is being read.'));
  }
  const span = {
    ms: seconds * 1000,
    gapMs: document.step_s * 2500,
    text: ago(0, seconds),
  };
  const history = chartPoints(document);
  const used = [{ name: 'used', kind: 'p50', field: 'used' }];
  if (subject.of === 'pool') used.push({ name: 'in write caches', kind: 'p99', field: 'waiting' });
  return card(
    title,
    document.problem ? h('p', { class: 'warn-text' }, `Nothing is recorded now: ${document.problem}`) : null,
    document.points.length ? null : h('p', { class: 'quiet' }, 'Nothing was recorded in that time.'),
    h(
      'div',
      { class: 'charts' },
      throughput(history, span),
      requests(history, span),
      slowest(history, span),
      lines({ history, span, title: 'Room', isBinary: true, show: bytes, series: used }),
    ),
    commandLine(
      command(
        'history',
        subject.pool,
        subject.of !== 'pool' && [`--${subject.of}`, subject.name],
        '--last',
        seconds >= 86400 ? `${seconds / 86400}d` : `${seconds / 3600}h`,
      ),
    ),
  );
}

function figuresTable(caption, title, list, keyOf, nameOf) {
  const number = (name, cell) => ({ title: name, isNumber: true, cell });
  const now = (entry) => recent(keyOf(entry), 5);
  const cell = (show) => (entry) => {
    const rates = now(entry);
    return rates ? show(rates) : '–';
  };
  return table(
    caption,
    [
      { title, cell: nameOf },
      number(
        'Read',
        cell((rates) => rate(rates.readBytes)),
      ),
      number(
        'Written',
        cell((rates) => rate(rates.writeBytes)),
      ),
      number(
        'Reads',
        cell((rates) => `${count(rates.readIo)}/s`),
      ),
      number(
        'Writes',
        cell((rates) => `${count(rates.writeIo)}/s`),
      ),
      number(
        '50 %',
        cell((rates) => latency(rates.p50)),
      ),
      number(
        '95 %',
        cell((rates) => latency(rates.p95)),
      ),
      number(
        '99 %',
        cell((rates) => latency(rates.p99)),
      ),
      number(
        'Busy',
        cell((rates) => percent(rates.busy, 1)),
      ),
      number('Errors', (entry) => count(entry.load.errors)),
    ],
    list,
    keyOf,
  );
}

export function view() {
  const all = subjects();
  if (!all.some(([key]) => key === choice.key)) choice.key = all[0][0];
  const figures = live.figures;
  const name = all
    .find(([key]) => key === choice.key)[1]
    .replace(/^a/, 'A')
    .replace(/^s/, 'S')
    .replace(/^d/, 'D')
    .replace(/^p/, 'P');
  return h(
    'div',
    null,
    pageHead(
      'Performance',
      h(
        'label',
        { class: 'inline' },
        h('span', null, 'Show'),
        h(
          'select',
          {
            value: choice.key,
            onchange: (event) => {
              choice.key = event.target.value;
              redraw();
            },
          },
          all.map(([value, text]) => h('option', { value }, text)),
        ),
      ),
      h(
        'label',
        { class: 'inline' },
        h('span', null, 'over'),
        h(
          'select',
          {
            value: choice.span,
            onchange: (event) => {
              choice.span = event.target.value;
              redraw();
            },
          },
          SPANS.map(([value, text]) => h('option', { value }, text)),
        ),
      ),
    ),
    choice.span ? historyCharts(choice.key, name, SPANS.find(([value]) => value === choice.span)[2]) : charts(choice.key, name),
    figures?.spaces.length
      ? card(
          'Spaces',
          figuresTable(
            'Load of spaces',
            'Space',
            figures.spaces,
            (space) => spaceKey(space.pool, space.name),
            (space) =>
              h(
                'a',
                { href: `#/spaces/${encodeURIComponent(space.pool)}/${encodeURIComponent(space.name)}` },
                `${space.pool}/${space.name}`,
              ),
          ),
        )
      : null,
    figures?.disks.length
      ? card(
          'Disks',
          figuresTable(
            'Load of disks',
            'Disk',
            figures.disks,
            (disk) => diskKey(disk.pool, disk.slot),
            (disk) =>
              h(
                'a',
                { href: `#/disks/${encodeURIComponent(disk.pool)}/${disk.slot}` },
                diskName(diskOf(disk.pool, disk.slot) ?? { path: disk.name, id: disk.id }),
              ),
          ),
        )
      : null,
    h(
      'p',
      { class: 'quiet' },
      'The tables show the mean of the last five seconds. Latencies are those within which 50, 95 and 99 of 100 reads and writes were done.',
    ),
    commandLine(command('iostat', '1')),
  );
}
