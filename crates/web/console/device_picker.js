// Choosing devices that belong to no open pool. One that holds something is only taken when its name was typed.
//
// Invariant: a choice and a typed name hold for the device that was shown, not for its path. When another device, or other
// content, comes to be there, the choice has ended; the daemon compares the identity that was shown, too.

import { keep, pathOf } from './api.js';
import { refusal } from './dialog.js';
import { h } from './dom.js';
import { baseName, bytes, words } from './format.js';

const EMPTY = 'empty';
const REPLACEABLE = new Set(['foreign', 'member', 'unusable']);

const listed = () => keep(pathOf('ListDevices'), 3);

export const newPicks = () => ({ chosen: {}, names: {}, extra: [], path: '', lost: [] });

// What a choice holds for.
const keyOf = (device) => device.identity ?? JSON.stringify([device.state, device.size_bytes, device.what]);

/** All devices, and files that somebody named. */
export function devicesOf(picks) {
  const found = listed().document?.devices ?? [];
  return [
    ...found,
    ...picks.extra
      .filter((path) => !found.some((device) => device.path === path))
      .map((path) => ({ path, state: 'named', what: 'named by hand', size_bytes: null })),
  ];
}

export const chosenOf = (picks) => devicesOf(picks).filter((device) => picks.chosen[device.path] === keyOf(device));

/** Paths that were chosen, and are something else by now, or nothing. */
function lostOf(picks) {
  if (!listed().document) return [];
  const here = new Set(chosenOf(picks).map((device) => device.path));
  return Object.keys(picks.chosen).filter((path) => picks.chosen[path] && !here.has(path));
}

function drop(picks, path) {
  delete picks.chosen[path];
  delete picks.names[path];
}

const needsName = (device) => REPLACEABLE.has(device.state) || device.state === 'named';
const isNamed = (device, picks) => picks.names[device.path] === baseName(device.path);

const destroyed = (picks) => chosenOf(picks).filter((device) => needsName(device) && isNamed(device, picks));

/** Paths of chosen devices whose content may be lost, as somebody has typed. */
export const destroyOf = (picks) => destroyed(picks).map((device) => device.path);

/** The fields of a change that say what may be lost, and what was seen there. */
export function consentOf(picks) {
  const seen = destroyed(picks).map((device) => device.identity ?? '');
  return { destroy: destroyOf(picks), ...(seen.some(Boolean) ? { seen } : {}) };
}

/** Whether something is chosen, and all that would be lost was typed. A path named by hand may be empty: the plan tells. */
export const isPicked = (picks) =>
  lostOf(picks).length === 0 &&
  chosenOf(picks).length > 0 &&
  chosenOf(picks).every((device) => !REPLACEABLE.has(device.state) || isNamed(device, picks));

function option(device, picks, redraw, isSingle, redo) {
  const can = device.state === EMPTY || needsName(device);
  const isChosen = picks.chosen[device.path] === keyOf(device);
  const choose = (event) => {
    if (isSingle) picks.chosen = {};
    drop(picks, device.path);
    picks.lost = [];
    if (event.target.checked) picks.chosen[device.path] = keyOf(device);
    redo();
  };
  return h(
    'div',
    { key: device.path },
    h(
      'label',
      { class: 'option' },
      h('input', {
        type: isSingle ? 'radio' : 'checkbox',
        name: 'device',
        value: device.path,
        checked: isChosen,
        disabled: !can,
        onchange: choose,
      }),
      h(
        'span',
        null,
        h('b', null, baseName(device.path)),
        h(
          'small',
          null,
          device.state === EMPTY
            ? `${device.path}, empty`
            : device.state === 'named'
              ? `${device.path}, ${device.what}`
              : `${device.path}, ${words(device.state)}: ${device.what}`,
        ),
      ),
      device.size_bytes ? h('span', { class: 'end' }, bytes(device.size_bytes)) : null,
    ),
    isChosen && needsName(device)
      ? h(
          'label',
          { class: 'field note warn' },
          h(
            'span',
            null,
            device.state === 'named'
              ? 'If it holds something that may be lost, type '
              : 'What it holds is lost. To agree, type ',
            h('code', null, baseName(device.path)),
          ),
          h('input', {
            type: 'text',
            autocomplete: 'off',
            spellcheck: 'false',
            value: picks.names[device.path] ?? '',
            oninput: (event) => {
              picks.names[device.path] = event.target.value;
              redraw();
            },
          }),
        )
      : null,
  );
}

const lostNote = (paths, what) =>
  paths.length
    ? h(
        'div',
        { class: 'note bad', role: 'alert' },
        paths.map((path) => h('p', null, h('code', null, path), ' is not the device any more that was chosen. ', what)),
      )
    : null;

/** The chosen devices with what they hold, for the step that confirms. */
export function chosenView(picks) {
  return [
    lostNote(lostOf(picks), 'Go back and choose again.'),
    h(
      'ul',
      { class: 'chosen' },
      chosenOf(picks).map((device) =>
        h(
          'li',
          { key: device.path },
          h('code', null, device.path),
          ` ${device.size_bytes ? `${bytes(device.size_bytes)}, ` : ''}`,
          device.state === EMPTY ? 'empty' : device.state === 'named' ? device.what : `${words(device.state)}: ${device.what}`,
        ),
      ),
    ),
  ];
}

/** The choice itself. `isSingle` allows one device. */
export function devicePicker(picks, redraw, { isSingle = false, legend = 'Devices that no pool uses' } = {}) {
  const redo = redraw;
  const entry = listed();
  const devices = devicesOf(picks);
  for (const path of lostOf(picks)) {
    drop(picks, path);
    picks.lost.push(path);
  }
  const add = () => {
    const path = picks.path.trim();
    if (!path.startsWith('/')) return;
    if (!picks.extra.includes(path)) picks.extra.push(path);
    if (isSingle) picks.chosen = {};
    picks.lost = [];
    picks.chosen[path] = keyOf(devicesOf(picks).find((device) => device.path === path));
    picks.path = '';
    redraw();
  };
  return h(
    'div',
    { class: 'options' },
    lostNote(picks.lost, 'Its choice and its typed name have ended.'),
    h(
      'fieldset',
      null,
      h('legend', null, legend),
      devices.length
        ? h(
            'div',
            { class: 'options' },
            devices.map((device) => option(device, picks, redraw, isSingle, redo)),
          )
        : entry.document
          ? h('p', { class: 'quiet' }, 'The daemon sees no device that is free.')
          : entry.error
            ? refusal(entry.error)
            : h('p', { class: 'quiet' }, 'Looking for devices …'),
    ),
    h(
      'details',
      null,
      h('summary', null, 'Another path'),
      h(
        'div',
        { class: 'field-row' },
        h(
          'label',
          { class: 'field' },
          h('span', null, 'Path of a disk, a partition or a file on the host'),
          h('input', {
            type: 'text',
            value: picks.path,
            placeholder: '/dev/disk/by-id/…',
            oninput: (event) => {
              picks.path = event.target.value;
            },
            onkeydown: (event) => {
              if (event.key === 'Enter') {
                event.preventDefault();
                add();
              }
            },
          }),
        ),
        h('button', { type: 'button', onclick: add }, 'Take it'),
      ),
    ),
  );
}
