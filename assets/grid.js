// A grid of videos in the browser, all on one clock. Used by workbench/ui/compare and by exported pages.
// Runs as a function of (element, trigger, props, server, watch); `server` is null in an exported page, where nothing
// can be marked. Whatever a person wrote is set as text, never as markup.
'use strict';

const SPEEDS = [0.25, 0.5, 0.75, 1, 1.5, 2];
const AMOUNTS = [1, 2, 4, 8];
const KEYS = [
  ['Space', 'play or pause'], ['left, right', 'a frame back or on'], ['Home, End', 'first and last frame'],
  ['Tab to a video, arrows', 'from video to video'], ['Enter, S, R, X', 'large, star, reject, choose for the wipe'],
  ['L', 'loop'], ['D', 'difference to the base'], ['W', 'wipe between the two chosen videos'],
  ['V', 'blind vote'], ['Escape', 'close'],
];
const AHEAD = 0.5, BEHIND = 1.2; // frames from the clock; less is put right by running a little faster or slower
const SETTLE_MS = 400, GATHER_MS = 4000; // the most that is waited for a first step, and for a jump
const STORE = 'workbench-grid-player';

const make = (tag, properties = {}, ...children) => {
  const { role, label, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  if (role) made.setAttribute('role', role);
  if (label) { made.setAttribute('aria-label', label); made.title = label; }
  made.append(...children.filter((child) => child !== null));
  return made;
};
const button = (text, className, label, action) => {
  const made = make('button', { type: 'button', textContent: text, className, label });
  made.addEventListener('click', action);
  return made;
};
const options = (pairs) => pairs.map(([value, text]) => make('option', { value, textContent: text }));

// ---- what the person chose, kept by the browser

const kept = { loop: true, speed: 1, mode: 'videos', amount: 4, measurements: true, size: 0, playing: true };
try { Object.assign(kept, JSON.parse(localStorage.getItem(STORE) ?? '{}')); } catch { /* a private window keeps nothing */ }
const keep = () => { try { localStorage.setItem(STORE, JSON.stringify(kept)); } catch { /* the same */ } };

// ---- the frame around the videos

const title = make('h3');
const status = make('span', { className: 'status', role: 'status' });
const progress = make('div', { className: 'progress', hidden: true }, make('i'));
const play = button('Play', 'play', 'Play or pause (Space)', () => (playing ? pause() : start()));
const scrub = make('input', { type: 'range', className: 'scrub', min: 0, max: 1, step: 1, value: 0, label: 'Frame' });
const time = make('span', { className: 'time' });
const loop = make('input', { type: 'checkbox', checked: kept.loop });
const speed = make('select', { className: 'speed', label: 'Speed' }, ...options(SPEEDS.map((one) => [one, `${one}x`])));
const mode = make('select', { className: 'mode', label: 'View' },
  ...options([['videos', 'Videos'], ['difference', 'Difference to the base']]));
const amount = make('select', { className: 'amount', label: 'Amplified' },
  ...options(AMOUNTS.map((one) => [one, `${one} times`])));
const showMeasurements = make('input', { type: 'checkbox', checked: kept.measurements });
const measured = make('label', { className: 'check' }, showMeasurements, 'Measurements');
const size = make('input', { type: 'range', className: 'size', min: 60, max: 640, step: 10, label: 'Size of the videos' });
const wipeButton = button('Wipe', 'wipe', 'Choose two videos with the + below them, then wipe between them (W)', openWipe);
const voteButton = button('Blind vote', 'vote', 'Blind vote: which is better of two videos of a row, their names hidden? (V)', openVote);
const table = make('table');
const scroller = make('div', { className: 'scroller', tabIndex: 0, label: 'Videos of the grid' }, table);
const message = make('p', { className: 'message', role: 'alert', hidden: true });
const dialog = make('dialog');
const root = make('section', { className: 'video-grid', tabIndex: -1 },
  make('div', { className: 'title-line' }, title, status), progress,
  make('div', { className: 'transport' },
    button('‹', 'back', 'A frame back (left arrow)', () => step(-1)), play,
    button('›', 'on', 'A frame on (right arrow)', () => step(1)), scrub, time),
  make('div', { className: 'tools' },
    make('label', { className: 'check' }, loop, 'Loop'), speed, mode, amount,
    measured,
    make('label', { className: 'check sizes' }, 'Size', size), wipeButton, server ? voteButton : null),
  message, scroller, dialog,
  make('details', { className: 'keys' }, make('summary', { textContent: 'Keys' }), make('dl', {}, ...KEYS.map(
    ([key, what]) => make('div', {}, make('dt', { textContent: key }), make('dd', { textContent: what }))))));
element.append(root);
[speed.value, mode.value, amount.value] = [kept.speed, kept.mode, kept.amount];

// ---- state

let data = null, layout = '';
let cards = []; // [row][column]
let chosen = []; // cards to wipe between, two at most
let extra = []; // videos of the dialog
// Where a person wants less motion nothing plays before it is asked for.
let now = 0, playing = kept.playing && !window.matchMedia('(prefers-reduced-motion: reduce)').matches, phase = 'still', phaseSince = 0, heldSince = 0, leaderAt = 0, last = 0;
const all = () => cards.flat();
const fps = () => data?.fps || 8;
const frames = () => Math.max(1, Math.round(duration() * fps()));

function duration() {
  const known = all().map((card) => card.video?.duration || 0).filter(Number.isFinite);
  return Math.max(...known, known.some(Boolean) ? 0 : (data?.frames || 1) / fps());
}

// ---- one clock for all videos

// Those whose frames matter now; of a difference the base's too, wherever it is.
function active() {
  if (dialog.open) return extra;
  const shown = all().filter((card) => card.video && card.visible);
  const bases = kept.mode === 'difference' ? shown.map((card) => base(card)).filter((card) => card?.video) : [];
  return [...new Set([...shown, ...bases])].map((card) => need(card));
}

function need(card) {
  if (!card.video.getAttribute('src')) card.video.src = card.video.dataset.src;
  return card.video;
}

function put(video, seconds) {
  const wanted = Math.max(0, Math.min(seconds, (video.duration || Infinity) - 0.5 / fps()));
  video.wanted = wanted;
  if (!video.seeking && video.readyState > 0 && Math.abs(video.currentTime - wanted) > 0.001) video.currentTime = wanted;
}

const middle = (seconds) => (Math.floor(seconds * fps() + 1e-3) + 0.5) / fps();

function settle(seconds) { // all stand still at one frame
  phase = 'still';
  now = seconds;
  for (const video of active()) { video.pause(); put(video, middle(now)); }
}

function start() {
  if (now >= duration() - 1 / fps()) now = 0;
  playing = kept.playing = true;
  begin(now);
  keep();
}

function begin(seconds) { // bring all to one place, then let them run together
  now = seconds;
  phase = 'gathering';
  phaseSince = performance.now();
  for (const video of active()) { video.pause(); put(video, now); }
}

function pause() {
  playing = kept.playing = false;
  settle(now);
  keep();
}

function step(count) {
  playing = kept.playing = false;
  const number = Math.floor(now * fps() + 1e-3) + count;
  settle((kept.loop ? (number + frames()) % frames() : Math.min(Math.max(number, 0), frames() - 1)) / fps());
}

function run(at) {
  requestAnimationFrame(run);
  if (!root.isConnected || !data) return;
  const videos = active(), passed = Math.min(0.25, (at - last) / 1000);
  last = at;
  if (playing && videos.length) roll(videos, at, passed);
  else for (const video of videos) { if (!video.paused) video.pause(); put(video, middle(now)); }
  for (const card of all()) if (card.video && !card.video.paused && !videos.includes(card.video)) card.video.pause();
  if (kept.mode === 'difference' && !dialog.open) for (const card of all()) if (card.visible) subtract(card);
  readout();
}

function roll(videos, at, passed) {
  if (phase === 'still') return begin(now);
  if (phase === 'gathering') {
    for (const video of videos) put(video, now); // one that has only just come into view, or into memory
    const ready = videos.every((video) => !video.seeking && video.readyState >= 2);
    if (!ready && at - phaseSince < GATHER_MS) return;
    for (const video of videos) { pace(video, kept.speed); video.play().catch(() => {}); }
    [phase, phaseSince, leaderAt] = ['rolling', at, videos[0].currentTime];
    return;
  }
  if (phase === 'rolling') { // a browser takes a moment to begin: the clock begins with the first of them
    const moved = videos.find((video) => video.currentTime > leaderAt + 0.001);
    if (!moved && at - phaseSince < SETTLE_MS) return;
    if (moved) now = moved.currentTime;
    phase = 'playing';
    return;
  }
  // The clock waits for the slowest, and whoever is ahead of it stands still for a moment: jumps would only cost more.
  const late = videos.filter((video) => video.seeking || video.readyState < 2);
  if (!late.length) heldSince = at;
  const waited = at - heldSince < GATHER_MS ? videos : videos.filter((video) => !late.includes(video));
  const slowest = Math.min(...waited.map((video) => (late.includes(video) ? now - 0.5 / fps() : over(video) ? Infinity : video.currentTime)));
  now = Math.max(now, Math.min(now + passed * kept.speed, slowest + 0.5 / fps()));
  if (now >= duration()) {
    if (kept.loop) return begin(0);
    playing = kept.playing = false;
    return settle((frames() - 1) / fps());
  }
  for (const video of videos) follow(video);
}

const over = (video) => video.ended || video.currentTime >= video.duration - 0.5 / fps();

function follow(video) {
  if (over(video) || video.seeking || video.readyState < 2) return;
  const drift = (video.currentTime - now) * fps();
  if (drift > AHEAD) video.pause();
  else if (drift < -BEHIND) put(video, now);
  else {
    if (video.paused) video.play().catch(() => {});
    pace(video, kept.speed * (Math.abs(drift) < 0.2 ? 1 : drift > 0 ? 0.93 : 1.07));
  }
}

const pace = (video, rate) => { if (video.playbackRate !== rate) video.playbackRate = rate; };

function readout() {
  const number = Math.min(frames() - 1, Math.floor(now * fps() + 1e-3));
  if (Number(scrub.max) !== frames() - 1) scrub.max = frames() - 1;
  if ((document.activeElement !== scrub || playing) && Number(scrub.value) !== number) scrub.value = number;
  const text = `frame ${number + 1} of ${frames()} · ${(number / fps()).toFixed(2)} s`;
  if (time.textContent !== text) time.textContent = text;
  const word = playing ? 'Pause' : 'Play';
  if (play.textContent !== word) play.textContent = word;
}

// ---- difference to the base, on a canvas

const base = (card) => cards[card.row]?.[data.columns[card.column].reference];

function subtract(card) {
  const other = base(card), { video, canvas } = card;
  if (!video || !canvas || !other?.video || other === card || video.readyState < 2 || other.video.readyState < 2) return;
  const shown = `${video.currentTime} ${other.video.currentTime} ${kept.amount} ${canvas.width}`;
  if (shown === card.subtracted || video.seeking || other.video.seeking) return;
  card.subtracted = shown;
  if (canvas.width !== video.videoWidth) [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  const context = canvas.getContext('2d');
  const paint = (how, picture) => { context.globalCompositeOperation = how; context.drawImage(picture, 0, 0, canvas.width, canvas.height); };
  paint('copy', video);
  paint('difference', other.video);
  for (let factor = 1; factor < kept.amount; factor *= 2) paint('lighter', canvas);
}

// ---- building

new ResizeObserver(() => data && resize()).observe(scroller);

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) target.card.visible = isIntersecting;
}, { rootMargin: '80px' });

