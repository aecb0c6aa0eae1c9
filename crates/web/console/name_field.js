// The name of a pool or a space.

import { h } from './dom.js';
import { textField } from './fields.js';

const NAME = /^[a-z0-9][a-z0-9._-]*$/i;

export const isName = (name) => NAME.test(name);

/** A field for the name of a model, which says what no name is. */
export function nameField(label, model, redraw) {
  const rule = h(
    'small',
    model.name && !isName(model.name) ? { class: 'bad-text', role: 'alert' } : null,
    'Letters, digits, dots, dashes and underscores, with a letter or a digit in front.',
  );
  return textField(label, model, 'name', redraw, { required: true, hint: rule });
}
