// The clips of a dataset as pages of cards with editable captions: search, filter, order, size, selection.

const PAGE = 48; // clips
const SEARCH_MS = 200;

// Tooltip of a card's link mark: "With a control clip, a mask".
const besideWords = ({ beside }) => {
  const names = Object.keys(beside ?? {}).map((kind) => ({ control: 'a control clip', reference: 'a reference', mask: 'a mask', last_frame: 'a last frame' }[kind]));
  return names.length ? `With ${names.join(', ')}` : '';
};

// The clips of a page: those of the new answer, and those that its filter no longer finds because their caption was saved here.
// They keep their position, so that nothing moves while a person types.
//   saved: ids of clips whose captions were saved since the filter was chosen
function withSaved(before, now, saved) {
  const there = new Set(now.map(({ id }) => id));
  const found = [...now];
  before.forEach((clip, index) => {
    if (!there.has(clip.id) && saved.has(clip.id)) found.splice(Math.min(index, found.length), 0, clip);
  });
  return found;
}

class Clips extends WorkbenchElement {
  static properties = ['datasetName', 'trigger'];
  static listens = { 'caption-done': 'next', 'caption-saving': 'keepInPlace' };
  query = { search: '', only: 'all', order: 'given' };
  first = 0;
  saved = new Set();
  list = [];

  needs() {
    return { cards: ['clips/cards', { name: this.datasetName, ...this.query, first: this.first, most: PAGE }] };
  }

  get chosen() { return chosenClips.of(this.datasetName); }

  view() {
    if (this.refused.cards) return refusal(this.refused.cards);
    if (this.cards && this.cards !== this.seen) {
      this.list = withSaved(this.list, this.cards.clips, this.saved);
      this.seen = this.cards;
      this.first = this.cards.first;
    }
    const { seen } = this;
    if (!seen) return html`<div class="tiles single" style="--tile:210px" aria-busy="true">${[1, 2, 3, 4, 5, 6].map(() => skeleton('aspect-ratio:1.1'))}</div>`;
    if (!seen.all) {
      return html`<button type="button" class="dropzone" data-do="choose" style="min-height:240px">${icon('upload')}<strong>Drop clips here</strong><span class="minor faint">Videos, pictures, folders and zips, with captions of the same
        names. Import starts at once.</span><span class="button">Choose files</span></button>`;
    }
    const size = preferences.read('clip size', 210);
    const shownAs = Object.entries(seen.filters).filter(([name, { clips }]) => name === 'all' || clips || name === this.query.only)
      .map(([name, { title, clips }]) => [name, name === 'all' ? title : `${title} (${clips.toLocaleString('en-US')})`]);
    return html`<div class="row tools"><input class="input" type="search" placeholder="Find clips" aria-label="Search clips" value="${this.query.search}" data-input="search">${
      select(shownAs, this.query.only, 'data-change="filter" name="only" aria-label="Show" style="width:auto"')}${select(Object.entries(seen.orders), this.query.order, 'data-change="filter" name="order" aria-label="Order" style="width:auto"')}<span
      class="spacer"></span><label class="row tight minor faint size">Size<input type="range" min="150" max="420" value="${size}" data-input="resize"></label></div>
      ${this.list.length ? html`<div class="tiles single clips" style="--tile:${size}px">${this.list.map((clip) => this.card(clip))}</div>`
    : html`<div class="empty"><p>No clips match.</p>${button('Show all clips', 'reset')}</div>`}
      ${pager({ first: seen.first, found: seen.found, size: PAGE, what: 'clip' })}
      ${shortcuts(['Tab', 'next caption'], ['Ctrl Enter', 'save, next without a caption'], ['Esc', 'discard'], ['J K', 'next, previous clip'], ['Space', 'choose'])}
      ${this.chosen.size ? this.bulk() : ''}`;
  }

  card(clip) {
    const to = address('dataset', this.datasetName, 'clip', clip.id);
    const tag = clip.latents_model ? 'latents' : clip.image ? `${clip.width}×${clip.height}` : `${clip.seconds.toFixed(1)} s`;
    return html`<article class="clip" data-id="clip-${clip.id}"><a href="${to}" aria-label="Open ${clip.name}, ${tag}">${video(clip.latents_model ? clip.picture : clip.file, clip.name, { width: clip.width, height: clip.height, tag })}</a>
      <div class="name"><input type="checkbox" data-change="pick" name="${clip.id}" aria-label="Choose ${clip.name}" ?checked=${this.chosen.has(clip.id)}><a class="one-line" href="${to}" tabindex="-1" title="${clip.name}">${clip.name}</a>${
  clip.marks.length ? html`<span class="warn" title="${clip.marks.join(', ')}">${icon('warn', `Findings: ${clip.marks.join(', ')}`)}</span>` : ''}${besideWords(clip) && html`<span class="idle" title="${besideWords(clip)}">${icon('link', besideWords(clip))}</span>`}${clip.sound ? this.speaker(clip) : ''}</div>
      ${clip.tags.length ? html`<p class="fine faint">${clip.tags.join(', ')}</p>` : ''}<wb-caption .datasetName=${this.datasetName} .clip=${clip}></wb-caption></article>`;
  }

  // The mark of a clip with sound plays it.
  speaker(clip) {
    const heard = listening.heard?.closest('article')?.dataset.id === `clip-${clip.id}`;
    return button('', 'hear', { kind: 'quiet small square', name: heard ? 'loud' : 'muted', label: heard ? 'Mute' : `Play the sound of ${clip.name}`, pressed: heard });
  }

  hear(target) { target.closest('article').querySelector('wb-video').hear(); }

