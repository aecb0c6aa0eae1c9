// Deduplication of a volume: its policy, what it saved, and what is under way.

import { known } from './api.js';
import { progress } from './chart.js';
import { propose } from './dialog.js';
import { h } from './dom.js';
import { bytes, command, duration, plural, when, words } from './format.js';
import { action, facts } from './parts.js';

const parametersOf = (volume) => ({ pool: volume.pool, space: volume.name });
const documentOf = (volume, seconds) =>
  volume.mount_state === 'mounted' ? known('ShowDedup', parametersOf(volume), seconds) : null;

/** What the last run of a volume saved, for a table. */
export function saved(volume) {
  const last = documentOf(volume, 20)?.last;
  return last ? bytes(last.saved_bytes) : '–';
}

function enable(volume, policy) {
  const name = `${volume.pool}/${volume.name}`;
  const value = (model, key, usual) => model[key] ?? usual;
  const mode = (model) => value(model, 'mode', policy?.mode ?? 'background');
  const age = (model) => Number(value(model, 'age', policy?.min_age_days ?? 3));
  const schedule = (model) => value(model, 'schedule', policy?.schedule ?? 'weekly sunday 02:00');
  return propose({
    title: `Deduplication of ${name}`,
    verb: 'EnableDedup',
    parameters: parametersOf(volume),
    label: 'Save',
    text: 'Equal bytes of its files are shared. Files stay as they are for programs.',
    fields: (model, redraw) => [
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Load that it may cause'),
        h(
          'select',
          {
            name: 'mode',
            value: mode(model),
            onchange: (event) => {
              model.mode = event.target.value;
              redraw();
            },
          },
          [
            ['background', 'background: it yields to clients'],
            ['throughput', 'throughput: as fast as it can'],
          ].map(([key, text]) => h('option', { value: key }, text)),
        ),
      ),
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Days since the last change of a file, at least'),
        h('input', {
          type: 'number',
          min: 0,
          name: 'age',
          value: age(model),
          oninput: (event) => {
            model.age = event.target.value;
            redraw();
          },
        }),
      ),
      h(
        'label',
        { class: 'field' },
        h('span', null, 'When it runs'),
        h('input', {
          type: 'text',
          name: 'schedule',
          value: schedule(model),
          oninput: (event) => {
            model.schedule = event.target.value;
            redraw();
          },
        }),
        h('small', null, 'never, hourly, daily 03:00 or weekly sunday 02:00'),
      ),
    ],
    body: (model) => ({ mode: mode(model), min_age_days: age(model), schedule: schedule(model) }),
    line: (model) =>
      command('dedup', 'enable', name, '--mode', mode(model), '--min-age', age(model), '--schedule', schedule(model)),
  });
}

function simple(verb, volume, word, title, text, label, more = {}) {
  const name = `${volume.pool}/${volume.name}`;
  return () =>
    propose({
      title: `${title} ${name}`,
      text,
      verb,
      parameters: parametersOf(volume),
      label,
      line: () => command('dedup', word, name, more.flag),
      ...(more.body ? { body: () => more.body } : {}),
    });
}

export function dedupCard(volume) {
  const document = documentOf(volume, 3);
  if (!document) return null;
  const { policy, last, work } = document;
  return h(
    'section',
    { class: 'card' },
    h('h2', null, 'Deduplication'),
    document.unsupported ? h('p', { class: 'quiet' }, document.unsupported) : null,
    work
      ? [
          h(
            'p',
            null,
            `${work.step ?? 'under way'}: ${bytes(work.done_bytes)} of ${bytes(work.total_bytes)}, ${plural(work.files, 'file')}, ${bytes(work.saved_bytes)} saved${work.is_yielding ? '; it yields to clients' : ''}`,
          ),
          progress(work.total_bytes ? (work.done_bytes / work.total_bytes) * 100 : 0, 'Deduplication'),
        ]
      : null,
    last
      ? facts(
          [
            'Last run',
            `${when(last.ended_s)}, took ${duration(last.ended_s - last.began_s)}${last.is_stopped ? ', was stopped' : ''}`,
          ],
          ['Files held', bytes(last.held_bytes)],
          ['Saved', bytes(last.saved_bytes)],
          ['Given back to the pool', bytes(last.released_bytes)],
          last.compressed_bytes !== null &&
            last.compressed_bytes !== undefined && ['Compressed to', bytes(last.compressed_bytes)],
        )
      : null,
    policy
      ? facts(
          [
            'Policy',
            `${words(policy.mode)}, files of ${bytes(policy.min_file_bytes)} or more, unchanged for ${plural(policy.min_age_days, 'day')}`,
          ],
          ['Schedule', policy.schedule],
          document.next_s && ['Next run', when(document.next_s)],
          ['Memory', bytes(policy.memory_bytes)],
          policy.excluded_folders.length && ['Left out', policy.excluded_folders.join(', ')],
          policy.excluded_names.length && ['Names left out', policy.excluded_names.join(', ')],
        )
      : document.unsupported
        ? null
        : h('p', { class: 'quiet' }, 'There is no policy, so nothing runs by itself.'),
    document.unsupported
      ? null
      : h(
          'div',
          { class: 'actions' },
          policy
            ? action(
                'RunDedup',
                'Run now',
                simple('RunDedup', volume, 'run', 'Deduplicate', 'A job shares equal bytes of its files.', 'Run'),
              )
            : null,
          action('EnableDedup', policy ? 'Change the policy' : 'Set a policy', () => enable(volume, policy)),
          action(
            'EstimateDedup',
            'Estimate',
            simple(
              'EstimateDedup',
              volume,
              'estimate',
              'Estimate for',
              'A job reads a sample of the files and tells what a run would save.',
              'Estimate',
            ),
          ),
          policy
            ? action(
                'EnableDedup',
                'End it',
                simple(
                  'EnableDedup',
                  volume,
                  'enable',
                  'End the deduplication of',
                  'Bytes that are shared stay shared.',
                  'End it',
                  { body: { off: true }, flag: '--off' },
                ),
              )
            : null,
          last
            ? action(
                'UndoDedup',
                'Undo',
                simple(
                  'UndoDedup',
                  volume,
                  'undo',
                  'Undo the deduplication of',
                  'A job gives files bytes of their own again. That takes room.',
                  'Undo',
                ),
              )
            : null,
        ),
  );
}
