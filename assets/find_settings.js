// The browser's half of workbench/ui/core/form.py: a search that leaves of a form what fits, as one types.
// Gradio runs this as a function of (element, trigger, props, server, watch). A field counts by its name, title and help
// (props.texts); the value says which fields have no effect now (they are hidden unless changed) and which differ
// from their defaults. The event `input` says that a field changed. Attributes are set instead of classes, which the
// fields' own code writes anew.
'use strict';

const texts = Object.fromEntries(Object.entries(props.texts).map(([name, text]) => [name, `${name} ${text}`.toLowerCase()]));
const search = make('input', { type: 'search', label: 'Find a setting', placeholder: 'Find a setting: memory, flip, save_every ...' });
const result = make('p', { role: 'status', hidden: true });
element.replaceChildren(make('div', { className: 'find-setting' }, search, result));
const form = element.closest('.form-parts');
let more = null; // what is folded away; it may be made after this
let opened = false; // by the search, which closes it again
let wanted = false; // open: one searches, and has not closed it

const mark = (target, name, on) => (on ? target.setAttribute(name, '') : target.removeAttribute(name));
const folded = () => more?.querySelector(':scope > [data-testid=accordion-content]');
const isOpen = () => folded()?.style.display !== 'none';
const toggle = () => more.querySelector(':scope > button').click();
// Again and again: Gradio makes the fields when it opens, and closes what was opened before the page was whole.
const unfold = () => {
  if (!wanted || !folded() || isOpen()) return;
  opened = true;
  toggle();
};

const apply = () => {
  const { unneeded = [], changed = [] } = props.value ?? {};
  const off = new Set(unneeded.filter((name) => !changed.includes(name)));
  const fits = matchingSettings(texts, search.value);
  const shown = new Set(fits.filter((name) => !off.has(name)));
  for (const name of Object.keys(texts)) {
    const block = document.getElementById(props.prefix + name);
    if (!block) continue; // folded away
    mark(block, 'data-off', !shown.has(name));
    mark(block, 'data-changed', changed.includes(name));
  }
  for (const group of form.querySelectorAll('.fields, .form, .setting-section')) {
    const blocks = [...group.querySelectorAll(`[id^=${CSS.escape(props.prefix)}]`)];
    if (blocks.length) mark(group, 'data-off', blocks.every((block) => block.hasAttribute('data-off')));
  }
  const title = more?.querySelector(':scope > button > span');
  const count = changed.filter((name) => !props.in_view.includes(name)).length;
  if (title && count) title.dataset.count = `${count} changed`;
  else if (title) delete title.dataset.count;
  result.hidden = !search.value.trim();
  const sentence = searchResult(search.value, fits.length, shown.size, Object.keys(texts).length);
  if (result.textContent !== sentence) result.textContent = sentence;
};

search.addEventListener('input', () => {
  wanted = Boolean(search.value.trim());
  unfold();
  if (!wanted && opened) { opened = false; if (isOpen()) toggle(); }
  apply();
});
search.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter') return;
  event.preventDefault();
  const fields = [...form.querySelectorAll('.block:not([data-off]) input, .block:not([data-off]) textarea')];
  fields.find((field) => field !== search && field.offsetParent && field.closest(`[id^="${CSS.escape(props.prefix)}"]`))?.focus();
});
// Whoever changed a field, a person or a listener: one event for all. Gradio takes time for each field that it listens
// to, as the page opens and at every event. Fields that are folded away change only as the form is filled in.
const was = new Map();
const look = () => {
  let edited = false;
  for (const block of form.querySelectorAll(`[id^=${CSS.escape(props.prefix)}]`)) {
    const now = contentOf(block);
    edited ||= was.has(block.id) && was.get(block.id) !== now;
    was.set(block.id, now);
  }
  if (edited) trigger('input');
};
let typed = null; // the list into which a person types; what is none of its choices counts once it is left
const after = ({ type, target, isTrusted }) => {
  if (type === 'click' && isTrusted && target.closest('.more > button')) wanted = false;
  setTimeout(() => { // once Gradio has taken it
    look();
    if (type === 'input' && target.role === 'combobox') typed = target;
    if (type !== 'focusout' || typed !== target) return;
    typed = null;
    trigger('input');
  });
};
const SIGNS = ['input', 'change', 'click', 'keyup', 'focusout'];
for (const sign of SIGNS) form.addEventListener(sign, after);
const looking = setInterval(() => {
  if (!document.hidden) { unfold(); look(); }
  if (element.isConnected) return;
  clearInterval(looking);
  for (const sign of SIGNS) form.removeEventListener(sign, after);
}, 300);

// The fields come one by one, in no order: as the tab opens, and when what is folded away is opened.
const found = () => { more = form.querySelector('.more'); unfold(); apply(); look(); };
let due = 0;
new MutationObserver(() => { due ||= requestAnimationFrame(() => { due = 0; found(); }); }).observe(form, { childList: true, subtree: true });
found();
watch('value', apply);