  bulk() {
    const number = this.chosen.size;
    return html`<div class="floating" role="toolbar" aria-label="Chosen clips"><b>${number.toLocaleString('en-US')} chosen</b>${button('Write captions', 'captions')}${button('Edit captions', 'edit')}${button('Mark', 'ask', { value: 'mark' })}${
      button('Frame rate', 'ask', { value: 'rate' })}${button('Cut', 'cut')}${button('Reset the cut', 'resetCut')}${button('Remove', 'toBin', { name: 'bin' })}${button('Choose all found', 'all')}${
      button('', 'none', { kind: 'square', name: 'close', label: 'Choose none' })}
      ${this.asking === 'mark' ? html`<form class="row tight" data-submit="mark"><input class="input" name="word" placeholder="A word, such as night" aria-label="Mark">${html`<button class="button">Mark ${number}</button>`}</form>` : ''}
      ${this.asking === 'rate' ? html`<form class="row tight" data-submit="rate"><input class="input" name="fps" inputmode="decimal" placeholder="Frames per second, empty for their own" aria-label="Frames per second"><button class="button">Set</button></form>` : ''}</div>`;
  }

  // ---- search and filter

  search(target) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look({ search: target.value }), SEARCH_MS);
  }

  filter(target) { this.look({ [target.name]: target.value }); }
  reset() { this.look({ search: '', only: 'all' }); }

  // Query other clips. The current ones stay until the answer arrives.
  look(query) {
    this.query = { ...this.query, ...query };
    this.saved.clear();
    this.first = 0;
    this.redraw();
  }

  page(target) { this.saved.clear(); turnPage(this, target); }

  resize(target) { preferences.keep('clip size', Number(target.value)); }

  // ---- keys

  keepInPlace({ detail: id }) { this.saved.add(id); }

  // Go to the next clip without a caption, if necessary on another page.
  next({ detail: id }) {
    const at = this.list.findIndex((clip) => clip.id === id);
    const empty = (clip) => clip.id !== id && !(drafts.read(`caption ${this.datasetName} ${clip.id}`).text ?? clip.caption).trim();
    const clip = this.list.slice(at + 1).find(empty) ?? (this.seen.missing === null ? this.list.find(empty) : null);
    if (clip) { this.focusOn(clip.id, 'textarea'); return; }
    if (this.seen.missing === null) { toast('Every clip has a caption.'); return; }
    const wanted = Math.floor(this.seen.missing / PAGE) * PAGE;
    if (wanted === this.first) { const other = this.list.find(empty); if (other) this.focusOn(other.id, 'textarea'); return; }
    this.goingOn = true;
    this.first = wanted;
    this.redraw();
  }

  focusOn(id, what) {
    const node = this.querySelector(`[data-id="clip-${CSS.escape(id)}"] ${what}`);
    node?.focus();
    node?.closest('.clip').scrollIntoView({ block: 'nearest' });
  }

  updated() {
    if (!this.goingOn || this.cards !== this.seen || !this.cards) return;
    this.goingOn = false;
    const clip = this.list.find((one) => !one.caption.trim());
    if (clip) queueMicrotask(() => this.focusOn(clip.id, 'textarea'));
  }

  press(key) {
    const here = document.activeElement?.closest?.('.clip');
    if (key === 'j' || key === 'k') {
      const cards = [...this.querySelectorAll('.clip')];
      const at = cards.indexOf(here) + (key === 'j' ? 1 : -1);
      const card = cards[Math.max(0, Math.min(cards.length - 1, at))];
      card?.querySelector('a').focus();
      return true;
    }
    if (key === ' ' && here && document.activeElement.matches('a')) {
      here.querySelector('input').click();
      return true;
    }
    return false;
  }

  // ---- the chosen clips

  pick(target) {
    if (target.checked) this.chosen.add(target.name); else this.chosen.delete(target.name);
    say(`${this.chosen.size} chosen`);
  }

  none() { this.chosen.clear(); this.asking = ''; }

  async all() {
    const found = await this.act('clips/cards', { name: this.datasetName, ...this.query, most: 1, ids: true });
    for (const id of found?.ids ?? []) this.chosen.add(id);
  }

  choose() { chooseFiles((files) => importInto(this.datasetName, files)); }
  captions() { goTo('dataset', this.datasetName, 'captions'); }
  edit() { goTo('dataset', this.datasetName, 'edit'); }
  cut() { goTo('dataset', this.datasetName, 'split'); }
  ask(target) { this.asking = this.asking === target.dataset.value ? '' : target.dataset.value; }

  // Change the chosen clips. Clips that are cut get new ids, so the selection is cleared unless `keep` is set.
  async toChosen(operation, values, said, keep = false) {
    const done = await changeDataset(operation, { name: this.datasetName, clips: [...this.chosen], ...values }, said);
    if (done && !keep) this.chosen.clear();
    this.asking = '';
  }

  mark(form) { return this.toChosen('clips/mark', { word: form.word.value }, ({ changed }) => `${count(changed, 'clip')} marked “${form.word.value}”.`, true); }

  rate(form) {
    const fps = form.fps.value.trim();
    return this.toChosen('clips/set-fps', { fps: fps ? Number(fps) : null }, (made) => `${count(made.length, 'clip')} changed.`);
  }

  resetCut() { return this.toChosen('clips/reset-cut', {}, (made) => `${count(made.length, 'clip')} reset to the whole source video.`); }
  toBin() { return this.toChosen('clips/remove-clips', {}, (made) => `${count(made.length, 'clip')} removed.`); }
}
define('wb-clips', Clips);
