// What can be done with a disk.

import { h } from './dom.js';
import { propose } from './dialog.js';
import { command, diskName, shellWord } from './format.js';
import { openJobs } from './live.js';
import { action, menu } from './parts.js';
import { replaceDisk } from './wizard_replace.js';

function of(pool, disk) {
  const parameters = { pool: pool.name, disk: String(disk.slot) };
  const line =
    (...words) =>
    () =>
      command('disk', words[0], pool.name, disk.slot, words.slice(1));
  return { parameters, line, name: diskName(disk) };
}

export function locate(pool, disk) {
  const { parameters, name } = of(pool, disk);
  return propose({
    title: `Locate ${name}`,
    verb: 'LocateDisk',
    parameters,
    label: 'Apply',
    fields: (model, redraw) =>
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Show where it is'),
        h(
          'select',
          {
            value: model.seconds ?? '60',
            onchange: (event) => {
              model.seconds = event.target.value;
              redraw();
            },
          },
          [
            ['60', 'for a minute'],
            ['300', 'for 5 minutes'],
            ['3600', 'for an hour'],
            ['off', 'end it'],
          ].map(([value, text]) => h('option', { value }, text)),
        ),
      ),
    body: (model) => (model.seconds === 'off' ? { off: true } : { seconds: Number(model.seconds ?? 60) }),
    line: (model) =>
      command(
        'disk',
        'locate',
        pool.name,
        disk.slot,
        model.seconds === 'off' ? '--off' : ['--seconds', model.seconds ?? 60],
      ),
  });
}

function setBay(pool, disk) {
  const { parameters, name } = of(pool, disk);
  return propose({
    title: `Bay of ${name}`,
    verb: 'SetDisk',
    parameters,
    label: 'Save',
    text: 'The name of the bay is shown wherever somebody may have to take the disk in hand.',
    fields: (model, redraw) =>
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Name of the bay'),
        h('input', {
          type: 'text',
          maxlength: 64,
          value: model.bay ?? disk.bay ?? '',
          oninput: (event) => {
            model.bay = event.target.value;
            redraw();
          },
        }),
      ),
    body: (model) => ({ bay: model.bay ?? disk.bay ?? '' }),
    line: (model) =>
      `${command('disk', 'set', pool.name, disk.slot, '--bay')} ${shellWord(model.bay ?? disk.bay ?? '')}`,
  });
}

function setEnclosure(pool, disk) {
  const { parameters, name } = of(pool, disk);
  const valueOf = (model) => (model.enclosure ?? disk.enclosure ?? '').trim();
  return propose({
    title: `Enclosure of ${name}`,
    verb: 'SetEnclosure',
    parameters,
    label: 'Save',
    text: 'Disks in one enclosure may fail as one. Copies are laid on disks in different ones. Leave it empty for a disk that stands alone.',
    fields: (model, redraw) =>
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Name of the enclosure'),
        h('input', {
          type: 'text',
          value: model.enclosure ?? disk.enclosure ?? '',
          oninput: (event) => {
            model.enclosure = event.target.value;
            redraw();
          },
        }),
      ),
    body: (model) => (valueOf(model) ? { name: valueOf(model) } : {}),
    line: (model) =>
      command('disk', 'set', pool.name, disk.slot, valueOf(model) ? ['--enclosure', valueOf(model)] : '--alone'),
  });
}

function role(pool, disk, wanted, title, label, text, line) {
  const { parameters } = of(pool, disk);
  return propose({
    title,
    text,
    verb: 'SetDiskRole',
    parameters,
    label,
    body: () => ({ role: wanted }),
    line: () => command(line),
  });
}

function forget(pool, disk) {
  const { parameters, name } = of(pool, disk);
  return propose({
    title: `Do without ${name}`,
    verb: 'ForgetDisk',
    parameters,
    label: 'Do without it',
    isDanger: true,
    typed: pool.name,
    text: 'For a disk that is gone for good. What it had is rebuilt on the others. What only this disk had is lost, if you declare it so.',
    fields: (model, redraw) =>
      h(
        'label',
        { class: 'inline' },
        h('input', {
          type: 'checkbox',
          checked: Boolean(model.accept),
          onchange: (event) => {
            model.accept = event.target.checked;
            redraw();
          },
        }),
        h('span', null, 'Declare lost what only this disk held'),
      ),
    body: (model) => (model.accept ? { accept_data_loss: true, destroy: model.typed ?? '' } : {}),
    shown: (body) => (body.accept_data_loss ? { accept_data_loss: true } : {}),
    line: (model) =>
      command('disk', 'forget', pool.name, disk.slot, model.accept && ['--accept-data-loss', '--destroy', pool.name]),
  });
}

