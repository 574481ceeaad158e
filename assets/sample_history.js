// The browser's half of workbench/ui/sample/history.py: earlier samples in pages, searched, starred and chosen.
// Gradio runs this as a function of (element, trigger, props, server, watch). A call of `server` answers undefined when the
// server cannot be reached.
'use strict';

const FEWEST = 2, MOST = 4; // samples side by side
const SHOW = { all: 'All samples', starred: 'Starred', removed: 'Bin' };
const KEYS = [['arrows', 'from sample to sample'], ['Enter', 'open it'], ['x, Shift+x', 'choose it, or all up to it'],
  ['s', 'star'], ['Delete', 'move the chosen ones, or this one, to the bin']];
const EMPTY = { all: 'No sample has these words and dates.', starred: 'No star here yet: press ☆ below a sample.', removed: 'Nothing here is in the bin.' };
const UNREACHED = 'The server does not answer: try again in a moment.';
const still = window.matchMedia('(prefers-reduced-motion: reduce)');

const buttonOf = (text, className, action) => {
  const made = make('button', { type: 'button', textContent: text, className });
  made.addEventListener('click', action);
  return made;
};
const day = (label) => make('input', { type: 'date', label, title: label });
const search = make('input', { type: 'search', label: 'Find samples', placeholder: 'Find: words of a prompt, a model, a LoRA' });
const filter = make('select', { className: 'show', label: 'Show' }, ...Object.entries(SHOW).map(([value, textContent]) => make('option', { value, textContent })));
const from = day('Generated from this day'), to = day('Generated until this day');
const newer = buttonOf('Newer', 'newer', () => load(page - 1));
const older = buttonOf('Older', 'older', () => load(page + 1));
const range = make('span', { className: 'range' });
const everyone = make('input', { type: 'checkbox', className: 'whole' });
const count = make('span', { className: 'chosen', role: 'status' });
const star = buttonOf('Star', 'give-star', () => starAll());
const beside = buttonOf('Side by side', 'side-by-side', () => trigger('compare', { ids: [...chosen] }));
const zip = buttonOf('Download as zip', 'zip', () => download('zip'));
const gif = buttonOf('As one GIF', 'gif', () => download('gif'));
const remove = buttonOf('Move to the bin', 'remove', () => bin([...chosen]));
const restore = buttonOf('Restore', 'restore', () => bring([...chosen]));
const none = buttonOf('Choose none', 'none', () => { chosen = new Set(); choose(); });
const grid = make('ul', { className: 'samples', label: 'Samples' });
const message = make('p', { className: 'message', hidden: true });
const done = make('p', { className: 'done', role: 'status', hidden: true });
const keys = make('details', { className: 'keys' }, make('summary', { textContent: 'Keys' }), make('dl', {}, ...KEYS.map(
  ([key, what]) => make('div', {}, make('dt', { textContent: key }), make('dd', { textContent: what })))));
const whole = make('div', { className: 'sample-history', hidden: true },
  make('div', { className: 'tools' }, make('b', { textContent: 'History' }), search, filter,
    make('span', { className: 'days' }, from, '–', to), make('span', { className: 'pager' }, range, newer, older)),
  make('div', { className: 'tools' }, make('label', { className: 'check' }, everyone, 'All on this page'), count,
    star, beside, zip, gif, remove, restore, none),
  done, grid, message, keys);
element.replaceChildren(whole);

let page = 0, loading = 0, mark;
let chosen = new Set(), anchor = '', current = ''; // of the keyboard: the one tab stop among the samples
const ids = () => [...grid.children].map((one) => one.dataset.id);
const binned = () => filter.value === 'removed';

// ---- a sample

function cardOf(first) {
  const { id } = first;
  const video = make('video', { muted: true, loop: true, playsInline: true, preload: 'metadata', tabIndex: -1 });
  video.disablePictureInPicture = true;
  if (first.pixelated) video.classList.add('pixelated');
  const prompt = make('span', { className: 'prompt' });
  const open = make('button', { type: 'button', className: 'open', tabIndex: -1 }, video, prompt, make('span', { className: 'hint', textContent: first.about }));
  const box = make('input', { type: 'checkbox', tabIndex: -1 });
  const made = new Date(first.created * 1000);
  const year = made.getFullYear() === new Date().getFullYear() ? undefined : 'numeric';
  const text = made.toLocaleString([], { year, month: 'short', day: 'numeric', hour: 'numeric', minute: '2-digit' });
  const when = make('time', { dateTime: made.toISOString(), textContent: text, title: made.toLocaleString() });
  const starred = make('button', { type: 'button', className: 'star', tabIndex: -1, label: 'Star' });
  const item = make('li', { className: 'sample' }, open, make('div', { className: 'foot' }, make('label', { className: 'check' }, box, when), starred));
  item.dataset.id = id;
  item.update = (one) => {
    const address = one.url && `${one.url}#t=0.1`;
    if (address && video.getAttribute('src') !== address) video.src = address; // latents become a video
    open.title = one.prompt;
    set(prompt, one.prompt);
    box.setAttribute('aria-label', `Choose ${one.prompt}`);
    item.starred = one.starred;
    set(starred, one.starred ? '★' : '☆');
    starred.setAttribute('aria-pressed', one.starred);
    starred.hidden = binned();
  };
  const play = () => { if (!still.matches) video.play().catch(() => {}); };
  for (const name of ['pointerenter', 'focus']) open.addEventListener(name, play);
  for (const name of ['pointerleave', 'blur']) open.addEventListener(name, () => video.pause());
  open.addEventListener('focus', () => { current = id; choose(); });
  open.addEventListener('click', () => (binned() ? pick(id, !chosen.has(id), false) : trigger('open', { id })));
  box.addEventListener('click', (event) => pick(id, box.checked, event.shiftKey));
  starred.addEventListener('click', () => give([id], !item.starred));
  return item;
}

