// Volumes: file systems on spaces, with their use, quotas and deduplication.

import { known } from './api.js';
import { bar } from './chart.js';
import { dedupCard, saved } from './dedup.js';
import { propose } from './dialog.js';
import { h } from './dom.js';
import { bytes, command, count, day, duration, percent, sizeWord, words } from './format.js';
import { now, openJobs, pools, spaceOf } from './live.js';
import { action, card, empty, facts, health, jobView, menu, pageHead, pill, reasons, table } from './parts.js';
import { createShare, sharesTable } from './page_shares.js';
import { bytesOf, sizeField } from './size_field.js';
import { spaceActions } from './space_actions.js';
import { newSpace } from './wizard_space.js';

const link = (volume) => `#/volumes/${encodeURIComponent(volume.pool)}/${encodeURIComponent(volume.name)}`;
const nameOf = (volume) => `${volume.pool}/${volume.name}`;
const parametersOf = (volume) => ({ pool: volume.pool, space: volume.name });

const usedOf = (volume) =>
  volume.total_bytes !== null && volume.total_bytes !== undefined && volume.free_bytes !== null
    ? volume.total_bytes - volume.free_bytes
    : null;

function fills(volume) {
  if (volume.days_until_full === null || volume.days_until_full === undefined) return null;
  return h(
    'span',
    { class: volume.days_until_full < 14 ? 'warn-text' : '' },
    `about ${day(now() + volume.days_until_full * 86400)}`,
  );
}

function mountState(volume) {
  const kind = volume.mount_state === 'mounted' ? 'healthy' : volume.is_to_be_mounted ? 'warning' : '';
  return pill(kind, words(volume.mount_state ?? volume.state));
}

function list() {
  const document = known('ListAllVolumes', {}, 3);
  const all = document?.volumes ?? [];
  return h(
    'div',
    null,
    pageHead('Volumes', pools().length ? action('CreateVolume', 'New volume', () => newSpace(), 'primary') : null),
    !document
      ? h('p', { class: 'quiet' }, 'Asking for the volumes …')
      : all.length
        ? card(
            null,
            table(
              'Volumes',
              [
                {
                  title: 'Volume',
                  cell: (volume) => [
                    h('a', { href: link(volume) }, nameOf(volume)),
                    ' ',
                    volume.health === 'healthy' ? null : health(volume),
                  ],
                },
                {
                  title: 'File system',
                  cell: (volume) => [
                    volume.file_system ?? words(volume.state),
                    volume.purpose ? h('span', { class: 'cell-sub' }, `for ${volume.purpose}`) : null,
                  ],
                },
                {
                  title: 'Used',
                  isNumber: true,
                  cell: (volume) =>
                    usedOf(volume) === null
                      ? '–'
                      : [
                          bytes(usedOf(volume)),
                          h('span', { class: 'cell-sub' }, percent(usedOf(volume), volume.total_bytes)),
                        ],
                },
                { title: 'Size', isNumber: true, cell: (volume) => bytes(volume.size_bytes) },
                ...(all.some(fills) ? [{ title: 'Full', cell: (volume) => fills(volume) ?? '–' }] : []),
                { title: 'Saved', isNumber: true, cell: (volume) => saved(volume) },
                {
                  title: 'Mounted at',
                  cell: (volume) => [volume.mounted_at ?? volume.mount_point ?? '–', ' ', mountState(volume)],
                },
              ],
              all,
              (volume) => `volume-${nameOf(volume)}`,
            ),
            h('p', { class: 'quiet' }, 'Saved is what the last deduplication shared and gave back.'),
          )
        : empty('There is no volume yet. A volume is a file system on a space, mounted with its pool.'),
  );
}

function simple(verb, volume, title, text, label, line, more = {}) {
  return () =>
    propose({ title, text, verb, parameters: parametersOf(volume), label, line: () => command(line), ...more });
}

