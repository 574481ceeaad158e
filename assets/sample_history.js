// The browser's half of workbench/ui/sample/history.py: earlier samples in pages, with a search.
// Gradio runs this as a function of (element, trigger, props, server, watch).
'use strict';

const search = make('input', { type: 'search', label: 'Find samples', placeholder: 'Find: words of a prompt, a model, a LoRA' });
const newer = make('button', { type: 'button', textContent: 'Newer' });
const older = make('button', { type: 'button', textContent: 'Older' });
const range = make('span', { className: 'range' });
const grid = make('div', { className: 'samples' });
const message = make('p', { className: 'message', hidden: true });
const whole = make('div', { className: 'sample-history', hidden: true },
  make('div', { className: 'tools' }, make('b', { textContent: 'History' }), search, make('span', { className: 'pager' }, range, newer, older)),
  grid, message);
element.replaceChildren(whole);
let page = 0;
let loading = 0;

function cardOf(one) {
  const video = make('video', { src: `${one.url}#t=0.1`, muted: true, loop: true, playsInline: true, preload: 'metadata', tabIndex: -1 });
  video.disablePictureInPicture = true;
  if (one.pixelated) video.classList.add('pixelated');
  const made = make('button', { type: 'button', className: 'sample', title: one.prompt, label: one.prompt }, video,
    make('span', { className: 'prompt', textContent: one.prompt }), make('span', { className: 'hint', textContent: one.about }));
  made.dataset.id = one.id;
  const play = () => video.play().catch(() => {});
  const pause = () => video.pause();
  for (const name of ['pointerenter', 'focus']) made.addEventListener(name, play);
  for (const name of ['pointerleave', 'blur']) made.addEventListener(name, pause);
  made.addEventListener('click', () => trigger('open', { id: one.id }));
  return made;
}

const choose = () => {
  for (const one of grid.children) one.classList.toggle('current', one.dataset.id === (props.value ?? {}).chosen);
};

async function load(wanted) {
  const mine = ++loading;
  const found = await server.samples_page({ search: search.value, page: Math.max(0, wanted) });
  if (mine !== loading || !found?.samples) return;
  page = found.page;
  whole.hidden = !found.all;
  const there = new Map([...grid.children].map((one) => [one.dataset.id, one]));
  grid.replaceChildren(...found.samples.map((one) => there.get(one.id) ?? cardOf(one)));
  const shown = pager(found);
  range.textContent = shown.text;
  newer.disabled = !shown.newer;
  older.disabled = !shown.older;
  newer.hidden = older.hidden = !shown.needed;
  message.hidden = found.matching > 0;
  message.textContent = 'No sample has these words.';
  choose();
}

let soon = 0;
search.addEventListener('input', () => { clearTimeout(soon); soon = setTimeout(() => load(0), 250); });
newer.addEventListener('click', () => load(page - 1));
older.addEventListener('click', () => load(page + 1));
let mark;
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
