// Jobs: what runs, waits and ended lately, with pause, resume and stop.

import { h } from './dom.js';
import { propose } from './dialog.js';
import { ago, command } from './format.js';
import { isOver, jobs, now } from './live.js';
import { action, card, jobState, jobTitle, jobView, pageHead, table } from './parts.js';

function simple(verb, job, title, text, label, word) {
  return () =>
    propose({
      title,
      text,
      verb,
      parameters: { job: String(job.id) },
      label,
      line: () => command('job', word, job.id),
    });
}

function setJob(job) {
  return () =>
    propose({
      title: `Priority of job ${job.id}`,
      verb: 'SetJob',
      parameters: { job: String(job.id) },
      label: 'Save',
      text: 'How much of the time of the disks the job takes at most while clients use the pool.',
      fields: (model, redraw) => [
        h(
          'label',
          { class: 'field' },
          h('span', null, 'Priority'),
          h(
            'select',
            {
              value: model.priority ?? job.priority ?? 'normal',
              onchange: (event) => {
                model.priority = event.target.value;
                redraw();
              },
            },
            [
              ['low', 'low: an eighth'],
              ['normal', 'normal: half'],
              ['high', 'high: all that it can get'],
            ].map(([value, text]) => h('option', { value }, text)),
          ),
        ),
        h(
          'label',
          { class: 'field' },
          h('span', null, 'Latency limit in milliseconds'),
          h('input', {
            type: 'number',
            min: 0,
            max: 60000,
            value: model.limit ?? job.latency_limit_ms ?? 0,
            oninput: (event) => {
              model.limit = event.target.value;
              redraw();
            },
          }),
          h(
            'small',
            null,
            'When one in twenty of the requests of clients takes longer, the job takes less. 0 is no limit.',
          ),
        ),
      ],
      body: (model) => ({
        priority: model.priority ?? job.priority ?? 'normal',
        latency_limit_ms: Number(model.limit ?? job.latency_limit_ms ?? 0),
      }),
      line: (model) =>
        command(
          'job',
          'set',
          job.id,
          '--priority',
          model.priority ?? job.priority ?? 'normal',
          '--latency-limit',
          Number(model.limit ?? job.latency_limit_ms ?? 0)
            ? `${Number(model.limit ?? job.latency_limit_ms)}ms`
            : 'none',
        ),
    });
}

const stop = (job) =>
  action(
    'StopJob',
    'Stop',
    simple(
      'StopJob',
      job,
      `Stop job ${job.id}`,
      'The job ends before it is done. What it did stays done, unless the plan says otherwise.',
      'Stop the job',
      'stop',
    ),
    'small',
  );

/** Buttons for a job that is not over. */
export function jobActions(job) {
  if (isOver(job)) return null;
  // A benchmark that stands would measure nothing, and takes no share of disks.
  if (job.kind === 'bench') return stop(job);
  return [
    job.state === 'paused' || job.is_pausing
      ? action(
          'ResumeJob',
          'Resume',
          simple('ResumeJob', job, `Resume job ${job.id}`, null, 'Resume', 'resume'),
          'small',
        )
      : action(
          'PauseJob',
          'Pause',
          simple(
            'PauseJob',
            job,
            `Pause job ${job.id}`,
            'The job stays paused until it is resumed, also after a restart of the daemon.',
            'Pause',
            'pause',
          ),
          'small',
        ),
    action('SetJob', 'Priority', setJob(job), 'small'),
    stop(job),
  ];
}

export function view() {
  const open = jobs().filter((job) => !isOver(job));
  const past = jobs().filter(isOver).reverse();
  return h(
    'div',
    null,
    pageHead('Jobs'),
    card(
      'Running and waiting',
      open.length
        ? open.map((job) => jobView(job, jobActions(job)))
        : h('p', { class: 'quiet' }, 'No job runs or waits.'),
    ),
    past.length
      ? card(
          'Ended lately',
          table(
            'Jobs that ended lately',
            [
              {
                title: 'Job',
                isNumber: false,
                cell: (job) => [h('span', { class: 'quiet' }, `${job.id} `), jobTitle(job)],
              },
              { title: 'Pool', isShort: true, cell: (job) => job.pool },
              { title: 'State', cell: jobState },
              { title: 'Result', cell: (job) => job.result ?? '' },
              { title: 'Ended', isNumber: true, cell: (job) => (job.ended_s ? ago(job.ended_s, now()) : '–') },
            ],
            past,
            (job) => `job-${job.id}`,
          ),
        )
      : null,
  );
}
