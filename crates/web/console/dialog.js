// Dialogs: a change with its plan and its command line, and questions in steps.
//
// A modal <dialog> keeps the focus inside and gives it back; Escape closes it. Nothing that cannot be undone begins before
// its name was typed.

import { Refusal, change, stale } from './api.js';
import { bytes } from './format.js';
import { h, morph, prose, say, toast } from './dom.js';

const open = new Set();
let number = 0;

/** Draws all open dialogs again, since live data changed. */
export const redrawDialogs = () => open.forEach((dialog) => dialog.draw());

/** Closes all open dialogs. */
export const closeDialogs = () => [...open].reverse().forEach((dialog) => dialog.close());

/** Opens a dialog. `view(dialog)` returns its nodes, and is asked again whenever something changes. */
export function dialog({ title, view, isWide = false, canClose = true, onclose = () => {} }) {
  const id = `title-${(number += 1)}`;
  // An entry of a menu is hidden again when the dialog closes; its menu is not.
  const active = document.activeElement;
  const before = active?.closest('.menu')?.previousElementSibling ?? active;
  // Messages are put into the dialog itself; only what is in the inner part is drawn again.
  const inner = h('div', { class: 'dialog-inner' });
  const node = h('dialog', { class: isWide ? 'wide' : '', 'aria-labelledby': id }, inner);
  const self = {
    node,
    draw() {
      morph(inner, [
        h(
          'header',
          { class: 'dialog-head' },
          h('h2', { id, tabindex: '-1' }, typeof title === 'function' ? title() : title),
          canClose &&
            h(
              'button',
              { type: 'button', class: 'plain close', 'aria-label': 'Close', onclick: () => self.close() },
              '×',
            ),
        ),
        ...[view(self)].flat(Infinity).filter(Boolean),
      ]);
    },
    close(result) {
      open.delete(self);
      document.body.append(...node.querySelectorAll('#toasts, #said'));
      node.close();
      node.remove();
      if (before?.isConnected) before.focus();
      onclose(result);
    },
  };
  node.addEventListener('cancel', (event) => {
    event.preventDefault();
    if (canClose) self.close();
  });
  document.body.append(node);
  open.add(self);
  self.draw();
  node.showModal();
  (
    node.querySelector('.step-title') ??
    node.querySelector('.dialog-body :is(input, select)') ??
    node.querySelector('h2')
  ).focus();
  return self;
}

/** A command line with a button that copies it. */
export function commandLine(text) {
  return h(
    'div',
    { class: 'command' },
    h('span', { class: 'command-what' }, 'The same as a command'),
    h('code', { class: 'command-text', tabindex: '0' }, text),
    h(
      'button',
      {
        type: 'button',
        class: 'small',
        onclick: async () => {
          try {
            await navigator.clipboard.writeText(text);
            say('copied');
          } catch {
            say('the browser did not allow copying; select the text instead');
          }
        },
      },
      'Copy',
    ),
  );
}

export function refusal(error) {
  if (!error) return null;
  return h(
    'div',
    { class: 'note bad', role: 'alert' },
    h('p', null, h('strong', null, prose(error.message))),
    error.causes?.length
      ? h(
          'ul',
          null,
          error.causes.map((cause) => h('li', null, prose(cause))),
        )
      : null,
    error.hint ? h('p', null, prose(error.hint)) : null,
  );
}

