// The browser's half of workbench/ui/datasets/clip_grid.py: pages of clips, each with a caption to type into.
// Gradio runs this as a function of (element, trigger, props, server, watch). Whatever comes from a person's files is
// set as text or value, never as markup. A call of `server` answers undefined when the server cannot be reached.
'use strict';

const SIZES = [24, 48, 96];
const FILTERS = {
  all: 'All clips', missing: 'Without a caption', hand: 'Written by hand', model: 'Written by a model',
  marked: 'With findings', images: 'Images',
};
const SORTS = {
  given: 'As they are', name: 'By name', length: 'Shortest first', size: 'Smallest picture first',
  caption: 'Shortest caption first',
};
const KEYS = [
  ['Tab, Shift+Tab', 'next and previous caption'], ['Ctrl+Enter', 'save, next caption'],
  ['Page Down, Page Up, Alt+arrows', 'next and previous page'], ['Escape', 'from the caption to its clip'],
  ['arrows', 'from clip to clip'], ['Space', 'play or stop'], ['Enter', 'open the clip'],
  ['x, Shift+x', 'select it, or all up to it'], ['Ctrl+Z', 'undo the last change (outside a caption)'],
];
const TYPING_MS = 600, SEARCH_MS = 250, HOVER_MS = 90, RETRY_MS = 5000;
const UNREACHED = 'the server does not answer; trying again';

const option = ([value, text]) => make('option', { value, textContent: text });
const still = window.matchMedia('(prefers-reduced-motion: reduce)');

// ---- the frame around the cards

const search = make('input', { type: 'search', className: 'search', placeholder: 'Search captions and names', label: 'Search captions and names' });
const filter = make('select', { className: 'filter', label: 'Show' }, ...Object.entries(FILTERS).map(option));
const sort = make('select', { className: 'sort', label: 'Order' }, ...Object.entries(SORTS).map(option));
const size = make('select', { className: 'size', label: 'Clips on a page' }, ...SIZES.map((n) => option([n, `${n} a page`])));
size.value = 48;
const again = make('button', { type: 'button', className: 'again', textContent: 'Filter and sort again', hidden: true });
const whole = make('input', { type: 'checkbox', className: 'whole' });
const every = make('button', { type: 'button', className: 'every', hidden: true });
const none = make('button', { type: 'button', className: 'none', textContent: 'Select none' });
const chosen = make('span', { className: 'chosen', role: 'status' });
const back = make('button', { type: 'button', className: 'back', textContent: '‹', label: 'Previous page', title: 'Previous page (Page Up)' });
const forth = make('button', { type: 'button', className: 'forth', textContent: '›', label: 'Next page', title: 'Next page (Page Down)' });
const number = make('input', { type: 'number', className: 'number', min: 1, value: 1, label: 'Page' });
const range = make('span', { className: 'range', role: 'status' });
const unsaved = make('p', { className: 'unsaved', role: 'alert', hidden: true });
const cards = make('ul', { className: 'cards', label: 'Clips' });
const message = make('p', { className: 'message', hidden: true });
const keys = make('details', { className: 'keys' }, make('summary', { textContent: 'Keys' }), make('dl', {}, ...KEYS.map(
  ([key, what]) => make('div', {}, make('dt', { textContent: key }), make('dd', { textContent: what })))));
const grid = make('section', { className: 'clip-grid', tabIndex: -1, label: 'Clips and captions' },
  make('div', { className: 'tools' }, search, filter, sort, size, again),
  make('div', { className: 'tools' },
    make('label', { className: 'check' }, whole, 'All on this page'), every, none, chosen,
    make('span', { className: 'pager' }, range, back, number, forth)),
  unsaved, cards, message, keys);
element.append(grid);

// ---- state

let dataset = '', order = '', page = 0, matching = 0, loading = 0, saves = 0, anchor = '';
let goal = { page: 0, focus: null }; // the page on its way, which looking anew must not turn back
let shown = new Map(); // file name -> its card
let selected = new Set();
// Captions typed and not on disk yet. They outlive a page of clips, and the component itself.
const drafts = (window.workbenchDrafts ??= new Map()); // "dataset/file name" -> {dataset, name, text, over, state, why, other}
const draftKey = (name) => `${dataset}/${name}`;
const query = () => ({ dataset, search: search.value, filter: filter.value, sort: sort.value, order });
const lastPage = () => Math.max(0, Math.ceil(matching / Number(size.value)) - 1);

