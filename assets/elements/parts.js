// Shared parts of elements: icons, states, numbers for people, buttons and fields.

// ---- icons: lines of 1.6 px on a grid of 16 ----
const ICONS = {
  loud: 'M2 6h2.5L8 3v10L4.5 10H2zM10.5 6a3 3 0 0 1 0 4M12.5 4a6 6 0 0 1 0 8',
  muted: 'M2 6h2.5L8 3v10L4.5 10H2zM11 6.2l3.6 3.6M14.6 6.2 11 9.8',
  home: 'M3 7.5 8 3l5 4.5V13H9.5V9.5h-3V13H3z',
  dataset: 'M2 3h12v10H2zM5 3v10M11 3v10M2 8h3M11 8h3',
  train: 'M2 13h12M3 10l3-4 3 2 4-5',
  sample: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM6.8 5.8v4.4L10.3 8z',
  compare: 'M2 3h5v10H2zM9 3h5v10H9z',
  loras: 'M8 2 2 5l6 3 6-3zM2 8l6 3 6-3M2 11l6 3 6-3',
  find: 'M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.5 10.5 14 14',
  sun: 'M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1',
  moon: 'M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z',
  system: 'M2 3h12v8H2zM6 14h4',
  play: 'M5 3.5v9l7.5-4.5z',
  pause: 'M5 3.5v9M11 3.5v9',
  stop: 'M4 4h8v8H4z',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  upload: 'M8 11V3M4.5 6.5 8 3l3.5 3.5M3 13h10',
  good: 'M3 8.5 6.5 12 13 4.5',
  warn: 'M8 2 14.5 13.5h-13zM8 6.5v3M8 11.8h.01',
  bad: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4',
  wait: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 5v3.2l2 1.3',
  plus: 'M8 3v10M3 8h10',
  star: 'M8 2l1.8 3.8 4.2.6-3 2.9.7 4.1L8 11.4l-3.7 2 .7-4.1-3-2.9 4.2-.6z',
  link: 'M6.5 9.5l3-3M7 4.5 8.5 3a3.2 3.2 0 0 1 4.5 4.5L11.5 9M9 11.5 7.5 13A3.2 3.2 0 0 1 3 8.5L4.5 7',
  download: 'M8 3v8M4.5 7.5 8 11l3.5-3.5M3 13h10',
  left: 'M10 3 5 8l5 5',
  right: 'M6 3l5 5-5 5',
  close: 'M4 4l8 8M12 4l-8 8',
  brush: 'M13 3 7 9M6.5 9.5c-2 0-2 1-2.5 2S2.5 13 2.5 13s4 .7 5-1-.3-2.3-1-2.5z',
  grip: 'M6 4h.01M10 4h.01M6 8h.01M10 8h.01M6 12h.01M10 12h.01',
  settings: 'M2 4h7M12 4h2M2 12h2M7 12h7M10.5 2.5v3M5.5 10.5v3M2 8h4M9 8h5M7.5 6.5v3',
  list: 'M2 4h12M2 8h12M2 12h12',
  fold: 'M4 6l4 4 4-4',
  bin: 'M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5 5 13.5h6l.5-9M7 7v4M9 7v4',
  bounce: 'M5 4 2 8l3 4M2 8h12M11 4l3 4-3 4',
  edit: 'M3 13l.7-3L10.5 3.2a1.4 1.4 0 0 1 2 2L5.8 12.2z',
  crop: 'M4.5 1.5v10h10M1.5 4.5h10v10',
};

