// Shares: folders of volumes over SMB and NFS, what clients see of them, and the rights on them.

import { known } from './api.js';
import { propose } from './dialog.js';
import { h } from './dom.js';
import { command, plural, words } from './format.js';
import { action, card, empty, health, menu, pageHead, pill, reasons, table } from './parts.js';

const nameOf = (share) => share.name ?? String(share.number);
const volumeName = (share) => `${share.pool}/${share.volume}`;
const parametersOf = (share) => ({ pool: share.pool, space: share.volume, share: nameOf(share) });

// Each question makes the servers list their clients: with many shares, each is asked less often.
let shareCount = 0;
const sessionsOf = (share) => known('ListShareSessions', parametersOf(share), Math.max(10, shareCount));

const rw = (grant) => (grant.access === 'read_write' ? 'rw' : 'ro');
const accountWord = (account) => `${account.to === 'group' ? '@' : ''}${account.name}`;

/** Reads rights such as `anna:rw, @staff:ro`; each entry is `[who, access]`. */
export function readGrants(text) {
  return text
    .split(/[\s,;]+/)
    .filter(Boolean)
    .map((entry) => {
      const [, who, access] = /^(.*?)(?::(ro|rw))?$/.exec(entry);
      return [who, access === 'rw' ? 'read_write' : 'read_only'];
    });
}

const accountsOf = (text) =>
  readGrants(text).map(([who, access]) => ({
    to: who.startsWith('@') ? 'group' : 'user',
    name: who.replace(/^@/, ''),
    access,
  }));
const networksOf = (text) => readGrants(text).map(([client, access]) => ({ client, access }));

function input(label, name, model, redraw, hint, placeholder) {
  return h(
    'label',
    { class: 'field' },
    h('span', null, label),
    h('input', {
      type: 'text',
      name,
      spellcheck: 'false',
      placeholder,
      value: model[name] ?? '',
      oninput: (event) => {
        model[name] = event.target.value;
        redraw();
      },
    }),
    hint ? h('small', null, hint) : null,
  );
}

const GRANTS_HINT = 'Each with :ro or :rw, groups with @ in front: anna:rw, @staff:ro';
const NETWORKS_HINT = 'Addresses, networks or host names, each with :ro or :rw: 192.0.2.0/24:rw';

const check = (label, isOn, onchange) =>
  h(
    'label',
    { class: 'inline' },
    h('input', { type: 'checkbox', checked: isOn, onchange: (event) => onchange(event.target.checked) }),
    h('span', null, label),
  );

export function createShare(volume) {
  const volumes = known('ListAllVolumes', {}, 5)?.volumes.filter((each) => each.mount_state === 'mounted') ?? [];
  const target = { pool: volume?.pool ?? volumes[0]?.pool, space: volume?.name ?? volumes[0]?.name };
  const model0 = { isSmb: true, isNfs: false };
  const name = (model) => (model.name ?? '').trim();
  return propose({
    title: volume ? `New share on ${volume.pool}/${volume.name}` : 'New share',
    verb: 'CreateShare',
    parameters: target,
    label: 'Create the share',
    fields: (model, redraw) => [
      volume
        ? null
        : h(
            'label',
            { class: 'field' },
            h('span', null, 'Volume'),
            h(
              'select',
              {
                name: 'volume',
                value: `${target.pool}/${target.space}`,
                onchange: (event) => {
                  [target.pool, target.space] = event.target.value.split('/');
                  model.planKey = null;
                  redraw();
                },
              },
              volumes.map((each) => h('option', { value: `${each.pool}/${each.name}` }, `${each.pool}/${each.name}`)),
            ),
          ),
      input('Name that clients see', 'name', model, redraw),
      input('Folder in the volume', 'folder', model, redraw, 'Leave it empty for all of the volume.', 'docs/2026'),
      check('Over SMB, for Windows, macOS and Linux', model0.isSmb, (on) => {
        model0.isSmb = on;
        redraw();
      }),
      model0.isSmb ? input('Rights over SMB', 'accounts', model, redraw, GRANTS_HINT, 'anna:rw') : null,
      check('Over NFS', model0.isNfs, (on) => {
        model0.isNfs = on;
        redraw();
      }),
      model0.isNfs ? input('Rights over NFS', 'networks', model, redraw, NETWORKS_HINT, '192.0.2.0/24:rw') : null,
    ],
    isReady: (model) => name(model) !== '' && (model0.isSmb || model0.isNfs) && Boolean(target.space),
    body: (model) => ({
      name: name(model),
      protocols: [model0.isSmb && 'smb', model0.isNfs && 'nfs'].filter(Boolean),
      ...(model.folder?.trim() ? { folder: model.folder.trim() } : {}),
      ...(model0.isSmb ? { accounts: accountsOf(model.accounts ?? '') } : {}),
      ...(model0.isNfs ? { networks: networksOf(model.networks ?? '') } : {}),
    }),
    line: (model) =>
      command(
        'share',
        'create',
        `${target.pool}/${target.space}`,
        model.folder?.trim() && ['--path', model.folder.trim()],
        model0.isSmb ? ['--smb', name(model)] : ['--name', name(model)],
        model0.isSmb &&
          readGrants(model.accounts ?? '').map(([who, access]) => [
            '--grant',
            `${who}:${access === 'read_write' ? 'rw' : 'ro'}`,
          ]),
        model0.isNfs &&
          readGrants(model.networks ?? '').map(([who, access]) => [
            '--nfs',
            `${who}:${access === 'read_write' ? 'rw' : 'ro'}`,
          ]),
      ),
  });
}