// ---- pages

async function load(wanted, focus = null) {
  const mine = ++loading;
  goal = { page: wanted, focus };
  const about = dataset, saved = saves;
  if (!dataset) return render({ clips: [], page: 0, matching: 0, all: 0, missing: 0, order: '', stale: false });
  grid.setAttribute('aria-busy', 'true');
  const answer = await server.clips_page({ ...query(), page: wanted, size: Number(size.value) });
  if (mine !== loading || about !== dataset) return; // something else was requested meanwhile
  if (saved !== saves) return load(wanted, focus); // looked at before a caption of ours was on disk
  grid.removeAttribute('aria-busy');
  if (!answer || answer.problem) return showMessage(answer?.problem ?? 'The server does not answer: the clips cannot be shown now.');
  render(answer);
  goal = { page, focus: null };
  if (focus) [...shown.values()][0]?.[focus].focus();
}

function render(answer) {
  ({ page, matching, order } = answer);
  const names = answer.clips.map((clip) => clip.file_name);
  if (names.join('\n') !== [...shown.keys()].join('\n')) {
    // A card that stays is kept, so that whoever types in it goes on typing.
    const kept = new Map(names.filter((name) => shown.has(name)).map((name) => [name, shown.get(name)]));
    for (const [name, card] of shown) if (!kept.has(name)) leave(card);
    shown = new Map(answer.clips.map((clip) => [clip.file_name, kept.get(clip.file_name) ?? build(clip)]));
    let next = cards.firstElementChild;
    for (const { item } of shown.values()) {
      if (item === next) next = next.nextElementSibling;
      else cards.insertBefore(item, next);
    }
  }
  for (const clip of answer.clips) fill(shown.get(clip.file_name), clip);
  range.textContent = rangeText(answer, Number(size.value), names.length);
  number.max = lastPage() + 1;
  number.value = page + 1;
  number.title = `Page ${page + 1} of ${lastPage() + 1}`;
  back.disabled = page === 0;
  forth.disabled = page >= lastPage();
  again.hidden = !answer.stale;
  showMessage(matching || !dataset ? '' : answer.all ? 'No clip fits this search and filter.' : 'No clips yet: import some first.');
  showSelection();
}

function showMessage(text) {
  message.textContent = text;
  message.hidden = !text;
}

function anew() { // another search, filter or order: the clips are sorted anew
  order = '';
  load(0);
}

function openClip(name) { // the player above is filled when the server has answered: then it is brought into view
  trigger('open', { dataset, file_name: name });
  const player = document.getElementById('clip-player');
  if (!player) return;
  const show = () => player.scrollIntoView({ block: 'start' });
  const watch = new MutationObserver(() => { watch.disconnect(); requestAnimationFrame(show); });
  watch.observe(player, { childList: true, subtree: true });
  setTimeout(() => watch.disconnect(), 5000);
  show();
}

function turn(step, part) {
  const wanted = goal.page + step;
  if (wanted < 0 || wanted > lastPage()) return;
  grid.scrollIntoView({ block: 'nearest' });
  load(wanted, part);
}

// ---- a card

// Only pictures in or near the window are loaded: each one costs the server milliseconds.
const waiting = new WeakMap();
const near = new IntersectionObserver((found) => {
  for (const { target, isIntersecting } of found) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    target.src = waiting.get(target);
  }
}, { rootMargin: '200px' });

function leave(card) { // what is still on its way to it is called off
  settle(card);
  stop(card);
  near.unobserve(card.frame);
  card.frame.removeAttribute('src');
  card.item.remove();
}