function build() {
  seen.disconnect();
  chosen = [];
  table.replaceChildren(head(), ...data.rows.map(rowOf));
  for (const card of all()) seen.observe(card.figure);
  if (all().length) stopAt(all()[0]);
  resize();
}

function head() {
  const lines = data.heads.map((line, depth) => make('tr', {}, ...line.map(({ text, span }) =>
    make('th', { colSpan: span, scope: span > 1 ? 'colgroup' : 'col', textContent: text, className: `depth-${depth}` }))));
  const tally = make('tr', { className: 'tally' }, ...data.columns.map(() => make('td')));
  return make('thead', {}, ...lines, tally);
}

function rowOf(row, number) {
  const words = make('div', { className: 'prompt-line' }, make('span', { textContent: row.prompt || '(no prompt)' }),
    row.label ? make('b', { textContent: row.label }) : null);
  cards[number] = data.cells[number].map((cell, column) => cardOf(cell, number, column));
  cards.length = data.rows.length;
  return make('tbody', {},
    make('tr', { className: 'prompt' }, make('th', { colSpan: data.columns.length, scope: 'rowgroup' }, words)),
    make('tr', {}, ...cards[number].map((card) => make('td', {}, card.figure))));
}

function cardOf(cell, row, column) {
  const picture = make('div', { className: 'picture', tabIndex: -1 });
  const measurements = make('ul', { className: 'measurements' });
  const star = button('☆', 'star', 'Star this video', () => mark(card, 'starred'));
  const reject = button('✕', 'reject', 'Reject this video', () => mark(card, 'rejected'));
  const pick = button('+', 'pick', 'Choose for the wipe', () => choose(card));
  const bar = make('div', { className: 'bar-line' }, server ? star : null, server ? reject : null, pick);
  const figure = make('figure', {}, picture, bar, measurements);
  const card = { cell, row, column, figure, picture, measurements, star, reject, pick, bar, visible: false, video: null, canvas: null, shape: '' };
  figure.card = card;
  for (const one of [star, reject, pick]) one.tabIndex = -1;
  picture.addEventListener('focus', () => stopAt(card));
  picture.addEventListener('click', () => card.video && openLarge(card));
  return card;
}

