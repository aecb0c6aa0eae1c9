// The wizard that replaces a disk: which one it is and where, what takes its place, and how far that is.

import { can, change } from './api.js';
import { chosenOf, chosenView, consentOf, destroyOf, devicePicker, isPicked, newPicks } from './device_picker.js';
import { commandLine, perform, planStep, wizard } from './dialog.js';
import { h, toast } from './dom.js';
import { bytes, command, diskName, words } from './format.js';
import { jobs, poolOf } from './live.js';
import { facts, jobView, pill } from './parts.js';
import { diskHealth } from './disk_health.js';

function describe(disk) {
  return [
    disk.bay && `bay ${disk.bay}`,
    disk.enclosure && `enclosure ${disk.enclosure}`,
    disk.smart?.serial && `serial number ${disk.smart.serial}`,
    disk.path ?? disk.last_path ?? disk.id,
  ]
    .filter(Boolean)
    .join(' · ');
}

async function locate(pool, disk, off) {
  try {
    const answer = await change(
      'LocateDisk',
      { pool, disk: String(disk.slot) },
      off ? { off: true } : { seconds: 300 },
    );
    toast(answer.message);
  } catch (error) {
    toast(error.message, 'bad');
  }
}

export function replaceDisk(pool, slot = null) {
  const model = { picks: newPicks(), slot };
  const disks = () => poolOf(pool)?.disks ?? [];
  const old = () => disks().find((disk) => disk.slot === model.slot);
  const bodyOf = () => ({ with: chosenOf(model.picks)[0]?.path ?? '', ...consentOf(model.picks) });

  const choose = (_, redraw) => {
    const disk = old();
    return [
      h(
        'fieldset',
        null,
        h('legend', null, `Disks of ${pool}`),
        h(
          'div',
          { class: 'options' },
          disks().map((each) =>
            h(
              'label',
              { class: 'option', key: `disk-${each.slot}` },
              h('input', {
                type: 'radio',
                name: 'old',
                value: each.slot,
                checked: model.slot === each.slot,
                onchange: () => {
                  model.slot = each.slot;
                  redraw();
                },
              }),
              h('span', null, h('b', null, diskName(each)), h('small', null, describe(each))),
              h('span', { class: 'end' }, bytes(each.size_bytes), ' ', pill(diskHealth(each), words(each.state))),
            ),
          ),
        ),
      ),
      disk && disk.state !== 'absent' && can('LocateDisk')
        ? h(
            'div',
            { class: 'note' },
            h(
              'p',
              null,
              'Before you pull a disk, let it show where it is: the light of its place blinks, or its own does.',
            ),
            h(
              'div',
              { class: 'actions' },
              h('button', { type: 'button', onclick: () => locate(pool, disk, false) }, 'Blink for 5 minutes'),
              h('button', { type: 'button', class: 'plain', onclick: () => locate(pool, disk, true) }, 'Stop blinking'),
            ),
            commandLine(command('disk', 'locate', pool, disk.slot, '--seconds', '300')),
            commandLine(command('disk', 'locate', pool, disk.slot, '--off')),
          )
        : null,
    ];
  };
  const pick = (_, redraw) => {
    const disk = old();
    const fresh = chosenOf(model.picks)[0];
    return [
      h(
        'p',
        { class: 'quiet' },
        disk?.state === 'absent'
          ? 'What the absent disk held is rebuilt on the new one from the other disks.'
          : 'Leave the old disk in place if there is a free bay: as long as it is here, its data is copied from it, and redundancy never falls.',
      ),
      devicePicker(model.picks, redraw, { isSingle: true, legend: 'The disk that takes its place' }),
      fresh?.size_bytes && disk && fresh.size_bytes < disk.size_bytes
        ? h(
            'p',
            { class: 'note warn' },
            `The new disk has ${bytes(fresh.size_bytes)}, the old one ${bytes(disk.size_bytes)}. The plan tells whether all of it finds a place.`,
          )
        : null,
    ];
  };
  const confirm = (_, redraw) => {
    const disk = old();
    const body = bodyOf();
    return [
      disk ? facts(['Old disk', describe(disk)], ['New disk', chosenView(model.picks)]) : null,
      planStep(model, 'ReplaceDisk', { pool, disk: String(model.slot) }, body, redraw),
      commandLine(
        command(
          'disk',
          'replace',
          pool,
          model.slot,
          body.with,
          body.destroy.map((path) => ['--destroy', path]),
        ),
      ),
    ];
  };
  const progress = () => {
    const job = jobs().find((each) => each.id === model.job);
    const isDone = job?.state === 'done' || (!job && !old());
    return [
      h('p', null, model.message),
      job ? jobView(job) : null,
      h(
        'p',
        { class: 'note', 'aria-live': 'polite' },
        isDone
          ? `The replacement has ended. The old disk ${model.wasHere ? 'may be taken out' : 'is no member any more'}: ${model.oldText}.`
          : model.wasHere
            ? 'Leave the old disk where it is until this has ended. The page may be closed; the job goes on.'
            : 'The page may be closed; the job goes on.',
      ),
    ];
  };
  return wizard({
    title: `Replace a disk of ${pool}`,
    label: 'Replace the disk',
    model,
    steps: [
      { title: 'Old disk', heading: 'Which disk?', view: choose, isReady: () => Boolean(old()) },
      { title: 'New disk', heading: 'What takes its place?', view: pick, isReady: () => isPicked(model.picks) },
      {
        title: 'Confirm',
        heading: 'What will happen',
        view: confirm,
        isConfirm: true,
        isReady: () => Boolean(model.plan) && isPicked(model.picks),
        isDanger: () => destroyOf(model.picks).length > 0,
      },
      { title: 'Progress', heading: 'How far it is', view: progress },
    ],
    finish: async () => {
      Object.assign(model, { oldText: describe(old()), wasHere: old().state !== 'absent' });
      const answer = await perform('ReplaceDisk', { pool, disk: String(model.slot) }, bodyOf());
      Object.assign(model, { message: answer.message, job: answer.job?.id ?? null });
    },
  });
}