function mount(volume) {
  const name = nameOf(volume);
  const verb = volume.state === 'foreign' ? 'AdoptVolume' : 'MountVolume';
  const wanted = (model) => (model.at ?? volume.mount_point ?? '').trim();
  return propose({
    title: verb === 'AdoptVolume' ? `Adopt ${name}` : `Mount ${name}`,
    verb,
    parameters: parametersOf(volume),
    label: verb === 'AdoptVolume' ? 'Adopt it' : 'Mount it',
    text:
      verb === 'AdoptVolume'
        ? 'The space has a file system that Dolmen did not make. It becomes a volume; nothing is written to it.'
        : 'It is mounted now and whenever its pool is opened.',
    fields: (model, redraw) =>
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Mounted at'),
        h('input', {
          type: 'text',
          value: model.at ?? volume.mount_point ?? '',
          placeholder: `/srv/${name}`,
          oninput: (event) => {
            model.at = event.target.value;
            redraw();
          },
        }),
      ),
    body: (model) => (wanted(model) && wanted(model) !== volume.mount_point ? { mount_point: wanted(model) } : {}),
    line: (model) =>
      command(
        'volume',
        verb === 'AdoptVolume' ? 'adopt' : 'mount',
        name,
        wanted(model) && wanted(model) !== volume.mount_point && ['--mount', wanted(model)],
      ),
  });
}

function check(volume) {
  const name = nameOf(volume);
  return propose({
    title: `Check ${name}`,
    verb: 'CheckVolume',
    parameters: parametersOf(volume),
    label: 'Check it',
    text: 'A mounted btrfs is scrubbed; any other file system must not be mounted. A repair needs it unmounted, may lose parts of files, and wants the name typed.',
    typed: (model) => model.isRepair && volume.name,
    fields: (model, redraw) =>
      h(
        'label',
        { class: 'inline' },
        h('input', {
          type: 'checkbox',
          checked: Boolean(model.isRepair),
          onchange: (event) => {
            model.isRepair = event.target.checked;
            redraw();
          },
        }),
        h('span', null, 'Repair what is found'),
      ),
    body: (model) => (model.isRepair ? { repair: true, destroy: model.typed ?? '' } : {}),
    shown: (body) => (body.repair ? { repair: true } : {}),
    line: (model) => command('volume', 'check', name, model.isRepair && ['--repair', '--destroy', volume.name]),
  });
}

function actions(volume) {
  const name = nameOf(volume);
  const space = spaceOf(volume.pool, volume.name);
  const isMounted = volume.mount_state === 'mounted';
  const more = [
    isMounted &&
      action(
        'UnmountVolume',
        'Unmount',
        simple(
          'UnmountVolume',
          volume,
          `Unmount ${name}`,
          'It stays unmounted until it is mounted again. Its shares are taken off.',
          'Unmount',
          ['volume', 'unmount', name],
        ),
      ),
    isMounted &&
      action(
        'CompactVolume',
        'Compact',
        simple(
          'CompactVolume',
          volume,
          `Compact ${name}`,
          'A job empties rows that hold little, and gives them back to the pool.',
          'Compact',
          ['volume', 'compact', name],
        ),
      ),
    !isMounted && action('CheckVolume', 'Check', () => check(volume)),
  ];
  return [
    isMounted
      ? action(
          'TrimVolume',
          'Trim',
          simple(
            'TrimVolume',
            volume,
            `Trim ${name}`,
            'Free room of the file system is given back to the pool.',
            'Trim',
            ['volume', 'trim', name],
          ),
        )
      : action(
          volume.state === 'foreign' ? 'AdoptVolume' : 'MountVolume',
          volume.state === 'foreign' ? 'Adopt' : 'Mount',
          () => mount(volume),
          'primary',
        ),
    space ? spaceActions(space, volume.state !== 'foreign', true, more) : menu(`More for ${name}`, more),
  ];
}