// Of all videos one is a tab stop; the arrow keys go to the others, letters do what the buttons below them do.
function stopAt(card) { for (const one of all()) one.picture.tabIndex = one === card ? 0 : -1; }

function cellKey(event) {
  const card = event.target.closest('figure')?.card;
  if (!card || event.target !== card.picture || event.ctrlKey || event.metaKey || event.altKey) return;
  const { row, column } = card;
  const next = { ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], ArrowUp: [row - 1, column], ArrowDown: [row + 1, column] }[event.key];
  const acts = card.video ? { Enter: () => openLarge(card), x: () => choose(card), ...(server ? { s: () => mark(card, 'starred'), r: () => mark(card, 'rejected') } : {}) } : {};
  const act = next ? () => cards[next[0]]?.[next[1]]?.picture.focus() : acts[event.key];
  if (!act) return;
  event.preventDefault();
  event.stopPropagation();
  act();
}
table.addEventListener('keydown', cellKey);

const nameOf = (card) => data.columns[card.column].name;
const labelOf = (card) => `${data.rows[card.row].prompt}, ${nameOf(card)}`;

function videoOf(url, label) {
  const video = make('video', { muted: true, playsInline: true, preload: 'auto', label, disablePictureInPicture: true });
  video.removeAttribute('title');
  video.dataset.src = url;
  video.className = data.width <= 128 ? 'pixelated' : '';
  // While one jump is under way another place may have been asked for.
  video.addEventListener('seeked', () => { if (!playing && Math.abs(video.currentTime - video.wanted) > 0.001) put(video, video.wanted); });
  video.addEventListener('loadeddata', () => put(video, playing ? now : middle(now)));
  return video;
}

