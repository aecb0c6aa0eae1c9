// Bars and line charts in SVG. Each has a sentence for those who do not see it.

import { h, s } from './dom.js';

/** A bar of parts: `[[class, amount, label], …]` of a whole. */
export function bar(parts, whole, label) {
  let at = 0;
  const rects = parts.map(([kind, amount]) => {
    const width = whole > 0 ? Math.min(100 - at, (amount / whole) * 100) : 0;
    const rect = s('rect', {
      class: `fill-${kind}`,
      x: at.toFixed(2),
      y: 0,
      width: Math.max(0, width).toFixed(2),
      height: 10,
    });
    at += width;
    return rect;
  });
  return s(
    'svg',
    { class: 'bar', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    s('rect', { class: 'fill-empty', x: 0, y: 0, width: 100, height: 10 }),
    rects,
  );
}

/** Names of the parts of a bar. */
export const legend = (parts) =>
  h(
    'ul',
    { class: 'legend' },
    parts.map(([kind, text]) => h('li', null, h('span', { class: `dot dot-${kind}`, 'aria-hidden': 'true' }), text)),
  );

export function progress(percent, label) {
  return h('progress', { class: 'progress', max: 100, value: percent ?? 0, 'aria-label': label });
}

function roof(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

// Rates are in bytes with binary prefixes: their round numbers are others.
function binaryRoof(value) {
  let unit = 1;
  while (value / unit >= 1024) unit *= 1024;
  return roof(value / unit) * unit;
}

const SPAN = { ms: 180_000, gapMs: 5000, text: '3 min ago' };

/**
 * A chart of lines over the last three minutes, or over `span`, whose ends are called `text` and `end`. `history` are points with their time in `at`, the oldest
 * first; each of `series` is `{name, kind, field}`. A line has a gap where its field is null, or where nothing was looked at.
 */
export function lines({ title, history, series: fields, show, isBinary = false, least = 10, span = SPAN }) {
  const end = history.at(-1)?.at ?? 0;
  const shown = history.filter((point) => end - point.at <= span.ms);
  const series = fields.map((line) => ({ ...line, values: shown.map((point) => point[line.field]) }));
  const known = series.flatMap((line) => line.values).filter((value) => value !== null && Number.isFinite(value));
  const top = isBinary ? binaryRoof(Math.max(1024, ...known)) : roof(Math.max(...known, least));
  const x = (index) => (1 - (end - shown[index].at) / span.ms) * 598;
  const y = (value) => 118 - (Math.min(value, top) / top) * 114;
  const paths = series.map((line) => {
    let path = '';
    let isDown = false;
    line.values.forEach((value, index) => {
      if (value === null || !Number.isFinite(value)) {
        isDown = false;
        return;
      }
      if (index && shown[index].at - shown[index - 1].at > span.gapMs) isDown = false;
      path += `${isDown ? 'L' : 'M'}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      // One point alone is a line of no length, which round caps show.
      if (!isDown && !(line.values[index + 1] >= 0)) path += 'l0 0';
      isDown = true;
    });
    return s('path', { class: `line line-${line.kind}`, d: path || 'M0 0', 'vector-effect': 'non-scaling-stroke' });
  });
  const last = series.map((line) => [line, line.values.findLast((value) => value !== null)]);
  const said = `${title}: ${last.map(([line, value]) => `${line.name} ${value === undefined ? 'none' : show(value)}`).join(', ')}`;
  return h(
    'figure',
    { class: 'chart' },
    h(
      'figcaption',
      null,
      h('span', { class: 'chart-title' }, title),
      h(
        'span',
        { class: 'chart-now' },
        last.map(([line, value]) =>
          h(
            'span',
            null,
            h('span', { class: `dot dot-${line.kind}`, 'aria-hidden': 'true' }),
            `${line.name} `,
            h('b', null, value === undefined ? '–' : show(value)),
          ),
        ),
      ),
    ),
    h(
      'div',
      { class: 'plot' },
      s(
        'svg',
        { viewBox: '0 0 600 120', preserveAspectRatio: 'none', role: 'img', 'aria-label': said },
        [4, 61, 118].map((at) =>
          s('line', { class: 'grid-line', x1: 0, x2: 600, y1: at, y2: at, 'vector-effect': 'non-scaling-stroke' }),
        ),
        paths,
      ),
      h('span', { class: 'plot-top', 'aria-hidden': 'true' }, show(top)),
      h('span', { class: 'plot-middle', 'aria-hidden': 'true' }, show(top / 2)),
    ),
    h('div', { class: 'plot-times', 'aria-hidden': 'true' }, h('span', null, span.text), h('span', null, span.end ?? 'now')),
  );
}
