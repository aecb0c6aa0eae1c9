// Events: what has happened, the newest first.

import { h } from './dom.js';
import { plural } from './format.js';
import { live, pools } from './live.js';
import { alertCards } from './page_alerts.js';
import { card, eventList, pageHead } from './parts.js';
import { redraw } from './redraw.js';

const PAGE = 100;
const filter = { pool: '', kind: '', text: '', shown: PAGE };

const KINDS = [
  ['', 'everything'],
  ['trouble', 'troubles'],
  ['daemon', 'the daemon'],
  ['pool', 'pools'],
  ['disk', 'disks'],
  ['space', 'spaces'],
  ['job', 'jobs'],
];

function isWanted(event) {
  if (filter.pool && event.object.pool !== filter.pool) return false;
  if (filter.kind === 'trouble' ? !event.finding : filter.kind && event.object.kind !== filter.kind) return false;
  return !filter.text || event.text.toLowerCase().includes(filter.text.toLowerCase());
}

function choice(label, name, options) {
  return h(
    'label',
    { class: 'field' },
    h('span', null, label),
    h(
      'select',
      {
        value: filter[name],
        onchange: (event) => {
          filter[name] = event.target.value;
          filter.shown = PAGE;
          redraw();
        },
      },
      options.map(([value, text]) => h('option', { value }, text)),
    ),
  );
}

export function view() {
  const known = live.events;
  const wanted = (known?.events ?? []).filter(isWanted).reverse();
  const names = [
    ...new Set([
      ...pools().map((pool) => pool.name),
      ...(known?.events ?? []).map((event) => event.object.pool).filter(Boolean),
    ]),
  ];
  return h(
    'div',
    null,
    pageHead('Events'),
    alertCards(),
    card(
      null,
      h(
        'div',
        { class: 'field-row' },
        choice('About', 'kind', KINDS),
        choice('Pool', 'pool', [['', 'all'], ...names.map((name) => [name, name])]),
        h(
          'label',
          { class: 'field' },
          h('span', null, 'Text'),
          h('input', {
            type: 'search',
            value: filter.text,
            oninput: (event) => {
              filter.text = event.target.value;
              redraw();
            },
          }),
        ),
      ),
      h(
        'p',
        { class: 'quiet', 'aria-live': 'polite' },
        plural(wanted.length, 'event'),
        known?.dropped ? `; ${known.dropped} older ones are not kept any more` : '',
      ),
      eventList(wanted.slice(0, filter.shown)),
      wanted.length > filter.shown
        ? h(
            'button',
            {
              type: 'button',
              onclick: () => {
                filter.shown += PAGE;
                redraw();
              },
            },
            'Show more',
          )
        : null,
    ),
  );
}