function fill(card, cell) {
  card.cell = cell;
  const shape = `${cell.state} ${cell.url ?? ''}`;
  if (shape !== card.shape) {
    card.shape = shape;
    card.video = cell.url ? videoOf(cell.url, labelOf(card)) : null;
    card.canvas = cell.url ? make('canvas', { className: data.width <= 128 ? 'pixelated' : '' }) : null;
    card.picture.replaceChildren(...(card.video ? [card.video, card.canvas] : [make('div', { className: 'doing' })]));
    card.figure.dataset.state = cell.state;
  }
  if (!card.video) doing(card, cell);
  card.picture.setAttribute('role', card.video ? 'button' : 'group'); // one that is missing has a button in it
  card.picture.setAttribute('aria-label', `${labelOf(card)}: ${card.video ? 'open large' : cell.state}`);
  card.figure.classList.toggle('starred', cell.starred);
  card.figure.classList.toggle('rejected', cell.rejected);
  card.star.textContent = cell.starred ? '★' : '☆';
  card.star.setAttribute('aria-pressed', cell.starred);
  card.reject.setAttribute('aria-pressed', cell.rejected);
  card.bar.hidden = !card.video;
  card.measurements.replaceChildren(...(cell.outdated ? [make('li', { className: 'warn', textContent: 'generated with an older LoRA file' })] : []),
    ...(cell.measurements ?? []).map(measurementOf));
}

function measurementOf({ name, title: about, value, words, warn }) {
  return make('li', { className: warn ? 'warn' : '', title: data.help[name] ?? '' },
    make('span', { textContent: about }), make('b', { textContent: value }), make('em', { textContent: words }));
}

