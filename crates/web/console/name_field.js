// The name of a pool or a space.

import { h } from './dom.js';

const NAME = /^[a-z0-9][a-z0-9._-]*$/i;

export const isName = (name) => NAME.test(name);

/** A field for the name of a model, which says what no name is. */
export function nameField(label, model, redraw) {
  return h(
    'label',
    { class: 'field' },
    h('span', null, label),
    h('input', {
      type: 'text',
      name: 'name',
      required: true,
      value: model.name,
      spellcheck: 'false',
      autocomplete: 'off',
      oninput: (event) => {
        model.name = event.target.value;
        redraw();
      },
    }),
    h(
      'small',
      model.name && !isName(model.name) ? { class: 'bad-text', role: 'alert' } : null,
      'Letters, digits, dots, dashes and underscores, with a letter or a digit in front.',
    ),
  );
}
