// Signing in: as a page when nobody is signed in, as a dialog over the page when a session has expired.

import { account, forget, request, session } from './api.js';
import { closeDialogs, dialog, refusal } from './dialog.js';
import { h, morph, toast } from './dom.js';

/** Takes in what the server tells of the session. Returns whether a first sign-in is awaited. */
export function takeAccount(document) {
  const isNobody = !document.user;
  if (!isNobody && session.user && session.user !== document.user) forget();
  session.user = document.user ?? null;
  session.role = document.role ?? null;
  return isNobody && document.first === true;
}

function field(label, name, model, redraw, more = {}) {
  return h(
    'label',
    { class: 'field' },
    h('span', null, label),
    h('input', {
      type: 'text',
      name,
      required: true,
      value: model[name] ?? '',
      spellcheck: 'false',
      autocapitalize: 'none',
      oninput: (event) => {
        model[name] = event.target.value;
        redraw();
      },
      ...more,
    }),
  );
}

function form(model, redraw, done) {
  const submit = async (event) => {
    event.preventDefault();
    if (model.isBusy) return;
    if (model.isFirst && model.password !== model.again) {
      model.error = { message: 'the two passwords differ', hint: 'type the same password twice' };
      redraw();
      return;
    }
    Object.assign(model, { isBusy: true, error: null });
    redraw();
    try {
      const body = { user: model.user, password: model.password };
      const answer = await account.post(
        model.isFirst ? '/first' : '/sign-in',
        model.isFirst ? { code: (model.code ?? '').trim(), ...body } : body,
      );
      // The answer may be empty; who is signed in, the server tells.
      takeAccount(answer?.user ? answer : await request('GET', '/account'));
      Object.assign(model, { password: '', again: '', isBusy: false });
      done();
    } catch (error) {
      Object.assign(model, { error, isBusy: false });
      redraw();
    }
  };
  return h(
    'form',
    { class: 'sign-in-form', onsubmit: submit },
    model.isFirst && [
      h(
        'p',
        null,
        'Nobody has an account yet. Run ',
        h('code', null, 'dolmen-web code'),
        ' as root on the host: it prints a code that is valid for 15 minutes.',
      ),
      field('Code', 'code', model, redraw, { autocomplete: 'one-time-code' }),
    ],
    field('User', 'user', model, redraw, { autocomplete: 'username' }),
    field('Password', 'password', model, redraw, {
      type: 'password',
      autocomplete: model.isFirst ? 'new-password' : 'current-password',
    }),
    model.isFirst && [
      field('Password again', 'again', model, redraw, { type: 'password', autocomplete: 'new-password' }),
      h('p', { class: 'quiet' }, 'This account is an administrator.'),
    ],
    refusal(model.error),
    h(
      'button',
      { type: 'submit', class: 'primary', disabled: model.isBusy },
      model.isBusy ? 'Working …' : model.isFirst ? 'Create the account' : 'Sign in',
    ),
  );
}

/** Shows the page for signing in, until somebody has. */
export function signInPage(root, isFirst) {
  const model = { isFirst };
  document.title = isFirst ? 'First sign-in – Dolmen' : 'Sign in – Dolmen';
  return new Promise((resolve) => {
    const draw = () =>
      morph(root, [
        h(
          'main',
          { class: 'sign-in', id: 'main' },
          h(
            'div',
            { class: 'card' },
            h(
              'div',
              { class: 'brand' },
              h('img', { src: '/console/icon.svg', alt: '', width: 36, height: 36 }),
              h('span', null, 'Dolmen'),
            ),
            h('h1', null, isFirst ? 'First sign-in' : 'Sign in'),
            form(model, draw, resolve),
          ),
        ),
      ]);
    draw();
    root.querySelector('input')?.focus();
  });
}

let asked = null;

/** Asks for the password again over the page, once for all requests that wait for it. */
export function signInAgain(call) {
  asked ??= new Promise((resolve) => {
    const before = { user: session.user, role: session.role };
    const model = { isFirst: false, user: session.user ?? '' };
    dialog({
      title: 'Sign in again',
      canClose: false,
      view: (self) =>
        h(
          'div',
          { class: 'dialog-body' },
          h('p', null, 'The session has ended. The page stays as it is.'),
          form(model, self.draw, () => {
            asked = null;
            self.close();
            // What another user has begun, or the same one with another role, is not carried on.
            if (session.user !== before.user || session.role !== before.role) {
              closeDialogs();
              toast(`${session.user} (${session.role}) is signed in; what ${before.user} had begun is dropped`, 'warn');
            }
            call();
            resolve();
          }),
        ),
    });
  });
  return asked;
}
