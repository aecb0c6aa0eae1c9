// Bench: what spaces do under load. A form over what `dolmen bench` measures, the benchmark under way, and the reports.

import { can, known, refresh } from './api.js';
import { report } from './bench_report.js';
import { commandLine, propose } from './dialog.js';
import { h } from './dom.js';
import { choiceField, option, textField } from './fields.js';
import { command, count, duration, sizeWord, when } from './format.js';
import { isOver, jobs, now, spaces } from './live.js';
import { jobActions } from './page_jobs.js';
import { card, jobView, pageHead, pill, table } from './parts.js';
import { redraw } from './redraw.js';
import { bytesOf, sizeField } from './size_field.js';

const model = {
  first: '',
  second: '',
  profile: 'streaming',
  size: { value: '1', unit: 'GiB' },
  rounds: '3',
  runtime: '5',
  outstanding: '',
};

// A list is read again when somebody comes, and every few seconds while something is measured.
export const opened = () => refresh('ListBenchmarks');

const NUMERIC = { inputmode: 'numeric', size: 12 };

const nameOf = (space) => `${space.pool}/${space.name}`;
const numbers = (text) => text.split(/[\s,;]+/).filter(Boolean);
const isNumber = (text, least) => /^\d{1,6}$/.test(text) && Number(text) >= least;

function profileOptions(document) {
  return document.groups.map((group) => {
    const members = document.profiles.filter((profile) => profile.group === group.name);
    return h(
      'optgroup',
      { label: group.name },
      members.length > 1 || members[0].name !== group.name ? option(group.name, `all of ${group.name}`) : null,
      members.map((profile) => option(profile.name, `${profile.title}: ${profile.summary}`)),
    );
  });
}

/** What the form asks for, as the API and as the command line have it. */
function wanted(document) {
  const names = [model.first, model.second].filter(Boolean);
  const profiles = document.profiles.filter((each) => each.name === model.profile || each.group === model.profile);
  const writes = profiles.some((profile) => profile.reads_percent < 100);
  const outstanding = numbers(model.outstanding);
  const size = bytesOf(model.size);
  const isWhole =
    size &&
    isNumber(model.rounds, 1) &&
    isNumber(model.runtime, 1) &&
    outstanding.every((each) => isNumber(each, 1)) &&
    model.first !== model.second;
  const body = {
    against: model.second || null,
    profiles: [model.profile],
    size_bytes: size,
    rounds: Number(model.rounds),
    runtime_s: Number(model.runtime),
    outstanding: outstanding.map(Number),
    destroy: writes ? names : [],
  };
  const line = command(
    'bench',
    names,
    ['-p', model.profile, '--size', size && sizeWord(size), '--rounds', model.rounds, '--runtime', model.runtime],
    outstanding.length > 0 && ['--outstanding', outstanding.join(',')],
    writes && names.map((name) => `--destroy=${name}`),
  );
  return { names, profiles, writes, isWhole, body, line };
}

function begin(asked) {
  const [pool, space] = asked.names[0].split('/');
  propose({
    title: `Measure ${asked.names.join(' and ')}`,
    verb: 'BenchSpace',
    parameters: { pool, space },
    label: 'Measure',
    isDanger: asked.writes,
    typed: asked.writes ? asked.names.join(' ') : null,
    body: () => asked.body,
    // The plan is made without the names, which somebody types later.
    shown: (body) => ({ ...body, destroy: [] }),
    line: () => asked.line,
    done: () => refresh('ListBenchmarks'),
  });
}

