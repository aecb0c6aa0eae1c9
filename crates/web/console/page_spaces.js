// Spaces: what they hold and promise, how they are protected, how fast they answer; and the trash.

import { known } from './api.js';
import { bar } from './chart.js';
import { propose } from './dialog.js';
import { h } from './dom.js';
import { points, recent, spaceKey } from './figures.js';
import {
  ago,
  bytes,
  command,
  count,
  duration,
  latency,
  losses,
  percent,
  plural,
  protection,
  rate,
  survives,
} from './format.js';
import { openJobs, poolOf, pools, spaceOf, spaces } from './live.js';
import { latencyChart, throughput } from './load_charts.js';
import { action, card, empty, facts, health, jobView, pageHead, pill, reasons, table } from './parts.js';
import { spaceActions } from './space_actions.js';
import { newSpace } from './wizard_space.js';

const link = (space) => `#/spaces/${encodeURIComponent(space.pool)}/${encodeURIComponent(space.name)}`;

const volumes = () => known('ListAllVolumes', {}, 5)?.volumes ?? [];
const volumeOf = (space) =>
  volumes().find((volume) => volume.pool === space.pool && volume.name === space.name && volume.state !== 'foreign');

function latencyNow(space) {
  const rates = recent(spaceKey(space.pool, space.name), 10);
  return rates?.p95
    ? [latency(rates.p95), h('span', { class: 'cell-sub' }, `${count(rates.readIo + rates.writeIo)}/s`)]
    : '–';
}

function use(space) {
  const uses = [space.attached_at && 'attached', space.served_at && 'served', volumeOf(space) && 'volume'].filter(
    Boolean,
  );
  return uses.length ? uses.join(', ') : h('span', { class: 'quiet' }, 'unused');
}

function trash() {
  const document = known('ListAllTrash', {}, 5);
  if (!document?.spaces.length) return null;
  const name = (space) =>
    `${space.pool}/${document.spaces.filter((each) => each.pool === space.pool && each.name === space.name).length > 1 ? space.id : space.name}`;
  const restore = (space) =>
    propose({
      title: `Restore ${space.pool}/${space.name}`,
      verb: 'RestoreSpace',
      parameters: { pool: space.pool, space: String(space.id) },
      label: 'Restore',
      text: 'It comes back with all that it holds.',
      fields: (model, redraw) =>
        h(
          'label',
          { class: 'field' },
          h('span', null, 'Name'),
          h('input', {
            type: 'text',
            value: model.name ?? space.name,
            oninput: (event) => {
              model.name = event.target.value;
              redraw();
            },
          }),
        ),
      body: (model) => ((model.name ?? space.name) === space.name ? {} : { name: model.name }),
      line: (model) =>
        command('trash', 'restore', name(space), (model.name ?? space.name) !== space.name && ['--as', model.name]),
    });
  const purge = (space) =>
    propose({
      title: `Purge ${space.pool}/${space.name}`,
      verb: 'PurgeTrash',
      parameters: { pool: space.pool },
      label: 'Purge',
      isDanger: true,
      typed: space.name,
      text: `All that it holds is lost. ${bytes(space.footprint_bytes)} become free.`,
      body: (model) => ({ spaces: [String(space.id)], destroy: model.typed ?? '' }),
      shown: () => ({ spaces: [String(space.id)] }),
      line: () => command('trash', 'purge', `${space.pool}/${space.id}`, '--destroy', space.name),
    });
  return card(
    'Trash',
    table(
      'Deleted spaces',
      [
        { title: 'Space', cell: (space) => `${space.pool}/${space.name}` },
        { title: 'Protection', cell: (space) => protection(space) },
        { title: 'Size', isNumber: true, cell: (space) => bytes(space.size_bytes) },
        { title: 'Room', isNumber: true, cell: (space) => bytes(space.footprint_bytes) },
        {
          title: 'Deleted',
          cell: (space) => (space.trashed_s ? ago(space.trashed_s, document.now_s) : 'being purged'),
        },
        {
          title: 'Kept for',
          cell: (space) =>
            space.stays_s !== null && space.stays_s !== undefined
              ? `${duration(space.stays_s)} more`
              : space.can_be_restored
                ? 'ever'
                : '–',
        },
        {
          title: '',
          cell: (space) =>
            h(
              'div',
              { class: 'actions' },
              space.can_be_restored && action('RestoreSpace', 'Restore', () => restore(space), 'small'),
              space.can_be_restored && action('PurgeTrash', 'Purge', () => purge(space), 'small'),
            ),
        },
      ],
      document.spaces,
      (space) => `trash-${space.pool}-${space.id}`,
    ),
  );
}

