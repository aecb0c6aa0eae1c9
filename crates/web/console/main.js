// The frame of the console: who is signed in, which page is shown, and what is live on it.
//
// A page is a module with `title` and `view(parts)`, which returns nodes from what is known at the moment. Pages but the
// first are loaded when somebody opens them.

import { account, forget, onDocument, release, request, session } from './api.js';
import { redrawDialogs } from './dialog.js';
import { h, morph, s } from './dom.js';
import { duration } from './format.js';
import { hush, listen, live, openJobs, relisten } from './live.js';
import { onRedraw } from './redraw.js';
import * as home from './page_home.js';
import { signInAgain, signInPage, takeAccount } from './sign_in.js';

// Each with its name, and the path of its icon in a field of 20 by 20.
const PAGES = {
  home: ['Home', 'M3 9.500 10 3.500l7 6M5 8.500V16h10V8.500'],
  disks: ['Disks', 'M3.500 4h13v5h-13zM3.500 11h13v5h-13zM13 6.500h1M13 13.500h1'],
  pools: [
    'Pools',
    'M10 3c4 0 6.500 1 6.500 2.300S14 7.600 10 7.600 3.500 6.600 3.500 5.300 6 3 10 3zM3.500 5.300v9.400C3.500 16 6 17 10 17s6.500-1 6.500-2.300V5.300M3.500 10c0 1.300 2.500 2.300 6.500 2.300s6.500-1 6.500-2.300',
  ],
  spaces: ['Spaces', 'M10 3l7 3.500-7 3.500-7-3.500zM3 10l7 3.500 7-3.500M3 13.500 10 17l7-3.500'],
  volumes: ['Volumes', 'M3 5.500h5l1.500 2H17V16H3z'],
  shares: [
    'Shares',
    'M6 10l8-4.500M6 10l8 4.500M4 10a2 2 0 1 0 4 0 2 2 0 1 0-4 0M13 5a2 2 0 1 0 4 0 2 2 0 1 0-4 0M13 15a2 2 0 1 0 4 0 2 2 0 1 0-4 0',
  ],
  jobs: ['Jobs', 'M10 3a7 7 0 1 0 7 7M10 6v4l3 2'],
  events: ['Events', 'M4 5h12M4 10h12M4 15h8'],
  performance: ['Performance', 'M3 15l4-6 3.500 3.500L17 4M3 17.500h14'],
  plan: ['Planner', 'M4 3h12v14H4zM7 6.500h6M7 10h1M10 10h1M13 10h0M7 13.500h1M10 13.500h3'],
  bench: ['Bench', 'M3.500 14a6.500 6.500 0 1 1 13 0M10 14l3.500-4.500M3 16.500h14'],
  settings: [
    'Settings',
    'M3 6h7M14 6h3M3 14h3M10 14h7M10 6a2 2 0 1 0 4 0 2 2 0 1 0-4 0M6 14a2 2 0 1 0 4 0 2 2 0 1 0-4 0',
  ],
};
const LOADERS = {
  home: async () => home,
  disks: () => import('./page_disks.js'),
  pools: () => import('./page_pools.js'),
  spaces: () => import('./page_spaces.js'),
  volumes: () => import('./page_volumes.js'),
  shares: () => import('./page_shares.js'),
  jobs: () => import('./page_jobs.js'),
  events: () => import('./page_events.js'),
  performance: () => import('./page_performance.js'),
  plan: () => import('./page_plan.js'),
  bench: () => import('./page_bench.js'),
  settings: () => import('./page_settings.js'),
};
const MAIN_PAGES = ['home', 'disks', 'spaces', 'jobs'];

const app = document.getElementById('app');
let page = { name: 'home', parts: [], module: home };
let isMenuOpen = false;
let isDrawing = false;
let isSignedIn = false;

function draw() {
  if (isDrawing || !isSignedIn) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    if (isSignedIn) morph(app, frame());
    redrawDialogs();
  });
}