// label: text for screen readers; "" if there is text beside the icon
const icon = (name, label = '') => (label
  ? html`<svg class="icon" viewBox="0 0 16 16" role="img" aria-label="${label}"><path d="${ICONS[name]}"/></svg>`
  : html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`);

// A ring that is filled to a share from 0 to 1.
const ring = (share) => html`<svg class="ring" viewBox="0 0 18 18" aria-hidden="true"><circle cx="9" cy="9" r="7"/>
  <circle class="value" cx="9" cy="9" r="7" stroke-dasharray="${(44 * (share ?? 0)).toFixed(1)} 44"/></svg>`;

const DOCUMENTATION = 'https://video-lora-workbench.github.io/video-lora-workbench/'; // the site that mkdocs.yml builds
const documentation = () => html`<a class="link minor" href="${DOCUMENTATION}" target="_blank" rel="noopener">Documentation</a>`;

// ---- states: always a color, an icon and a word ----

// tone: going, good, warn, bad or idle;  pill: with a background in its color
const TONE_ICONS = { going: 'play', good: 'good', warn: 'warn', bad: 'bad', idle: 'wait' };
const state = (tone, text, { pill = false, name = TONE_ICONS[tone] } = {}) => html`<span
  class="state ${tone} ${pill && 'pill'}">${icon(name)}${text}</span>`;
// A verdict on a run. more, action: templates, below its text and beside it
const verdictLine = ({ tone, claim, evidence }, more = '', action = '') => {
  const shown = tone === 'plain' ? 'idle' : tone;
  return html`<div class="verdict" aria-live="polite"><span class="${shown}">${icon(TONE_ICONS[shown])}</span><div class="text"><b class="${shown === 'bad' && 'bad'}">${prose(claim)}</b> <span class="faint">${
    prose(evidence)}</span>${more}</div>${action}</div>`;
};

// ---- numbers and times for people ----

const count = (number, one, many = `${one}s`) => `${number.toLocaleString('en-US')} ${number === 1 ? one : many}`;
// Format sizes in a sentence of the library: 720x480 -> 720×480
const withTimes = (text) => text?.replace(/(\d)x(\d)/g, '$1×$2');
const percent = (share) => `${Math.round(100 * share)}%`;
const loss = (value) => (value === null || value === undefined ? '-' : value < 0.001 ? value.toPrecision(2) : value.toFixed(value < 1 ? 4 : 3));

// 40 s, 34 min, 1 h 42 min, 2 days 3 h
const duration = (seconds) => {
  if (seconds === null || seconds === undefined) return '';
  const total = Math.round(seconds);
  if (total < 60) return `${Math.max(total, seconds > 0 ? 1 : 0)} s`;
  const minutes = Math.round(total / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 ? `${count(Math.floor(hours / 24), 'day')} ${hours % 24} h` : count(hours / 24, 'day');
};

const bytes = (size) => {
  if (size === null || size === undefined) return '';
  const [unit, of] = size >= 1e9 ? ['GB', 1e9] : size >= 1e6 ? ['MB', 1e6] : size >= 1e3 ? ['kB', 1e3] : ['bytes', 1];
  return `${of === 1 || size / of >= 100 ? Math.round(size / of) : (size / of).toFixed(1)} ${unit}`;
};

// How long ago, or the date after a month, with the full date as a tooltip. moment: Unix time in seconds, or a date as text
const ago = (moment) => {
  if (!moment) return '';
  const date = new Date(typeof moment === 'number' ? 1000 * moment : moment);
  const minutes = (Date.now() - date) / 60000;
  const words = minutes < 1 ? 'just now' : minutes < 60 ? `${Math.round(minutes)} min ago` : minutes < 1440
    ? `${Math.round(minutes / 60)} h ago` : minutes < 2880 ? 'yesterday' : minutes < 43200 ? `${Math.round(minutes / 1440)} days ago`
    : date.toLocaleDateString('en-US', { year: 'numeric', month: 'short', day: 'numeric' });
  const whole = date.toLocaleString('en-US', { dateStyle: 'full', timeStyle: 'short' });
  return html`<time datetime="${date.toISOString()}" title="${whole}">${words}</time>`;
};

// A text cut to one line or two, with the full text as a tooltip.
const oneLine = (text, tag = 'span') => new Markup(`<${tag} class="one-line" title="${escaped(text)}">${escaped(text)}</${tag}>`);
const twoLines = (text, tag = 'p') => new Markup(`<${tag} class="two-lines" title="${escaped(text)}">${escaped(text)}</${tag}>`);

// A message with `backticks` as code.
const prose = (text) => (typeof text === 'string' && text.includes('`')
  ? html`${text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? html`<code>${part}</code>` : part))}` : text ?? '');

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// Whether a text contains every typed word.
const hasWords = (text, typed) => {
  const lower = text.toLowerCase();
  return typed.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
};

