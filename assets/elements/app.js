// The frame of the page: rail, router, command palette, file drops, messages, and the banner while the server is away.

const PRODUCT = 'Video LoRA Workbench';
const TOAST_MS = 8000;
const LATER_MS = 3000; // until it loads the elements that were not needed so far

// First part of an address -> title, icon, and the element that shows the rest, its `path`.
const PLACES = {
  '': { title: 'Home', name: 'home', key: 'h', element: () => 'wb-home' },
  dataset: { title: 'Dataset', name: 'dataset', key: 'd', element: ([name, tab, , view]) => (!name ? 'wb-datasets' : tab === 'clip' ? (view === 'mask' ? 'wb-mask' : 'wb-clip') : 'wb-dataset') },
  train: { title: 'Train', name: 'train', key: 't', element: ([name]) => (!name ? 'wb-runs' : name === 'new' ? 'wb-new-run' : 'wb-run') },
  sample: { title: 'Sample', name: 'sample', key: 's', element: () => 'wb-sample' },
  compare: { title: 'Compare', name: 'compare', key: 'c', element: () => 'wb-compare' },
  loras: { title: 'LoRAs', name: 'loras', key: 'l', element: () => 'wb-loras' },
};

const LOGO = html`<svg width="26" height="26" viewBox="0 0 26 26" aria-hidden="true"><rect x="1" y="4" width="24" height="18" rx="3" fill="none"
  stroke="currentColor" stroke-width="1.8"/><path d="M5 4v18M21 4v18M1 10h4M1 16h4M21 10h4M21 16h4" stroke="currentColor" stroke-width="1.4"/><path
  d="M13 8v12" stroke="var(--wb-accent)" stroke-width="2"/><path d="M9.5 6h7L13 10.5z" fill="var(--wb-accent)"/></svg>`;

// The machine: device, memory, load and disk. machine: from the overview
const machineCard = (machine) => machine && html`<section class="machine" aria-label="This machine"><b>${machine.name}</b>
  ${meter(machine.memory_total ? machine.memory_used / machine.memory_total : 0, `${machine.gpu ? 'GPU memory' : 'Memory'} in use`)}
  <dl><dt>Memory</dt><dd class="live">${machine.memory_total ? `${(machine.memory_used / 1e9).toFixed(1)} of ${Math.round(machine.memory_total / 1e9)} GB` : 'unknown'}</dd>
  ${machine.busy !== null && html`<dt>${machine.gpu ? 'Busy' : 'Cores busy'}</dt><dd class="live">${percent(machine.busy)}</dd>`}
  <dt>Disk free</dt><dd class="${machine.disk_low && 'bad'}">${bytes(machine.disk_free)}</dd></dl></section>`;

const themeSwitch = (name) => html`<div class="theme">${segments(name, [['light', 'Light', 'sun'], ['dark', 'Dark', 'moon'], ['system', 'System', 'system']],
  preferences.read('theme', 'system'), 'theme', 'Theme')}</div>`;

function applyTheme(theme) {
  preferences.keep('theme', theme);
  document.documentElement.classList.toggle('dark', theme === 'dark');
  document.documentElement.classList.toggle('light', theme === 'light');
}

class Rail extends WorkbenchElement {
  static properties = ['place', 'overview'];

  view() {
    const { counts = {}, computer } = this.overview ?? {};
    const running = this.overview?.active.find((run) => run.state === 'running');
    const train = [
      counts.running ? html`<span class="state going">${ring(running?.share)}${counts.running} running <span class="live">${
        running?.share !== null && running?.share !== undefined && percent(running.share)}</span></span>` : '',
      counts.failed ? html`<span class="state bad">${icon('bad')}${counts.failed} failed</span>` : '',
    ].filter(Boolean);
    const numbers = {
      dataset: counts.datasets ? html`<span title="${count(counts.datasets, 'dataset')}">${counts.datasets}</span>` : '',
      train: !train.length && counts.runs ? html`<span title="${count(counts.runs, 'run')}">${counts.runs}</span>` : '',
      sample: counts.queued ? html`<span title="${count(counts.queued, 'video')} in the queue">${counts.queued} queued</span>` : '',
      loras: counts.loras ? html`<span title="${count(counts.loras, 'LoRA')}">${counts.loras}</span>` : '',
    };
    return html`<a class="brand" href="#/">${LOGO}<b>${PRODUCT}</b></a>
      <button type="button" class="button find" data-do="find" aria-keyshortcuts="Control+K">${icon('find')}<span>Search or do</span><kbd>Ctrl K</kbd><span
        class="unseen">Open the command palette</span></button>
      <nav class="nav" aria-label="Main">${Object.entries(PLACES).map(([where, { title, name }]) => html`<a href="${where ? address(where) : '#/'}"
        ${new Markup(where === this.place ? 'aria-current="page"' : '')}>${icon(name)}<span>${title}</span><span class="number">${numbers[where]}</span>${
        where === 'train' && counts.running ? html`<i class="dot"></i>` : ''}${where === 'train' && train.length ? html`<span class="below">${train}</span>` : ''}</a>`)}</nav>
      ${machineCard(computer)}${themeSwitch('rail-theme')}`;
  }

