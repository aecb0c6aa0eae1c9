// Planner: what disks would give before anybody buys them. No disk is touched.

import { request } from './api.js';
import { commandLine, refusal } from './dialog.js';
import { h } from './dom.js';
import { textField } from './fields.js';
import { bytes, command, percent, plural } from './format.js';
import { card, pageHead, pill, table } from './parts.js';
import { redraw } from './redraw.js';

const model = { disks: '4x8TB', added: '', resiliency: '', plan: null, asked: null, error: null, isBusy: false };

const wordsOf = (text) => text.split(/[\s,;]+/).filter(Boolean);

function asked() {
  return {
    disks: wordsOf(model.disks),
    added: wordsOf(model.added),
    resiliency: wordsOf(model.resiliency),
  };
}

async function make(event) {
  event?.preventDefault();
  if (model.isBusy) return;
  const wanted = asked();
  Object.assign(model, { isBusy: true, error: null });
  redraw();
  const query = new URLSearchParams([
    ...wanted.disks.map((disk) => ['disk', disk]),
    ...wanted.added.map((disk) => ['add', disk]),
    ...wanted.resiliency.map((word) => ['resiliency', word]),
  ]);
  try {
    Object.assign(model, { plan: await request('GET', `/plan?${query}`), asked: wanted });
  } catch (error) {
    Object.assign(model, { error, plan: null });
  }
  model.isBusy = false;
  redraw();
}

const title = (answer) => [answer.title, answer.in_this_version ? null : [' ', pill('info', 'cannot be made yet')]];

function survives(answer) {
  const disks = plural(answer.survives_disks, 'lost disk');
  const domains = answer.survives_domains ? `, ${plural(answer.survives_domains, 'lost domain')}` : '';
  return answer.survives_disks || answer.survives_domains ? `${disks}${domains}` : 'no lost disk';
}

const orNone = (value) => (value === null || value === undefined ? '–' : value === 0 ? 'too few disks' : bytes(value));

function roomCard(plan) {
  const possible = plan.answers.filter((answer) => answer.room);
  return card(
    `${plural(plan.disks.length, 'disk')} in ${plural(plan.domain_count, 'fault domain')}, ${bytes(plan.raw_bytes)}`,
    possible.length
      ? table(
          'What fits at each resiliency',
          [
            { title: 'Resiliency', cell: title },
            { title: 'Usable', isNumber: true, cell: (answer) => bytes(answer.room.usable_bytes) },
            { title: 'Of all', isNumber: true, cell: (answer) => percent(answer.room.usable_bytes, plan.raw_bytes) },
            { title: 'Heals a lost disk', isNumber: true, cell: (answer) => orNone(answer.heals_disk_bytes) },
            { title: 'Stranded', isNumber: true, cell: (answer) => bytes(answer.room.stranded_bytes) },
            { title: 'Survives', cell: survives },
          ],
          possible,
          (answer) => `plan-${answer.layout}`,
        )
      : null,
    plan.answers
      .filter((answer) => answer.problem)
      .map((answer) => h('p', { class: 'quiet', key: `problem-${answer.layout}` }, `${answer.title}: it ${answer.problem}.`)),
    possible.flatMap((answer) =>
      answer.warnings.map((warning) => h('p', { class: 'note warn' }, `${answer.title}: ${warning}`)),
    ),
    h(
      'p',
      { class: 'quiet' },
      'Usable is what one fixed space can hold. “Heals a lost disk” is what may be used so that full redundancy comes back on the other disks.',
    ),
  );
}

function additionsCard(plan) {
  const rows = plan.answers
    .filter((answer) => answer.additions.length)
    .flatMap((answer) => answer.additions.map((addition, index) => ({ answer, addition, index })));
  if (!rows.length) return null;
  return card(
    plan.additions_are_cumulative ? 'With these disks added one after the other' : 'With one more disk',
    table(
      'What more disks bring',
      [
        { title: 'Resiliency', cell: ({ answer }) => title(answer) },
        { title: 'Disk', cell: ({ addition }) => `${addition.name}, ${bytes(addition.size_bytes)}` },
        { title: 'Usable', isNumber: true, cell: ({ addition }) => bytes(addition.usable_bytes) },
        { title: 'Gain', isNumber: true, cell: ({ addition }) => bytes(addition.gain_bytes) },
      ],
      rows,
      ({ answer, index }) => `addition-${answer.layout}-${index}`,
    ),
  );
}

export function view() {
  const wanted = asked();
  return h(
    'div',
    null,
    pageHead('Planner'),
    h(
      'form',
      { class: 'card', onsubmit: make },
      textField('Disks', model, 'disks', redraw, { hint: 'Such as 4x8TB 2x4TB, or 3x4TB@shelf1 3x4TB@shelf2: disks with one domain may fail together.' }),
      textField('Disks to add', model, 'added', redraw, { hint: 'May stay empty: then one more disk of each of the largest sizes is tried.' }),
      textField('Resiliencies', model, 'resiliency', redraw, { hint: 'May stay empty; else such as mirror:2, parity:2 or 8+3.' }),
      refusal(model.error),
      h(
        'div',
        { class: 'actions' },
        h(
          'button',
          { type: 'submit', class: 'primary', disabled: model.isBusy || !wanted.disks.length },
          model.isBusy ? 'Planning …' : 'Plan',
        ),
      ),
      commandLine(
        command(
          'plan',
          wanted.disks,
          wanted.added.map((disk) => ['--add', disk]),
          wanted.resiliency.map((word) => ['-r', word]),
        ),
      ),
    ),
    h('div', { 'aria-live': 'polite' }, model.plan ? [roomCard(model.plan), additionsCard(model.plan)] : null),
  );
}