function form(document) {
  const reachable = spaces().filter((space) => space.attached_at || space.served_at);
  if (!reachable.length)
    return card(
      'Measure',
      h('p', { class: 'quiet' }, 'No space is attached or served. The load is sent to a space as a client sends it: attach or serve one first.'),
    );
  const names = reachable.map(nameOf);
  if (!names.includes(model.first)) [model.first] = names;
  if (!names.includes(model.second) || model.second === model.first) model.second = '';
  const asked = wanted(document);
  const group = document.groups.find((each) => each.name === model.profile);
  return h(
    'form',
    {
      class: 'card',
      onsubmit: (event) => {
        event.preventDefault();
        if (asked.isWhole) begin(asked);
      },
    },
    h('h2', null, 'Measure'),
    h(
      'div',
      { class: 'field-row' },
      choiceField('Space', model.first, names.map((name) => option(name)), (value) => (model.first = value), redraw),
      choiceField(
        'Compared with',
        model.second,
        [option('', 'no other space'), ...names.filter((name) => name !== model.first).map((name) => option(name))],
        (value) => {
          model.second = value;
          // A verdict needs five rounds.
          if (value && Number(model.rounds) < 5) model.rounds = '5';
        },
        redraw,
      ),
    ),
    choiceField('Profile', model.profile, profileOptions(document), (value) => (model.profile = value), redraw, { hint: group?.title }),
    asked.writes
      ? h('p', { class: 'note warn' }, `This profile writes. All that ${asked.names.join(' and ')} holds is lost.`)
      : h('p', { class: 'quiet' }, 'This profile only reads. What was never written is read from nowhere, which looks fast.'),
    h(
      'div',
      { class: 'field-row' },
      sizeField('Used of each space', model.size, redraw),
      textField('Rounds', model, 'rounds', redraw, NUMERIC),
      textField('Seconds for each load', model, 'runtime', redraw, NUMERIC),
      textField('Outstanding I/Os', model, 'outstanding', redraw, { size: 12 }),
    ),
    h('small', null, 'Outstanding I/Os, such as 1 8 64, may stay empty: then those of the profile are measured. What fits into a cache looks fast.'),
    h(
      'div',
      { class: 'actions' },
      h(
        'button',
        { type: 'submit', class: asked.writes ? 'danger' : 'primary', disabled: !asked.isWhole || Boolean(document.work) },
        document.work ? 'A benchmark is under way' : 'Measure …',
      ),
    ),
    commandLine(asked.line),
  );
}

function running(document) {
  const open = jobs().filter((job) => job.kind === 'bench' && !isOver(job));
  if (!open.length) return null;
  const { work } = document;
  return card(
    'Under way',
    open.map((job) => jobView(job, jobActions(job))),
    work?.step
      ? h(
          'p',
          { class: 'quiet' },
          `${work.step}. ${count(work.done)} of ${count(work.total)} measured${work.left_s ? `, about ${duration(work.left_s)} left` : ''}.`,
        )
      : null,
  );
}

function reports(document) {
  const last = jobs().filter((job) => job.kind === 'bench' && isOver(job) && job.state !== 'done').at(-1);
  return card(
    'Reports',
    last && now() - (last.ended_s ?? 0) < 3600
      ? h('p', { class: 'note warn' }, `Job ${last.id} (${last.subject}) ${last.state === 'failed' ? 'failed' : 'was ended'}: ${last.result}`)
      : null,
    document.reports.length
      ? table(
          'Reports of benchmarks',
          [
            { title: 'Report', cell: (each) => h('a', { href: `#/bench/${each.job}` }, `${each.job}: ${each.spaces.join(', ')}`) },
            { title: 'Profiles', cell: (each) => each.profiles.join(', ') },
            { title: 'Points', isNumber: true, cell: (each) => count(each.points) },
            { title: 'Began', isShort: true, cell: (each) => when(each.started_s) },
            { title: 'State', cell: (each) => (each.is_complete ? 'complete' : pill('warning', 'incomplete')) },
          ],
          document.reports,
          (each) => `report-${each.job}`,
        )
      : h('p', { class: 'quiet' }, 'No benchmark has been run here. The last 20 reports are kept.'),
  );
}

export function view([job]) {
  if (job) return report(job);
  const document = known('ListBenchmarks', {}, jobs().some((each) => each.kind === 'bench' && !isOver(each)) ? 2 : 15);
  if (!document) return h('div', null, pageHead('Bench'), h('p', { class: 'quiet' }, 'Asking for reports …'));
  return h(
    'div',
    null,
    pageHead('Bench'),
    can('BenchSpace') ? form(document) : h('p', { class: 'quiet' }, 'Only administrators measure: profiles that write overwrite a space.'),
    h('div', { 'aria-live': 'polite' }, running(document)),
    reports(document),
  );
}