function build(clip) {
  const name = clip.file_name;
  const frame = clip.thumbnail
    ? make('img', { alt: '', decoding: 'async' })
    : make('video', { muted: true, preload: 'metadata', playsInline: true, tabIndex: -1 });
  if (clip.pixelated) frame.classList.add('pixelated');
  waiting.set(frame, clip.thumbnail || (clip.url && `${clip.url}#t=0.001`));
  near.observe(frame);
  const card = {
    name, clip, frame,
    box: make('input', { type: 'checkbox', tabIndex: -1 }),
    picture: make('div', { className: 'picture' }, frame),
    title: make('span', { className: 'name' }),
    facts: make('span', { className: 'facts' }),
    marks: make('div', { className: 'marks' }),
    caption: make('textarea', { rows: 2, spellcheck: true, placeholder: 'What does the clip show?' }),
    by: make('span', { className: 'by' }),
    state: make('span', { className: 'state', role: 'status' }),
    other: make('div', { className: 'other', hidden: true }),
  };
  card.item = make('li', { className: 'card', tabIndex: -1 },
    card.picture, make('label', { className: 'check' }, card.box, card.title), card.marks, card.caption, card.other, make('div', { className: 'foot' }, card.by, card.state));
  card.item.dataset.name = name;
  card.picture.append(card.facts);
  card.box.addEventListener('click', (event) => choose(name, card.box.checked, event.shiftKey));
  card.picture.addEventListener('click', () => openClip(name));
  card.picture.addEventListener('pointerenter', () => playSoon(card));
  card.picture.addEventListener('pointerleave', () => document.activeElement !== card.caption && stop(card));
  card.item.addEventListener('focusin', () => playSoon(card));
  card.item.addEventListener('focusout', (event) => { if (!card.item.contains(event.relatedTarget)) stop(card); });
  card.caption.addEventListener('input', () => typed(card));
  card.caption.addEventListener('blur', () => settle(card));
  return card;
}

function fill(card, clip) {
  card.clip = clip;
  const part = clip.times ? [make('span', { className: 'source', textContent: clip.source }), make('span', { className: 'times', textContent: clip.times })] : [clip.name];
  card.title.replaceChildren(...part); // a long name is cut before the times that tell parts apart
  card.item.setAttribute('aria-label', clip.name);
  card.box.setAttribute('aria-label', `Select ${clip.name}`);
  card.caption.setAttribute('aria-label', `Caption of ${clip.name}`);
  card.facts.textContent = clipFacts(clip);
  const speed = clip.frames === 1 ? '' : `, ${clip.frames} frames at ${Number(clip.fps.toFixed(3))} a second`;
  card.title.title = clip.name;
  card.picture.title = `Open ${clip.name}${speed}`;
  card.marks.replaceChildren(
    ...clip.marks.map((text) => make('span', { className: 'mark', textContent: text })),
    ...clip.tags.map((text) => make('span', { className: 'tag', textContent: text })));
  const draft = drafts.get(draftKey(card.name));
  if (draft && draft.text === clip.text) drafts.delete(draftKey(card.name));
  setCaption(card, drafts.get(draftKey(card.name))?.text ?? clip.text);
  showState(card);
}

function setCaption(card, text) {
  if (card.caption.value !== text.replace(/\r\n?/g, '\n')) card.caption.value = text;
  grow(card);
}

function grow({ caption }) { // where the browser does not do it by itself
  if (CSS.supports('field-sizing', 'content')) return;
  caption.style.height = 'auto';
  caption.style.height = `${caption.scrollHeight + 2}px`;
}

// ---- playing: one video at a time, in the card that is pointed at or typed in

let player = null, playing = null, soon = 0;

function playSoon(card) {
  clearTimeout(soon);
  if (!still.matches && playing !== card) soon = setTimeout(() => play(card), HOVER_MS);
}

function play(card) {
  if (playing) stop(playing);
  if (card.clip.frames === 1 || !card.clip.url) return; // latents have no video
  playing = card;
  player = make('video', { className: 'playing', muted: true, loop: true, playsInline: true, tabIndex: -1, src: card.clip.url });
  player.disablePictureInPicture = true;
  if (card.clip.pixelated) player.classList.add('pixelated');
  card.picture.insertBefore(player, card.facts);
  player.play().catch(() => {}); // taken away before it began
}

function stop(card) {
  clearTimeout(soon);
  if (playing !== card) return;
  player.pause();
  player.removeAttribute('src');
  player.load(); // frees the decoder and the connection
  player.remove();
  player = playing = null;
}

// ---- captions: saved a moment after the last key, and on leaving the field

function typed(card) {
  const key = draftKey(card.name);
  const draft = drafts.get(key) ?? { dataset, name: card.name, over: card.clip.text };
  drafts.set(key, Object.assign(draft, { text: card.caption.value, state: draft.other ? 'other' : 'typing' }));
  clearTimeout(draft.timer);
  draft.timer = setTimeout(() => save(draft), TYPING_MS);
  grow(card);
  showState(card);
}

function settle(card) {
  const draft = drafts.get(draftKey(card.name));
  if (draft) save(draft);
  else setCaption(card, card.clip.text); // as it was saved, with its spaces in order
}

