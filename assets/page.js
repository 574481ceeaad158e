// The page as a whole, once it is there (workbench/ui/app.py): help of fields behind a "?", videos that stay still where
// a person wants less motion, one tab stop for a list of tabs, the skip link, what was refused. Not covered: single
// components.
'use strict';

// Gradio shows the help of a field as a paragraph below its label. Here it opens with the "?", or as the Tab key comes to
// the field, and describes the field to a screen reader in any case. A click elsewhere moves nothing below the pointer.
let helps = 0;
let byKeyboard = false;
const help = (info) => {
  const block = info.closest('.block');
  const title = block.querySelector('[data-testid=block-info]') ?? block.querySelector('label');
  const group = block.querySelector('fieldset, [role=group]');
  const fields = group ? [group] : [...block.querySelectorAll('input, textarea')];
  if (!title || !fields.length) return;
  info.id = `help-${(helps += 1)}`;
  info.dataset.help = 'closed';
  const name = (title.querySelector('.label-text') ?? title).textContent.trim();
  for (const field of fields) {
    field.setAttribute('aria-describedby', info.id);
    field.setAttribute('aria-label', name);
  }
  const button = document.createElement('button');
  Object.assign(button, { type: 'button', className: 'help-button', tabIndex: -1 });
  button.addEventListener('pointerenter', () => { button.title = info.textContent.trim(); }); // it may change
  const show = (open) => { info.dataset.help = open ? 'open' : 'closed'; button.setAttribute('aria-expanded', open); };
  button.setAttribute('aria-label', `Help: ${name}`);
  button.setAttribute('aria-controls', info.id);
  show(false);
  let asked = false;
  button.addEventListener('click', (event) => { event.preventDefault(); event.stopPropagation(); asked = !asked; show(asked); });
  block.addEventListener('focusin', ({ target }) => {
    show(asked || byKeyboard);
    if (byKeyboard) requestAnimationFrame(() => target.scrollIntoView({ block: 'nearest' })); // the help moved it down
  });
  block.addEventListener('focusout', () => released(() => { if (!asked && !block.contains(document.activeElement)) show(false); }));
  title.append(button);
};
window.addEventListener('keydown', (event) => { byKeyboard = event.key === 'Tab'; }, true);
// The list of a choice closes as the Tab key leaves it, and takes the focus along where the list can be scrolled. Gradio
// opens it again at any key, after the field was left, so this key is not passed on.
window.addEventListener('keydown', (event) => {
  const { key, target } = event;
  if (key !== 'Tab' || target.getAttribute?.('role') !== 'combobox') return;
  document.getElementById(target.getAttribute('aria-controls'))?.setAttribute('tabindex', '-1');
  event.stopPropagation();
}, true);
// What is pressed stays where it is until it is let go: help that closed in between would move it from below the pointer.
let pressed = false;
const released = (then) => {
  if (pressed) window.addEventListener('pointerup', () => setTimeout(then, 50), { once: true, capture: true });
  else setTimeout(then);
};
window.addEventListener('pointerdown', () => { byKeyboard = false; pressed = true; }, true);
for (const end of ['pointerup', 'pointercancel', 'dragend']) window.addEventListener(end, () => { pressed = false; }, true);

// Of a list of tabs the chosen one is a tab stop; the arrow keys, Home and End go to the others, in the rail also up and
// down.
const TABS = ':scope > [role=tab]:not([disabled])';
const oneStop = (list) => {
  for (const tab of list.querySelectorAll(TABS)) {
    const stop = tab.getAttribute('aria-selected') === 'true' ? 0 : -1;
    if (tab.tabIndex !== stop) tab.tabIndex = stop;
  }
};
window.addEventListener('keydown', (event) => {
  const list = event.target.closest?.('[role=tablist]');
  const tabs = list ? [...list.querySelectorAll(TABS)] : [];
  const now = tabs.indexOf(event.target);
  const rail = list?.closest('#main-tabs > .tab-wrapper') ? { ArrowDown: now + 1, ArrowUp: now - 1 } : {};
  const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: tabs.length - 1, ...rail }[event.key];
  if (now < 0 || to === undefined) return;
  event.preventDefault();
  const tab = tabs[(to + tabs.length) % tabs.length];
  tab.click();
  tab.focus();
});

// A video that would begin by itself stays still where the system asks for less motion, and gets controls.
const still = window.matchMedia('(prefers-reduced-motion: reduce)');
document.addEventListener('play', ({ target }) => {
  if (!still.matches || !target.autoplay) return;
  Object.assign(target, { autoplay: false, controls: true });
  target.pause();
}, true);