/** What a change would do. */
export function planView(answer) {
  const plan = answer.plan;
  const volume = answer.volume_plan;
  return h(
    'div',
    { class: 'plan' },
    plan.steps.length
      ? [
          h('h3', null, 'Steps'),
          h(
            'ol',
            null,
            plan.steps.map((step) => h('li', null, prose(step))),
          ),
        ]
      : h('p', null, prose(answer.message)),
    (answer.warnings ?? []).map((warning) => h('p', { class: 'note warn' }, prose(warning))),
    volume && [
      h('h3', null, 'File system'),
      h(
        'dl',
        { class: 'facts' },
        h('dt', null, 'Kind'),
        h('dd', null, volume.file_system),
        h('dt', null, 'Mounted at'),
        h('dd', null, volume.mount_point),
        h('dt', null, 'Mount options'),
        h('dd', null, volume.mount_options.join(', ')),
      ),
      volume.reasons.length
        ? h(
            'details',
            null,
            h('summary', null, 'Why these options'),
            h(
              'ul',
              null,
              volume.reasons.map((reason) => h('li', null, prose(reason))),
            ),
          )
        : null,
      !answer.warnings?.length &&
        volume.missing.map((missing) =>
          h(
            'p',
            { class: 'note warn' },
            `Needs ${missing.package} ${missing.needed}${missing.found ? `; found ${missing.found}` : ''}. ${missing.lost}`,
          ),
        ),
    ],
    h(
      'dl',
      { class: 'facts' },
      plan.usable_before_bytes !== plan.usable_after_bytes && [
        h('dt', null, 'Usable with two copies'),
        h('dd', null, `${bytes(plan.usable_before_bytes)} → ${bytes(plan.usable_after_bytes)}`),
      ],
      plan.moved_bytes
        ? [h('dt', null, 'Moved between disks'), h('dd', null, `up to ${bytes(plan.moved_bytes)}`)]
        : null,
      h('dt', null, 'Can be undone'),
      h(
        'dd',
        { class: plan.is_reversible ? '' : 'bad-text' },
        plan.undo
          ? ['yes: ', h('code', null, plan.undo)]
          : plan.is_reversible
            ? 'yes, or there is nothing to undo'
            : 'no',
      ),
    ),
  );
}

/** A field in which a name has to be typed again before something is lost. */
export function typedField(name, model, redraw, why) {
  return h(
    'label',
    { class: 'field' },
    h('span', null, why ?? 'To go on, type ', h('code', null, name)),
    h('input', {
      type: 'text',
      autocomplete: 'off',
      spellcheck: 'false',
      name: 'typed',
      value: model.typed ?? '',
      oninput: (event) => {
        model.typed = event.target.value;
        redraw();
      },
    }),
  );
}

/** The plan of a change: asked for once per body, and kept in the model. */
export function planned(model, verb, parameters, body, redraw) {
  const key = JSON.stringify([verb, parameters, body]);
  if (model.planKey !== key) {
    Object.assign(model, { planKey: key, plan: null, planError: null });
    // Somebody who types changes the body with each key; only where it rests, the plan is asked for.
    clearTimeout(model.planTimer);
    model.planTimer = setTimeout(
      () =>
        change(verb, parameters, { ...body, dry_run: true })
          .then(
            (plan) => model.planKey === key && Object.assign(model, { plan }),
            (error) => model.planKey === key && Object.assign(model, { planError: error }),
          )
          .finally(redraw),
      150,
    );
  }
  return model.plan;
}

/** The plan of a change as a step of a wizard: asked for, shown, or the reason why there is none. */
export function planStep(model, verb, parameters, body, redraw) {
  const plan = planned(model, verb, parameters, body, redraw);
  if (plan) return planView(plan);
  if (!model.planError) return h('p', { class: 'quiet' }, 'Asking for the plan …');
  return [
    refusal(model.planError),
    h(
      'button',
      {
        type: 'button',
        onclick: () => {
          model.planKey = null;
          redraw();
        },
      },
      'Ask again',
    ),
  ];
}

/** Makes a change; tells what came of it. */
export async function perform(verb, parameters, body) {
  const answer = await change(verb, parameters, body);
  stale();
  toast(answer.message);
  for (const warning of answer.warnings ?? []) toast(warning, 'warn');
  return answer;
}

/**
 * Shows the plan of a change and makes it when somebody agrees. `fields(model, redraw)` are further inputs, from which
 * `body(model)` and `line(model)` follow; `typed` is a name to be typed first, or a function of the model that returns it.
 */