  find() { document.dispatchEvent(new CustomEvent('workbench-palette')); }
  theme(target) { applyTheme(target.value); }
}
define('wb-rail', Rail);

// ---- the command palette ----

// Score a text against the typed letters, which must occur in order, best together at the start of a word. Null: no match.
function fuzzy(text, typed) {
  if (!typed) return { score: 0, marked: html`${text}` };
  const lower = text.toLowerCase(), at = lower.indexOf(typed);
  if (at >= 0) {
    const inWord = at > 0 && /\w/.test(lower[at - 1]);
    return { score: 200 - at - (inWord ? 60 : 0), marked: html`${text.slice(0, at)}<mark>${text.slice(at, at + typed.length)}</mark>${text.slice(at + typed.length)}` };
  }
  let found = 0, score = 0, before = -2;
  const marked = [...text].map((letter, index) => {
    if (found >= typed.length || lower[index] !== typed[found]) return html`${letter}`;
    score += before === index - 1 ? 6 : !index || /[\s\-_/]/.test(lower[index - 1]) ? 5 : 1;
    before = index;
    found += 1;
    return html`<mark>${letter}</mark>`;
  });
  return found === typed.length ? { score, marked } : null;
}

// Current actions and all objects. commands(objects): [{title, kind, icon, to or run, key}], from the frame and the open place
class Palette extends WorkbenchElement {
  static properties = ['commands'];
  typed = '';
  chosen = 0;

  view() {
    if (!this.shown) return html``;
    const typed = this.typed.toLowerCase().replace(/\s+/g, ' ').trim();
    this.found = this.all.map((command) => ({ command, fit: fuzzy(command.title, typed) })).filter(({ fit }) => fit)
      .sort((one, other) => other.fit.score - one.fit.score).slice(0, 40);
    this.chosen = Math.max(0, Math.min(this.chosen, this.found.length - 1));
    return html`<dialog class="palette" aria-label="Command palette"><input role="combobox" aria-expanded="true" aria-controls="palette-list" aria-label="Search or do"
      aria-activedescendant="${this.found.length ? `palette-${this.chosen}` : ''}" placeholder="Search runs, clips, LoRAs, or type an action" autocomplete="off" autofocus
      value="${this.typed}" data-input="search"><ul id="palette-list" role="listbox" aria-label="Results">${each(this.found, ({ command, fit }, index) => html`<li role="option"
      id="palette-${index}" data-do="take" data-value="${index}" aria-selected="${index === this.chosen}">${icon(command.icon)}<span class="one-line">${fit.marked}</span><span
      class="faint">${command.key ? html`<kbd>${command.key}</kbd>` : command.kind}</span></li>`, html`<li><span></span><span class="faint">Nothing matches.</span></li>`)}</ul>
      <footer>${shortcuts(['↑ ↓', 'choose'], ['Enter', 'do'], ['Esc', 'close'])}</footer></dialog>`;
  }

  async show() {
    this.shown = true;
    this.typed = '';
    this.chosen = 0;
    this.all = this.commands([]);
    this.draw();
    this.querySelector('dialog').addEventListener('keydown', (event) => this.press(event));
    this.modal(() => { this.shown = false; }, true);
    // Objects arrive a moment later.
    const objects = await page.transport.call('overview/objects').catch(() => []);
    this.all = this.commands(objects);
    this.redraw();
  }

  search(target) { this.typed = target.value; this.chosen = 0; }

