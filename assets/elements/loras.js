// The LoRA library: a card per LoRA, actions for several LoRAs, operations in progress, and the bin.

const MOST_CARDS = 500; // the search covers all
const ENDED_SHOWN = 3; // recently ended operations
const ENDED_SECONDS = 3600;
const LORA_FILE = /\.(safetensors|pt|bin|ckpt)$/i;

const LORA_ORDERS = {
  new: ['Newest first', (one, other) => other.created - one.created],
  name: ['By name', (one, other) => one.title.localeCompare(other.title)],
  rank: ['Highest rank first', (one, other) => other.rank - one.rank],
  steps: ['Most steps first', (one, other) => (other.steps ?? 0) - (one.steps ?? 0)],
  size: ['Largest first', (one, other) => other.bytes - one.bytes],
};

// LoRAs that contain every typed word in title, name, trigger word, model, verdict or marks.
function foundLoras(loras, typed, model = '') {
  return loras.filter((lora) => (!model || lora.base_model === model)
    && hasWords([lora.title, lora.name, lora.trigger, lora.base_model, lora.model_title, lora.verdict?.claim, ...lora.marks].join(' '), typed));
}

const verdictOf = ({ verdict }, pill = false) => verdict && state(verdict.tone, verdict.claim, { pill });

const videoOf = (lora, { file, prompt, width, height }, more = {}) => video(file, prompt || `${lora.title}, a preview`, { width, height, ...more });

class Loras extends WorkbenchElement {
  static properties = ['path'];
  typed = '';
  model = '';
  chosen = new Set();
  dismissed = new Set();
  checkpoints = preferences.read('checkpoints of runs', false);
  order = preferences.read('order of LoRAs', 'new');

  needs() {
    return { loras: ['loras/list', { checkpoints: this.checkpoints }], tasks: ['loras/jobs', {}], cleanup: ['loras/to-clean', {}, 'once'] };
  }

  get opened() { return this.path?.[0] ?? ''; }
  get heading() { return this.known.find(({ name }) => name === this.opened)?.title; }

  // Keep the previous list while a new one loads.
  get known() { this.last = this.loras ?? this.last; return this.last ?? []; }
  get shown() { return foundLoras(this.known, this.typed, this.model).sort(LORA_ORDERS[this.order][1]); }

  view() {
    const { known, shown, opened } = this;
    const models = new Map(known.filter((lora) => lora.base_model).map((lora) => [lora.base_model, lora.model_title]));
    const size = known.reduce((sum, lora) => sum + lora.bytes, 0);
    const unused = (this.cleanup ?? []).reduce((sum, one) => sum + one.bytes, 0);
    return html`<div class="head"><h1 tabindex="-1">LoRAs</h1><span class="faint minor">${known.length > 0 && `${count(known.length, 'LoRA')}, ${bytes(size)}`}</span>
      <div class="actions"><input class="input" type="search" value="${this.typed}" placeholder="Search names and triggers" aria-label="Search LoRAs" data-input="search" style="width:230px">
      ${button('Import', 'begin', { name: 'plus', value: 'import' })}${menu([
      ['Extract from a fine-tuned model', 'begin', 'extract'],
      [this.checkpoints ? 'Hide checkpoints' : 'Show checkpoints too', 'toggleCheckpoints'],
      [unused ? `Clean up, ${bytes(unused)}` : 'Clean up', 'begin', 'clean'],
      ['Open the bin', 'begin', 'bin'],
    ])}</div></div>
      ${this.work()}
      ${known.length > 1 && html`<div class="chips">${models.size > 1 && html`<label class="chip"><span>Model</span>${select([['', 'All'], ...[...models].sort()], this.model, 'data-change="choose" name="model"')}</label>`}
        <label class="chip"><span>Order</span>${select(Object.entries(LORA_ORDERS).map(([key, [text]]) => [key, text]), this.order, 'data-change="choose" name="order"')}</label></div>`}
      <div class="${opened ? 'split wide' : ''}"><div class="section">${this.cards(shown)}</div>
      ${opened && html`<wb-lora data-id="opened" .name=${opened}></wb-lora>`}</div>
      ${this.bar()}
      <wb-lora-task data-id="task"></wb-lora-task>`;
  }

