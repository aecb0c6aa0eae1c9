// Alerts: what is open with its cause and what to do, silences, and where notifications go.

import { keep, request, session, stale } from './api.js';
import { commandLine, dialog, refusal } from './dialog.js';
import { h, prose, toast } from './dom.js';
import { plural, when } from './format.js';
import { card, pill, table } from './parts.js';

const PATH = '/alerts';
const TIMES = [
  [3600, '1 hour'],
  [8 * 3600, '8 hours'],
  [86400, '1 day'],
  [7 * 86400, '1 week'],
  [30 * 86400, '30 days'],
];
const PILLS = { critical: 'unhealthy', warning: 'warning', notice: 'info' };

const mayChange = () => session.role === 'operator' || session.role === 'admin';

// A dialog that sends one request without further input.
function confirmed({ title, text, label, path, line, done }) {
  const model = {};
  return dialog({
    title,
    view: (self) => {
      const submit = async (event) => {
        event.preventDefault();
        if (model.isBusy) return;
        Object.assign(model, { isBusy: true, error: null });
        self.draw();
        try {
          const answer = await request('POST', `${PATH}${path}`, {});
          stale();
          self.close();
          done(answer);
        } catch (error) {
          Object.assign(model, { isBusy: false, error });
          self.draw();
        }
      };
      return h(
        'form',
        { class: 'dialog-body', onsubmit: submit },
        h('p', null, text),
        commandLine(line),
        refusal(model.error),
        h(
          'footer',
          { class: 'dialog-foot' },
          h('button', { type: 'button', onclick: () => self.close() }, 'Cancel'),
          h('button', { type: 'submit', class: 'primary', disabled: model.isBusy }, model.isBusy ? 'Working …' : label),
        ),
      );
    },
  });
}

function silenceDialog(alert) {
  const model = { for_s: TIMES[1][0], comment: '' };
  return dialog({
    title: 'Silence an alert',
    view: (self) => {
      const submit = async (event) => {
        event.preventDefault();
        if (model.isBusy) return;
        Object.assign(model, { isBusy: true, error: null });
        self.draw();
        try {
          await request('POST', `${PATH}/silences`, {
            alert: alert.id,
            for_s: model.for_s,
            comment: model.comment,
          });
          stale();
          self.close();
          toast('the alert is silenced');
        } catch (error) {
          Object.assign(model, { isBusy: false, error });
          self.draw();
        }
      };
      return h(
        'form',
        { class: 'dialog-body', onsubmit: submit },
        h('p', null, alert.summary),
        h('p', null, `Nothing is sent about it until ${when(Date.now() / 1000 + model.for_s)}.`),
        h(
          'label',
          { class: 'field' },
          h('span', null, 'Duration'),
          h(
            'select',
            {
              name: 'for_s',
              value: String(model.for_s),
              onchange: (event) => {
                model.for_s = Number(event.target.value);
                self.draw();
              },
            },
            TIMES.map(([seconds, label]) => h('option', { value: String(seconds) }, label)),
          ),
        ),
        h(
          'label',
          { class: 'field' },
          h('span', null, 'Reason'),
          h('input', {
            type: 'text',
            name: 'comment',
            autocomplete: 'off',
            value: model.comment,
            oninput: (event) => {
              model.comment = event.target.value;
            },
          }),
        ),
        commandLine(`dolmen-web alert silence ${alert.id} --for ${model.for_s / 3600}h`),
        refusal(model.error),
        h(
          'footer',
          { class: 'dialog-foot' },
          h('button', { type: 'button', onclick: () => self.close() }, 'Cancel'),
          h('button', { type: 'submit', class: 'primary', disabled: model.isBusy }, 'Silence it'),
        ),
      );
    },
  });
}