function doing(card, cell) {
  const words = {
    missing: cell.message || 'not generated yet', waiting: 'waiting', failed: cell.message || 'failed',
    generating: cell.total ? `step ${cell.step} of ${cell.total}` : cell.message || 'loading the model',
  }[cell.state] ?? cell.state;
  const parts = [];
  if (cell.preview) parts.push(make('img', { src: cell.preview, alt: '', className: 'latent-preview' }));
  parts.push(make('p', { textContent: words }));
  if (cell.state === 'generating' && cell.total) parts.push(make('div', { className: 'progress' }, Object.assign(make('i'), { style: `width:${100 * cell.step / cell.total}%` })));
  if (server && ['failed', 'missing'].includes(cell.state)) parts.push(button(cell.state === 'failed' ? 'Try again' : 'Generate', 'again', 'Generate this video', () => generate(card)));
  card.picture.firstChild.replaceChildren(...parts);
}

function tallies() {
  const marked = table.querySelectorAll('.tally td');
  data.columns.forEach((column, index) => {
    const { won, votes, confidence, stars, rejects } = column;
    const parts = [];
    if (stars) parts.push(`${stars} ★`);
    if (rejects) parts.push(`${rejects} ✕`);
    if (votes) parts.push(`${won} of ${votes} votes: ${confidence}`);
    const isBest = data.best.column === column.name;
    const best = server && column.checkpoint && !isBest
      ? button('Best', 'best', 'Make this the best checkpoint of the run, which keeps it for good', () => call('choose_best', { column: index })) : null;
    marked[index].replaceChildren(isBest ? make('b', { className: 'is-best', textContent: 'best checkpoint' }) : '', make('span', { textContent: parts.join(' · ') }), ...(best ? [best] : []));
  });
}

function resize() { // few columns share the room there is, many are as large as they need
  const natural = data.width <= 128 ? 170 : Math.min(300, data.width);
  const room = Math.min(300, scroller.clientWidth / data.columns.length - 20);
  if (document.activeElement !== size) size.value = kept.size || Math.max(natural, room);
  scroller.style.setProperty('--tile', `${size.value}px`);
  scroller.style.setProperty('--shape', `${data.width} / ${data.height}`);
}

function looks() { // what follows from the choices alone
  root.classList.toggle('difference', kept.mode === 'difference');
  root.classList.toggle('without-measurements', !kept.measurements);
  amount.hidden = kept.mode !== 'difference';
}

// ---- marking

async function call(name, values) {
  const answer = await server[name]({ grid: data.grid, ...values });
  tell(answer ? answer.problem ?? answer.message ?? '' : 'The server does not answer: try again in a moment.', !answer || Boolean(answer.problem));
  return answer && !answer.problem ? answer : null;
}

function tell(text, bad = false) {
  message.textContent = text;
  message.hidden = !text;
  message.classList.toggle('bad', bad);
}

async function mark(card, what) {
  const before = { starred: card.cell.starred, rejected: card.cell.rejected };
  const after = what === 'starred'
    ? { starred: !before.starred, rejected: before.starred ? before.rejected : false }
    : { rejected: !before.rejected, starred: before.rejected ? before.starred : false };
  fill(card, { ...card.cell, ...after });
  const asked = what === 'starred' ? { starred: after.starred } : { rejected: after.rejected };
  if (!(await call('mark', { key: card.cell.key, ...asked }))) fill(card, { ...card.cell, ...before });
}

const generate = (card) => call('generate', { key: card.cell.key });

function choose(card) {
  chosen = chosen.includes(card) ? chosen.filter((one) => one !== card) : [...chosen, card].slice(-2);
  for (const one of all()) {
    const index = chosen.indexOf(one);
    one.pick.textContent = index < 0 ? '+' : String(index + 1);
    one.pick.setAttribute('aria-pressed', index >= 0);
  }
  tell(chosen.length === 1 ? 'Choose a second video, then press Wipe.' : '');
  wipeButton.classList.toggle('ready', chosen.length === 2);
}

// ---- dialogs: one video large, two under a wipe, two for a vote

function open(kind, videos, ...parts) {
  extra = videos;
  for (const video of videos) video.src = video.dataset.src;
  const close = button('Close', 'close', 'Close (Escape)', () => dialog.close());
  dialog.className = kind;
  dialog.style.setProperty('--shape', `${data.width} / ${data.height}`);
  dialog.replaceChildren(close, ...parts);
  if (!dialog.open) dialog.showModal();
  if (playing) begin(now); else settle(now);
}