  cards(shown) {
    if (this.refused.loras) return refusal(this.refused.loras);
    if (!this.last) return html`<div class="tiles" style="--tile:200px">${[1, 2, 3, 4].map(() => skeleton('aspect-ratio:3/2'))}</div>`;
    if (!this.last.length) {
      return empty('Every finished run adds its LoRA here. You can also import LoRAs from other trainers and from the Hub.',
        linkTo('Train a LoRA', address('train', 'new'), { kind: 'primary' }), button('Import a LoRA', 'begin', { value: 'import' }));
    }
    if (!shown.length) return empty('No LoRAs match.', button('Show all', 'showAll'));
    return html`<div class="tiles" style="--tile:200px">${shown.slice(0, MOST_CARDS).map((lora) => this.card(lora))}</div>${
      shown.length > MOST_CARDS && html`<p class="faint minor">The first ${MOST_CARDS} of ${shown.length} are shown. Search for the others.</p>`}`;
  }

  card(lora) {
    const to = address('loras', lora.name);
    return html`<article class="tile lora" data-id="${lora.name}" ${lora.name === this.opened ? new Markup('aria-current="true"') : ''}>
      <a href="${to}" tabindex="-1" aria-hidden="true">${lora.video ? videoOf(lora, lora.video) : html`<div class="no-video faint fine">No video yet</div>`}</a>
      <div class="row tight"><input type="checkbox" value="${lora.name}" data-change="pick" aria-label="Choose ${lora.title}" ?checked=${this.chosen.has(lora.name)}>
        <a class="one-line" href="${to}" title="${lora.title}"><b>${lora.title}</b></a>${lora.marks.includes('starred') && icon('star', 'Starred')}</div>
      <div>${verdictOf(lora)}</div><p class="fine faint">${[lora.model_title || 'Unknown model', lora.rank > 0 && `rank ${lora.strength}`].filter(Boolean).join(' · ')} · <span class="tight">${bytes(lora.bytes)}</span></p>
      <p class="fine faint">${ago(lora.created)}${lora.trigger && html` · trigger <b>${lora.trigger}</b>`}${lora.published && ' · on the Hub'}</p></article>`;
  }

  // Operations in progress and recently ended ones.
  work() {
    const since = Date.now() / 1000 - ENDED_SECONDS;
    const ended = (this.tasks ?? []).filter((one) => one.tone !== 'going' && (one.ended_at ?? 0) > since && !this.dismissed.has(one.id));
    const lines = [...(this.tasks ?? []).filter((one) => one.tone === 'going'), ...ended.slice(0, ENDED_SHOWN)];
    if (!lines.length && !this.sending) return '';
    return html`<ul class="lora-work" aria-label="Operations on LoRAs">${this.sending && html`<li data-id="sending">${state('going', 'Uploading')}<div><p class="one-line">${this.sending.name}</p>${
      progress(this.sending.share, 'Upload')}</div></li>`}${lines.map((one) => html`<li data-id="${one.id}">${
      state({ plain: 'idle' }[one.tone] ?? one.tone, one.operation === 'survives' ? 'Measure' : capital(one.operation))}<div><p class="minor">${one.activity}</p>${
      one.tone === 'going' ? progress(one.share, one.activity) : ''}${one.fit.length > 0 && html`<details><summary class="fine faint">How it matched</summary>${one.fit.map(([label, value]) => html`<p class="fine faint">${label}: ${value}</p>`)}</details>`}${
      one.repair && html`<details data-id="repair"><summary class="fine">Figures and map</summary><wb-repair data-id="found" .found=${one.repair}></wb-repair></details>`}${
      one.log && html`<details><summary class="fine">Log</summary><pre class="log">${one.log}</pre></details>`}</div><div class="row tight">${
      one.files.map((file) => button('Download', 'download', { kind: 'small', name: 'download', value: file, title: file.split('/').at(-1) }))}${
      /^loras\//.test(one.made) && !one.files.length && linkTo('Open', address('loras', one.made), { kind: 'small' })}${
      one.tone === 'going' ? button('Stop', 'stopTask', { kind: 'small', value: one.id }) : button('', 'dismiss', { kind: 'quiet small square', name: 'close', label: 'Dismiss', value: one.id })}</div></li>`)}</ul>`;
  }

