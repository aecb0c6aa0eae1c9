// The wizard for a new space or volume: what it is for, its protection, its size, and the plan.

import { known } from './api.js';
import { commandLine, perform, planStep, wizard } from './dialog.js';
import { h } from './dom.js';
import { bytes, command, losses, protection, sizeWord } from './format.js';
import { jobs, pools } from './live.js';
import { isName, nameField } from './name_field.js';
import { jobView } from './parts.js';
import { bytesOf, sizeField } from './size_field.js';

// Each with its title, what it means, and the protection that suits it.
const PURPOSES = {
  files: ['Files', 'A volume with XFS for files of any kind.', 'mirror-2-0'],
  documents: ['Documents', 'A volume with btrfs: documents compress well.', 'mirror-2-0'],
  vms: ['Images of virtual machines', 'A volume with XFS, which writes images in place.', 'mirror-2-0'],
  database: ['Database', 'A volume with XFS for files that are written in place.', 'mirror-2-0'],
  backup: ['Backup', 'A volume with btrfs for copies that are seldom read. Parity takes the least room.', 'parity-1-1'],
  space: ['Block device', 'A space without a file system, to attach here or to serve over NBD.', 'mirror-2-0'],
};

const keyOf = (fit) => `${fit.resiliency}-${fit.copies}-${fit.parity ?? 0}`;

const WHY = {
  simple: 'The fastest and largest, for data that exists elsewhere, too.',
  span: 'One disk after another, for data that exists elsewhere, too.',
  mirror: 'Fast for all kinds of writes. Each block is on several disks.',
  parity: 'Little room for redundancy. Small random writes take longer.',
};

function layoutOf(model) {
  const [resiliency, copies, parity] = model.level.split('-');
  return {
    resiliency,
    ...(resiliency === 'mirror' ? { copies: Number(copies) } : {}),
    ...(resiliency === 'parity' ? { parity: Number(parity) } : {}),
  };
}

function bodyOf(model) {
  const layout = layoutOf(model);
  const common = {
    name: model.name,
    size_bytes: bytesOf(model.size) ?? 0,
    ...layout,
    provisioning: model.provisioning,
    ...(model.isStrict && layout.resiliency !== 'parity' ? { integrity: 'strict' } : {}),
  };
  if (model.purpose === 'space') return common;
  return {
    ...common,
    purpose: model.purpose,
    ...(model.fileSystem ? { file_system: model.fileSystem } : {}),
    ...(model.mount.trim() ? { mount_point: model.mount.trim() } : {}),
  };
}

function lineOf(model) {
  const body = bodyOf(model);
  return command(
    model.purpose === 'space' ? ['space', 'create'] : ['volume', 'create'],
    `${model.pool}/${body.name}`,
    '--size',
    sizeWord(body.size_bytes),
    body.purpose && ['--for', body.purpose],
    body.file_system && ['--fs', body.file_system],
    body.mount_point && ['--mount', body.mount_point],
    '--resiliency',
    body.resiliency,
    body.copies && ['--copies', body.copies],
    body.parity && ['--parity', body.parity],
    body.provisioning === 'fixed' && ['--provisioning', 'fixed'],
    body.integrity && '--strict',
  );
}

function radio(model, redraw, name, value, title, text, { end = null, isDisabled = false, more = {} } = {}) {
  return h(
    'label',
    { class: 'option', key: `${name}-${value}` },
    h('input', {
      type: 'radio',
      name,
      value,
      checked: model[name] === value,
      disabled: isDisabled,
      onchange: () => {
        Object.assign(model, { [name]: value }, more);
        redraw();
      },
    }),
    h('span', null, h('b', null, title), h('small', null, text)),
    end ? h('span', { class: 'end' }, end) : null,
  );
}

function purposeStep(model, redraw) {
  return [
    pools().length > 1
      ? h(
          'label',
          { class: 'field' },
          h('span', null, 'Pool'),
          h(
            'select',
            {
              name: 'pool',
              value: model.pool,
              onchange: (event) => {
                model.pool = event.target.value;
                redraw();
              },
            },
            pools().map((pool) => h('option', { value: pool.name }, pool.name)),
          ),
        )
      : null,
    h(
      'fieldset',
      null,
      h('legend', { class: 'unseen' }, 'Purpose'),
      h(
        'div',
        { class: 'options grid' },
        Object.entries(PURPOSES).map(([value, [title, text, level]]) =>
          radio(model, redraw, 'purpose', value, title, text, { more: { level } }),
        ),
      ),
    ),
  ];
}

function protectionStep(model, redraw) {
  const room = known('ShowRoom', { pool: model.pool }, 5);
  if (!room) return h('p', { class: 'quiet' }, 'Asking what still fits …');
  return h(
    'fieldset',
    null,
    h('legend', { class: 'unseen' }, 'Protection'),
    h(
      'div',
      { class: 'options' },
      room.fits.map((fit) =>
        radio(model, redraw, 'level', keyOf(fit), `${protection(fit)}: ${losses(fit.survives)}`, WHY[fit.resiliency], {
          end: fit.usable_bytes ? `${bytes(fit.usable_bytes)} fit` : 'too few disks or room',
          isDisabled: !fit.usable_bytes,
        }),
      ),
    ),
  );
}