// ---- buttons, links, fields ----

// does: method of the element to call;  kind: more classes of .button;  value: for target.dataset.value
const button = (text, does, { kind = '', name = '', value = '', label = '', title = '', off = false, pressed = null } = {}) => html`<button
  type="button" class="button ${kind}" data-do="${does}" data-value="${value}" ${new Markup(label && `aria-label="${escaped(label)}"`)}
  ${new Markup(title || label ? `title="${escaped(title || label)}"` : '')} ${new Markup(pressed === null ? '' : `aria-pressed="${pressed}"`)}
  ?disabled=${off}>${name && icon(name)}${text}</button>`;

const linkTo = (text, to, { kind = '', name = '', label = '' } = {}) => html`<a class="button ${kind}" href="${to}"
  ${new Markup(label && `aria-label="${escaped(label)}"`)}>${name && icon(name)}${text}</a>`;

// A menu. items: [text, method, value, icon, kind], or a false value
const menu = (items, label = 'More') => html`<details class="menu"><summary class="button square" aria-label="${label}" title="${label}">${
  icon('more')}</summary><div>${items.filter(Boolean).map(([text, does, value = '', name = '', kind = '']) => button(
  text, does, { kind: `quiet ${kind}`, value, name }))}</div></details>`;

// A labeled field. control: the input;  hint: text below it, such as its cost;  problem: why its value is refused
const field = (title, control, hint = '', problem = '') => html`<label class="field"><span>${title}</span>${control}${
  problem ? html`<span class="hint bad" role="alert">${prose(sentence(problem))}</span>` : html`<span class="hint">${prose(hint)}</span>`}</label>`;

// options: texts, or pairs [value, text]
const select = (options, chosen, attributes = '') => html`<select class="input" ${new Markup(attributes)}>${options.map((option) => {
  const [value, text] = Array.isArray(option) ? option : [option, option];
  return html`<option value="${value}" ?selected=${String(value) === String(chosen)}>${text}</option>`;
})}</select>`;

// A choice among a few. options: [value, text, icon];  does: method to call with the chosen input
const segments = (name, options, chosen, does, legend) => html`<fieldset class="segments"><legend class="unseen">${legend}</legend>${options.map(
  ([value, text, picture]) => html`<label title="${text}"><input type="radio" name="${name}" value="${value}" data-change="${does}"
    ?checked=${value === chosen}>${picture ? html`${icon(picture)}<span class="unseen">${text}</span>` : text}</label>`)}</fieldset>`;

// Hints at keys, hidden on phones. list: [keys, what they do], or false values
const shortcuts = (...list) => html`<p class="fine faint shortcuts">${list.filter(Boolean).map(([keys, does]) => html`<span>${keys.split(' ').map((key) => html`<kbd>${key}</kbd> `)}${does}</span>`)}</p>`;

const meter = (share, label, tone = '') => html`<div class="meter ${tone}" role="meter" aria-label="${label}" aria-valuemin="0" aria-valuemax="100"
  aria-valuenow="${Math.round(100 * share)}"><i style="width:${(100 * Math.min(1, Math.max(0, share))).toFixed(1)}%"></i></div>`;

// A progress bar, indeterminate if share is null.
const progress = (share, label) => html`<div class="meter ${share === null && 'unknown'}" role="progressbar" aria-label="${label}" aria-valuemin="0"
  aria-valuemax="100" ${new Markup(share === null ? '' : `aria-valuenow="${Math.round(100 * share)}"`)}><i style="width:${
  share === null ? 30 : (100 * share).toFixed(1)}%"></i></div>`;

// A task under way, with a button that calls `stop`.
const underWay = (share, activity) => html`<div class="task" role="status">${progress(share, activity)}<div class="row"><span class="minor live">${activity}</span><span
  class="spacer"></span>${button('Stop', 'stop', { kind: 'small', name: 'stop' })}</div></div>`;

