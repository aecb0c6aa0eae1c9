// The wizard that adds disks to a pool: which, and what the pool gives before and afterwards.

import { known } from './api.js';
import { estimate } from './capacity.js';
import { chosenOf, chosenView, consentOf, destroyOf, devicePicker, isPicked, newPicks } from './device_picker.js';
import { commandLine, perform, planStep, wizard } from './dialog.js';
import { h } from './dom.js';
import { bytes, command, plural, protection } from './format.js';
import { openJobs, poolOf } from './live.js';
import { jobView, table } from './parts.js';

function bodyOf(model) {
  const disks = chosenOf(model.picks).map((device) => device.path);
  const enclosure = model.enclosure.trim();
  return {
    disks,
    ...consentOf(model.picks),
    ...(model.use === 'stays' ? { stays: true } : {}),
    ...(model.use === 'spare' ? { spare: true } : {}),
    ...(enclosure ? { enclosures: disks.map(() => enclosure) } : {}),
  };
}

function lineOf(pool, model) {
  const body = bodyOf(model);
  return command(
    'pool',
    'add',
    pool,
    body.disks,
    body.stays && '--stays',
    body.spare && '--spare',
    model.enclosure.trim() && ['--enclosure', model.enclosure.trim()],
    body.destroy.map((path) => ['--destroy', path]),
  );
}

const USES = [
  [
    'even',
    'Use them, and even out',
    'New data goes to them, and a job moves data there until all disks are about as full.',
  ],
  ['stays', 'Use them for new data only', 'What is there stays where it is. A rebalance can even it out later.'],
  ['spare', 'Keep them as spares', 'They stay empty until a disk is lost, and take its place by themselves.'],
];

function levels(pool, model) {
  const room = known('ShowRoom', { pool }, 5);
  const sizes = chosenOf(model.picks)
    .map((device) => device.size_bytes)
    .filter(Boolean);
  if (!room || !sizes.length || model.use === 'spare') return null;
  const here = room.disks.map((disk) => disk.free_bytes - disk.reserve_bytes);
  const before = estimate(here);
  const after = estimate([...here, ...sizes]);
  const rows = room.fits.filter((fit) =>
    after.some(
      (level) => level.resiliency === fit.resiliency && level.copies === fit.copies && level.parity === fit.parity,
    ),
  );
  const find = (list, fit) =>
    list.find(
      (level) => level.resiliency === fit.resiliency && level.copies === fit.copies && level.parity === fit.parity,
    ).usable_bytes;
  const grown = (fit) => {
    const [was, is] = [find(before, fit), find(after, fit)];
    return was && fit.usable_bytes ? fit.usable_bytes * (is / was) : is;
  };
  return h(
    'section',
    { 'aria-live': 'polite' },
    h('h3', null, `Before and after ${plural(sizes.length, 'disk')} more`),
    table(
      'What still fits before and after',
      [
        { title: 'Protection', cell: (fit) => protection(fit) },
        { title: 'Fits now', isNumber: true, cell: (fit) => bytes(fit.usable_bytes) },
        { title: 'Afterwards, about', isNumber: true, cell: (fit) => bytes(Math.round(grown(fit))) },
      ],
      rows,
      (fit) => `${fit.resiliency}-${fit.copies}-${fit.parity}`,
    ),
  );
}

export function addDisks(pool) {
  const model = { picks: newPicks(), use: 'even', enclosure: '' };
  const choose = (_, redraw) => [devicePicker(model.picks, redraw), levels(pool, model)];
  const use = (_, redraw) => [
    h(
      'fieldset',
      null,
      h('legend', { class: 'unseen' }, 'Use'),
      h(
        'div',
        { class: 'options' },
        USES.map(([value, title, text]) =>
          h(
            'label',
            { class: 'option' },
            h('input', {
              type: 'radio',
              name: 'use',
              value,
              checked: model.use === value,
              onchange: () => {
                model.use = value;
                redraw();
              },
            }),
            h('span', null, h('b', null, title), h('small', null, text)),
          ),
        ),
      ),
    ),
    h(
      'label',
      { class: 'field' },
      h('span', null, 'Enclosure (may stay empty)'),
      h('input', {
        type: 'text',
        value: model.enclosure,
        oninput: (event) => {
          model.enclosure = event.target.value;
          redraw();
        },
      }),
      h('small', null, 'Name what these disks are in, if it may fail as one.'),
    ),
    levels(pool, model),
  ];
  const confirm = (_, redraw) => [
    chosenView(model.picks),
    planStep(model, 'AddDisks', { pool }, bodyOf(model), redraw),
    commandLine(lineOf(pool, model)),
  ];
  const progress = () => {
    const jobs = openJobs(pool);
    const now = poolOf(pool);
    return [
      h('p', null, model.message),
      now
        ? h(
            'p',
            { class: 'quiet' },
            `${pool} has ${plural(now.disks.length, 'disk')} and ${bytes(now.free_bytes)} free.`,
          )
        : null,
      jobs.length ? jobs.map((job) => jobView(job)) : h('p', { class: 'quiet' }, 'No job runs for it any more.'),
    ];
  };
  return wizard({
    title: `Add disks to ${pool}`,
    label: 'Add the disks',
    model,
    steps: [
      { title: 'Disks', heading: 'Which disks?', view: choose, isReady: () => isPicked(model.picks) },
      { title: 'Use', heading: 'What are they for?', view: use },
      {
        title: 'Confirm',
        heading: 'What will happen',
        view: confirm,
        isConfirm: true,
        isReady: () => Boolean(model.plan) && isPicked(model.picks),
        isDanger: () => destroyOf(model.picks).length > 0,
      },
      { title: 'Progress', heading: 'What is going on', view: progress },
    ],
    finish: async () => {
      model.message = (await perform('AddDisks', { pool }, bodyOf(model))).message;
    },
  });
}
