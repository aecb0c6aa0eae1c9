// History of pools, spaces and disks, as the daemon keeps it: asked for what a page shows, and again each ten seconds.

import { pathOf, request } from './api.js';
import { redraw } from './redraw.js';

/** Lengths of time that a page offers, in seconds. */
export const SPANS = [
  ['', 'the last 3 minutes', 180],
  ['hour', 'the last hour', 3600],
  ['day', 'the last day', 86400],
  ['week', 'the last week', 7 * 86400],
  ['months', 'the last 60 days', 60 * 86400],
  ['year', 'the last year', 366 * 86400],
];

const AGAIN_MS = 10_000;

// What was asked for last: pages show one object at a time.
let last = { key: null, at: -Infinity, document: null, error: null, isAsking: false };

/** The last known history of `{pool, of, name}` over so many seconds; `document` is null as long as there is none. */
export function historyOf(subject, seconds) {
  const key = JSON.stringify([subject, seconds]);
  if (last.key !== key) last = { key, at: -Infinity, document: null, error: null, isAsking: false };
  const entry = last;
  if (!entry.isAsking && performance.now() - entry.at > AGAIN_MS) {
    entry.isAsking = true;
    const query = new URLSearchParams({ of: subject.of, from_s: String(Math.floor(Date.now() / 1000) - seconds) });
    if (subject.name !== null) query.set('name', subject.name);
    request('GET', `${pathOf('ShowHistory', { pool: subject.pool })}?${query}`)
      .then(
        (document) => Object.assign(entry, { document, error: null }),
        (error) => Object.assign(entry, { error }),
      )
      .finally(() => {
        Object.assign(entry, { at: performance.now(), isAsking: false });
        redraw();
      });
  }
  return entry;
}

/** Points of a history as charts take them, with one of nothing at its end, so that it ends now. */
export function chartPoints(history) {
  const per = (sum, point) => (point.covered_s ? sum / point.covered_s : null);
  const points = history.points.map((point) => ({
    at: point.at_s * 1000,
    readBytes: per(point.reads.bytes, point),
    writeBytes: per(point.writes.bytes, point),
    readIo: per(point.reads.count, point),
    writeIo: per(point.writes.count, point),
    readP99: point.reads.p99_us ?? null,
    writeP99: point.writes.p99_us ?? null,
    used: point.used.mean,
    waiting: point.waiting.max,
  }));
  const none = { readBytes: null, writeBytes: null, readIo: null, writeIo: null, readP99: null, writeP99: null };
  return [...points, { at: history.to_s * 1000, used: null, waiting: null, ...none }];
}