const icon = (path) => s('svg', { class: 'icon', viewBox: '0 0 20 20', 'aria-hidden': 'true' }, s('path', { d: path }));

function banner() {
  const seconds = Math.round((Date.now() - live.since) / 1000);
  const since = live.status && seconds > 5 ? ` What is shown is ${duration(seconds)} old.` : '';
  if (live.state === 'daemon')
    return h(
      'div',
      { class: 'banner', role: 'alert' },
      h('strong', null, 'The daemon does not answer.'),
      h('span', { 'aria-hidden': 'true' }, `${since} The page goes on by itself when it does.`),
    );
  if (live.state === 'server')
    return h(
      'div',
      { class: 'banner', role: 'alert' },
      h('strong', null, 'The server of the console does not answer.'),
      h('span', { 'aria-hidden': 'true' }, `${since} The page goes on by itself when it does.`),
    );
  return null;
}

const loadAgain = () => h('button', { type: 'button', onclick: () => location.reload() }, 'Load the page again');

// Pages that are loaded later would not fit to the modules that are here.
const oldBanner = () =>
  release.isOld
    ? h(
        'div',
        { class: 'banner old', role: 'alert', key: 'old' },
        h('strong', null, 'The console was upgraded.'),
        h('span', null, ' This page is of the version before, and parts of it may fail. '),
        loadAgain(),
      )
    : null;

function navigation() {
  const openCount = openJobs().length;
  const link = ([name, [title, path]]) =>
    h(
      'li',
      { class: MAIN_PAGES.includes(name) ? 'main-page' : 'more-page', key: name },
      h(
        'a',
        {
          href: `#/${name}`,
          'aria-current': name === page.name ? 'page' : null,
          onclick: () => {
            isMenuOpen = false;
          },
        },
        icon(path),
        h('span', null, title),
        name === 'jobs' && openCount
          ? h('span', { class: 'count' }, openCount, h('span', { class: 'unseen' }, ' open'))
          : null,
      ),
    );
  return h(
    'nav',
    { class: isMenuOpen ? 'nav open' : 'nav', 'aria-label': 'Main' },
    h('ul', { id: 'nav-list' }, Object.entries(PAGES).map(link)),
    h(
      'button',
      {
        type: 'button',
        class: 'more',
        'aria-expanded': String(isMenuOpen),
        'aria-controls': 'nav-list',
        onclick: () => {
          isMenuOpen = !isMenuOpen;
          draw();
        },
      },
      icon('M4 6h12M4 10h12M4 14h12'),
      h('span', null, 'More'),
    ),
  );
}

function head() {
  const health = live.status?.health;
  return h(
    'header',
    { class: 'top' },
    h(
      'button',
      { type: 'button', class: 'skip', onclick: () => document.getElementById('main').focus() },
      'Skip to content',
    ),
    h(
      'a',
      { class: 'brand', href: '#/home' },
      h('img', { src: '/console/icon.svg', alt: '', width: 28, height: 28 }),
      h('span', null, 'Dolmen'),
    ),
    h(
      'span',
      { class: 'top-health' },
      live.state === 'daemon' || live.state === 'server'
        ? h('span', { class: 'pill' }, 'not known')
        : health && h('a', { href: '#/home', class: `pill ${health}` }, health),
    ),
    h(
      'details',
      { class: 'user-menu', key: 'user' },
      h('summary', null, session.user, h('span', { class: 'quiet' }, ` ${session.role}`)),
      h(
        'div',
        { class: 'menu' },
        h('a', { href: '#/settings' }, 'Settings'),
        h('button', { type: 'button', class: 'plain', onclick: signOut }, 'Sign out'),
      ),
    ),
  );
}