// A placeholder of the size of what is loading.
const skeleton = (style) => html`<div class="skeleton" style="${style}"></div>`;

// A place to drop a missing file. does: method to call on click;  label: for screen readers, if the text is not enough
const dropSlot = (does, text, { value = '', name = 'upload', label = '', style = '' } = {}) => html`<button type="button" class="dropzone" data-do="${does}" data-value="${value}" style="${style}" ${
  new Markup(label && `aria-label="${escaped(label)}"`)}>${icon(name)}<span class="minor">${text}</span></button>`;

// Show another page of an element's list, from the top of its tools.
function turnPage(element, target) {
  element.first = Math.max(0, Number(target.dataset.value));
  element.querySelector('.tools').scrollIntoView({ block: 'start' });
}

// Links to pages of a long list, which call the element's method `page`. first: index of the first item;  size: items per page
const pager = ({ first, found, size, what }) => (found <= size ? '' : html`<nav class="row" aria-label="Pages of ${what}s">${button('Previous', 'page', { value: first - size, off: !first, name: 'left' })}<span class="minor">${(first + 1).toLocaleString('en-US')} to ${
  Math.min(first + size, found).toLocaleString('en-US')} of ${count(found, what)}</span>${button('Next', 'page', { value: first + size, off: first + size >= found })}</nav>`);

// The tabs of an object: [address, text, number or ''].
const tabs = (list, current, label) => html`<nav class="tabs" aria-label="${label}">${list.map(([to, text, number = '']) => html`<a href="${to}"
  ${new Markup(to === current ? 'aria-current="page"' : '')}>${text}${number !== '' && html`<span class="number">${number}</span>`}</a>`)}</nav>`;

// An empty state with what to do first. actions: buttons or links
const empty = (text, ...actions) => html`<div class="empty"><p>${text}</p><div class="row">${actions}</div></div>`;

// A reason why something cannot be shown.
const alarm = (text) => html`<p class="state bad" role="alert">${icon('bad')}<span>${prose(text)}</span></p>`;
const refusal = (problem) => alarm(problem.message);
// In place of an answer: why it was refused, or else a placeholder of its size.
const pending = (problem, style) => (problem ? refusal(problem) : skeleton(style));
const warning = (text) => html`<p class="state warn">${icon('warn')}<span>${prose(text)}</span></p>`;

// Shown for an address whose object does not exist.
const absent = (title, problem, link) => html`<div class="empty"><h1 tabindex="-1">${title}</h1><p class="faint">${prose(problem.message)}</p><div class="row">${link}</div></div>`;

// A link to an object's parent, and its title.
const crumbs = (to, text, title, more = '') => html`<a class="faint" href="${to}">${text}</a><span class="faint">/</span><h1 tabindex="-1" class="one-line" title="${title}">${title}</h1>${more}`;

// A dialog that `close` closes. submit: method of its form;  more: buttons before Close
const sheet = (kind, title, body, { submit = '', more = '' } = {}) => html`<dialog class="${kind}" aria-label="${title}" tabindex="-1"><form class="content" data-submit="${submit || 'stay'}"><div class="row tight"><h2
  class="one-line">${title}</h2><span class="spacer"></span>${more}${button('', 'close', { kind: 'quiet small square', name: 'close', label: 'Close' })}</div>${body}</form></dialog>`;

// Follow the pointer until it is released. move(event): while it moves;  end(): afterwards
function followPointer(move, end = () => {}) {
  const stop = () => { window.removeEventListener('pointermove', move); window.removeEventListener('pointerup', stop); end(); };
  window.addEventListener('pointermove', move);
  window.addEventListener('pointerup', stop);
}

