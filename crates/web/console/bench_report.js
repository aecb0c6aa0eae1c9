// The report of a benchmark: curves, points and verdicts.

import { keep, pathOf } from './api.js';
import { lines } from './chart.js';
import { commandLine, refusal } from './dialog.js';
import { h } from './dom.js';
import { choiceField, option } from './fields.js';
import { bytes, command, count, latency, plural, when } from './format.js';
import { card, facts, pageHead, pill, table } from './parts.js';
import { redraw } from './redraw.js';

// A report never changes.
const FOREVER_S = 1e9;
const KINDS = ['read', 'write'];
const VERDICTS = {
  faster: ['healthy', 'faster'],
  slower: ['warning', 'slower'],
  equal: ['info', 'equal'],
  too_noisy: ['quiet-pill', 'too noisy to tell'],
  too_few_rounds: ['quiet-pill', 'too few rounds for a verdict'],
  other_flushes: ['quiet-pill', 'other flushes, not the same load'],
};

const choice = { job: null, profile: '', flush: '' };

const megabytes = (value) => `${(value / 1e6).toFixed(value < 1e7 ? 2 : 0)} MB/s`;
const time = (ns) => latency(ns / 1000);
const flushText = (flush) => (flush === 'none' ? 'without flushes' : flush === 'end' ? 'a flush at the end' : `a flush ${flush} writes`);
const load = (point) => (point.file_bytes ? bytes(point.file_bytes) : count(point.outstanding));
const atOf = (point) => point.file_bytes ?? point.outstanding;

/** Curves of the chosen profile: throughput and latency beside the outstanding I/Os, whose axis is logarithmic. */
function curves(points, targets) {
  const at = [...new Set(points.map(atOf))].sort((one, other) => one - other);
  if (at.length < 2) return null;
  const history = at.map((value) => {
    const entry = { at: Math.log2(value) * 1000 };
    targets.forEach((target, index) => {
      const point = points.find((each) => each.target === target && atOf(each) === value);
      entry[`rate${index}`] = point ? point.bytes_per_s.median : null;
      entry[`p50-${index}`] = point ? point.p50_ns / 1000 : null;
      entry[`p99-${index}`] = point ? point.p99_ns / 1000 : null;
    });
    return entry;
  });
  const isFile = points[0].file_bytes;
  const name = (value) => (isFile ? bytes(value) : `${count(value)} outstanding`);
  const span = {
    ms: (Math.log2(at.at(-1)) - Math.log2(at[0])) * 1000,
    gapMs: Infinity,
    text: name(at[0]),
    end: name(at.at(-1)),
  };
  const isOne = targets.length === 1;
  const each = (field) => targets.map((target, index) => ({ name: isOne ? '' : target, kind: KINDS[index], field: `${field}${index}` }));
  const last = isFile ? 'with the largest file' : `with ${count(at.at(-1))} outstanding I/Os`;
  return h(
    'div',
    { class: 'charts' },
    lines({ title: `Throughput, ${last}`, history, span, show: megabytes, series: each('rate') }),
    isOne
      ? lines({
          title: `Latency, ${last}`,
          history,
          span,
          show: latency,
          series: [
            { name: '50 %', kind: 'p50', field: 'p50-0' },
            { name: '99 %', kind: 'p99', field: 'p99-0' },
          ],
        })
      : lines({ title: `99 % were done within, ${last}`, history, span, show: latency, series: each('p99-') }),
  );
}

function pointsTable(figures, points) {
  const isOne = figures.targets.length === 1;
  const number = (title, cell) => ({ title, isNumber: true, cell });
  const isKnee = (point) =>
    figures.knees.some(
      (knee) =>
        knee.profile === point.profile &&
        knee.target === point.target &&
        knee.flush === point.flush &&
        knee.outstanding === point.outstanding &&
        !point.file_bytes,
    );
  return table(
    'Points',
    [
      { title: points[0]?.file_bytes ? 'File' : 'Outstanding', isShort: true, cell: load },
      ...(isOne ? [] : [{ title: 'Space', cell: (point) => point.target }]),
      number('IO/s', (point) => count(point.ios_per_s.median)),
      number('Throughput', (point) => megabytes(point.bytes_per_s.median)),
      number('50 %', (point) => time(point.p50_ns)),
      number('99 %', (point) => time(point.p99_ns)),
      number('W/FLUSH', (point) => (point.writes_per_flush ? point.writes_per_flush.toFixed(1) : '–')),
      number('Spread', (point) => {
        const spread = point.ios_per_s.spread_percent;
        const text = spread === null || spread === undefined ? '–' : `${spread.toFixed(0)} %`;
        return point.is_noisy ? pill('warning', `~ ${text}`) : text;
      }),
      { title: 'Mark', cell: (point) => (isKnee(point) ? pill('info', 'knee') : '') },
    ],
    points,
    (point) => `point-${point.target}-${atOf(point)}`,
  );
}