async function save(draft) {
  clearTimeout(draft.timer);
  if (draft.other || draft.state === 'saving') return; // the person decides, or it is on its way
  const sent = draft.text;
  draft.state = 'saving';
  mark(draft);
  const answer = await server.save_caption({ dataset: draft.dataset, file_name: draft.name, text: sent, over: draft.over });
  const key = `${draft.dataset}/${draft.name}`;
  if (!answer) {
    Object.assign(draft, { state: 'failed', why: UNREACHED });
    draft.timer = setTimeout(() => save(draft), RETRY_MS);
  } else if (answer.problem) {
    Object.assign(draft, { state: 'failed', why: answer.problem });
  } else if (answer.other) {
    Object.assign(draft, { state: 'other', other: answer.other });
  } else {
    saves += 1;
    draft.over = answer.text;
    const card = draft.dataset === dataset ? shown.get(draft.name) : undefined;
    if (card) Object.assign(card.clip, answer);
    if (draft.text === sent) {
      drafts.delete(key);
      if (card && document.activeElement !== card.caption) setCaption(card, answer.text);
      if (card) showState(card, 'saved');
    } else { // typed on while it was on its way
      Object.assign(draft, { state: 'typing', why: '' });
      draft.timer = setTimeout(() => save(draft), TYPING_MS);
    }
    trigger('changed', { dataset: draft.dataset, file_name: draft.name });
  }
  mark(draft);
}

function mark(draft) {
  const card = draft.dataset === dataset ? shown.get(draft.name) : undefined;
  if (card && drafts.has(draftKey(draft.name))) showState(card);
  const again = (one) => one.state === 'saving' && one.why; // it failed before
  const isOpen = (one) => one.state === 'failed' || one.state === 'other' || again(one);
  const open = [...drafts.values()].filter(isOpen);
  const away = open.filter((one) => one.dataset !== dataset || !shown.has(one.name));
  unsaved.hidden = !away.length;
  unsaved.textContent = away.length
    ? `${counted(away.length, 'caption', 'captions')} on other pages not saved yet: ${away.slice(0, 3).map((one) => one.name.split('/').pop()).join(', ')}`
    : '';
}

const WRITERS = { hand: 'by hand', file: 'from a file' };

function showState(card, outcome) {
  const draft = drafts.get(draftKey(card.name));
  const before = card.state.dataset.state === 'saved' ? 'saved' : ''; // stays until something else is typed
  const state = outcome ?? draft?.state ?? before;
  const words = { typing: '…', saving: 'saving', saved: 'saved', failed: `not saved: ${draft?.why}`, other: 'not saved: it was changed elsewhere' };
  card.state.textContent = words[state] ?? '';
  card.state.dataset.state = state;
  card.by.textContent = card.clip.text ? WRITERS[card.clip.by] ?? (card.clip.by ? `by ${card.clip.by}` : '') : 'no caption';
  card.item.classList.toggle('missing', !card.clip.text);
  const other = draft?.other;
  card.other.hidden = !other;
  if (!other) return card.other.replaceChildren();
  const who = other.by ? ` (${WRITERS[other.by] ?? `by ${other.by}`})` : '';
  const mine = make('button', { type: 'button', className: 'mine', textContent: 'Keep mine' });
  const theirs = make('button', { type: 'button', className: 'theirs', textContent: 'Take that one' });
  card.other.replaceChildren(
    make('p', { textContent: `On disk it now says${who}:` }), make('blockquote', { textContent: other.text || '(no caption)' }), mine, theirs);
  mine.addEventListener('click', () => {
    Object.assign(draft, { over: other.text, other: null, state: 'typing' });
    save(draft);
  });
  theirs.addEventListener('click', () => {
    drafts.delete(draftKey(card.name));
    Object.assign(card.clip, other);
    setCaption(card, other.text);
    showState(card);
    card.caption.focus();
  });
}

// ---- selection

function choose(name, on, upTo) {
  const names = [...shown.keys()];
  const [from, to] = [names.indexOf(upTo && shown.has(anchor) ? anchor : name), names.indexOf(name)].sort((a, b) => a - b);
  for (const one of names.slice(from, to + 1)) on ? selected.add(one) : selected.delete(one);
  anchor = name;
  select();
}

function select() {
  showSelection();
  clearTimeout(select.timer); // a handful of clicks is one event
  select.timer = setTimeout(() => trigger('selection', { dataset, file_names: [...selected] }), 120);
}