  press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      this.chosen += step;
      this.draw();
      this.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' });
    } else if (event.key === 'Enter') {
      event.preventDefault();
      this.run(this.chosen);
    }
  }

  take(target) { this.run(Number(target.dataset.value)); }

  run(index) {
    const command = this.found[index]?.command;
    if (!command) return;
    this.close();
    if (command.to) { window.location.hash = command.to; return; }
    command.run();
    this.closest('wb-app, wb-notebook').redrawOpen();
  }
}
define('wb-palette', Palette);

const KEYS = [
  ['Command palette', 'Ctrl K'], ['Go to a page', 'G, then H D T S C L'], ['New run', 'N'], ['Find on this page', '/'], ['Next and previous clip or run', 'J K'],
  ['Play or pause, previous and next frame', 'Space , .'], ['Save the caption, next without one', 'Ctrl Enter'], ['Reorder the queue', 'Alt ↑ ↓'],
];

// ---- the frame ----

// wb-app routes addresses to elements. A place's element gets `path`, the parts of the address after the place, and may define
//   heading         title of the window
//   commands()      entries of the palette: [{title, icon, run}]
//   press(key)      handles a single key; true if it did something
//   dropped(files)  takes dropped files, which otherwise become a new dataset
class App extends WorkbenchElement {
  server = { lost: null, kept: 0 };
  tries = 0; // to load what the first script left out
  needs() { return { overview: ['overview/overview', {}] }; }

  born() {
    applyTheme(preferences.read('theme', 'system'));
    this.path = parts(window.location.hash);
    window.addEventListener('hashchange', () => this.route());
    document.addEventListener('workbench-toast', ({ detail }) => this.show(detail));
    document.addEventListener('workbench-server', ({ detail }) => this.told(detail));
    document.addEventListener('workbench-palette', () => this.palette.show());
    document.addEventListener('keydown', (event) => this.key(event));
    document.addEventListener('click', ({ target }) => {
      for (const one of this.querySelectorAll('details.menu[open]')) if (!one.contains(target)) one.open = false;
    });
    this.takeDrops();
    if (page.more) setTimeout(() => this.load(), LATER_MS);
  }

  get running() { return this.overview?.active.find((run) => run.state === 'running'); }
  get palette() { return this.querySelector('wb-palette'); }
  get open() { return this.querySelector('main').firstElementChild; }
  redrawOpen() { this.open.redraw?.(); } // after a command or a key

  view() {
    const [place = ''] = this.path;
    const { server: { lost, kept }, running } = this;
    this.className = [lost && 'lost', this.dropping && 'dropping'].filter(Boolean).join(' ');
    return html`<a class="button primary skip" href="#main" data-do="skip">Skip to the page</a>
      <wb-rail .place=${place} .overview=${this.overview}></wb-rail>
      <div style="min-width:0"><div class="lost-banner" role="alert">${lost && html`${icon('warn')}<span><b>Connection lost.</b> Reconnecting; figures are from ${
        lost.since.toTimeString().slice(0, 5)}. ${kept ? html`<b>${count(kept, 'click')} kept.</b>` : 'What you click is kept.'}</span><span class="spacer"></span>${
        button('Try now', 'retry', { kind: 'small' })}`}</div>
      <div class="top"><b class="one-line">${PRODUCT}</b><span class="spacer"></span>${running ? html`<a class="state going" href="${address('train', running.name)}"><span class="live">${
        percent(running.share ?? 0)}</span></a>` : ''}<details class="menu"><summary class="button quiet small" aria-label="This machine and the theme">${
        icon('settings')}</summary><div style="padding:12px">${machineCard(this.overview?.computer)}${themeSwitch('top-theme')}</div></details>${
        button('', 'find', { kind: 'quiet square', name: 'find', label: 'Search or do' })}</div>
      ${this.overview?.notice && html`<details class="notice" open><summary>This is a demo</summary><p>${this.overview.notice}${this.overview.sign_in && html` If this Space is yours: <a class="link"
        href="${this.overview.sign_in}" target="_blank" rel="noopener">sign in</a> for the whole workbench.`}</p></details>`}
      ${this.place()}</div>${this.around()}`;
  }

