// Requests to the API and to the accounts, and documents that pages keep fresh.
//
// Invariant: a request that finds the session expired waits until somebody has signed in again, and is sent once more. A
// change is sent once more for the same user with the same role alone: what one has agreed to, nobody else does.

import { VERBS, ROLES } from './verbs.js';

/** An answer that is no success, with the fields of an error of the API. */
export class Refusal extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    super(error.message ?? (status ? `the server answers with status ${status}` : 'the server does not answer'));
    this.status = status;
    this.code = error.code ?? null;
    this.hint = error.hint ?? null;
    this.causes = error.causes ?? [];
  }
}

/** The user who is signed in, with the last known role; `signIn` and `refresh` are set by the frame. */
export const session = { user: null, role: null, signIn: null, refresh: null };

export const can = (verb) => ROLES.indexOf(session.role) >= ROLES.indexOf(VERBS[verb][1]);

const RELEASE = document.querySelector('meta[name="dolmen-console"]')?.content ?? '';

/** Whether the server has other files of the console than this page was loaded with. */
export const release = { isOld: false };

// The server tells with each answer which files of the console it has.
function compareRelease(found) {
  if (!found || found === RELEASE || release.isOld) return;
  release.isOld = true;
  arrived();
}

// Of a change that was sent, nobody knows what became of it.
const UNKNOWN_END = {
  error: {
    message: 'the server does not answer, and what was asked for may have been done',
    hint: 'look whether it was done before you ask again',
  },
};

async function send(method, path, body) {
  const init = { method, headers: { Accept: 'application/json' }, credentials: 'same-origin', cache: 'no-store' };
  if (method === 'POST') {
    init.headers['Content-Type'] = 'application/json';
    init.headers['Dolmen-Request'] = '1';
    init.body = JSON.stringify(body ?? {});
  }
  let answer;
  try {
    answer = await fetch(path, init);
  } catch {
    throw new Refusal(0, method === 'POST' ? UNKNOWN_END : null);
  }
  compareRelease(answer.headers.get('dolmen-console'));
  const text = await answer.text();
  let document = null;
  try {
    document = text ? JSON.parse(text) : null;
  } catch {
    // A proxy in between may answer in HTML.
  }
  if (!answer.ok) throw new Refusal(answer.status, document);
  return document;
}

export async function request(method, path, body) {
  const { user, role } = session;
  try {
    return await send(method, path, body);
  } catch (error) {
    // The role may have changed meanwhile; the buttons follow.
    if (error.status === 403 && error.code === 'permission' && !path.startsWith('/account')) session.refresh?.();
    const isSignIn = path === '/account/sign-in' || path === '/account/first';
    if (error.status !== 401 || isSignIn || !session.signIn) throw error;
    await session.signIn();
    if (method === 'POST' && (session.user !== user || session.role !== role)) throw dropped(user, role);
    return send(method, path, body);
  }
}

function dropped(user, role) {
  const now = session.user === user ? `now with the role ${session.role}` : `and ${session.user} signed in`;
  return new Refusal(401, {
    error: {
      code: 'permission',
      message: `the session of ${user} (${role}) had ended, ${now}; nothing was changed`,
      hint: 'ask for it again, if it is still wanted',
    },
  });
}

export const account = {
  get: (what = '') => request('GET', `/account${what}`),
  post: (what, body) => request('POST', `/account${what}`, body),
};

export function pathOf(verb, parameters = {}) {
  const path = VERBS[verb][0].replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(parameters[name]));
  return `/api/v1${path}`;
}

/** Asks for a change, or with `dry_run` for its plan. */
export const change = (verb, parameters, body) => request('POST', pathOf(verb, parameters), body);

/** Asks a question now. */
export const ask = (verb, parameters) => request('GET', pathOf(verb, parameters));

// Questions of pages that are under way at a time: fewer than the server carries out for one session.
const ASKING_MAX = 4;

// Documents that a page shows in addition to those of the stream.
const documents = new Map();
let asking = 0;
let arrived = () => {};

export const onDocument = (call) => {
  arrived = call;
};

/**
 * Returns the last known document of a question, or nothing as long as there is none, and asks again when it is older
 * than so many seconds. `error` of the entry says why there is none.
 */
export function keep(path, seconds = 5) {
  let entry = documents.get(path);
  if (!entry) documents.set(path, (entry = { document: undefined, error: null, at: -Infinity, isAsking: false }));
  if (!entry.isAsking && asking < ASKING_MAX && performance.now() - entry.at > seconds * 1000) {
    entry.isAsking = true;
    asking += 1;
    request('GET', path)
      .then(
        (document) => Object.assign(entry, { document, error: null }),
        (error) => Object.assign(entry, { error }),
      )
      .finally(() => {
        Object.assign(entry, { at: performance.now(), isAsking: false });
        asking -= 1;
        arrived();
      });
  }
  return entry;
}

export const known = (verb, parameters, seconds) => keep(pathOf(verb, parameters), seconds).document;

const ONCE_S = 1e9;

/** The same, asked for once, and again after `refresh` and after a change. */
export const onceKnown = (verb, parameters = {}) => keep(pathOf(verb, parameters), ONCE_S).document;

/** Makes a kept document stale. */
export function refresh(verb, parameters = {}) {
  const entry = documents.get(pathOf(verb, parameters));
  if (entry) entry.at = -Infinity;
  arrived();
}

/** Makes all kept documents stale, since something was changed. */
export function stale() {
  for (const entry of documents.values()) entry.at = -Infinity;
  arrived();
}

/** Forgets all documents, since another user may see others. */
export const forget = () => documents.clear();