  // Actions for the chosen LoRAs.
  bar() {
    const names = this.names();
    if (!names.length) return '';
    const models = new Set(this.known.filter(({ name }) => this.chosen.has(name)).map((lora) => lora.base_model));
    return html`<div class="floating" role="toolbar" aria-label="With the chosen LoRAs"><b>${count(names.length, 'LoRA')}</b>
      ${linkTo('Sample', address('sample', 'with', ...names), { kind: 'small' })}${linkTo('Compare', address('compare', 'new', ...names), { kind: 'small' })}
      ${button('Convert', 'begin', { kind: 'small', value: 'convert' })}
      ${button('Merge', 'begin', { kind: 'small', value: 'merge', off: models.size > 1, title: models.size > 1 ? 'LoRAs for different models cannot be merged.' : '' })}
      ${names.length === 1 && linkTo('Publish', address('loras', names[0]), { kind: 'small' })}
      ${button('Move to the bin', 'toBin', { kind: 'small', name: 'bin' })}${button('', 'clear', { kind: 'small square', name: 'close', label: 'Choose none' })}</div>`;
  }

  // Names of the chosen LoRAs that still exist, in the order of the cards.
  names() { return this.known.map(({ name }) => name).filter((name) => this.chosen.has(name)); }
  search(target) { this.typed = target.value; }

  choose(target) {
    this[target.name] = target.value;
    if (target.name === 'order') preferences.keep('order of LoRAs', target.value);
  }

  showAll() { this.typed = ''; this.model = ''; }

  pick(target) { if (target.checked) this.chosen.add(target.value); else this.chosen.delete(target.value); }

  clear() { this.chosen.clear(); }

  toggleCheckpoints() {
    this.checkpoints = !this.checkpoints;
    preferences.keep('checkpoints of runs', this.checkpoints);
  }

  begin(target) { this.querySelector('wb-lora-task').begin(target.dataset.value, this.names()); }
  async toBin() { if (await removeLoras(this, this.names())) this.clear(); }
  stopTask(target) { return this.act('loras/stop', { id: target.dataset.value }); }
  dismiss(target) { this.dismissed.add(target.dataset.value); }
  download(target) { return saveFile(target.dataset.value); }

  // ---- dropped files: LoRAs are imported, others become a dataset

  // given: settings of the import dialog
  async dropped(files, given = {}) {
    const loras = files.filter(({ name }) => LORA_FILE.test(name));
    const others = files.filter(({ name }) => !LORA_FILE.test(name));
    if (others.length) importInto(null, others);
    for (const file of loras) {
      const paths = await attempt(() => page.transport.upload([file], (share) => { this.sending = { name: file.name, share }; this.redraw(); }));
      if (paths) await this.act('loras/import', { ...given, source: paths[0] }, { said: `Importing ${file.name}.` });
    }
    this.sending = null;
    this.redraw();
  }

  // ---- the palette and keys

  commands() {
    return [['Import a LoRA', 'import', 'plus'], ['Extract a LoRA from a fine-tuned model', 'extract', 'loras'], ['Clean up LoRAs', 'clean', 'bin'], ['Open the bin of LoRAs', 'bin', 'bin']]
      .map(([title, kind, name]) => ({ title, icon: name, run: () => this.querySelector('wb-lora-task').begin(kind, this.names()) }));
  }

  press(key) {
    if (key === 'Escape' && this.opened) { goTo('loras'); return true; }
    const step = { j: 1, k: -1 }[key];
    const names = this.shown.map(({ name }) => name);
    if (!step || !names.length) return false;
    const at = names.indexOf(this.opened);
    goTo('loras', names[Math.max(0, Math.min(names.length - 1, at < 0 ? 0 : at + step))]);
    return true;
  }
}
define('wb-loras', Loras);

// Move LoRAs to the bin. Returns the answer, or null if refused. element: makes the call
function removeLoras(element, names) {
  return element.act('loras/remove', { names }, {
    said: (gone) => `${gone.length === 1 ? gone[0].name : count(gone.length, 'LoRA')} moved to the bin, ${bytes(gone.reduce((sum, one) => sum + one.bytes, 0))}.`,
    undo: async (gone) => { for (const { id } of gone) await element.act('loras/restore', { id }); },
  });
}