// A picture whose file went while the page shows it leaves its place empty, without the browser's sign for it.
for (const [came, missing] of [['error', true], ['load', false]]) {
  document.addEventListener(came, ({ target }) => {
    if (target.tagName === 'IMG') target.classList.toggle('missing', missing);
  }, true);
}

document.addEventListener('click', (event) => {
  if (!event.target.closest?.('.skip-link')) return;
  event.preventDefault();
  const panel = [...document.querySelectorAll('[role=tabpanel]')].find((one) => one.offsetParent);
  panel.tabIndex = -1;
  panel.focus();
});

// The button of an empty state opens a tab, or a fold or field that takes the focus.
document.addEventListener('click', ({ target }) => {
  const opens = target.closest?.('[data-opens]')?.dataset.opens;
  const found = opens && document.querySelector(opens);
  if (!found) return;
  if (found.matches('[role=tab]')) { found.click(); found.focus(); return; }
  found.querySelector(':scope > button:not(.open)')?.click();
  setTimeout(() => {
    found.scrollIntoView({ block: 'nearest' });
    found.querySelector('input, textarea')?.focus();
  }, 100); // once it is unfolded
});

// Gradio's drop zone is named other than what stands on it, which speech input then does not find; again once its texts
// in the browser's language have come.
const name = (zone) => {
  const text = zone.textContent.replace(/\s+/g, ' ').trim();
  if (zone.getAttribute('aria-label') !== text) zone.setAttribute('aria-label', text);
};

// The page is in English, whatever language Gradio takes from the browser for the few words of its own.
const english = () => { if (document.documentElement.lang !== 'en') document.documentElement.lang = 'en'; };
new MutationObserver(english).observe(document.documentElement, { attributes: true, attributeFilter: ['lang'] });
english();

// What was refused (workbench/ui/core/boundary.py, warn) comes as one of Gradio's messages, which lie over other things and
// are all in one corner. It is shown below what was pressed, until that is used again.
const refusals = new Map(); // box -> {ids: where it may stand, row: where it stands now}
const elements = (ids) => ids.map((one) => document.getElementById(one)).filter(Boolean);
const forget = (box) => { box.remove(); refusals.delete(box); };
const settle = (box, place) => {
  const where = elements(place.ids).find((one) => one.offsetParent);
  const row = where?.closest('.buttons, .choosing') ?? where;
  if (!row || row === place.row) return;
  Object.assign(place, { row, before: row.previousElementSibling });
  row.after(box);
};
const refuse = (text) => {
  const ids = [...text.classList].filter((one) => one.startsWith('at-')).map((one) => one.slice(3));
  if (!elements(ids).some((one) => one.offsetParent)) return;
  const close = make('button', { type: 'button', className: 'close', textContent: '×', label: 'Close' });
  const box = make('div', { className: 'note bad refusal', role: 'alert' }, make('p', { textContent: text.textContent }), close);
  close.addEventListener('click', () => forget(box));
  for (const [other, place] of refusals) if (place.ids.join() === ids.join()) forget(other);
  refusals.set(box, { ids });
  settle(box, refusals.get(box));
  box.scrollIntoView({ block: 'nearest' });
  text.dataset.moved = 'yes';
  const toast = text.closest('[data-testid=toast-body]');
  if (!toast?.querySelector('.not-done:not([data-moved])')) toast?.querySelector('[data-testid=toast-close]')?.click();
};
for (const used of ['click', 'input']) {
  document.addEventListener(used, ({ target }) => {
    for (const [box, { ids }] of refusals) if (elements(ids).some((one) => one.contains(target))) forget(box);
  }, true);
}

const tidy = () => {
  for (const text of document.querySelectorAll('.not-done:not([data-moved])')) refuse(text);
  for (const [box, place] of refusals) {
    settle(box, place);
    // What was pressed is gone, as a question is: Gradio takes away what is behind it, too.
    if (!box.isConnected && place.before?.isConnected) place.before.after(box);
    if (!box.isConnected) refusals.delete(box);
  }
  for (const info of document.querySelectorAll('.block .info-text:not([id])')) help(info);
  for (const list of document.querySelectorAll('[role=tablist]')) oneStop(list);
  for (const zone of document.querySelectorAll('button.upload-container')) name(zone);
};
let due = 0;
const changed = () => { due ||= requestAnimationFrame(() => { due = 0; tidy(); }); };
new MutationObserver(changed).observe(document.body, {
  childList: true, subtree: true, attributes: true, attributeFilter: ['aria-selected', 'aria-label'],
});
tidy();
