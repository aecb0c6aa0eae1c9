// Parts that several pages show: tables, jobs, events, health.

import { can } from './api.js';
import { bar, progress } from './chart.js';
import { h, prose } from './dom.js';
import { bytes, duration, eta, percent, rate, when, words } from './format.js';
import { isOver } from './live.js';

export const pill = (kind, text) => h('span', { class: `pill ${kind}` }, text);

export const health = (of) => pill(of.health, of.health);

/** The head of a page, with its main actions. */
export const pageHead = (title, ...actions) =>
  h('div', { class: 'page-head' }, h('h1', null, title), h('div', { class: 'actions' }, actions));

/** A button that only shows for those who may do what it does. */
export function action(verb, text, onclick, kind = '', more = {}) {
  return can(verb) ? h('button', { type: 'button', class: kind, onclick, ...more }, text) : null;
}

/** A menu of further actions; nothing where it would be empty. */
export function menu(label, ...actions) {
  const some = actions.flat().filter(Boolean);
  if (!some.length) return null;
  const close = (event) => event.currentTarget.closest('details').removeAttribute('open');
  return h(
    'details',
    { class: 'menu-button', key: `menu-${label}` },
    h('summary', { 'aria-label': label }, 'More'),
    h('div', { class: 'menu', onclick: close }, some),
  );
}

const kindOf = (column) => (column.isNumber ? 'number' : column.isShort ? 'short' : null);

/**
 * A table. Columns are `{title, cell(row), isNumber, isShort}`; the first one heads its row. On a phone each row becomes a card,
 * whose roles stay those of a table.
 */
export function table(caption, columns, rows, keyOf) {
  return h(
    'table',
    { role: 'table' },
    h('caption', { class: 'unseen' }, caption),
    h(
      'thead',
      { role: 'rowgroup' },
      h(
        'tr',
        { role: 'row' },
        columns.map((column) => h('th', { role: 'columnheader', scope: 'col', class: kindOf(column) }, column.title)),
      ),
    ),
    h(
      'tbody',
      { role: 'rowgroup' },
      rows.map((row) =>
        h(
          'tr',
          { role: 'row', key: keyOf(row) },
          columns.map((column, index) =>
            h(
              index ? 'td' : 'th',
              {
                role: index ? 'cell' : 'rowheader',
                scope: index ? null : 'row',
                class: kindOf(column),
                'data-label': column.title,
              },
              column.cell(row),
            ),
          ),
        ),
      ),
    ),
  );
}

/** Facts as a list of names and values; pairs without a value are left out. */
export function facts(...pairs) {
  return h(
    'dl',
    { class: 'facts' },
    pairs
      .filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== false)
      .map(([name, value]) => [h('dt', null, name), h('dd', null, value)]),
  );
}

export const card = (title, ...content) => h('section', { class: 'card' }, title && h('h2', null, title), content);

export const empty = (text, ...more) => h('div', { class: 'card empty' }, h('p', null, prose(text)), more);

export const reasons = (why) =>
  why?.length
    ? h(
        'ul',
        { class: 'reasons' },
        why.map((text) => h('li', null, prose(text))),
      )
    : null;

const JOB_KINDS = {
  running: 'info',
  waiting: 'quiet-pill',
  paused: 'warning',
  done: 'healthy',
  called_off: 'quiet-pill',
  failed: 'unhealthy',
};

/** How far a job is in percent, by the better known of rows and bytes; absent where nothing is known. */
export function donePercent(job) {
  if (job.state === 'done') return 100;
  const part = (done, of) => (of > 0 ? Math.min(99, Math.floor((done / of) * 100)) : null);
  const byRows = part(job.rows_done, job.rows_total);
  const byBytes = job.done_bytes <= job.total_bytes ? part(job.done_bytes, job.total_bytes) : null;
  if (byRows === null && byBytes === null) return null;
  return Math.max(byRows ?? 0, byBytes ?? 0);
}

export const jobTitle = (job) => `${words(job.verb ?? job.kind)} ${job.subject}`;

export function jobState(job) {
  const text = job.is_stopping ? 'stopping' : job.is_pausing ? 'pausing' : words(job.state);
  return pill(JOB_KINDS[job.state] ?? 'quiet-pill', text);
}

/** A job with its progress, and how long it may still take. */
export function jobView(job, ...actions) {
  const done = donePercent(job);
  const figures = [
    done !== null && `${done} %`,
    job.done_bytes > 0 && `${bytes(job.done_bytes)} done`,
    !isOver(job) && job.rate_bytes_per_s > 0 && rate(job.rate_bytes_per_s),
    !isOver(job) && eta(job.eta),
    `${isOver(job) ? 'took' : 'running for'} ${duration(job.elapsed_s)}`,
  ].filter(Boolean);
  return h(
    'article',
    { class: 'job', key: `job-${job.id}` },
    h(
      'div',
      { class: 'job-head' },
      h('h3', null, h('span', { class: 'quiet' }, `${job.id} `), jobTitle(job)),
      jobState(job),
    ),
    done !== null && !isOver(job) && progress(done, `${jobTitle(job)}: ${done} %`),
    h('p', { class: 'quiet' }, figures.join(' · ')),
    job.waits_for ? h('p', null, 'Waits for ', prose(job.waits_for)) : null,
    job.result ? h('p', null, prose(job.result)) : null,
    actions.length ? h('div', { class: 'actions' }, actions) : null,
  );
}

const GOOD = new Set(['trouble_over']);

/** Events, the newest first. */
export function eventList(events) {
  return h(
    'ol',
    { class: 'events' },
    events.map((event) =>
      h(
        'li',
        { key: `event-${event.number}`, class: event.finding && !GOOD.has(event.code) ? 'is-trouble' : '' },
        h('time', { datetime: new Date(event.at_s * 1000).toISOString() }, when(event.at_s)),
        h('span', null, event.text),
      ),
    ),
  );
}

/** How full a pool is. */
export function poolBar(pool) {
  const trash = Math.min(pool.trash_bytes ?? 0, pool.used_bytes);
  const label = `${pool.name}: ${bytes(pool.used_bytes)} of ${bytes(pool.data_bytes)} used, ${percent(pool.used_bytes, pool.data_bytes)}${trash ? `, ${bytes(trash)} of it trash` : ''}`;
  return bar(
    [
      ['used', pool.used_bytes - trash],
      ['trash', trash],
    ],
    pool.data_bytes,
    label,
  );
}