function sizeStep(model, redraw) {
  const fit = known('ShowRoom', { pool: model.pool }, 5)?.fits.find((each) => keyOf(each) === model.level);
  const size = bytesOf(model.size);
  const room = model.provisioning === 'fixed' ? fit?.usable_fixed_bytes : fit?.usable_bytes;
  return [
    nameField(model.purpose === 'space' ? 'Name of the space' : 'Name of the volume', model, redraw),
    sizeField(
      'Size',
      model.size,
      redraw,
      room ? `${bytes(room)} fit now. It can grow later while it is in use.` : 'It can grow later while it is in use.',
    ),
    size && room && size > room
      ? h(
          'p',
          { class: 'note warn' },
          model.provisioning === 'thin'
            ? 'That is more than fits now. A thin space may be larger than its pool, but not all of it can be written before disks are added.'
            : 'That is more than fits now.',
        )
      : null,
    h(
      'fieldset',
      null,
      h('legend', null, 'When room is claimed'),
      h(
        'div',
        { class: 'options' },
        radio(
          model,
          redraw,
          'provisioning',
          'thin',
          'Thin',
          'Room is claimed when it is first written, and given back when it is discarded. Spaces may promise more than the pool has.',
        ),
        radio(
          model,
          redraw,
          'provisioning',
          'fixed',
          'Fixed',
          'All room is claimed now, so writes never find the pool full.',
        ),
      ),
    ),
    model.purpose === 'space'
      ? null
      : h(
          'label',
          { class: 'field' },
          h('span', null, 'Mounted at'),
          h('input', {
            type: 'text',
            name: 'mount',
            value: model.mount,
            placeholder: `/srv/${model.pool}/${model.name || 'NAME'}`,
            oninput: (event) => {
              model.mount = event.target.value;
              redraw();
            },
          }),
          h(
            'small',
            null,
            'An absolute path on the host. The volume is mounted there now and whenever its pool is opened.',
          ),
        ),
    h(
      'details',
      null,
      h('summary', null, 'More choices'),
      h(
        'div',
        { class: 'options' },
        model.purpose === 'space'
          ? null
          : h(
              'label',
              { class: 'field' },
              h('span', null, 'File system'),
              h(
                'select',
                {
                  value: model.fileSystem,
                  onchange: (event) => {
                    model.fileSystem = event.target.value;
                    redraw();
                  },
                },
                [
                  ['', 'that of the purpose'],
                  ['xfs', 'XFS'],
                  ['btrfs', 'btrfs'],
                  ['ext4', 'ext4'],
                ].map(([value, text]) => h('option', { value }, text)),
              ),
            ),
        layoutOf(model).resiliency === 'parity'
          ? h('p', { class: 'quiet' }, 'With parity, overwrites always go through a write cache.')
          : h(
              'label',
              { class: 'inline' },
              h('input', {
                type: 'checkbox',
                checked: model.isStrict,
                onchange: (event) => {
                  model.isStrict = event.target.checked;
                  redraw();
                },
              }),
              h(
                'span',
                null,
                'Strict: overwrites go through a write cache, so that a power cut harms neither the old content nor the new one',
              ),
            ),
      ),
    ),
  ];
}

export function newSpace(pool) {
  const model = {
    pool: pool ?? pools()[0]?.name,
    purpose: 'files',
    level: 'mirror-2-0',
    name: '',
    size: { value: '10', unit: 'GiB' },
    provisioning: 'thin',
    isStrict: false,
    mount: '',
    fileSystem: '',
  };
  const verb = () => (model.purpose === 'space' ? 'CreateSpace' : 'CreateVolume');
  const confirm = (_, redraw) => [
    planStep(model, verb(), { pool: model.pool }, bodyOf(model), redraw),
    commandLine(lineOf(model)),
  ];
  const result = () => {
    const job = jobs().find((each) => each.id === model.job);
    const path = model.purpose === 'space' ? 'spaces' : 'volumes';
    return [
      h('p', { 'aria-live': 'polite' }, job?.result ?? model.message),
      job ? jobView(job) : null,
      h(
        'p',
        null,
        h(
          'a',
          {
            href: `#/${path}/${encodeURIComponent(model.pool)}/${encodeURIComponent(model.name)}`,
            onclick: (event) => event.target.closest('dialog').querySelector('.close').click(),
          },
          `Show ${model.pool}/${model.name}`,
        ),
      ),
    ];
  };
  return wizard({
    title: 'New space or volume',
    label: 'Create it',
    model,
    steps: [
      { title: 'Purpose', heading: 'What is it for?', view: purposeStep },
      {
        title: 'Protection',
        heading: 'What is it to survive?',
        view: protectionStep,
        isReady: () =>
          Boolean(
            known('ShowRoom', { pool: model.pool }, 5)?.fits.some(
              (fit) => keyOf(fit) === model.level && fit.usable_bytes,
            ),
          ),
      },
      {
        title: 'Size',
        heading: 'How large is it?',
        view: sizeStep,
        isReady: () => isName(model.name) && Boolean(bytesOf(model.size)),
      },
      {
        title: 'Confirm',
        heading: 'What will happen',
        view: confirm,
        isConfirm: true,
        isReady: () => Boolean(model.plan),
      },
      { title: 'Result', heading: 'What came of it', view: result },
    ],
    finish: async () => {
      const answer = await perform(verb(), { pool: model.pool }, bodyOf(model));
      Object.assign(model, { message: answer.message, job: answer.job?.id ?? null });
    },
  });
}