function list() {
  const all = spaces();
  return h(
    'div',
    null,
    pageHead(
      'Spaces',
      pools().length ? action('CreateSpace', 'New space or volume', () => newSpace(), 'primary') : null,
    ),
    all.length
      ? card(
          null,
          table(
            'Spaces',
            [
              {
                title: 'Space',
                cell: (space) => [
                  h('a', { href: link(space) }, `${space.pool}/${space.name}`),
                  ' ',
                  space.health === 'healthy' ? null : health(space),
                ],
              },
              {
                title: 'Protection',
                cell: (space) => [
                  protection(space),
                  h(
                    'span',
                    { class: 'cell-sub' },
                    space.converted_from
                      ? `being converted from ${protection(space.converted_from)}`
                      : losses(survives(space)),
                  ),
                ],
              },
              { title: 'Size', isNumber: true, cell: (space) => bytes(space.size_bytes) },
              {
                title: 'Written',
                isNumber: true,
                cell: (space) => [
                  bytes(space.claimed_bytes),
                  h('span', { class: 'cell-sub' }, percent(space.claimed_bytes, space.size_bytes)),
                ],
              },
              {
                title: 'Promised',
                isNumber: true,
                cell: (space) =>
                  space.provisioning === 'fixed' ? 'fixed' : bytes(Math.max(0, space.size_bytes - space.claimed_bytes)),
              },
              { title: 'Room', isNumber: true, cell: (space) => bytes(space.footprint_bytes) },
              { title: 'Latency', isNumber: true, cell: latencyNow },
              { title: 'Use', cell: use },
              { title: '', cell: (space) => spaceActions(space, Boolean(volumeOf(space))) },
            ],
            all,
            (space) => `space-${space.pool}-${space.name}`,
          ),
          h(
            'p',
            { class: 'quiet' },
            'Written is what room is claimed for, promised what a thin space may claim in addition. Room counts copies, parity and tables. Latency is that of 95 of 100 requests of the last seconds.',
          ),
        )
      : empty(
          pools().length
            ? 'There is no space yet. A space is a virtual disk on a pool.'
            : 'There is no pool yet, so there is no space.',
        ),
    trash(),
  );
}

function access(space) {
  const attached = known('ListAttachments', {}, 5)?.attachments.find(
    (each) => each.pool === space.pool && each.space === space.name,
  );
  const served = known('ListExports', {}, 5)?.exports.find(
    (each) => each.pool === space.pool && each.space === space.name,
  );
  if (!attached && !served) return card('Access', h('p', { class: 'quiet' }, 'It is neither attached nor served.'));
  return card(
    'Access',
    facts(
      attached && ['Block device', h('code', null, attached.path)],
      attached && ['Device', `${attached.device}, over ${attached.transport}`],
      attached?.used_by.length && ['Used by', attached.used_by.join(', ')],
      attached && [
        'When the daemon ends',
        attached.survives_daemon ? 'requests wait for the next daemon' : 'requests fail',
      ],
      served && ['NBD address', h('code', null, served.uri)],
      served?.network && ['On a network', h('code', null, served.network.uri)],
      served?.network?.problem && ['Problem', served.network.problem],
      served && ['Clients', `${plural(served.client_count, 'client')}${served.is_read_only ? ', read-only' : ''}`],
    ),
  );
}

