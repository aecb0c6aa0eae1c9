// Requests to the API and to the accounts, and documents that pages keep fresh.
//
// Invariant: a request that finds the session expired waits until somebody has signed in again, and is sent once more.

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
    throw new Refusal(0, null);
  }
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
  try {
    return await send(method, path, body);
  } catch (error) {
    // The role may have changed meanwhile; the buttons follow.
    if (error.status === 403 && error.code === 'permission' && !path.startsWith('/account')) session.refresh?.();
    const isSignIn = path === '/account/sign-in' || path === '/account/first';
    if (error.status !== 401 || isSignIn || !session.signIn) throw error;
    await session.signIn();
    return send(method, path, body);
  }
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

// Documents that a page shows in addition to those of the stream.
const documents = new Map();
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
  if (!entry.isAsking && performance.now() - entry.at > seconds * 1000) {
    entry.isAsking = true;
    request('GET', path)
      .then(
        (document) => Object.assign(entry, { document, error: null }),
        (error) => Object.assign(entry, { error }),
      )
      .finally(() => {
        Object.assign(entry, { at: performance.now(), isAsking: false });
        arrived();
      });
  }
  return entry;
}

export const known = (verb, parameters, seconds) => keep(pathOf(verb, parameters), seconds).document;

/** Makes all kept documents stale, since something was changed. */
export function stale() {
  for (const entry of documents.values()) entry.at = -Infinity;
  arrived();
}

/** Forgets all documents, since another user may see others. */
export const forget = () => documents.clear();