function alertItem(alert) {
  return h(
    'section',
    { class: 'card', key: `alert-${alert.id}` },
    h(
      'div',
      { class: 'card-head' },
      h('h3', null, alert.summary),
      h(
        'span',
        { class: 'end' },
        pill(PILLS[alert.severity] ?? 'info', alert.severity),
        alert.is_silenced ? pill('info', 'silenced') : null,
      ),
    ),
    h('p', { class: 'quiet' }, `Since ${when(alert.since_s)}${alert.is_open ? '' : ', not sent yet'}`),
    alert.evidence.length > 1
      ? h(
          'details',
          null,
          h('summary', null, plural(alert.evidence.length + alert.left_out, 'finding')),
          h(
            'ul',
            null,
            alert.evidence.map((one) => h('li', null, one.text)),
          ),
        )
      : null,
    alert.to_do.map((text) => h('p', null, prose(text))),
    alert.commands.map((line) => commandLine(line)),
    mayChange() && !alert.is_silenced
      ? h(
          'div',
          { class: 'actions' },
          h(
            'button',
            {
              type: 'button',
              'aria-label': `Silence: ${alert.summary}`,
              onclick: () => silenceDialog(alert),
            },
            'Silence…',
          ),
        )
      : null,
  );
}

function silencesTable(silences) {
  return table(
    'Silences',
    [
      { title: 'Findings', cell: (each) => each.code },
      { title: 'Object', cell: (each) => each.object },
      { title: 'Until', cell: (each) => when(each.until_s) },
      { title: 'By', cell: (each) => [each.author, each.comment ? h('span', { class: 'cell-sub' }, each.comment) : null] },
      {
        title: '',
        cell: (each) =>
          mayChange()
            ? h(
                'button',
                {
                  type: 'button',
                  class: 'small',
                  'aria-label': `End the silence of ${each.code} of ${each.object}`,
                  onclick: () =>
                    confirmed({
                      title: 'End a silence',
                      text: `Alerts ${each.code} of ${each.object} are sent again.`,
                      label: 'End it',
                      path: `/silences/${each.id}/end`,
                      line: `dolmen-web alert unsilence ${each.id}`,
                      done: () => toast('the silence is over'),
                    }),
                },
                'End',
              )
            : null,
      },
    ],
    silences,
    (each) => `silence-${each.id}`,
  );
}

/** Open alerts and silences, for the page of events. */
export function alertCards() {
  const { document, error } = keep(PATH, 5);
  if (error && !document) return card('Alerts', refusal(error));
  if (!document) return null;
  const alerts = [...document.alerts].sort((a, b) => Number(b.is_open) - Number(a.is_open) || b.since_s - a.since_s);
  return [
    card(
      'Alerts',
      document.trouble ? h('p', { class: 'bad-text' }, document.trouble) : null,
      alerts.length ? null : h('p', { class: 'quiet' }, 'There is no alert.'),
      document.waiting
        ? h('p', { class: 'bad-text' }, `${plural(document.waiting, 'notification')} not sent yet; see Settings.`)
        : null,
      document.silences.length ? silencesTable(document.silences) : null,
    ),
    alerts.map(alertItem),
  ];
}

/** The channels of notifications, for the page of settings. */
export function channelsCard() {
  const { document, error } = keep(PATH, 5);
  const channels = document?.channels ?? [];
  const test = () =>
    confirmed({
      title: 'Send a test',
      text: `A test goes to ${plural(channels.length, 'channel')}. It may take up to 45 seconds.`,
      label: 'Send it',
      path: '/test',
      line: 'dolmen-web alert test',
      done: (answer) => {
        for (const one of answer.results) {
          toast(one.sent ? `${one.channel}: sent` : `${one.channel}: ${one.why}`, one.sent ? 'ok' : 'bad');
        }
      },
    });
  return h(
    'section',
    { class: 'card' },
    h(
      'div',
      { class: 'card-head' },
      h('h2', null, 'Notifications'),
      mayChange() && channels.length
        ? h('span', { class: 'end' }, h('button', { type: 'button', onclick: test }, 'Send a test'))
        : null,
    ),
    error && !document ? refusal(error) : null,
    channels.length
      ? table(
          'Channels',
          [
            { title: 'Channel', cell: (each) => each.name },
            { title: 'To', cell: (each) => each.to },
            { title: 'Waiting', isNumber: true, cell: (each) => String(each.waiting) },
            { title: 'Last failure', cell: (each) => each.why ?? '–' },
          ],
          channels,
          (each) => `channel-${each.name}`,
        )
      : h(
          'p',
          { class: 'quiet' },
          'Alerts are sent nowhere. The file ',
          h('code', null, '/etc/dolmen/alerts.toml'),
          ' on the host names mail servers, webhooks and ntfy.',
        ),
  );
}