dialog.addEventListener('close', () => {
  dialog.replaceChildren();
  extra = [];
  if (playing) begin(now); else settle(now);
});
dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });

async function downloadGif(card) {
  const answer = await call('gif', { key: card.cell.key });
  if (answer) make('a', { href: answer.url, download: answer.url.split('/').pop() }).click();
}

async function openLarge(card) {
  const { cell } = card;
  const video = videoOf(cell.url, labelOf(card));
  const rows = make('dl', { className: 'details' });
  const go = (by) => {
    const line = cards[card.row].filter((one) => one.video);
    openLarge(line[(line.indexOf(card) + by + line.length) % line.length]);
  };
  open('large', [video],
    make('h4', { textContent: nameOf(card) }), make('p', { className: 'prompt-line', textContent: data.rows[card.row].prompt }),
    make('div', { className: 'stage' }, video),
    make('div', { className: 'tools' }, button('‹ column', 'previous', 'The column before', () => go(-1)), button('column ›', 'next', 'The next column', () => go(1)),
      make('a', { href: cell.url, download: `${nameOf(card) || 'video'}.mp4`.replace(/[^\w.-]+/g, '-'), textContent: 'Download', className: 'download' }),
      server ? button('Download as GIF', 'gif', 'Convert this video to a GIF', () => downloadGif(card)) : null,
      server ? button('Use these settings', 'use', 'Fill the Sample tab with the settings of this video', () => { dialog.close(); trigger('use', { grid: data.grid, key: cell.key }); }) : null),
    make('ul', { className: 'measurements long' }, ...(cell.measurements ?? []).map((one) => {
      const line = measurementOf(one);
      line.append(make('small', { textContent: data.help[one.name] ?? '' }));
      return line;
    })), rows);
  const details = cell.details ?? (await server?.details({ grid: data.grid, key: cell.key }))?.details ?? [];
  rows.replaceChildren(...details.map(([name, value]) => make('div', {}, make('dt', { textContent: name }), make('dd', { textContent: value }))));
}

function openWipe() {
  if (chosen.length < 2) return tell('Choose two videos first: press the + below each.');
  const [left, right] = chosen;
  const videos = chosen.map((card) => videoOf(card.cell.url, labelOf(card)));
  const divider = make('input', { type: 'range', min: 0, max: 100, value: 50, step: 0.5, className: 'divider', label: 'Where the two meet' });
  const stage = make('div', { className: 'stage wiping' }, videos[0], videos[1], make('i', { className: 'line' }));
  const move = () => stage.style.setProperty('--at', `${divider.value}%`);
  const drag = (event) => {
    if (event.type === 'pointermove' && !event.buttons) return;
    const box = stage.getBoundingClientRect();
    divider.value = 100 * (event.clientX - box.left) / box.width;
    move();
  };
  divider.addEventListener('input', move);
  stage.addEventListener('pointerdown', (event) => { stage.setPointerCapture(event.pointerId); drag(event); });
  stage.addEventListener('pointermove', drag);
  move();
  const names = make('div', { className: 'two-names' }, make('b', { textContent: nameOf(left) }), make('b', { textContent: nameOf(right) }));
  const prompts = left.row === right.row ? data.rows[left.row].prompt : `${data.rows[left.row].prompt} / ${data.rows[right.row].prompt}`;
  open('wipe', videos, make('p', { className: 'prompt-line', textContent: prompts }), names, stage, divider);
}

function pair() { // the two of a row that were compared least, sides by chance
  const count = new Map();
  for (const [one, other] of data.votes) { const name = [one, other].sort().join(); count.set(name, (count.get(name) ?? 0) + 1); }
  let found = [], least = Infinity;
  for (const row of cards) {
    const line = row.filter((card) => card.video && !card.cell.rejected);
    line.forEach((one, index) => line.slice(index + 1).forEach((other) => {
      const times = count.get([one.cell.key, other.cell.key].sort().join()) ?? 0;
      if (times < least) [found, least] = [[], times];
      if (times === least) found.push([one, other]);
    }));
  }
  const two = found[Math.floor(Math.random() * found.length)];
  return two && Math.random() < 0.5 ? [two[1], two[0]] : two;
}