function setQuota(volume, quota) {
  const size = quota?.limit_bytes
    ? { value: String(quota.limit_bytes / 2 ** 30), unit: 'GiB' }
    : { value: '', unit: 'GiB' };
  const folder = (model) => (model.folder ?? quota?.folder ?? '').trim();
  const files = (model) => Number(model.files ?? quota?.limit_files ?? 0) || null;
  return propose({
    title: quota ? `Quota of ${quota.folder}` : `New quota on ${nameOf(volume)}`,
    verb: 'SetQuota',
    parameters: parametersOf(volume),
    label: 'Save',
    text: 'A folder that is missing is made. An empty field is no limit.',
    fields: (model, redraw) => [
      quota
        ? null
        : h(
            'label',
            { class: 'field' },
            h('span', null, 'Folder in the volume'),
            h('input', {
              type: 'text',
              name: 'folder',
              placeholder: 'docs/2026',
              value: model.folder ?? '',
              oninput: (event) => {
                model.folder = event.target.value;
                redraw();
              },
            }),
          ),
      sizeField('Most that it may hold', size, redraw),
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Most files and folders'),
        h('input', {
          type: 'number',
          min: 0,
          value: model.files ?? quota?.limit_files ?? '',
          oninput: (event) => {
            model.files = event.target.value;
            redraw();
          },
        }),
      ),
    ],
    isReady: (model) => folder(model) !== '' && Boolean(bytesOf(size) || files(model)),
    body: (model) => ({
      folder: folder(model),
      ...(bytesOf(size) ? { limit_bytes: bytesOf(size) } : {}),
      ...(files(model) ? { limit_files: files(model) } : {}),
    }),
    line: (model) =>
      command(
        'volume',
        'quota',
        'set',
        nameOf(volume),
        folder(model),
        bytesOf(size) ? sizeWord(bytesOf(size)) : 'none',
        files(model) && ['--files', files(model)],
      ),
  });
}

function removeQuota(volume, quota) {
  return propose({
    title: `Remove the quota of ${quota.folder}`,
    text: 'The content of the folder stays.',
    verb: 'RemoveQuota',
    parameters: parametersOf(volume),
    label: 'Remove',
    body: () => ({ folder: quota.folder }),
    line: () => command('volume', 'quota', 'remove', nameOf(volume), quota.folder),
  });
}

function quotasCard(volume) {
  const document = known('ListQuotas', parametersOf(volume), 5);
  if (!document) return null;
  return h(
    'section',
    { class: 'card' },
    h(
      'div',
      { class: 'card-head' },
      h('h2', null, 'Quotas'),
      h(
        'span',
        { class: 'end' },
        action('SetQuota', 'New quota', () => setQuota(volume)),
      ),
    ),
    document.unavailable ? h('p', { class: 'quiet' }, document.unavailable) : null,
    document.quotas.length
      ? table(
          'Quotas',
          [
            {
              title: 'Folder',
              cell: (quota) => [
                quota.folder,
                quota.why?.length ? h('span', { class: 'cell-sub warn-text' }, quota.why.join('; ')) : null,
              ],
            },
            {
              title: 'Used',
              isNumber: true,
              cell: (quota) =>
                quota.used_bytes === null || quota.used_bytes === undefined ? '–' : bytes(quota.used_bytes),
            },
            {
              title: 'Limit',
              isNumber: true,
              cell: (quota) => (quota.limit_bytes ? bytes(quota.limit_bytes) : 'none'),
            },
            {
              title: 'Files',
              isNumber: true,
              cell: (quota) =>
                quota.used_files === null || quota.used_files === undefined
                  ? '–'
                  : `${count(quota.used_files)}${quota.limit_files ? ` of ${count(quota.limit_files)}` : ''}`,
            },
            {
              title: '',
              cell: (quota) =>
                h(
                  'div',
                  { class: 'actions' },
                  action('SetQuota', 'Change', () => setQuota(volume, quota), 'small'),
                  action('RemoveQuota', 'Remove', () => removeQuota(volume, quota), 'small'),
                ),
            },
          ],
          document.quotas,
          (quota) => `quota-${quota.folder}`,
        )
      : h('p', { class: 'quiet' }, 'No folder is bounded.'),
  );
}