function comparisonTable(comparisons) {
  const [first] = comparisons;
  return card(
    `${first.target} against ${first.against}`,
    table(
      'Verdicts',
      [
        { title: first.file_bytes ? 'File' : 'Outstanding', isShort: true, cell: load },
        { title: 'Times the first', isNumber: true, cell: ({ ratio }) => ratio.median.toFixed(2) },
        { title: 'Least', isNumber: true, cell: ({ ratio }) => ratio.least.toFixed(2) },
        { title: 'Most', isNumber: true, cell: ({ ratio }) => ratio.most.toFixed(2) },
        { title: 'Verdict', cell: ({ ratio }) => pill(...(VERDICTS[ratio.verdict] ?? ['quiet-pill', ratio.verdict])) },
      ],
      comparisons,
      (each) => `comparison-${atOf(each)}`,
    ),
  );
}

const head = (title) => [
  h('p', { class: 'crumbs' }, h('a', { href: '#/bench' }, 'Bench')),
  pageHead(title),
];

function shown(job, { figures, file }) {
  if (choice.job !== job) Object.assign(choice, { job, profile: '', flush: '' });
  const profiles = figures.profiles.filter((profile) => figures.points.some((point) => point.profile === profile.name));
  if (!profiles.some((profile) => profile.name === choice.profile)) choice.profile = profiles[0].name;
  const ofProfile = figures.points.filter((point) => point.profile === choice.profile);
  const flushes = [...new Set(ofProfile.map((point) => point.flush))];
  if (!flushes.includes(choice.flush)) [choice.flush] = flushes;
  const isChosen = (each) => each.profile === choice.profile && each.flush === choice.flush;
  const points = figures.points
    .filter(isChosen)
    .sort((one, other) => atOf(one) - atOf(other) || one.target.localeCompare(other.target));
  const comparisons = figures.comparisons.filter(isChosen);
  const names = figures.targets.map((target) => target.name);
  const profile = profiles.find((each) => each.name === choice.profile);
  return h(
    'div',
    null,
    head(`${names.join(' and ')}`),
    card(
      null,
      facts(
        ['Began', when(figures.started_s)],
        ['Rounds', `${plural(figures.rounds, 'round')} of ${figures.runtime_s} s for each load`],
        ...figures.targets.map((target) => [target.name, `${target.what}, ${bytes(target.working_set_bytes)} used`]),
        ['Load', figures.fio_version],
        ['File', h('code', null, file)],
        !figures.is_complete && ['State', pill('warning', 'incomplete')],
      ),
      figures.warnings.map((warning) => h('p', { class: 'note warn' }, warning)),
      h(
        'div',
        { class: 'field-row' },
        choiceField(
          'Profile',
          choice.profile,
          profiles.map((each) => option(each.name, each.title)),
          (value) => (choice.profile = value),
          redraw,
        ),
        choiceField(
          'Flushes',
          choice.flush,
          flushes.map((flush) => option(flush, flushText(flush))),
          (value) => (choice.flush = value),
          redraw,
        ),
      ),
    ),
    card(`${profile.title}: ${profile.summary}`, curves(points, names), pointsTable(figures, points)),
    comparisons.length ? comparisonTable(comparisons) : null,
    commandLine(command('bench', '--report', job)),
  );
}

/** The report of a job. */
export function report(job) {
  const { document, error } = keep(pathOf('ShowBenchmark', { job }), FOREVER_S);
  if (document) return shown(job, document);
  return h('div', null, head(`Report ${job}`), error ? refusal(error) : h('p', { class: 'quiet' }, 'Asking for the report …'));
}