function online(pool, disk) {
  const { parameters, name } = of(pool, disk);
  return propose({
    title: `Take ${name} back in`,
    verb: 'OnlineDisk',
    parameters,
    label: 'Take it in',
    text: 'A job copies to it what it has missed.',
    fields: (model, redraw) =>
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Its path, if that is another one now'),
        h('input', {
          type: 'text',
          value: model.path ?? '',
          oninput: (event) => {
            model.path = event.target.value;
            redraw();
          },
        }),
      ),
    body: (model) => (model.path?.trim() ? { path: model.path.trim() } : {}),
    line: (model) =>
      command('disk', 'online', pool.name, disk.slot, model.path?.trim() && ['--path', model.path.trim()]),
  });
}

/** Buttons for a disk, as far as its state and the user's role allow. */
export function diskActions(pool, disk) {
  const { parameters, line, name } = of(pool, disk);
  const simple = (verb, title, text, label, words) => () =>
    propose({ title, text, verb, parameters, label, line: words });
  const isHere = disk.state !== 'absent';
  const jobs = openJobs(pool.name);
  const isReplaced = jobs.some((job) => job.kind === 'replace');
  return [
    isHere && action('LocateDisk', 'Locate', () => locate(pool, disk)),
    action('ReplaceDisk', 'Replace', () => replaceDisk(pool.name, disk.slot), isHere ? '' : 'primary'),
    !isHere && action('OnlineDisk', 'Take back in', () => online(pool, disk)),
    menu(
      `More for ${name}`,
      action('SetDisk', 'Name the bay', () => setBay(pool, disk)),
      action('SetEnclosure', 'Name the enclosure', () => setEnclosure(pool, disk)),
      isHere &&
        disk.gained_bytes > 0 &&
        action(
          'GrowDisk',
          'Use the room that it gained',
          simple('GrowDisk', `Grow ${name}`, 'The device must not become smaller afterwards.', 'Grow', line('grow')),
        ),
      disk.state === 'present' &&
        action('SetDiskRole', 'Retire', () =>
          role(
            pool,
            disk,
            'retired',
            `Retire ${name}`,
            'Retire',
            'The disk takes no more data, and a job moves what it has to the others. It stays a disk of the pool.',
            ['disk', 'retire', pool.name, String(disk.slot)],
          ),
        ),
      disk.state === 'present' &&
        action('SetDiskRole', 'Make it a spare', () =>
          role(
            pool,
            disk,
            'spare',
            `Make ${name} a spare`,
            'Make it a spare',
            'A job empties it. It stays empty until a disk is lost, and takes its place by itself.',
            ['disk', 'set', pool.name, String(disk.slot), '--spare'],
          ),
        ),
      ['retired', 'idle', 'spare'].includes(disk.state) &&
        action('SetDiskRole', 'Let it take data', () =>
          role(pool, disk, 'member', `Let ${name} take data`, 'Let it take data', null, [
            'disk',
            'set',
            pool.name,
            String(disk.slot),
            '--member',
          ]),
        ),
      disk.state === 'retired' &&
        action(
          'CancelRemove',
          'Keep it: end its removal',
          simple(
            'CancelRemove',
            `Keep ${name}`,
            'The disk takes data again. What was moved stays where it is.',
            'Keep it',
            () => command('pool', 'remove', '--cancel', pool.name, disk.slot),
          ),
        ),
      isReplaced &&
        action(
          'CancelReplace',
          'End its replacement',
          simple(
            'CancelReplace',
            `End the replacement of ${name}`,
            'What was moved goes back, and the new disk leaves the pool.',
            'End it',
            () => command('disk', 'replace', '--cancel', pool.name, disk.slot),
          ),
        ),
      isHere &&
        action(
          'OfflineDisk',
          'Take offline',
          simple(
            'OfflineDisk',
            `Take ${name} offline`,
            'It may be carried elsewhere then, and stays a disk of the pool. What is written meanwhile is copied to it when it is back.',
            'Take offline',
            line('offline'),
          ),
        ),
      !isHere && action('ForgetDisk', 'Do without it', () => forget(pool, disk), 'danger'),
      action(
        'RemoveDisk',
        'Remove from the pool',
        simple(
          'RemoveDisk',
          `Remove ${name} from ${pool.name}`,
          'A job moves everything on it to the other disks. Then it leaves the pool.',
          'Remove',
          () => command('pool', 'remove', pool.name, disk.slot),
        ),
        'danger',
      ),
    ),
  ];
}
