// Elements, and how a page becomes the next one.
//
// Texts become text nodes and attributes, never HTML: names of pools, disks and files come from outside. `morph` changes
// what differs and leaves the rest, so that focus, selections and open details survive a page that changes each second.

const TOASTS_MAX = 3;
const SVG = 'http://www.w3.org/2000/svg';

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === true) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

function assign(node, properties) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) {
      node[name] = value;
      (node.handlers ??= []).push(name);
    } else if (name === 'value') {
      node.wanted = String(value);
    } else if (name === 'checked') {
      node.wantedChecked = value;
      node.checked = value;
    } else if (name === 'key') {
      node.setAttribute('data-key', value);
    } else {
      node.setAttribute(name, value === true ? '' : value);
    }
  }
  return node;
}

/** Returns an element of HTML. `value` and `checked` are set as properties, `on…` as handlers. */
export function h(tag, properties, ...children) {
  const node = append(assign(document.createElement(tag), properties), children);
  if (properties?.checked === false) node.wantedChecked = false;
  if (node.wanted !== undefined) node.value = node.wanted;
  return node;
}

/** Returns an element of SVG. */
export function s(tag, properties, ...children) {
  return append(assign(document.createElementNS(SVG, tag), properties), children);
}

const keyOf = (node) => (node.nodeType === 1 ? node.getAttribute('data-key') : null);
const isSame = (old, next) => old.nodeName === next.nodeName && keyOf(old) === keyOf(next);

function updateElement(old, next) {
  if (next.hasAttribute('data-keep')) return;
  for (const { name } of [...old.attributes]) {
    // A reader opens and closes details; that is no business of the page.
    if (!next.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of old.handlers ?? []) if (!next.handlers?.includes(name)) old[name] = null;
  for (const name of next.handlers ?? []) old[name] = next[name];
  old.handlers = next.handlers;
  morph(old, [...next.childNodes]);
  if (
    next.wanted !== undefined &&
    old.value !== next.wanted &&
    (old !== document.activeElement || old.nodeName === 'SELECT')
  )
    old.value = next.wanted;
  if (next.wantedChecked !== undefined) old.checked = next.wantedChecked;
}

/** Makes the children of a node what is wanted, with as few changes as it can. */
export function morph(node, wanted) {
  const keyed = new Map();
  for (const child of node.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = node.firstChild;
  for (const next of wanted) {
    const key = keyOf(next);
    const match = key ? keyed.get(key) : at && !keyOf(at) ? at : null;
    if (match && match.parentNode === node && isSame(match, next)) {
      if (match === at) at = at.nextSibling;
      else node.insertBefore(match, at);
      if (match.nodeType === 1) updateElement(match, next);
      else if (match.data !== next.data) match.data = next.data;
    } else {
      node.insertBefore(next, at);
    }
  }
  while (at) {
    const rest = at.nextSibling;
    at.remove();
    at = rest;
  }
}

/** Returns nodes of a text whose words in backticks are commands. */
export function prose(text) {
  return String(text)
    .split('`')
    .map((part, index) => (index % 2 ? h('code', null, part) : part));
}

const topmost = () => [...document.querySelectorAll('dialog[open]')].at(-1) ?? document.body;

/** Says a sentence to screen readers. */
export function say(text) {
  const node = document.getElementById('said');
  // All that is outside of a modal dialog is silent as long as it is open.
  const place = topmost();
  if (node.parentNode !== place) place.append(node);
  node.textContent = '';
  setTimeout(() => {
    node.textContent = text;
  }, 50);
}

/** Shows a result for some seconds, and says it. */
export function toast(text, kind = 'ok') {
  let shelf = document.getElementById('toasts');
  if (!shelf) document.body.append((shelf = h('div', { id: 'toasts' })));
  // A dialog covers the rest of the page; what is to be seen while it is open has to be in it.
  topmost().append(shelf);
  const node = h(
    'div',
    { class: `toast ${kind}` },
    prose(text),
    h('button', { class: 'plain', 'aria-label': 'Dismiss', onclick: () => node.remove() }, '×'),
  );
  while (shelf.childElementCount >= TOASTS_MAX) shelf.firstElementChild.remove();
  shelf.append(node);
  say(text);
  setTimeout(() => node.remove(), kind === 'ok' ? 8000 : 20000);
}
