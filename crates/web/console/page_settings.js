// Settings: the own password and sessions; for administrators users, tokens, what was done, and the daemon.

import { account, keep, session, stale } from './api.js';
import { commandLine, dialog, refusal } from './dialog.js';
import { h, toast } from './dom.js';
import { choiceField, option, textField } from './fields.js';
import { command, day, duration, when } from './format.js';
import { live, uptime } from './live.js';
import { channelsCard } from './page_alerts.js';
import { card, facts, pageHead, pill, table } from './parts.js';
import { redraw } from './redraw.js';

const ROLES = [
  ['viewer', 'viewer: looks'],
  ['operator', 'operator: works on spaces and jobs'],
  ['admin', 'admin: disks, pools and users, too'],
];

const web = (...words) => command(...words).replace(/^dolmen /, 'dolmen-web ');

function endedTokens(answer, text) {
  toast(text);
  const ended = answer?.ended_tokens ?? [];
  if (ended.length) toast(`these tokens have ended: ${ended.join(', ')}`, 'warn');
}

const tokensOf = (user) =>
  (keep('/account/tokens', 10).document?.tokens ?? []).filter((token) => token.created_by === user);

/** A small dialog that sends one request about accounts. */
function form({ title, text, fields, label, path, body, isReady = () => true, isDanger, typed, line, done }) {
  const model = {};
  return dialog({
    title,
    view: (self) => {
      const isTyped = !typed || model.typed === typed;
      const submit = async (event) => {
        event.preventDefault();
        if (model.isBusy || !isReady(model) || !isTyped) return;
        Object.assign(model, { isBusy: true, error: null });
        self.draw();
        try {
          const answer = await account.post(path, body ? body(model) : {});
          stale();
          self.close();
          if (done) done(answer);
          else toast('done');
        } catch (error) {
          Object.assign(model, { isBusy: false, error });
          self.draw();
        }
      };
      return h(
        'form',
        { class: 'dialog-body', onsubmit: submit },
        text ? h('p', null, text) : null,
        fields ? fields(model, self.draw) : null,
        typed
          ? h(
              'label',
              { class: 'field' },
              h('span', null, 'To go on, type ', h('code', null, typed)),
              h('input', {
                type: 'text',
                name: 'typed',
                autocomplete: 'off',
                value: model.typed ?? '',
                oninput: (event) => {
                  model.typed = event.target.value;
                  self.draw();
                },
              }),
            )
          : null,
        line ? commandLine(line(model)) : null,
        refusal(model.error),
        h(
          'footer',
          { class: 'dialog-foot' },
          h('button', { type: 'button', onclick: () => self.close() }, 'Cancel'),
          h(
            'button',
            {
              type: 'submit',
              class: isDanger ? 'danger' : 'primary',
              disabled: model.isBusy || !isReady(model) || !isTyped,
            },
            label,
          ),
        ),
      );
    },
  });
}

const roleField = (model, redraw) =>
  choiceField(
    'Role',
    model.role ?? 'viewer',
    ROLES.map(([value, label]) => option(value, label)),
    (value) => (model.role = value),
    redraw,
    { name: 'role' },
  );

function changePassword() {
  return form({
    title: 'Change the password',
    label: 'Change it',
    path: '/password',
    line: () => web('user', 'password', session.user),
    fields: (model, redraw) => [
      textField('Old password', model, 'old', redraw, { type: 'password', autocomplete: 'current-password' }),
      textField('New password', model, 'new', redraw, { type: 'password', autocomplete: 'new-password' }),
      textField('New password again', model, 'again', redraw, { type: 'password', autocomplete: 'new-password' }),
      model.again && model.again !== model.new ? h('p', { class: 'bad-text' }, 'The two passwords differ.') : null,
    ],
    isReady: (model) => Boolean(model.old && model.new && model.new === model.again),
    body: (model) => ({ old: model.old, new: model.new }),
    done: () => toast('the password is changed'),
  });
}

function sessionsCard() {
  const entry = keep('/account/sessions', 10);
  const sessions = entry.document?.sessions ?? [];
  return h(
    'section',
    { class: 'card' },
    h('h2', null, 'Sessions'),
    entry.error
      ? refusal(entry.error)
      : table(
          'Sessions',
          [
            { title: 'User', cell: (each) => [each.user, ' ', each.is_own ? pill('info', 'this one') : null] },
            {
              title: 'From',
              cell: (each) => [
                each.address ?? '–',
                each.agent ? h('span', { class: 'cell-sub' }, String(each.agent).slice(0, 80)) : null,
              ],
            },
            { title: 'Since', cell: (each) => (each.created_s ? when(each.created_s) : '–') },
            { title: 'Last seen', cell: (each) => (each.seen_s ? when(each.seen_s) : '–') },
            {
              title: '',
              cell: (each) =>
                each.is_own
                  ? null
                  : h(
                      'button',
                      {
                        type: 'button',
                        class: 'small',
                        'aria-label': `End the session of ${each.user}`,
                        onclick: () =>
                          form({
                            title: `End a session of ${each.user}`,
                            text: 'That browser has to sign in again.',
                            label: 'End it',
                            path: `/sessions/${encodeURIComponent(each.id)}/end`,
                            line: () => web('session', 'end', each.id),
                          }),
                      },
                      'End',
                    ),
            },
          ],
          sessions,
          (each) => `session-${each.id}`,
        ),
  );
}

