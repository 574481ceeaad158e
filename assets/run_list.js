// The browser's half of workbench/ui/train/run_list.py: the runs by groups, with a search and an order.
// Gradio runs this as a function of (element, trigger, props, server, watch). The value is {version, chosen, orders}.
'use strict';

const SEARCH_MS = 200;
const search = make('input', { type: 'search', placeholder: 'Find runs', title: 'Words of the name, dataset, model, group, state or notes', label: 'Find runs' });
const order = make('select', { label: 'Order of the runs' });
const tools = make('div', { className: 'tools', hidden: true }, search, order);
const groups = make('div', { className: 'groups', role: 'radiogroup', label: 'Runs' });
const message = make('p', { className: 'message', role: 'status', hidden: true });
const whole = make('div', { className: 'run-list', hidden: true }, make('h3', { textContent: 'Runs' }), tools, groups, message);
element.replaceChildren(whole);
let loading = 0, loaded = '';

function runOf(one) {
  const radio = make('input', { type: 'radio', name: 'run-list', value: one.id });
  const state = make('span', { className: 'badge' });
  const about = make('span', { className: 'hint' });
  const notes = make('span', { className: 'hint' });
  const item = make('li', {}, make('label', {}, radio, make('span', { className: 'name', textContent: one.id }), state, about, notes));
  radio.addEventListener('change', () => trigger('open', { name: one.id }));
  item.dataset.id = one.id;
  item.update = (now) => {
    badge(state, now);
    set(about, `${now.when} · ${now.about}`);
    set(notes, now.notes);
    notes.hidden = !now.notes;
    item.title = now.dates;
  };
  return item;
}

function groupOf(one) {
  const title = make('summary', {}), runs = make('ul', {});
  const item = make('details', { open: true }, title, runs);
  item.dataset.id = one.id;
  item.update = (now) => {
    set(title, `${now.title} (${now.count})`);
    title.hidden = !now.title;
    patch(runs, now.runs, runOf);
  };
  return item;
}

function choose() {
  for (const radio of groups.querySelectorAll('input')) radio.checked = radio.value === props.value?.chosen;
}

async function load() {
  const mine = ++loading;
  const found = await server.run_list({ search: search.value, order: order.value });
  if (mine !== loading || !found?.groups) return;
  whole.hidden = !found.all;
  tools.hidden = found.all < found.few;
  patch(groups, found.groups, groupOf);
  message.hidden = !found.message;
  set(message, found.message);
  choose();
}

let timer = 0;
search.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(load, SEARCH_MS); });
order.addEventListener('change', load);

function update() {
  const value = props.value ?? {};
  if (!order.options.length) order.append(...Object.entries(value.orders ?? {}).map(([key, text]) => make('option', { value: key, textContent: text })));
  choose();
  if (value.version && value.version !== loaded) load();
  loaded = value.version;
}
watch('value', update);
update();