// The crop after dragging a corner ('nw', 'ne', 'sw' or 'se') to (x, y), in even pixels within the picture.
function draggedCrop([left, top, width, height], corner, x, y, wide, high) {
  const even = (number, most) => Math.max(0, Math.min(2 * Math.round(number / 2), most - (most % 2)));
  const least = 16;
  let [west, north, east, south] = [left, top, left + width, top + height];
  if (corner.includes('w')) west = Math.min(even(x, wide), east - least); else east = Math.max(even(x, wide), west + least);
  if (corner.includes('n')) north = Math.min(even(y, high), south - least); else south = Math.max(even(y, high), north + least);
  return [Math.max(0, west), Math.max(0, north), east - Math.max(0, west), south - Math.max(0, north)];
}

// A box over a stage, with corners to drag if `on`. box: [left, top, width, height] in pixels of the video
const cropBox = ([left, top, wide, tall], { width, height }, on) => {
  const x = (number) => `${((100 * number) / width).toFixed(3)}%`, y = (number) => `${((100 * number) / height).toFixed(3)}%`;
  return html`<div class="crop ${on && 'on'}" style="left:${x(left)};top:${y(top)};width:${x(wide)};height:${y(tall)}">${
    on ? ['nw', 'ne', 'sw', 'se'].map((corner) => html`<span class="corner ${corner}" data-corner="${corner}"></span>`) : ''}</div>`;
};

// Drag the corner under the pointer. box(): the box now;  changed(box): called as it changes
function dragCorner(event, stage, size, box, changed) {
  const { corner } = event.target.dataset ?? {};
  if (!corner) return;
  const { width, height } = size;
  event.preventDefault();
  const area = stage.getBoundingClientRect();
  followPointer(({ clientX, clientY }) => changed(draggedCrop(box(), corner, ((clientX - area.left) / area.width) * width, ((clientY - area.top) / area.height) * height, width, height)));
}

// Download a file from the server, as `name` or under its own name.
const save = (href, download) => Object.assign(document.createElement('a'), { href, download }).click();
const saveFile = async (path, name = path.split(/[\\/]/).at(-1)) => save(await page.transport.file(path), name);

// Open a file picker. accept: suffixes or types, "" for all
function chooseFiles(chosen, { accept = '', multiple = true } = {}) {
  const input = Object.assign(document.createElement('input'), { type: 'file', accept, multiple });
  input.addEventListener('change', () => { if (input.files.length) chosen([...input.files]); });
  input.click();
}

// Ask for values in a dialog. Returns them by name, or null if it was closed.
//   fields: [name, label, { value, list: suggestions, low and high: bounds of a number }];  does: text of the button
function askFor(title, fields, does = 'Save') {
  const dialog = Object.assign(document.createElement('dialog'), { guest: true });
  dialog.setAttribute('aria-label', title);
  morph(dialog, html`<form method="dialog" class="content"><h2>${title}</h2>${fields.map(([name, label, { value = '', list = [], low, high } = {}], index) => field(label, html`<input class="input" name="${name}" value="${value}" ${
    new Markup(low === undefined ? 'autocomplete="off"' : `type="number" step="any" min="${low}" max="${high}" required`)} list="asked-${index}" ?autofocus=${!index}><datalist id="asked-${index}">${list.map((one) => html`<option value="${one}">`)}</datalist>`))}<div class="row"><span class="spacer"></span><button class="button quiet" value="no" formnovalidate>Cancel</button><button class="button primary" value="yes">${does}</button></div></form>`);
  (document.querySelector('wb-app, .workbench') ?? document.body).append(dialog);
  dialog.showModal();
  dialog.querySelector('input').select();
  // Enter would click the first button of the form, which is Cancel.
  dialog.addEventListener('keydown', (event) => { if (event.key === 'Enter' && event.target.matches('input')) { event.preventDefault(); dialog.querySelector('[value=yes]').click(); } });
  return new Promise((done) => {
    dialog.addEventListener('close', () => { const found = dialog.returnValue === 'yes' ? Object.fromEntries([...dialog.querySelectorAll('input')].map((one) => [one.name, one.type === 'number' ? one.valueAsNumber : one.value.trim()])) : null; dialog.remove(); done(found); });
  });
}

// Ask for a text in a dialog. Returns it, or null if it was closed.
const ask = async (title, label, { value, list, does } = {}) => (await askFor(title, [['text', label, { value, list }]], does))?.text ?? null;