// ---- choosing

function pick(id, on, upTo) {
  chosen = choosing(chosen, ids(), id, on, upTo ? anchor : '');
  anchor = id;
  choose();
}

function choose() {
  const shown = [...grid.children], opened = (props.value ?? {}).chosen, here = ids();
  if (!here.includes(current)) current = here[0] ?? '';
  for (const one of shown) {
    one.classList.toggle('current', one.dataset.id === opened);
    one.classList.toggle('selected', chosen.has(one.dataset.id));
    one.querySelector('input').checked = chosen.has(one.dataset.id);
    one.querySelector('.open').tabIndex = one.dataset.id === current ? 0 : -1;
  }
  everyone.checked = shown.length > 0 && here.every((id) => chosen.has(id));
  set(count, chosen.size ? `${chosen.size} chosen` : '');
  for (const one of [star, beside, zip, gif, remove]) one.hidden = !chosen.size || binned();
  restore.hidden = !chosen.size || !binned();
  none.hidden = !chosen.size;
  beside.disabled = chosen.size < FEWEST || chosen.size > MOST;
  beside.title = beside.disabled ? `Choose ${FEWEST} to ${MOST} samples` : '';
  set(star, shown.some((one) => chosen.has(one.dataset.id) && !one.starred) ? 'Star' : 'Remove the stars');
}

everyone.addEventListener('change', () => {
  for (const id of ids()) chosen[everyone.checked ? 'add' : 'delete'](id);
  choose();
});

// ---- what is done with samples

async function call(name, values) {
  const answer = await server[name](values);
  if (!answer || answer.problem) { tell(answer?.problem ?? UNREACHED); return null; }
  return answer;
}

function tell(text, undo) {
  done.replaceChildren(text, ...(undo ? [' ', buttonOf('Undo', 'undo', undo)] : []));
  done.hidden = !text;
}

const samples = (number) => (number === 1 ? 'The sample is' : `${number} samples are`);

async function give(list, on) {
  if (await call('star_samples', { ids: list, starred: on })) await load(page);
}
const starAll = () => give([...chosen], star.textContent === 'Star');

async function bin(list) {
  if (!await call('remove_samples', { ids: list })) return load(page);
  chosen = new Set();
  tell(`${samples(list.length)} in the bin.`, () => bring(list));
  await load(page);
  refocus();
}

async function bring(list) {
  if (!await call('restore_samples', { ids: list })) return load(page);
  chosen = new Set();
  tell(`${samples(list.length)} back in the history.`);
  await load(page);
  refocus();
}

async function download(kind) {
  tell(`Packing ${chosen.size} ...`);
  const answer = await call('download_samples', { ids: [...chosen], kind });
  if (!answer) return;
  const link = make('a', { href: answer.url, download: answer.name, textContent: answer.name });
  done.replaceChildren('Downloading ', link);
  link.click();
}

// What had the focus may be gone: it goes on from the sample beside it.
function refocus() { if (!element.contains(document.activeElement)) (grid.querySelector('.open[tabindex="0"]') ?? filter).focus(); }

// ---- pages

async function load(wanted) {
  const mine = ++loading;
  const found = await server.samples_page({ search: search.value, show: filter.value, page: Math.max(0, wanted), ...between(from.value, to.value) });
  if (mine !== loading || !found?.samples) return;
  page = found.page;
  whole.hidden = !found.all;
  patch(grid, found.samples, cardOf);
  const shown = pager(found);
  range.textContent = shown.text;
  newer.disabled = !shown.newer;
  older.disabled = !shown.older;
  newer.hidden = older.hidden = !shown.needed;
  message.hidden = found.matching > 0;
  message.textContent = search.value || from.value || to.value ? EMPTY.all : EMPTY[filter.value];
  choose();
}

let soon = 0;
search.addEventListener('input', () => { clearTimeout(soon); soon = setTimeout(() => load(0), 250); });
for (const one of [from, to]) one.addEventListener('change', () => load(0));
filter.addEventListener('change', () => { chosen = new Set(); grid.replaceChildren(); tell(''); load(0); });
grid.addEventListener('keydown', (event) => {
  const item = event.target.closest('.sample');
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const { id } = item.dataset, across = getComputedStyle(grid).gridTemplateColumns.split(' ').length;
  const next = neighbour(ids(), id, event.key, across);
  const actions = {
    x: () => pick(id, !chosen.has(id), false), X: () => pick(id, true, true),
    s: () => !binned() && give([id], !item.starred), Delete: () => !binned() && bin(chosen.size ? [...chosen] : [id]),
  };
  const action = next === null ? actions[event.key] : () => grid.querySelector(`[data-id="${next}"] .open`).focus();
  if (!action) return;
  event.preventDefault();
  action();
});
function update() {
  const value = props.value ?? {};
  if (value.mark !== mark) {
    mark = value.mark;
    load(page);
  }
  choose();
}
watch('value', update);
update();