function newUser() {
  return form({
    title: 'New user',
    label: 'Create the user',
    path: '/users',
    line: (model) => web('user', 'add', model.user || 'NAME', '--role', model.role ?? 'viewer'),
    fields: (model, redraw) => [
      textField('Name', model, 'user', redraw),
      textField('Password', model, 'password', redraw, { type: 'password', autocomplete: 'new-password' }),
      roleField(model, redraw),
    ],
    isReady: (model) => Boolean(model.user && model.password),
    body: (model) => ({ user: model.user, password: model.password, role: model.role ?? 'viewer' }),
    done: () => toast('the user is created'),
  });
}

function usersCard() {
  const entry = keep('/account/users', 10);
  const path = (user, what) => `/users/${encodeURIComponent(user)}/${what}`;
  return h(
    'section',
    { class: 'card' },
    h(
      'div',
      { class: 'card-head' },
      h('h2', null, 'Users'),
      h('span', { class: 'end' }, h('button', { type: 'button', onclick: newUser }, 'New user')),
    ),
    entry.error
      ? refusal(entry.error)
      : table(
          'Users',
          [
            { title: 'User', cell: (each) => each.user },
            { title: 'Role', cell: (each) => each.role },
            { title: 'Since', cell: (each) => (each.created_s ? day(each.created_s) : '–') },
            {
              title: '',
              cell: (each) =>
                each.user === session.user
                  ? null
                  : h(
                      'div',
                      { class: 'actions' },
                      h(
                        'button',
                        {
                          type: 'button',
                          class: 'small',
                          'aria-label': `Role of ${each.user}`,
                          onclick: () =>
                            form({
                              title: `Role of ${each.user}`,
                              label: 'Save',
                              text: 'Tokens that the user has made above the role end.',
                              path: path(each.user, 'role'),
                              line: (model) => web('user', 'role', each.user, model.role ?? each.role),
                              done: (answer) => endedTokens(answer, 'the role is set'),
                              fields: (model, redraw) => {
                                model.role ??= each.role;
                                return roleField(model, redraw);
                              },
                              body: (model) => ({ role: model.role }),
                            }),
                        },
                        'Role',
                      ),
                      h(
                        'button',
                        {
                          type: 'button',
                          class: 'small',
                          'aria-label': `Remove ${each.user}`,
                          onclick: () =>
                            form({
                              title: `Remove ${each.user}`,
                              text: tokensOf(each.user).length
                                ? `All sessions of the user end, and the tokens that it has made: ${tokensOf(each.user)
                                    .map((token) => token.name)
                                    .join(', ')}.`
                                : 'All sessions of the user end. It has made no token.',
                              label: 'Remove the user',
                              isDanger: true,
                              typed: each.user,
                              path: path(each.user, 'remove'),
                              line: () => web('user', 'remove', each.user),
                              done: (answer) => endedTokens(answer, 'the user is removed'),
                            }),
                        },
                        'Remove',
                      ),
                    ),
            },
          ],
          entry.document?.users ?? [],
          (each) => `user-${each.user}`,
        ),
  );
}

function showToken(answer) {
  dialog({
    title: 'The token',
    view: (self) =>
      h(
        'div',
        { class: 'dialog-body' },
        h('p', null, 'It is shown this once. Programs send it as ', h('code', null, 'Authorization: Bearer …'), '.'),
        h('pre', { class: 'note', tabindex: '0' }, h('code', null, answer?.token ?? '')),
        h(
          'footer',
          { class: 'dialog-foot' },
          h('button', { type: 'button', class: 'primary', onclick: () => self.close() }, 'Close'),
        ),
      ),
  });
}

