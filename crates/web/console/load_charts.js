// Charts of the load of a space, a disk or a pool: the same lines on each page.

import { lines } from './chart.js';
import { count, latency, rate } from './format.js';

const pair = (read, written) => [
  { name: 'read', kind: 'read', field: read },
  { name: 'write', kind: 'write', field: written },
];
const QUANTILES = { p50: '50 %', p95: '95 %', p99: '99 %' };

export const throughput = (history, span) =>
  lines({ history, span, title: 'Throughput', isBinary: true, show: rate, series: pair('readBytes', 'writeBytes') });

export const requests = (history, span) =>
  lines({ history, span, title: 'Requests', show: (value) => `${count(value)}/s`, series: pair('readIo', 'writeIo') });

export const slowest = (history, span) =>
  lines({ history, span, title: '99 % were done within', show: latency, series: pair('readP99', 'writeP99') });

/** The time within which so many requests were done; `quantiles` are of p50, p95 and p99. */
export const latencyChart = (history, quantiles, title = 'Latency') =>
  lines({
    history,
    title,
    show: latency,
    series: quantiles.map((field) => ({ name: QUANTILES[field], kind: field, field })),
  });
