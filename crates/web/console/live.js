// The stream: the state of everything, as the server tells it about once a second.
//
// States: `connecting`, `up`, `daemon` (the server answers, the daemon does not), `server` (nothing answers). Silence of
// the stream decides nothing: after some seconds a question tells which of them it is.

import { request, session, stale } from './api.js';
import { feed } from './figures.js';

const SILENCE_MS = 4000;
const RETRY_MS = 1500;
// A page that nobody sees keeps no connection: browsers have few of them, and the daemon is not asked for it.
const HIDDEN_MS = 30000;

// Events that are kept, at most: as many as the daemon keeps.
const EVENTS_MAX = 1000;

export const live = { status: null, jobs: null, events: null, figures: null, state: 'connecting', since: Date.now() };

let source = null;
let heard = 0;
let isProbing = false;
let hiddenTimer = 0;
let startedAt = 0;
let tell = () => {};

function become(state) {
  if (live.state === state) return;
  // What a page asked while nobody answered is asked again.
  if (state === 'up') stale();
  live.state = state;
  live.since = Date.now();
  tell('state');
}

// The stream begins with all events that are kept; later ones bring the new events alone.
function joined(former, document) {
  const first = document.events[0]?.number;
  if (!former || first === undefined || document.last < former.last) return document;
  const events = [...former.events.filter((event) => event.number < first), ...document.events].slice(-EVENTS_MAX);
  return { ...document, events, dropped: Math.max(former.dropped, document.dropped) };
}

function hear(name, text) {
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    return;
  }
  if (!document || document.error) return;
  heard = performance.now();
  live[name] = name === 'events' ? joined(live.events, document) : document;
  // The status comes when it changes, and its time since the start is as old as that.
  if (name === 'status') startedAt = performance.now() - document.uptime_s * 1000;
  if (name === 'figures') feed(document);
  become('up');
  tell(name);
}

function open() {
  source?.close();
  source = new EventSource('/api/v1/stream');
  for (const name of ['status', 'jobs', 'events', 'figures']) {
    source.addEventListener(name, (event) => hear(name, event.data));
  }
}

async function probe() {
  if (isProbing || !session.user) return;
  isProbing = true;
  try {
    await request('GET', '/api/v1/version');
    // The daemon answers: it was quiet, or the stream has ended.
    if (!source || source.readyState === EventSource.CLOSED) open();
    else if (performance.now() - heard > 4 * SILENCE_MS) open();
    if (live.state !== 'connecting') become('up');
  } catch (error) {
    if (error.status === 0) become('server');
    else if (error.status !== 401) become('daemon');
  } finally {
    isProbing = false;
  }
}

/** Begins to listen; `call` is called with the name of each document that arrived, or `state`. */
export function listen(call) {
  tell = call;
  open();
  document.addEventListener('visibilitychange', () => {
    clearTimeout(hiddenTimer);
    if (document.visibilityState === 'hidden') {
      hiddenTimer = setTimeout(() => source?.close(), HIDDEN_MS);
    } else if (source?.readyState === EventSource.CLOSED) {
      heard = performance.now();
      open();
    }
  });
  setInterval(() => {
    const isSilent = performance.now() - heard > SILENCE_MS;
    if (document.visibilityState === 'visible' && (isSilent || source?.readyState === EventSource.CLOSED)) probe();
  }, RETRY_MS);
}

/** Listens again, as another user perhaps. */
export function relisten() {
  heard = performance.now();
  if (source) open();
}

export function hush() {
  source?.close();
  source = null;
  Object.assign(live, { status: null, jobs: null, events: null, figures: null, state: 'connecting' });
}

export const uptime = () => (performance.now() - startedAt) / 1000;
export const pools = () => live.status?.pools ?? [];
export const spaces = () => live.status?.spaces ?? [];
export const jobs = () => live.jobs?.jobs ?? [];
export const isOver = (job) => ['done', 'called_off', 'failed'].includes(job.state);
export const openJobs = (pool) => jobs().filter((job) => !isOver(job) && (!pool || job.pool === pool));
export const now = () => live.jobs?.now_s || live.events?.now_s || Date.now() / 1000;
export const poolOf = (name) => pools().find((pool) => pool.name === name);
export const diskOf = (pool, slot) => poolOf(pool)?.disks.find((disk) => disk.slot === Number(slot));
export const spaceOf = (pool, name) => spaces().find((space) => space.pool === pool && space.name === name);
