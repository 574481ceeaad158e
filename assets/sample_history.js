// The browser's half of workbench/ui/sample/history.py: earlier samples in pages, with a search.
// Gradio runs this as a function of (element, trigger, props, server, watch).
'use strict';

const search = make('input', { type: 'search', label: 'Find samples', placeholder: 'Find: words of a prompt, a model, a LoRA' });
const back = make('button', { type: 'button', textContent: 'Newer' });
const forth = make('button', { type: 'button', textContent: 'Older' });
const range = make('span', { className: 'range' });
const grid = make('div', { className: 'samples' });
const message = make('p', { className: 'message', hidden: true });
const whole = make('div', { className: 'sample-history', hidden: true },
  make('div', { className: 'tools' }, make('b', { textContent: 'History' }), search, make('span', { className: 'pager' }, range, back, forth)),
  grid, message);
element.replaceChildren(whole);
let page = 0;
let asked = 0;

function card(one) {
  const video = make('video', { src: `${one.url}#t=0.1`, muted: true, loop: true, playsInline: true, preload: 'metadata', tabIndex: -1 });
  video.disablePictureInPicture = true;
  if (one.pixelated) video.classList.add('pixelated');
  const made = make('button', { type: 'button', className: 'sample', title: one.prompt, label: one.prompt }, video,
    make('span', { className: 'said', textContent: one.prompt }), make('span', { className: 'hint', textContent: one.about }));
  made.dataset.id = one.id;
  const play = () => video.play().catch(() => {});
  const rest = () => video.pause();
  for (const name of ['pointerenter', 'focus']) made.addEventListener(name, play);
  for (const name of ['pointerleave', 'blur']) made.addEventListener(name, rest);
  made.addEventListener('click', () => trigger('open', { id: one.id }));
  return made;
}

const choose = () => {
  for (const one of grid.children) one.classList.toggle('current', one.dataset.id === (props.value ?? {}).chosen);
};

async function load(wanted) {
  const mine = ++asked;
  const found = await server.samples_page({ search: search.value, page: Math.max(0, wanted) });
  if (mine !== asked || !found?.cards) return;
  page = found.page;
  whole.hidden = !found.all;
  const there = new Map([...grid.children].map((one) => [one.dataset.id, one]));
  grid.replaceChildren(...found.cards.map((one) => there.get(one.id) ?? card(one)));
  const first = page * found.size;
  range.textContent = found.matching ? `${first + 1} to ${first + found.cards.length} of ${found.matching}` : '';
  back.disabled = page === 0;
  forth.disabled = first + found.size >= found.matching;
  back.hidden = forth.hidden = found.matching <= found.size;
  message.hidden = found.matching > 0;
  message.textContent = 'No sample has these words.';
  choose();
}

let soon = 0;
search.addEventListener('input', () => { clearTimeout(soon); soon = setTimeout(() => load(0), 250); });
back.addEventListener('click', () => load(page - 1));
forth.addEventListener('click', () => load(page + 1));
let mark;
function follow() {
  const value = props.value ?? {};
  if (value.mark !== mark) {
    mark = value.mark;
    load(page);
  }
  choose();
}
watch('value', follow);
follow();