function detail(pool, name) {
  const document = known('ListAllVolumes', {}, 3);
  const volume = document?.volumes.find((each) => each.pool === pool && each.name === name);
  if (!volume)
    return h(
      'div',
      null,
      pageHead(name),
      document
        ? empty(`There is no volume ${pool}/${name}.`, h('a', { href: '#/volumes' }, 'All volumes'))
        : h('p', { class: 'quiet' }, 'Asking for the volume …'),
    );
  const used = usedOf(volume);
  const jobs = openJobs(pool).filter((job) => job.subject.includes(nameOf(volume)));
  const shares = known('ListAllShares', {}, 5)?.shares.filter((share) => share.pool === pool && share.volume === name);
  return h(
    'div',
    null,
    h(
      'p',
      { class: 'crumbs' },
      h('a', { href: '#/volumes' }, 'Volumes'),
      ' / ',
      h('a', { href: `#/pools/${encodeURIComponent(pool)}` }, pool),
    ),
    pageHead(name, health(volume), actions(volume)),
    volume.why.length ? h('div', { class: 'note warn' }, reasons(volume.why)) : null,
    volume.errors?.length ? h('div', { class: 'note bad' }, reasons(volume.errors)) : null,
    volume.worker
      ? h('p', { class: 'note' }, `${volume.worker.operation} for ${duration(volume.worker.elapsed_s)}`)
      : null,
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
          'Use',
          used === null
            ? h('p', { class: 'quiet' }, 'What the file system holds is not known at the moment.')
            : bar([['used', used]], volume.total_bytes, `${bytes(used)} of ${bytes(volume.total_bytes)} used`),
          facts(
            used !== null && [
              'Used',
              `${bytes(used)} of ${bytes(volume.total_bytes)}, ${percent(used, volume.total_bytes)}`,
            ],
            used !== null && ['Free', bytes(volume.free_bytes)],
            ['Size of its space', bytes(volume.size_bytes)],
            ['Claimed in the pool', bytes(volume.claimed_bytes)],
            volume.inodes && ['Inodes', `${count(volume.inodes - volume.free_inodes)} of ${count(volume.inodes)} used`],
            ['Full', fills(volume)],
          ),
        ),
        dedupCard(volume),
      ),
      h(
        'div',
        null,
        card(
          'File system',
          facts(
            ['Kind', volume.file_system],
            ['Purpose', volume.purpose],
            ['State', words(volume.state)],
            ['Mounted', mountState(volume)],
            ['Mount point', volume.mounted_at ?? volume.mount_point],
            ['Device', volume.device],
            ['Label', volume.label],
            volume.mount_options?.length && ['Mount options', volume.mount_options.join(', ')],
            ['UUID', volume.uuid && h('code', null, volume.uuid)],
            [
              'Space',
              h('a', { href: `#/spaces/${encodeURIComponent(pool)}/${encodeURIComponent(name)}` }, nameOf(volume)),
            ],
          ),
        ),
      ),
    ),
    quotasCard(volume),
    h(
      'section',
      { class: 'card' },
      h(
        'div',
        { class: 'card-head' },
        h('h2', null, 'Shares'),
        h(
          'span',
          { class: 'end' },
          action('CreateShare', 'New share', () => createShare(volume)),
        ),
      ),
      shares?.length ? sharesTable(shares) : h('p', { class: 'quiet' }, 'No folder of this volume is shared.'),
    ),
  );
}

export function view(parts) {
  return parts.length >= 2 ? detail(parts[0], parts[1]) : list();
}