  // The place that the address names.
  place() {
    const [place = '', ...rest] = this.path;
    const tag = PLACES[place]?.element(rest), known = tag && customElements.get(tag);
    if (tag && !known && page.more) {
      this.load();
      return html`<main id="main" aria-busy="true"><div data-id="loading">${skeleton('height:36px;width:40%')}${skeleton('height:320px')}</div></main>`;
    }
    return html`<main id="main">${known ? new Markup(`<${tag} data-id="${tag}"></${tag}>`) : html`<div data-id="missing" class="empty"><h1 tabindex="-1">Page not found</h1>
      <p class="faint">It was renamed or moved to the bin, or the address is mistyped.</p><div class="row">${linkTo('Home', '#/', { kind: 'primary' })}${button('Search', 'find')}</div></div>`}</main>`;
  }

  // Load what the first script left out.
  load() {
    this.loading ??= page.more(this.tries).then(() => this.redraw(), () => { this.tries += 1; this.loading = null; });
  }

  // Everything above the page: drop overlay, palette, keyboard shortcuts, messages.
  around() {
    return html`<div class="overlay" aria-hidden="true"><strong style="font-size:var(--wb-text-5)">Drop to import</strong><span class="faint">Videos, pictures, folders, zips, and captions with the same names</span></div>
      <wb-notifications></wb-notifications>
      <wb-palette .commands=${(objects) => this.commands(objects)}></wb-palette>
      <dialog class="keys" aria-label="Keyboard shortcuts"><div class="content"><div class="row"><h2>Keyboard shortcuts</h2><span class="spacer"></span>${button('Close', 'closeKeys', { kind: 'small' })}</div>
        <div class="key-values" style="grid-template-columns:1fr auto">${KEYS.map(([text, key]) => html`<span>${text}</span><span><kbd>${key}</kbd></span>`)}</div><p>${documentation()}</p></div></dialog>
      <div class="toast ${this.said && 'on'} ${this.said?.tone}" role="${this.said?.tone === 'bad' ? 'alert' : 'status'}">${this.said && html`<span>${prose(this.said.text)}</span>${
        this.said.undo ? button('Undo', 'undo') : button('', 'closeToast', { kind: 'square', name: 'close', label: 'Close' })}`}</div>
      <div id="wb-say" class="unseen" role="status"></div>`;
  }

  updated() {
    const { open } = this;
    if (open instanceof WorkbenchElement) open.path = this.rest ??= this.path.slice(1);
    this.nameWindow();
  }

  // ---- addresses

  route() {
    const before = this.path.slice(0, 2).join('/');
    this.path = parts(window.location.hash);
    this.rest = this.path.slice(1);
    this.draw();
    if (before === this.path.slice(0, 2).join('/')) {
      requestAnimationFrame(() => this.showTab());
      return;
    }
    this.palette.close();
    window.scrollTo(0, 0);
    // Move screen readers and the Tab key to the heading of the new object.
    this.headed?.disconnect();
    this.headed = new MutationObserver(() => this.focusHeading());
    this.headed.observe(this.querySelector('main'), { childList: true, subtree: true });
    this.addEventListener('pointerdown', () => this.headed.disconnect(), { once: true, capture: true });
    queueMicrotask(() => this.focusHeading());
  }

  // On a phone an object's tabs scroll sideways.
  showTab() {
    const tab = this.querySelector('main .tabs [aria-current]'), list = tab?.parentNode;
    if (list) list.scrollLeft = tab.offsetLeft - list.offsetLeft - (list.clientWidth - tab.offsetWidth) / 2;
  }

  // The heading may arrive later, and be replaced once more. Stop if a person has moved the focus.
  focusHeading() {
    const { activeElement } = document;
    if (activeElement === document.body) this.querySelector('main h1')?.focus({ preventScroll: true });
    else if (!activeElement.matches('main h1')) this.headed.disconnect();
  }

  nameWindow() {
    const { running } = this;
    const first = this.server.lost ? 'Offline' : running?.share !== null && running?.share !== undefined ? percent(running.share) : '';
    const place = PLACES[this.path[0] ?? ''];
    const object = this.open?.heading || (this.path[1] && this.path[1] !== 'new' ? this.path[1] : place?.title ?? 'Not found');
    document.title = [first, object, PRODUCT].filter(Boolean).join(' · ');
  }

  skip() { this.querySelector('main h1')?.focus(); }

  // ---- the server

  told({ lost, kept, sent }) {
    const back = this.server.lost && !lost;
    this.server = { lost, kept };
    if (back) this.show({ text: sent ? `Back. ${count(sent, 'kept click')} sent.` : 'Back.' });
    this.redraw();
  }

  retry() { page.transport.retry(); }

  // ---- messages

