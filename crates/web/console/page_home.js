// Home: whether all is well, how full the pools are, what is being done, and what happened last.

import { can } from './api.js';
import { diskHealth } from './disk_health.js';
import { h, prose } from './dom.js';
import { points } from './figures.js';
import { bytes, day, diskName, duration, percent, plural } from './format.js';
import { live, now, openJobs, pools, uptime } from './live.js';
import { requests, throughput } from './load_charts.js';
import { card, eventList, health, jobView, poolBar } from './parts.js';

// The sentence of the finding `pool_filling`, as the daemon says it.
const FILLS = /full in about (\d+) days?/;

function fills(pool) {
  const sentence = pool.why.find((text) => FILLS.test(text));
  const fill = pool.fill;
  if (fill?.state === 'filling') {
    const range = `${day(fill.earliest_s)} to ${fill.latest_s ? day(fill.latest_s) : 'never'}`;
    const text = `full about ${day(fill.full_at_s)} (${range})`;
    return sentence ? h('strong', { class: 'warn-text' }, text) : text;
  }
  if (sentence) {
    const days = Number(FILLS.exec(sentence)[1]);
    return h('strong', { class: 'warn-text' }, `full about ${day(now() + days * 86400)}`);
  }
  return fill?.state === 'unknown' ? 'date when full: unknown for the first two days' : null;
}

const MARKS = { healthy: '✓', warning: '!', unhealthy: '✕' };

function hero(status) {
  const troubled = status.pools
    .flatMap((pool) =>
      pool.disks.filter((disk) => ['unhealthy', 'warning'].includes(diskHealth(disk))).map((disk) => [pool, disk]),
    )
    .slice(0, 6);
  return h(
    'section',
    { class: `hero ${status.health}`, 'aria-label': 'Health' },
    h('span', { class: 'mark', 'aria-hidden': 'true' }, MARKS[status.health]),
    h(
      'div',
      null,
      h(
        'p',
        { class: 'summary', 'aria-live': 'polite' },
        live.state === 'up' ? null : 'last known: ',
        prose(status.summary),
      ),
      status.why.length
        ? h(
            'ul',
            { class: 'reasons' },
            status.why.map((text) => h('li', null, prose(text))),
          )
        : null,
      status.todo.length
        ? [
            h('h2', null, 'What helps'),
            h(
              'ul',
              { class: 'reasons' },
              status.todo.map((text) => h('li', null, prose(text))),
            ),
          ]
        : null,
      troubled.length
        ? h(
            'div',
            { class: 'actions' },
            troubled.map(([pool, disk]) =>
              h(
                'a',
                {
                  class: 'button',
                  href: `#/disks/${encodeURIComponent(pool.name)}/${disk.slot}`,
                  key: `disk-${pool.name}-${disk.slot}`,
                },
                `Show disk ${diskName(disk)}`,
              ),
            ),
          )
        : null,
    ),
  );
}

function poolRow(pool) {
  return h(
    'article',
    { class: 'pool-row', key: `pool-${pool.id}` },
    h(
      'div',
      { class: 'pool-row-head' },
      h('h3', null, h('a', { href: `#/pools/${encodeURIComponent(pool.name)}` }, pool.name)),
      health(pool),
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
      [plural(pool.disks.length, 'disk'), plural(pool.space_count, 'space'), `${bytes(pool.free_bytes)} free`].join(
        ' · ',
      ),
      fills(pool) && [' · ', fills(pool)],
    ),
  );
}

function first() {
  return h(
    'section',
    { class: 'card empty' },
    h('h2', null, 'No pool yet'),
    h(
      'p',
      null,
      'A pool combines disks of any size. Spaces and volumes lie on it, and keep every byte when disks fail.',
    ),
    can('CreatePool') ? h('a', { class: 'button primary', href: '#/pools/new' }, 'Create a pool') : null,
  );
}

export function view() {
  const status = live.status;
  const jobs = openJobs();
  const all = points('all');
  const events = [...(live.events?.events ?? [])].slice(-8).reverse();
  return h(
    'div',
    { class: 'home' },
    h('h1', { class: 'unseen' }, 'Home'),
    hero(status),
    h(
      'div',
      { class: 'columns' },
      h(
        'div',
        null,
        status.pools.length ? card('Pools', pools().map(poolRow)) : first(),
        card(
          'Jobs',
          jobs.length ? jobs.map((job) => jobView(job)) : h('p', { class: 'quiet' }, 'No job runs or waits.'),
          h('p', null, h('a', { href: '#/jobs' }, 'All jobs')),
        ),
        card(
          'Last events',
          events.length ? eventList(events) : h('p', { class: 'quiet' }, 'Nothing has happened yet.'),
          h('p', null, h('a', { href: '#/events' }, 'All events')),
        ),
      ),
      h(
        'div',
        null,
        status.spaces.length
          ? h(
              'section',
              { class: 'card' },
              h('h2', null, 'Load of all spaces'),
              throughput(all),
              requests(all),
              h('p', null, h('a', { href: '#/performance' }, 'Performance')),
            )
          : null,
      ),
    ),
    h(
      'p',
      { class: 'quiet foot' },
      `Dolmen ${status.version.daemon}`,
      live.state === 'up' ? `, running for ${duration(uptime())}` : null,
    ),
  );
}