function frame() {
  let nodes;
  try {
    if (!page.module) nodes = [h('p', { class: 'quiet' }, 'Loading …')];
    else if (live.status || page.name === 'settings' || page.name === 'plan') nodes = [page.module.view(page.parts)];
    else
      nodes = [
        h('h1', null, PAGES[page.name][0]),
        h('p', { class: 'quiet' }, live.state === 'connecting' ? 'Asking for the state …' : 'Nothing is known yet.'),
      ];
  } catch (error) {
    console.error(error);
    nodes = [
      h('h1', null, PAGES[page.name][0]),
      h(
        'div',
        { class: 'note bad' },
        h('p', null, 'The console cannot show this page. ', String(error?.message ?? error)),
      ),
    ];
  }
  return [
    head(),
    h(
      'div',
      { class: 'body' },
      navigation(),
      h(
        'main',
        {
          id: 'main',
          tabindex: '-1',
          class: live.state === 'daemon' || live.state === 'server' ? 'is-old' : null,
          key: `main-${page.name}-${page.parts.join('/')}`,
        },
        oldBanner(),
        banner(),
        nodes,
      ),
    ),
  ];
}

const unloaded = () => [
  h('h1', null, PAGES[page.name][0]),
  h('div', { class: 'note bad', role: 'alert' }, h('p', null, 'This page could not be loaded.'), loadAgain()),
];

async function route(isFirst = false) {
  const parts = location.hash
    .replace(/^#\/?/, '')
    .split('/')
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
  const name = Object.hasOwn(PAGES, parts[0]) ? parts[0] : 'home';
  page = { name, parts: parts.slice(1), module: null };
  isMenuOpen = false;
  const mine = page;
  document.title = `${[...page.parts].reverse().concat(PAGES[name][0]).join(' – ')} – Dolmen`;
  try {
    mine.module = await LOADERS[name]();
  } catch {
    // The browser keeps a module that failed as failed: only a page that is loaded again asks for it again.
    mine.module = { view: unloaded };
    // Where the server has other files by now, this tells.
    request('GET', '/account').catch(() => {});
  }
  if (page !== mine) return;
  document.querySelector('.user-menu')?.removeAttribute('open');
  mine.module.opened?.();
  draw();
  // Screen readers and the keyboard go on at the new page.
  if (!isFirst)
    requestAnimationFrame(() =>
      requestAnimationFrame(() => document.getElementById('main')?.focus({ preventScroll: true })),
    );
  window.scrollTo(0, 0);
}

async function signOut() {
  try {
    await account.post('/sign-out');
  } finally {
    isSignedIn = false;
    Object.assign(session, { user: null, role: null });
    forget();
    hush();
    begin();
  }
}

async function begin() {
  let isFirst;
  for (;;) {
    try {
      isFirst = takeAccount(await request('GET', '/account'));
      break;
    } catch {
      morph(app, [
        h(
          'main',
          { class: 'sign-in', id: 'main' },
          h(
            'div',
            { class: 'card' },
            h('h1', null, 'Dolmen'),
            h('p', { role: 'alert' }, 'The server of the console does not answer. The page tries again by itself.'),
          ),
        ),
      ]);
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  if (!session.user) await signInPage(app, isFirst);
  isSignedIn = true;
  listenOnce();
  relisten();
  await route(true);
}

let isListening = false;

function listenOnce() {
  if (isListening) return;
  isListening = true;
  listen(draw);
}

// Menus close when something else is pressed, and with Escape.
const openMenus = () => document.querySelectorAll('.user-menu[open], .menu-button[open]');
document.addEventListener('click', (event) =>
  openMenus().forEach((menu) => menu.contains(event.target) || menu.removeAttribute('open')),
);
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  for (const menu of openMenus()) {
    menu.removeAttribute('open');
    menu.querySelector('summary').focus();
  }
});
session.signIn = () =>
  signInAgain(() => {
    relisten();
    draw();
  });
session.refresh = async () => {
  takeAccount(await request('GET', '/account'));
  draw();
};
onDocument(draw);
onRedraw(draw);
window.addEventListener('hashchange', () => isSignedIn && route());
document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && draw());
// Ages and the banner change without any news.
setInterval(() => live.state !== 'up' && draw(), 1000);
begin();