  show(said) {
    clearTimeout(this.silence);
    this.said = said;
    this.silence = setTimeout(() => { this.said = null; this.redraw(); }, said.tone === 'bad' ? 2 * TOAST_MS : TOAST_MS);
    this.redraw();
  }

  closeToast() { this.said = null; }

  async undo() {
    const { undo } = this.said;
    this.said = null;
    await undo();
  }

  // ---- the palette and keys

  find() { this.palette.show(); }

  commands(objects) {
    const places = Object.entries(PLACES).map(([where, { title, name, key }]) => ({
      title: `Go to ${title}`, icon: name, to: where ? address(where) : '#/', key: `G ${key.toUpperCase()}`,
    }));
    const themes = [['light', 'Light theme', 'sun'], ['dark', 'Dark theme', 'moon'], ['system', 'System theme', 'system']];
    return [
      ...this.open?.commands?.() ?? [],
      ...places,
      { title: 'New run', icon: 'plus', to: address('train', 'new'), key: 'N' },
      { title: 'Import clips', icon: 'upload', run: () => this.choose() },
      { title: 'Documentation', icon: 'link', run: () => window.open(DOCUMENTATION, '_blank', 'noopener') },
      { title: 'Keyboard shortcuts', icon: 'list', run: () => this.keys(), key: '?' },
      ...themes.map(([theme, title, name]) => ({ title, icon: name, run: () => { applyTheme(theme); this.redraw(); } })),
      ...objects.map(({ title, kind, address: to }) => ({ title, kind, icon: { run: 'train', dataset: 'dataset', LoRA: 'loras', sample: 'sample', grid: 'compare', clip: 'play' }[kind], to })),
    ];
  }

  keys() { this.querySelector('dialog.keys').showModal(); }
  closeKeys() { this.querySelector('dialog.keys').close(); }

  key(event) {
    const { key } = event;
    if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === 'k') {
      event.preventDefault();
      this.palette.show();
      return;
    }
    if (isTyped(event) || this.querySelector('dialog[open]')) return;
    const place = this.going && Object.entries(PLACES).find(([, one]) => one.key === key);
    this.going = false;
    if (place) {
      window.location.hash = place[0] ? address(place[0]) : '#/';
    } else if (this.open?.press?.(key, event)) {
      event.preventDefault();
      this.redrawOpen();
    } else if (key === 'g') {
      this.going = true; // until the next key
    } else if (key === '?') {
      this.keys();
    } else if (key === 'n') {
      goTo('train', 'new');
    } else if (key === '/') {
      event.preventDefault();
      (this.querySelector('main input[type=search]') ?? this.querySelector('.find')).focus();
    } else if (playKey(this.querySelector('main wb-scrubber'), event)) {
      event.preventDefault();
    }
  }

  // ---- files dropped anywhere

  takeDrops() {
    let inside = 0;
    const files = ({ dataTransfer }) => dataTransfer && [...dataTransfer.types].includes('Files');
    const over = (on) => { if (this.dropping !== on) { this.dropping = on; this.redraw(); } };
    window.addEventListener('dragenter', (event) => { if (files(event)) { inside += 1; over(true); } });
    window.addEventListener('dragleave', (event) => { if (files(event) && (inside -= 1) <= 0) over(false); });
    window.addEventListener('dragover', (event) => { if (files(event)) event.preventDefault(); });
    window.addEventListener('drop', async (event) => {
      inside = 0;
      over(false);
      if (!files(event)) return;
      event.preventDefault();
      this.take(await filesOf(event.dataTransfer));
    });
  }

  choose() { chooseFiles((files) => this.take(files)); }

  take(chosen) {
    if (!chosen.length) return;
    if (this.open?.dropped) this.open.dropped(chosen);
    else importInto(null, chosen);
  }
}

// All dropped files, including those in folders.
async function filesOf({ items }) {
  const roots = [...items].map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile?.());
  const found = [];
  const walk = async (entry) => {
    if (entry instanceof File) { found.push(entry); return; }
    if (entry?.isFile) { found.push(await new Promise((done, failed) => { entry.file(done, failed); })); return; }
    const reader = entry?.createReader?.();
    for (;;) {
      const some = reader ? await new Promise((done, failed) => { reader.readEntries(done, failed); }) : [];
      if (!some.length) return;
      for (const one of some) await walk(one);
    }
  };
  for (const root of roots) await walk(root);
  return found;
}
