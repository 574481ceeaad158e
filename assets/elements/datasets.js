// All datasets as tiles, a button for a new one, and the bin.

// "24 clips · 27 s · 4 without a caption"
function datasetFacts({ summary }) {
  if (!summary.clips) return 'no clips yet';
  const missing = summary.missing_captions;
  return [count(summary.clips, 'clip'), duration(summary.seconds), missing ? `${missing.toLocaleString('en-US')} without a caption` : 'ready'].join(' · ');
}

// Datasets that contain every typed word in name, title, trigger word, group or notes.
function foundDatasets(list, typed) {
  return list.filter((one) => hasWords([one.name, one.title, one.trigger_word, one.group, one.own_notes].join(' '), typed));
}

// The id in the bin of the dataset that was removed last under a name, or undefined.
const binnedDataset = async (name) => (await page.transport.call('datasets/bin')).find(({ id }) => id === name || id.startsWith(`${name}.`) || id.startsWith(`${name}-`))?.id;

const MANY = 8; // datasets that make a search useful
const MOST_TILES = 60; // before "Show more"

class Datasets extends WorkbenchElement {
  static properties = ['path'];
  heading = 'Datasets';
  typed = '';
  shown = MOST_TILES;
  needs() { return { list: ['datasets/cards', {}], bin: ['datasets/bin', {}] }; }

  view() {
    if (this.path?.[1] === 'add') return html`<div class="head"><h1 tabindex="-1">New dataset</h1><div class="actions">${linkTo('All datasets', address('dataset'))}</div></div><wb-add .datasetName=${''}></wb-add>`;
    const { list } = this;
    const found = list && foundDatasets(list, this.typed);
    const groups = found ? [...new Set(found.slice(0, this.shown).map(({ group }) => group))] : [];
    return html`<div class="head"><h1 tabindex="-1">Datasets</h1>${list?.length ? html`<span class="faint minor">${list.length.toLocaleString('en-US')}</span>` : ''}<div class="actions">${
      list?.length >= MANY ? html`<input class="input" type="search" placeholder="Search names, triggers, notes" aria-label="Search datasets" style="width:230px" value="${this.typed}" data-input="search">` : ''}${
      button('New dataset', 'choose', { kind: 'primary', name: 'plus' })}${menu([
      ['More ways to add', 'add', '', 'plus'], ['Empty dataset', 'create', '', 'dataset'], this.bin?.length && [`Open the bin (${this.bin.length})`, 'openBin', '', 'bin']])}</div></div>
      ${this.refused.list && refusal(this.refused.list)}
      ${this.binOpen ? this.removed() : ''}
      ${!list ? html`<div class="tiles single" style="--tile:300px" aria-busy="true">${[1, 2, 3].map(() => skeleton('aspect-ratio:3/2'))}</div>` : groups.length > 1 || groups[0]
    ? groups.map((group) => html`<section class="section" data-id="group-${group}"><h2>${group || 'Without a group'}</h2>${this.tiles(found.slice(0, this.shown).filter((one) => one.group === group))}</section>`)
    : this.tiles(found.slice(0, this.shown), true)}
      ${found && !found.length && this.typed ? html`<p class="faint">No dataset matches “${this.typed}”.</p>` : ''}
      ${found?.length > this.shown ? html`<div class="row">${button(`Show ${Math.min(MOST_TILES, found.length - this.shown)} more`, 'more')}</div>` : ''}`;
  }

  tiles(list, drop = false) {
    return html`<div class="tiles single" style="--tile:300px">${list.map((one) => html`<div class="tile of-dataset" data-id="dataset-${one.name}"><a href="${address('dataset', one.name)}"
      aria-label="Open ${one.title}">${one.cover ? video(one.cover, one.title, { width: one.width, height: one.height }) : html`<span class="no-clips">${icon('dataset')}</span>`}</a>
      <a class="one-line" href="${address('dataset', one.name)}" title="${one.title}"><b>${one.title}</b></a><p class="about"><span class="one-line">${
      one.damage.length ? state('bad', 'damaged') : one.activity ? state('going', one.activity) : datasetFacts(one)}</span><span class="spacer"></span>${ago(one.changed_at)}</p></div>`)}${
      drop && !this.typed ? html`<button type="button" class="dropzone" data-do="choose" data-id="drop" style="min-height:180px">${icon('upload')}<strong>Drop clips here</strong><span
      class="minor faint">They become a new dataset.</span></button>` : ''}</div>`;
  }

  removed() {
    return html`<section class="section" aria-label="Bin"><header><h2>Bin</h2><span class="spacer"></span>${button('Close', 'openBin', { kind: 'small' })}</header><ul class="now">${each(this.bin, ({ id }) => html`<li
      data-id="bin-${id}"><span class="faint">${icon('bin')}</span><b style="grid-column:2/5">${id}</b>${button('Restore', 'restore', { kind: 'small', value: id })}</li>`, html`<li>The bin is empty.</li>`)}</ul></section>`;
  }

  // ---- actions

  search(target) { this.typed = target.value; this.shown = MOST_TILES; }
  more() { this.shown += MOST_TILES; }
  choose() { chooseFiles((files) => importInto(null, files)); }
  add() { goTo('dataset', '', 'add'); }

  async create() {
    const made = await this.act('datasets/create', { title: 'New dataset' });
    if (made) goTo('dataset', made.name);
  }

  openBin() { this.binOpen = !this.binOpen; }

  async restore(target) {
    const one = await this.act('datasets/restore', { id: target.dataset.value }, { said: (found) => `${found.title} restored.` });
    if (one) goTo('dataset', one.name);
  }
}
define('wb-datasets', Datasets);