function openVote() {
  const two = pair();
  if (!two) return tell('A vote needs two videos in one row: wait until they are generated.');
  const videos = two.map((card, side) => videoOf(card.cell.url, side ? 'right' : 'left'));
  const names = two.map(() => make('figcaption', { textContent: '?' }));
  const after = make('p', { className: 'after', role: 'status' });
  const decide = async (chosenKey) => {
    for (const one of buttons) one.disabled = true;
    two.forEach((card, side) => { names[side].textContent = nameOf(card) + (card.cell.key === chosenKey ? ' ★' : ''); });
    const answer = await call('vote', { left: two[0].cell.key, right: two[1].cell.key, chosen: chosenKey });
    data.votes.push([two[0].cell.key, two[1].cell.key]);
    after.textContent = answer ? answer.votes : message.textContent;
    again.hidden = false;
    again.focus();
  };
  const buttons = [
    button('Left is better', 'left', 'Left is better', () => decide(two[0].cell.key)),
    button('No difference', 'neither', 'Neither is better', () => decide('')),
    button('Right is better', 'right', 'Right is better', () => decide(two[1].cell.key)),
  ];
  const again = button('Next pair', 'again', 'Vote on two others', openVote);
  again.hidden = true;
  open('voting', videos, make('p', { className: 'prompt-line', textContent: data.rows[two[0].row].prompt }),
    make('div', { className: 'pair-line' }, ...videos.map((video, side) => make('figure', {}, make('div', { className: 'stage' }, video), names[side]))),
    make('div', { className: 'tools' }, ...buttons, again), after);
}

// ---- what the person does

scrub.addEventListener('input', () => { playing = kept.playing = false; settle(Number(scrub.value) / fps()); });
loop.addEventListener('change', () => { kept.loop = loop.checked; keep(); });
speed.addEventListener('change', () => { kept.speed = Number(speed.value); keep(); if (playing) begin(now); });
mode.addEventListener('change', () => { kept.mode = mode.value; keep(); looks(); if (playing) begin(now); });
amount.addEventListener('change', () => { kept.amount = Number(amount.value); keep(); });
showMeasurements.addEventListener('change', () => { kept.measurements = showMeasurements.checked; keep(); looks(); });
size.addEventListener('input', () => { kept.size = Number(size.value); keep(); resize(); });
root.addEventListener('pointerdown', (event) => { if (!event.target.closest('button, input, select, a, dialog')) root.focus({ preventScroll: true }); });
root.addEventListener('keydown', (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches('select, textarea, .divider, .size')) return;
  const actions = {
    ' ': target.matches('button, summary, [type=checkbox]') ? null : () => (playing ? pause() : start()),
    ArrowLeft: () => step(-1), ArrowRight: () => step(1),
    Home: () => { playing = kept.playing = false; settle(0); }, End: () => { playing = kept.playing = false; settle((frames() - 1) / fps()); },
    l: () => loop.click(), d: () => { mode.value = kept.mode === 'difference' ? 'videos' : 'difference'; mode.dispatchEvent(new Event('change')); },
    w: openWipe, v: server ? openVote : null,
  };
  const action = actions[key.length === 1 ? key.toLowerCase() : key];
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  action();
});

// ---- the grid's data

function show() {
  const value = props.value ?? {};
  root.hidden = !value.grid;
  if (!value.grid) { data = null; layout = ''; cards = []; table.replaceChildren(); return; }
  const named = JSON.stringify([value.grid, value.heads, value.rows, value.cells.map((row) => row.map((cell) => cell.key))]);
  const other = data?.grid !== value.grid;
  data = value;
  if (named !== layout) {
    layout = named;
    if (other) { now = 0; phase = 'still'; if (dialog.open) dialog.close(); }
    build();
  }
  cards.forEach((line, row) => line.forEach((card, column) => fill(card, value.cells[row][column])));
  tallies();
  measured.hidden = !Object.keys(value.help).length;
  mode.options[1].textContent = `Difference to ${value.reference ?? 'the base'}`;
  title.textContent = [value.title, ...value.fixed].join(' · ');
  status.textContent = value.progress.text;
  progress.hidden = value.progress.done === value.progress.all;
  progress.firstChild.style.width = `${100 * value.progress.done / value.progress.all}%`;
  looks();
}

watch('value', show);
show();
requestAnimationFrame(run);