function grant(share) {
  return propose({
    title: `Rights on ${nameOf(share)}`,
    verb: 'GrantShare',
    parameters: parametersOf(share),
    label: 'Grant',
    fields: (model, redraw) => [
      input('Users and groups over SMB', 'accounts', model, redraw, GRANTS_HINT),
      input('Hosts and networks over NFS', 'networks', model, redraw, NETWORKS_HINT),
    ],
    isReady: (model) => Boolean(model.accounts?.trim() || model.networks?.trim()),
    body: (model) => ({ accounts: accountsOf(model.accounts ?? ''), networks: networksOf(model.networks ?? '') }),
    line: (model) =>
      command(
        'share',
        'grant',
        volumeName(share),
        nameOf(share),
        accountsOf(model.accounts ?? '').map((each) => `${accountWord(each)}:${rw(each)}`),
        networksOf(model.networks ?? '').map((each) => ['--nfs', `${each.client}:${rw(each)}`]),
      ),
  });
}

function revoke(share) {
  const entries = [
    ...(share.accounts ?? []).map((each) => ['account', accountWord(each), { to: each.to, name: each.name }]),
    ...(share.networks ?? []).map((each) => ['network', each.client, each.client]),
  ];
  const chosen = new Set();
  const of = (kind) => entries.filter(([each, text]) => each === kind && chosen.has(`${kind} ${text}`));
  return propose({
    title: `Revoke rights on ${nameOf(share)}`,
    verb: 'RevokeShare',
    parameters: parametersOf(share),
    label: 'Revoke',
    isDanger: true,
    fields: (_, redraw) =>
      entries.map(([kind, text]) =>
        check(text, chosen.has(`${kind} ${text}`), (on) => {
          chosen[on ? 'add' : 'delete'](`${kind} ${text}`);
          redraw();
        }),
      ),
    isReady: () => chosen.size > 0,
    body: () => ({
      accounts: of('account').map(([, , account]) => account),
      clients: of('network').map(([, text]) => text),
    }),
    line: () =>
      command(
        'share',
        'revoke',
        volumeName(share),
        nameOf(share),
        of('account').map(([, text]) => text),
        of('network').map(([, text]) => ['--nfs', text]),
      ),
  });
}

const simple =
  (verb, share, title, text, label, word, more = {}) =>
  () =>
    propose({
      title,
      text,
      verb,
      parameters: parametersOf(share),
      label,
      line: () => command('share', word, volumeName(share), nameOf(share)),
      ...more,
    });

const STATE_KINDS = { up: 'healthy', answers: 'warning', down: 'unhealthy', unknown: '', off: '' };

