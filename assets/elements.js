// What the browser's halves of the page's components share; stands before each of them (workbench/ui/core/render.py, script).
'use strict';

// An element with properties and children; `role` and `label` (for people who cannot see it) are attributes.
const make = (tag, properties = {}, ...children) => {
  const { role, label, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  if (role) made.setAttribute('role', role);
  if (label) made.setAttribute('aria-label', label);
  made.append(...children);
  return made;
};

// The state of a thing as a word on its colour, with its icon: {state, tone, icon}, the icon as the path of an SVG.
const badge = (node, { state, tone, icon }) => {
  if (node.dataset.state === state && node.dataset.icon === icon) return;
  Object.assign(node.dataset, { state, icon });
  node.className = `badge ${tone}`;
  const picture = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const lines = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  lines.setAttribute('d', icon);
  picture.setAttribute('viewBox', '0 0 16 16');
  picture.setAttribute('class', 'icon');
  picture.setAttribute('aria-hidden', 'true');
  picture.append(lines);
  node.replaceChildren(picture, state);
};

// Change a text only where it is another one: a screen reader says it anew, and a selection in it is lost.
const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// Bring the children of `parent` to the list `wanted`, whose ids they keep: what stays is changed in place (item.update),
// so that a playing video or a moving picture does not start again.
function patch(parent, wanted, create) {
  const there = new Map([...parent.children].map((item) => [item.dataset.id, item]));
  wanted.forEach((one, index) => {
    const item = there.get(one.id) ?? create(one);
    there.delete(one.id);
    if (parent.children[index] !== item) parent.insertBefore(item, parent.children[index] ?? null);
    item.update?.(one);
  });
  for (const item of there.values()) item.remove();
}

// Whether a key moves within the text of a field.
const withinText = ({ key, target }) => target.type === 'text'
  && (key === 'ArrowLeft' ? target.selectionEnd > 0 : target.selectionStart < target.value.length);

// Of the buttons or boxes of a list one is a tab stop; arrow keys, Home and End go to the others, also when they change.
// fields: what is in the list uses keys itself; then only the arrows left and right go on, in a text from its ends.
function oneTabStop(list, selector, fields = false) {
  let current = null;
  const all = () => [...list.querySelectorAll(selector)];
  const stop = () => {
    const there = all();
    if (!there.includes(current)) [current] = there;
    for (const one of there) one.tabIndex = one === current ? 0 : -1;
  };
  list.addEventListener('focusin', ({ target }) => {
    if (!target.matches(selector)) return;
    current = target;
    stop();
  });
  list.addEventListener('keydown', (event) => {
    const there = all(), at = there.indexOf(event.target);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    if (fields && (!/^Arrow(Left|Right)$/.test(event.key) || withinText(event))) return;
    const top = (one) => Math.round(one.getBoundingClientRect().top);
    const columns = there.filter((one) => top(one) === top(there[0])).length;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns, Home: 0, End: there.length }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    there[Math.max(0, Math.min(to, there.length - 1))].focus();
  });
  new MutationObserver(stop).observe(list, { childList: true, subtree: true });
  stop();
}

// What a field of a form holds, to tell whether it changed: texts, ticks, the words of a choice of several, LoRAs.
const contentOf = (block) => JSON.stringify([
  [...block.querySelectorAll('input, textarea, select')].map((one) => (one.type === 'checkbox' ? one.checked : one.value)),
  [...block.querySelectorAll('.token')].map((one) => one.textContent), block.querySelectorAll('.lora-row').length]);