function detail(poolName, name) {
  const space = spaceOf(poolName, name);
  if (!space)
    return h(
      'div',
      null,
      pageHead('Space'),
      empty(`There is no space ${poolName}/${name}.`, h('a', { href: '#/spaces' }, 'All spaces')),
    );
  const volume = volumeOf(space);
  const history = points(spaceKey(poolName, name));
  const jobs = openJobs(poolName).filter((job) => job.subject.includes(`${poolName}/${name}`));
  const limit = space.limits;
  return h(
    'div',
    null,
    h(
      'p',
      { class: 'crumbs' },
      h('a', { href: '#/spaces' }, 'Spaces'),
      ' / ',
      h('a', { href: `#/pools/${encodeURIComponent(poolName)}` }, poolName),
    ),
    pageHead(name, health(space), spaceActions(space, Boolean(volume), true)),
    space.why.length ? h('div', { class: 'note warn' }, reasons(space.why)) : null,
    jobs.length
      ? card(
          'Jobs',
          jobs.map((job) => jobView(job)),
        )
      : null,
    h(
      'div',
      { class: 'columns' },
      h(
        'div',
        null,
        card(
          'Live load',
          throughput(history),
          latencyChart(history, ['p50', 'p95', 'p99']),
        ),
      ),
      h(
        'div',
        null,
        card(
          'Room',
          bar(
            [['used', space.claimed_bytes]],
            space.size_bytes,
            `${bytes(space.claimed_bytes)} of ${bytes(space.size_bytes)} written`,
          ),
          facts(
            ['Size', bytes(space.size_bytes)],
            ['Written', `${bytes(space.claimed_bytes)}, ${percent(space.claimed_bytes, space.size_bytes)}`],
            [
              'Promised',
              space.provisioning === 'fixed'
                ? 'nothing: all is claimed'
                : bytes(Math.max(0, space.size_bytes - space.claimed_bytes)),
            ],
            ['Room on all disks', bytes(space.footprint_bytes)],
            space.reserve_bytes > 0 && [
              'Reserve',
              `${bytes(space.reserve_bytes)}, ${bytes(space.reserve_unused_bytes)} of it never written`,
            ],
          ),
        ),
        card(
          'Layout',
          facts(
            ['Protection', `${protection(space)}, ${losses(survives(space))}`],
            space.converted_from && ['Converted from', protection(space.converted_from)],
            ['Data columns', space.columns ?? 'chosen for each row'],
            ['Interleave', bytes(space.interleave_bytes)],
            ['Row', bytes(space.row_bytes)],
            ['Provisioning', space.provisioning],
            ['Overwrites', space.integrity === 'strict' ? 'strict, through a write cache' : 'relaxed, in place'],
            ['Logical sector', bytes(space.sector_bytes)],
          ),
        ),
        card(
          'Limits',
          limit
            ? facts(
                limit.iops_max && ['At most', `${count(limit.iops_max)} requests/s`],
                limit.bytes_per_s_max && ['At most', rate(limit.bytes_per_s_max)],
                limit.iops_min && ['Left to it', `${count(limit.iops_min)} requests/s`],
                limit.bytes_per_s_min && ['Left to it', rate(limit.bytes_per_s_min)],
              )
            : h('p', { class: 'quiet' }, 'None.'),
        ),
        volume
          ? card(
              'Volume',
              h(
                'p',
                null,
                h(
                  'a',
                  { href: `#/volumes/${encodeURIComponent(poolName)}/${encodeURIComponent(name)}` },
                  `Volume ${name}`,
                ),
                ' ',
                pill(volume.mount_state === 'mounted' ? 'healthy' : '', volume.mount_state),
              ),
            )
          : null,
        access(space),
      ),
    ),
  );
}

export function view(parts) {
  if (parts[0] === 'new' && !poolOf('new')) {
    const pool = parts[1];
    history.replaceState(null, '', '#/spaces');
    parts.length = 0;
    setTimeout(() => newSpace(pool), 0);
  }
  return parts.length >= 2 ? detail(parts[0], parts[1]) : list();
}
