// Fields of forms, each of which changes one value of a model and has its page drawn again.

import { h } from './dom.js';

/** A field of a label and a control, with a hint below. */
function labelled(label, control, hint) {
  return h(
    'label',
    { class: 'field' },
    h('span', null, label),
    control,
    typeof hint === 'string' ? h('small', null, hint) : (hint ?? null),
  );
}

/** A text of a model; `more` has further attributes of its input. */
export function textField(label, model, name, redraw, { hint, ...more } = {}) {
  const input = h('input', {
    type: 'text',
    name,
    autocomplete: 'off',
    spellcheck: 'false',
    value: model[name] ?? '',
    oninput: (event) => {
      model[name] = event.target.value;
      redraw();
    },
    ...more,
  });
  return labelled(label, input, hint);
}

/** A choice among options; `choose` takes the value of the chosen one. */
export function choiceField(label, value, options, choose, redraw, { hint, ...more } = {}) {
  const select = h(
    'select',
    {
      value,
      onchange: (event) => {
        choose(event.target.value);
        redraw();
      },
      ...more,
    },
    options,
  );
  return labelled(label, select, hint);
}

export const option = (value, text = value) => h('option', { value }, text);