function newToken() {
  return form({
    title: 'New token',
    label: 'Create the token',
    path: '/tokens',
    text: 'For programs, such as a monitoring system. It ends with the rights of the user who makes it; one of an administrator holds for 366 days at most.',
    line: (model) =>
      web('token', 'create', model.name || 'NAME', '--role', model.role ?? 'viewer', '--days', String(model.days ?? 365)),
    fields: (model, redraw) => [
      textField('Name', model, 'name', redraw),
      roleField(model, redraw),
      textField('Days that it is valid', model, 'days', redraw, { type: 'number', min: 1, value: model.days ?? '365' }),
    ],
    isReady: (model) => Boolean(model.name) && Number(model.days ?? 365) > 0,
    body: (model) => ({ name: model.name, role: model.role ?? 'viewer', days: Number(model.days ?? 365) }),
    done: showToken,
  });
}

function tokensCard() {
  const entry = keep('/account/tokens', 10);
  const tokens = entry.document?.tokens ?? [];
  return h(
    'section',
    { class: 'card' },
    h(
      'div',
      { class: 'card-head' },
      h('h2', null, 'Tokens'),
      h('span', { class: 'end' }, h('button', { type: 'button', onclick: newToken }, 'New token')),
    ),
    entry.error
      ? refusal(entry.error)
      : tokens.length
        ? table(
            'Tokens',
            [
              { title: 'Token', cell: (each) => each.name },
              { title: 'Role', cell: (each) => each.role },
              { title: 'Made by', cell: (each) => each.created_by ?? '–' },
              { title: 'Valid until', cell: (each) => (each.expires_s ? day(each.expires_s) : '–') },
              {
                title: '',
                cell: (each) =>
                  h(
                    'button',
                    {
                      type: 'button',
                      class: 'small',
                      'aria-label': `Remove ${each.name}`,
                      onclick: () =>
                        form({
                          title: `Remove token ${each.name}`,
                          text: 'Programs that use it are refused from then on.',
                          label: 'Remove the token',
                          isDanger: true,
                          typed: each.name,
                          path: `/tokens/${encodeURIComponent(each.name)}/remove`,
                          line: () => web('token', 'remove', each.name),
                        }),
                    },
                    'Remove',
                  ),
              },
            ],
            tokens,
            (each) => `token-${each.name}`,
          )
        : h('p', { class: 'quiet' }, 'There is no token.'),
  );
}

const AUDIT_PAGE = 25;
let auditShown = AUDIT_PAGE;

// `verb path` of a request; whatever else was done has words.
function request(each) {
  const [verb, path] = each.what.split(' ', 2);
  return path?.startsWith('/') ? [verb, h('span', { class: 'cell-sub' }, path)] : each.what;
}

function auditCard() {
  const entry = keep('/account/audit', 10);
  // Each dialog asks for plans, which change nothing.
  const isPlan = (each) => String(each.outcome).startsWith('200 (dry run)');
  const all = [...(entry.document?.entries ?? [])].reverse().filter((each) => !isPlan(each));
  const entries = all.slice(0, auditShown);
  return card(
    'What was done here',
    entry.error
      ? refusal(entry.error)
      : table(
          'Requests for changes',
          [
            { title: 'Time', isShort: true, cell: (each) => when(each.time_s) },
            { title: 'User', isShort: true, cell: (each) => each.user ?? '–' },
            { title: 'From', isShort: true, cell: (each) => each.address ?? '–' },
            { title: 'Request', cell: request },
            { title: 'Answer', cell: (each) => String(each.outcome ?? '–') },
          ],
          entries.map((each, index) => ({ ...each, index: all.length - index })),
          (each) => `audit-${each.index}`,
        ),
    h('p', { class: 'quiet' }, 'Plans that were shown are left out.'),
    all.length > auditShown
      ? h(
          'button',
          {
            type: 'button',
            onclick: () => {
              auditShown += AUDIT_PAGE;
              redraw();
            },
          },
          'Show more',
        )
      : null,
  );
}

export function view() {
  const isAdmin = session.role === 'admin';
  const version = live.status?.version;
  return h(
    'div',
    null,
    pageHead('Settings'),
    h(
      'div',
      { class: 'columns' },
      h(
        'div',
        null,
        card(
          'Account',
          facts(['User', session.user], ['Role', session.role]),
          h(
            'div',
            { class: 'actions' },
            h('button', { type: 'button', onclick: changePassword }, 'Change the password'),
          ),
        ),
      ),
      h(
        'div',
        null,
        card(
          'Daemon',
          version
            ? facts(
                ['Version', version.daemon],
                ['API', `version ${version.api}`],
                ['Running for', duration(uptime())],
                ['Process', live.status.pid],
              )
            : h('p', { class: 'quiet' }, 'It does not answer.'),
          commandLine(command('version')),
        ),
      ),
    ),
    channelsCard(),
    sessionsCard(),
    isAdmin ? [usersCard(), tokensCard(), auditCard()] : null,
  );
}