export function propose({
  title,
  text,
  verb,
  parameters,
  label,
  body = () => ({}),
  line,
  fields,
  typed,
  isDanger = false,
  isReady = () => true,
  done = () => {},
  shown,
}) {
  const model = { isBusy: false, error: null };
  const view = (self) => {
    const wanted = body(model);
    const ready = isReady(model);
    const plan = ready ? planned(model, verb, parameters, shown ? shown(wanted) : wanted, self.draw) : null;
    const name = typeof typed === 'function' ? typed(model) : typed;
    const isTyped = !name || model.typed === name;
    const act = async (event) => {
      event.preventDefault();
      if (model.isBusy || !plan || !isTyped) return;
      Object.assign(model, { isBusy: true, error: null });
      self.draw();
      try {
        const answer = await perform(verb, parameters, wanted);
        self.close();
        done(answer);
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        Object.assign(model, { isBusy: false, error });
        self.draw();
      }
    };
    return h(
      'form',
      { class: 'dialog-body', onsubmit: act },
      text ? h('p', null, prose(text)) : null,
      fields ? fields(model, self.draw) : null,
      h(
        'div',
        { 'aria-live': 'polite' },
        plan
          ? planView(plan)
          : ready && model.planError
            ? refusal(model.planError)
            : ready
              ? h('p', { class: 'quiet' }, 'Asking for the plan …')
              : null,
      ),
      name && plan ? typedField(name, model, self.draw) : null,
      ready && line ? commandLine(line(model)) : null,
      refusal(model.error),
      h(
        'footer',
        { class: 'dialog-foot' },
        h('button', { type: 'button', onclick: () => self.close() }, 'Cancel'),
        h(
          'button',
          { type: 'submit', class: isDanger ? 'danger' : 'primary', disabled: !plan || !isTyped || model.isBusy },
          model.isBusy ? 'Working …' : label,
        ),
      ),
    );
  };
  return dialog({ title, view });
}

/** Questions in steps: each step is `{title, view(model, redraw), isReady(model)}`; the last one begins the change itself. */
export function wizard({ title, steps, model, finish, label }) {
  Object.assign(model, { step: 0, isBusy: false, error: null });
  const go = (self, step) => {
    Object.assign(model, { step, error: null, typed: '' });
    self.draw();
    self.node.querySelector('.step-title')?.focus();
    self.node.querySelector('.dialog-body')?.scrollTo(0, 0);
  };
  const view = (self) => {
    const step = steps[model.step];
    const isLast = model.step === steps.length - 1;
    const isConfirm = step.isConfirm;
    const submit = async (event) => {
      event.preventDefault();
      if (model.isBusy || !(step.isReady?.(model) ?? true)) return;
      if (!isConfirm) {
        if (isLast) self.close();
        else go(self, model.step + 1);
        return;
      }
      Object.assign(model, { isBusy: true, error: null });
      self.draw();
      try {
        await finish(model);
        model.isBusy = false;
        if (isLast) self.close();
        else go(self, model.step + 1);
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        Object.assign(model, { isBusy: false, error });
        self.draw();
      }
    };
    const isAfter = steps.slice(0, model.step).some((former) => former.isConfirm);
    return h(
      'form',
      { class: 'dialog-form', onsubmit: submit },
      h(
        'ol',
        { class: 'steps' },
        steps.map((each, index) =>
          h(
            'li',
            { 'aria-current': index === model.step ? 'step' : null, class: index < model.step ? 'past' : '' },
            each.title,
          ),
        ),
      ),
      h(
        'div',
        { class: 'dialog-body', key: `step-${model.step}` },
        h('h3', { class: 'step-title', tabindex: '-1' }, step.heading ?? step.title),
        step.view(model, self.draw),
        refusal(model.error),
      ),
      h(
        'footer',
        { class: 'dialog-foot' },
        !isAfter && h('button', { type: 'button', onclick: () => self.close() }, 'Cancel'),
        model.step > 0 && !isAfter && h('button', { type: 'button', onclick: () => go(self, model.step - 1) }, 'Back'),
        h(
          'button',
          {
            type: 'submit',
            class: step.isDanger?.(model) ? 'danger' : 'primary',
            disabled: model.isBusy || !(step.isReady?.(model) ?? true),
          },
          model.isBusy ? 'Working …' : isConfirm ? label : isLast ? 'Close' : 'Next',
        ),
      ),
    );
  };
  return dialog({ title, view, isWide: true });
}