export function sharesTable(shares) {
  return table(
    'Shares',
    [
      {
        title: 'Share',
        cell: (share) => [nameOf(share), ' ', share.health === 'healthy' ? null : health(share), reasons(share.why)],
      },
      {
        title: 'Folder',
        cell: (share) => [
          h(
            'a',
            { href: `#/volumes/${encodeURIComponent(share.pool)}/${encodeURIComponent(share.volume)}` },
            volumeName(share),
          ),
          share.folder ? `: ${share.folder}` : '',
        ],
      },
      {
        title: 'Served over',
        cell: (share) =>
          (share.protocols ?? []).map((offered) => [
            pill(STATE_KINDS[offered.state] ?? '', `${offered.protocol.toUpperCase()} ${words(offered.state)}`),
            ' ',
            offered.finding ? h('span', { class: 'cell-sub' }, offered.finding) : null,
          ]),
      },
      {
        title: 'Rights',
        cell: (share) =>
          [
            ...(share.accounts ?? []).map((each) => `${accountWord(each)}:${rw(each)}`),
            ...(share.networks ?? []).map((each) => `${each.client}:${rw(each)}`),
          ].join(', ') || h('span', { class: 'quiet' }, 'none'),
      },
      {
        title: 'Clients',
        isNumber: true,
        cell: (share) => {
          const sessions = sessionsOf(share)?.sessions;
          return sessions ? String(sessions.length) : '–';
        },
      },
      {
        title: '',
        cell: (share) =>
          menu(
            `More for ${nameOf(share)}`,
            action('GrantShare', 'Grant rights', () => grant(share)),
            (share.accounts?.length || share.networks?.length) &&
              action('RevokeShare', 'Revoke rights', () => revoke(share)),
            share.is_held &&
              action(
                'AcceptShare',
                'Accept rights of another host',
                simple(
                  'AcceptShare',
                  share,
                  `Accept ${nameOf(share)}`,
                  'The rights over NFS that another host gave become valid here.',
                  'Accept',
                  'accept',
                ),
              ),
            action(
              'DeleteShare',
              'Delete',
              simple(
                'DeleteShare',
                share,
                `Delete ${nameOf(share)}`,
                'Clients lose it. Its folder stays.',
                'Delete the share',
                'delete',
                { isDanger: true },
              ),
              'danger',
            ),
          ),
      },
    ],
    shares,
    (share) => `share-${share.pool}-${share.volume}-${share.number}`,
  );
}

function sessionsCard(shares) {
  const rows = shares.flatMap((share) =>
    (sessionsOf(share)?.sessions ?? []).map((session) => ({
      ...session,
      share: nameOf(share),
    })),
  );
  if (!rows.length) return null;
  return card(
    'Clients',
    table(
      'Clients of shares',
      [
        { title: 'Client', cell: (session) => session.client },
        { title: 'Share', cell: (session) => session.share },
        { title: 'User', cell: (session) => session.user },
        { title: 'Protocol', cell: (session) => [session.protocol.toUpperCase(), ` ${session.dialect}`] },
        { title: 'Encryption', cell: (session) => session.cipher ?? 'none' },
        { title: 'Open files', isNumber: true, cell: (session) => String(session.open_files) },
        { title: 'Since', cell: (session) => session.since },
      ],
      rows,
      (session) => `${session.share}-${session.client}-${session.user}`,
    ),
  );
}

export function view() {
  const document = known('ListAllShares', {}, 3);
  shareCount = document?.shares.length ?? 0;
  const mounted = known('ListAllVolumes', {}, 5)?.volumes.filter((volume) => volume.mount_state === 'mounted') ?? [];
  return h(
    'div',
    null,
    pageHead('Shares', mounted.length ? action('CreateShare', 'New share', () => createShare(), 'primary') : null),
    !document
      ? h('p', { class: 'quiet' }, 'Asking for the shares …')
      : document.shares.length
        ? [
            card(
              null,
              sharesTable(document.shares),
              h('p', { class: 'quiet' }, plural(document.shares.length, 'share')),
            ),
            sessionsCard(document.shares),
          ]
        : empty(
            mounted.length
              ? 'No folder is shared yet.'
              : 'No folder is shared. A share needs a volume that is mounted.',
          ),
  );
}
