// What can be done with a pool, apart from its wizards.

import { propose } from './dialog.js';
import { h } from './dom.js';
import { command, plural } from './format.js';
import { action, menu } from './parts.js';

/** A change of a pool that needs no further input. */
export function simplePoolAction(verb, pool, title, text, label, line, more = {}) {
  return () =>
    propose({ title, text, verb, parameters: { pool: pool.name }, label, line: () => command(line), ...more });
}

function setting(pool, { verb, title, text, label, value, body, words: wordsOf, isReady, type = 'number' }) {
  return () =>
    propose({
      title,
      text,
      verb,
      parameters: { pool: pool.name },
      label: 'Save',
      isReady,
      fields: (model, redraw) =>
        h(
          'label',
          { class: 'field' },
          h('span', null, label),
          h('input', {
            type,
            min: 0,
            value: model.value ?? value,
            oninput: (event) => {
              model.value = event.target.value;
              redraw();
            },
          }),
        ),
      body: (model) => body(model.value ?? String(value)),
      line: (model) => command('pool', 'set', pool.name, wordsOf(model.value ?? String(value))),
    });
}

const percents = (text) =>
  text
    .split(/[ ,;]+/)
    .map(Number)
    .filter((value) => value > 0);

/** Further actions of a pool. */
export function poolMenu(pool) {
  const name = pool.name;
  return menu(
    `More for ${name}`,
    action(
      'RebalancePool',
      'Rebalance',
      simplePoolAction(
        'RebalancePool',
        pool,
        `Rebalance ${name}`,
        'A job moves data from full disks to emptier ones.',
        'Rebalance',
        ['pool', 'rebalance', name],
      ),
    ),
    action(
      'ResyncPool',
      'Resync',
      simplePoolAction(
        'ResyncPool',
        pool,
        `Resync ${name}`,
        'A job copies to disks what they have missed. It begins by itself, too.',
        'Resync',
        ['pool', 'resync', name],
      ),
    ),
    action(
      'AcknowledgeErrors',
      'Acknowledge errors',
      simplePoolAction(
        'AcknowledgeErrors',
        pool,
        `Acknowledge errors in ${name}`,
        'The warnings about errors that have been seen end, until there are more.',
        'Acknowledge',
        ['pool', 'acknowledge', name],
      ),
    ),
    action(
      'SetRepairAfter',
      'Repair delay',
      setting(pool, {
        verb: 'SetRepairAfter',
        title: `Repair delay of ${name}`,
        text: 'When a disk is absent for that long, what it held is rebuilt on the others. 0 is never.',
        label: 'Seconds',
        value: pool.repair_after_s ?? 1800,
        body: (value) => ({ seconds: Number(value) }),
        words: (value) => ['--repair-after', Number(value) ? `${Number(value)}s` : 'never'],
      }),
    ),
    action(
      'SetKeepRoom',
      'Room for repairs',
      setting(pool, {
        verb: 'SetKeepRoom',
        title: `Room for repairs in ${name}`,
        text: 'Room is kept so that the loss of so many disks, the largest first, can be repaired on the others.',
        label: 'Lost disks',
        value: pool.keep_room_for ?? 0,
        body: (value) => ({ losses: Number(value) }),
        words: (value) => ['--keep-room-for', String(Number(value))],
      }),
    ),
    action(
      'SetAlertAt',
      'Warn when full',
      setting(pool, {
        verb: 'SetAlertAt',
        type: 'text',
        title: `When ${name} warns`,
        text: 'From these percents of fullness on, the status warns. The word never ends that.',
        label: 'Percents, such as 80, 90',
        value: '',
        isReady: (model) => percents(model.value ?? '').length > 0 || model.value?.trim() === 'never',
        body: (value) => ({ percents: percents(value) }),
        words: (value) => ['--alert-at', percents(value).join(',') || 'never'],
      }),
    ),
    action(
      'ExportPool',
      'Export',
      simplePoolAction(
        'ExportPool',
        pool,
        `Export ${name}`,
        'The pool is closed and given up, so that any host may import it.',
        'Export',
        ['pool', 'export', name],
      ),
    ),
    action(
      'DestroyPool',
      'Destroy',
      () =>
        propose({
          title: `Destroy ${name}`,
          text: `The pool and all that its ${plural(pool.space_count, 'space')} hold are lost.`,
          verb: 'DestroyPool',
          parameters: { pool: name },
          label: 'Destroy the pool',
          isDanger: true,
          typed: name,
          body: (model) => ({ destroy: model.typed ?? '' }),
          shown: () => ({}),
          line: () => command('pool', 'destroy', name, '--destroy', name),
          done: () => {
            location.hash = '#/pools';
          },
        }),
      'danger',
    ),
  );
}

/** Opens a pool that is not open here; `found` is its name, where it is known. */
export function importPool(found = '') {
  const nameOf = (model) => (model.name ?? found).trim();
  return propose({
    title: 'Import a pool',
    text: 'Opens a pool that is on disks of this host and not open.',
    verb: 'ImportPool',
    parameters: {},
    label: 'Import',
    typed: (model) => model.isConfirmed && (nameOf(model) || 'the name of the pool'),
    fields: (model, redraw) => [
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Name or id of the pool'),
        h('input', {
          type: 'text',
          value: nameOf(model),
          oninput: (event) => {
            model.name = event.target.value;
            redraw();
          },
        }),
      ),
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Where to look, if not among the disks of the system'),
        h('input', {
          type: 'text',
          value: model.path ?? '',
          placeholder: '/path/of/a/folder',
          oninput: (event) => {
            model.path = event.target.value;
            redraw();
          },
        }),
      ),
      h(
        'label',
        { class: 'inline' },
        h('input', {
          type: 'checkbox',
          checked: Boolean(model.isRead),
          onchange: (event) => {
            Object.assign(model, { isRead: event.target.checked, isConfirmed: false, isAccepted: false });
            redraw();
          },
        }),
        h('span', null, 'Open it for reading only'),
      ),
      h(
        'label',
        { class: 'inline' },
        h('input', {
          type: 'checkbox',
          name: 'confirmed',
          checked: Boolean(model.isConfirmed),
          onchange: (event) => {
            Object.assign(model, { isConfirmed: event.target.checked, isRead: false });
            redraw();
          },
        }),
        h(
          'span',
          null,
          'Open it for writing although disks are missing and another host used it last: those disks are in use nowhere',
        ),
      ),
      h(
        'label',
        { class: 'inline' },
        h('input', {
          type: 'checkbox',
          name: 'accept',
          checked: Boolean(model.isAccepted),
          onchange: (event) => {
            Object.assign(model, { isAccepted: event.target.checked, isRead: false });
            redraw();
          },
        }),
        h(
          'span',
          null,
          'Accept what another host set: mount points of its volumes, and rights over NFS on its shares',
        ),
      ),
    ],
    isReady: (model) => Boolean(nameOf(model) || (model.path?.trim() && !model.isConfirmed)),
    body: (model) => ({
      ...(nameOf(model) ? { pool: nameOf(model) } : {}),
      ...(model.path?.trim() ? { paths: [model.path.trim()] } : {}),
      ...(model.isRead ? { mode: 'read' } : model.isConfirmed ? { mode: 'confirmed' } : {}),
      ...(model.isAccepted ? { accept: true } : {}),
    }),
    line: (model) =>
      command(
        'pool',
        'import',
        model.isRead && '--read-only',
        model.isConfirmed && '--confirmed',
        model.isAccepted && '--accept',
        nameOf(model) && ['--pool', nameOf(model)],
        model.path?.trim(),
      ),
  });
}
