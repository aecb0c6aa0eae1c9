// The wizard for a new pool: its disks, what they give, and the plan.

import { estimate, disksNeeded } from './capacity.js';
import { chosenOf, chosenView, consentOf, destroyOf, devicePicker, isPicked, newPicks } from './device_picker.js';
import { change } from './api.js';
import { commandLine, perform, planStep, wizard } from './dialog.js';
import { h } from './dom.js';
import { baseName, bytes, command, losses, plural, protection } from './format.js';
import { isName, nameField } from './name_field.js';
import { table } from './parts.js';

function bodyOf(model) {
  const disks = chosenOf(model.picks).map((device) => device.path);
  const enclosures = disks.map((path) => (model.enclosures[path] ?? '').trim());
  return {
    name: model.name,
    disks,
    ...consentOf(model.picks),
    ...(enclosures.some(Boolean) ? { enclosures } : {}),
  };
}

function lineOf(model) {
  const body = bodyOf(model);
  const at = (path, index) => (body.enclosures?.[index] ? `${path}@${body.enclosures[index]}` : path);
  return command(
    'pool',
    'create',
    body.name,
    body.disks.map(at),
    body.destroy.map((path) => ['--destroy', path]),
  );
}

/** What each level of protection gives on the chosen disks. */
export function levelsTable(sizes, mirrorBytes, caption) {
  const levels = estimate(sizes, mirrorBytes);
  return table(
    caption,
    [
      { title: 'Protection', cell: (level) => protection(level) },
      { title: 'Lost disks', cell: (level) => losses(level.survives) },
      {
        title: 'Usable, about',
        isNumber: true,
        cell: (level) =>
          level.usable_bytes ? bytes(level.usable_bytes) : `needs ${plural(disksNeeded(level), 'disk')}`,
      },
    ],
    levels,
    (level) => `${level.resiliency}-${level.copies}-${level.parity}`,
  );
}

// The plan of the daemon tells exactly what two copies give, as soon as there is one.
function exact(model, redraw) {
  const disks = chosenOf(model.picks).map((device) => device.path);
  const key = JSON.stringify([disks, destroyOf(model.picks)]);
  if (model.exactKey !== key) {
    Object.assign(model, { exactKey: key, exact: null });
    if (disks.length > 1 && isPicked(model.picks)) {
      change('CreatePool', {}, { name: 'plan', disks, destroy: destroyOf(model.picks), dry_run: true })
        .then(
          (answer) => {
            if (model.exactKey === key) model.exact = answer.plan.usable_after_bytes;
          },
          () => {},
        )
        .finally(redraw);
    }
  }
  return model.exact;
}

function chooseDisks(model, redraw) {
  const chosen = chosenOf(model.picks);
  const sizes = chosen.map((device) => device.size_bytes).filter(Boolean);
  const known = exact(model, redraw);
  return [
    h(
      'p',
      { class: 'quiet' },
      'Disks of different sizes may be combined. More can be added later, and each can leave again.',
    ),
    devicePicker(model.picks, redraw),
    sizes.length
      ? h(
          'section',
          { 'aria-label': 'What the chosen disks give', 'aria-live': 'polite' },
          h('h3', null, `${plural(chosen.length, 'disk')}, ${bytes(sizes.reduce((sum, size) => sum + size, 0))}`),
          levelsTable(sizes, known, 'Usable bytes at each level of protection'),
          h(
            'p',
            { class: 'quiet' },
            'The protection is chosen for each space, not for the pool: spaces of several kinds share the disks.',
          ),
        )
      : null,
  ];
}

function nameIt(model, redraw) {
  return [
    nameField('Name of the pool', model, redraw),
    h(
      'details',
      null,
      h('summary', null, 'Disks that may fail together'),
      h(
        'p',
        { class: 'quiet' },
        'Disks in one enclosure or on one controller may fail as one. Copies are laid on disks in different ones. Leave a field empty for a disk that stands alone.',
      ),
      h(
        'div',
        { class: 'options' },
        chosenOf(model.picks).map((device) =>
          h(
            'label',
            { class: 'field', key: device.path },
            h('span', null, `Enclosure of ${baseName(device.path)}`),
            h('input', {
              type: 'text',
              value: model.enclosures[device.path] ?? '',
              oninput: (event) => {
                model.enclosures[device.path] = event.target.value;
                redraw();
              },
            }),
          ),
        ),
      ),
    ),
  ];
}

function confirmIt(model, redraw) {
  return [
    chosenView(model.picks),
    planStep(model, 'CreatePool', {}, bodyOf(model), redraw),
    commandLine(lineOf(model)),
  ];
}

export function newPool() {
  const model = { picks: newPicks(), name: '', enclosures: {} };
  return wizard({
    title: 'New pool',
    label: 'Create the pool',
    model,
    steps: [
      { title: 'Disks', heading: 'Which disks?', view: chooseDisks, isReady: () => isPicked(model.picks) },
      { title: 'Name', heading: 'What is it called?', view: nameIt, isReady: () => isName(model.name) },
      {
        title: 'Confirm',
        heading: 'What will happen',
        view: confirmIt,
        isConfirm: true,
        isReady: () => Boolean(model.plan) && isPicked(model.picks),
        isDanger: () => destroyOf(model.picks).length > 0,
      },
    ],
    finish: async () => {
      await perform('CreatePool', {}, bodyOf(model));
      location.hash = `#/pools/${encodeURIComponent(model.name)}`;
    },
  });
}
