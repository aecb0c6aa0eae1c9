// A size as a number and a unit.

import { h } from './dom.js';

const UNITS = [
  ['MiB', 2 ** 20],
  ['GiB', 2 ** 30],
  ['TiB', 2 ** 40],
];

const NUMBER = /^[0-9]+([.,][0-9]+)?$/;

/** The bytes that a size field holds, or nothing where it holds no size. */
export function bytesOf(size) {
  const unit = UNITS.find(([name]) => name === size.unit)[1];
  const text = String(size.value).trim();
  const value = NUMBER.test(text) ? Number(text.replace(',', '.')) : 0;
  // Sizes are multiples of 4 KiB.
  return value > 0 ? Math.round((value * unit) / 4096) * 4096 : null;
}

/** Returns the size of a field for so many bytes. */
export function sizeOf(count) {
  const [unit, amount] = [...UNITS].reverse().find(([, each]) => count >= each) ?? UNITS[0];
  return { value: String(Math.round((count / amount) * 1000) / 1000), unit };
}

export function sizeField(label, size, redraw, hint) {
  return h(
    'fieldset',
    { class: 'field' },
    h('legend', null, label),
    h(
      'div',
      { class: 'field-row' },
      h('input', {
        type: 'text',
        inputmode: 'decimal',
        'aria-label': label,
        name: 'size',
        size: 10,
        value: size.value,
        oninput: (event) => {
          size.value = event.target.value;
          redraw();
        },
      }),
      h(
        'select',
        {
          'aria-label': `Unit of ${label.toLowerCase()}`,
          value: size.unit,
          onchange: (event) => {
            size.unit = event.target.value;
            redraw();
          },
        },
        UNITS.map(([unit]) => h('option', { value: unit }, unit)),
      ),
    ),
    String(size.value).trim() && !bytesOf(size)
      ? h('small', { class: 'bad-text', role: 'alert' }, 'A size is a number above 0, such as 10 or 1.5.')
      : null,
    hint ? h('small', null, hint) : null,
  );
}