function showSelection() {
  for (const [name, card] of shown) {
    card.box.checked = selected.has(name);
    card.item.classList.toggle('selected', card.box.checked);
  }
  const here = [...shown.keys()].filter((name) => selected.has(name)).length;
  whole.checked = here > 0 && here === shown.size;
  whole.indeterminate = here > 0 && here < shown.size;
  whole.disabled = !shown.size;
  every.textContent = `All ${formatted(matching)} that match`;
  every.hidden = matching <= shown.size;
  none.hidden = !selected.size;
  chosen.textContent = selected.size ? `${counted(selected.size, 'clip', 'clips')} selected` : '';
}

async function forget() { // clips that left the dataset leave the selection, too
  const answer = await server.clip_names({ dataset });
  if (!answer?.names) return;
  const there = new Set(answer.names);
  const kept = [...selected].filter((name) => there.has(name));
  if (kept.length === selected.size) return;
  selected = new Set(kept);
  select();
}

// ---- listening

let searching = 0;
search.addEventListener('input', () => { clearTimeout(searching); searching = setTimeout(anew, SEARCH_MS); });
for (const one of [filter, sort]) one.addEventListener('change', anew);
again.addEventListener('click', anew);
size.addEventListener('change', () => load(0));
back.addEventListener('click', () => turn(-1));
forth.addEventListener('click', () => turn(1));
number.addEventListener('change', () => load(Math.min(Math.max(Number(number.value) || 1, 1), lastPage() + 1) - 1));
whole.addEventListener('change', () => {
  for (const name of shown.keys()) whole.checked ? selected.add(name) : selected.delete(name);
  select();
});
every.addEventListener('click', async () => {
  const answer = await server.clip_names(query());
  if (!answer?.names) return showMessage(answer?.problem ?? 'The server does not answer: nothing was selected.');
  for (const name of answer.names) selected.add(name);
  select();
});
none.addEventListener('click', () => { selected = new Set(); select(); });

function neighbour(card, key) {
  const list = [...shown.values()];
  const here = list.indexOf(card);
  const across = Math.max(1, list.findIndex((one) => one.item.offsetTop > list[0].item.offsetTop));
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[key];
  return list[here + step];
}

function nextCaption(card) {
  const list = [...shown.values()];
  const next = list[list.indexOf(card) + 1];
  settle(card);
  if (next) next.caption.focus();
  else turn(1, 'caption');
}

grid.addEventListener('keydown', (event) => {
  const { key, target } = event;
  const card = shown.get(target.closest?.('.card')?.dataset.name);
  const inText = target.matches('textarea, input:not([type=checkbox]), select');
  const command = event.ctrlKey || event.metaKey;
  const done = (action) => { event.preventDefault(); event.stopPropagation(); action?.(); };
  if (event.isComposing) return;
  if (key === 'PageDown' || key === 'PageUp' || (event.altKey && !inText && (key === 'ArrowRight' || key === 'ArrowLeft'))) {
    const part = card ? (target === card.caption ? 'caption' : 'item') : null;
    return done(() => turn(key === 'PageDown' || key === 'ArrowRight' ? 1 : -1, part));
  }
  if (command && key.toLowerCase() === 'z' && !event.shiftKey && !inText) return done(() => trigger('undo', { dataset }));
  if (!card || event.altKey) return;
  if (target === card.caption) {
    if (command && key === 'Enter') done(() => nextCaption(card));
    else if (key === 'Escape') done(() => card.item.focus());
  } else if (target === card.item && !command) {
    if (key === ' ') done(() => (playing === card ? stop(card) : play(card)));
    else if (key === 'Enter') done(() => openClip(card.name));
    else if (key === 'x' || key === 'X') done(() => choose(card.name, !selected.has(card.name), event.shiftKey));
    else if (key.startsWith('Arrow')) done(() => neighbour(card, key)?.item.focus());
  }
});

window.addEventListener('beforeunload', (event) => {
  for (const draft of drafts.values()) save(draft);
  if (grid.isConnected && drafts.size) event.preventDefault();
});

function follow() {
  const value = props.value ?? {};
  if ((value.dataset ?? '') === dataset) {
    load(goal.page, goal.focus);
    if (selected.size) forget();
    return;
  }
  for (const card of shown.values()) settle(card);
  dataset = value.dataset ?? '';
  order = anchor = search.value = '';
  filter.value = 'all';
  if (selected.size) { selected = new Set(); select(); }
  load(0);
}

watch('value', follow);
follow();
