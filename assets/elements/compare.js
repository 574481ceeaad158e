// Compare: videos of the same prompts and seeds side by side. The list of comparisons, one comparison in four modes, and the dialog
// that makes or changes one.

const MODES = [['grid', 'Grid'], ['wipe', 'Wipe'], ['vote', 'Blind vote'], ['film', 'Epochs']];
const SAMPLE_IDS = /^\d{8}-/; // comma-separated ids of samples side by side
const SUGGESTED = ['prompts', 'images', 'seeds', 'checkpoints', 'scales'];
const RUNS_OFFERED = 16; // for curves, the newest; others are added from the table of runs
const GRID_FIELDS = ['run', 'prompts', 'checkpoints', 'scales'];

class Compare extends WorkbenchElement {
  static properties = ['path'];
  static listens = { 'wb-chosen': 'keepWipe' };

  needs() {
    const [name = ''] = this.path ?? [];
    if (name === 'curves') return { runs: ['runs/list', { sort: 'newest' }] };
    const list = { grids: ['grids/list', {}], loras: ['loras/list', {}, 'once'] };
    if (!name || name === 'new') return list;
    if (SAMPLE_IDS.test(name)) return { samples: ['samples/side-by-side', { ids: name.split(',') }, 'once'] };
    return { ...list, grid: ['grids/show', { name }] };
  }

  get mode() { return MODES.some(([name]) => name === this.path?.[1]) ? this.path[1] : 'grid'; }
  get shown() { return this.samples?.grid ?? this.grid; }
  get heading() { return this.shown?.title ?? (this.path?.[0] === 'curves' && this.of.length ? this.of.join(', ') : 'Compare'); }
  get curves() { return Boolean(customElements.get('wb-run-comparison')); }

  changed(name) {
    if (name !== 'path') return;
    const [first, ...names] = this.path ?? [];
    if (first === 'new' && !this.making) {
      this.making = { names };
      window.location.replace(address('compare'));
    } else if (first && first !== 'new') {
      this.making = null; // its dialog belongs to the address before
    }
  }

  view() {
    const [name = ''] = this.path ?? [];
    const dialog = this.making && html`<wb-new-comparison data-id="new" .start=${this.making}></wb-new-comparison>`;
    if (name === 'curves') {
      const { of } = this;
      return html`<div class="head"><h1 tabindex="-1">Compare</h1></div>${this.tabs('curves')}${this.runChoice(of)}${of.length ? html`<wb-run-comparison data-id="curves" .names=${of}></wb-run-comparison>` : ''}`;
    }
    return html`${name && name !== 'new' ? this.one(name) : this.list()}${dialog}`;
  }

  updated() {
    const dialog = this.querySelector('wb-new-comparison');
    if (dialog) dialog.closed = () => { this.making = null; this.redraw(); };
  }

  tabs(current) {
    return this.curves ? tabs([[address('compare'), 'Videos'], [address('compare', 'curves'), 'Curves']], current === 'curves' ? address('compare', 'curves') : address('compare'), 'Compare') : '';
  }

  // ---- curves of runs

  get of() { return (this.path[1] ?? '').split(',').filter(Boolean); }

  runChoice(of) {
    const { runs } = this;
    if (!runs) return skeleton('height:28px');
    if (!runs.length) return empty('Curves of up to 8 runs appear here in the same charts.', linkTo('Train a LoRA', address('train', 'new')));
    return html`<fieldset class="chips" aria-label="Runs">${runs.filter(({ name }, index) => index < RUNS_OFFERED || of.includes(name)).map(({ name }) => html`<label class="chip check" data-id="run-${name}"><input type="checkbox"
      value="${name}" data-change="pick" ?checked=${of.includes(name)} ?disabled=${of.length >= 8 && !of.includes(name)}>${name}</label>`)}</fieldset>${of.length ? '' : html`<p class="faint">Choose runs to see their curves in the same charts.</p>`}`;
  }

  pick(target) {
    const names = target.checked ? [...this.of, target.value] : this.of.filter((name) => name !== target.value);
    goTo('compare', 'curves', ...(names.length ? [names.join(',')] : []));
  }

  // ---- the list

  list() {
    const { grids } = this;
    return html`<div class="head"><h1 tabindex="-1">Compare</h1><div class="actions">${button('New comparison', 'make', { name: 'plus', kind: 'primary' })}</div></div>${this.tabs('videos')}
      ${this.refused.grids ? refusal(this.refused.grids) : !grids ? skeleton('height:240px') : !grids.length ? empty(
        'Compare checkpoints, LoRAs and scales: the same prompts and seeds, side by side and in sync.', this.loras?.length === 0 && linkTo('Train a LoRA', address('train', 'new'))) : html`<div class="tiles">${each(grids, (one) => html`<div class="tile" data-id="${one.name}"><a href="${address('compare', one.name)}"
        aria-label="${one.title}">${one.video ? video(one.video, one.title) : html`<div class="coming" style="aspect-ratio:3/2"><p class="fine faint">${one.problem ? '' : 'No video yet'}</p></div>`}</a><b
        class="one-line" title="${one.title}">${one.title}</b>${one.problem ? html`<p class="minor bad">${one.problem}</p>` : html`<p class="about"><span class="one-line ${one.going && 'going'}">${
        one.going || one.done < one.videos ? one.progress : one.about}</span><span class="spacer"></span>${ago(one.changed)}</p>`}</div>`)}</div>`}`;
  }

  // ---- one comparison

  one(name) {
    const grid = this.shown, problem = this.refused.grid ?? this.refused.samples;
    if (problem) return html`<div class="head"><h1 tabindex="-1">Compare</h1></div>${refusal(problem)}<div class="row">${linkTo('All comparisons', address('compare'))}</div>`;
    if (!grid) return html`<div class="head"><h1 tabindex="-1">${SAMPLE_IDS.test(name) ? 'Samples' : name}</h1></div>${skeleton('height:50px')}${skeleton('height:420px')}`;
    const edits = !SAMPLE_IDS.test(name), { mode } = this, { all, done, going, open, text } = grid.progress;
    const modes = edits ? MODES : MODES.filter(([one]) => one !== 'vote');
    const others = this.grids?.map((one) => [one.name, one.about ? `${one.title}: ${one.about}` : one.title]) ?? [[name, grid.title]];
    return html`<div class="head"><h1 tabindex="-1" class="one-line" title="${grid.title}">${grid.title}</h1><span class="minor faint one-line">${[open ? '' : text, ...grid.fixed, grid.run && grid.run !== grid.title && `run ${grid.run}`].filter(Boolean).join(' · ')}</span>
      <div class="actions">${edits ? button('New comparison', 'make', { name: 'plus' }) : linkTo('Back to Sample', address('sample'))}</div></div>
      ${edits && (going || open) ? html`<div class="row tight making">${going ? html`<div style="flex:1">${progress(done / all, 'Videos')}</div>${button('Stop', 'stop', { kind: 'small', name: 'stop' })}`
        : html`<span class="state warn">${icon('warn')}${count(open, 'video')} ${open === 1 ? 'is' : 'are'} missing</span>${button(open === 1 ? 'Generate it' : `Generate ${open} videos`, 'generate', { kind: 'small primary' })}`}</div>` : ''}
      <div class="bar" role="toolbar" aria-label="Compare">${edits ? select(others, name, 'aria-label="Comparison" data-change="go"') : ''}<div class="segments">${modes.map(([one, title]) => html`<a href="${
        one === 'grid' ? address('compare', name) : address('compare', name, one)}" ${new Markup(one === mode ? 'aria-current="page"' : '')}>${title}</a>`)}</div>
        <wb-scrubber .clock=${GRID_CLOCK} .frames=${grid.frames} .speeds=${true}></wb-scrubber>${edits && html`${button('Columns', 'change', { name: 'settings' })}`}${menu([
          [preferences.read('compare measured', false) ? 'Show measurements on hover only' : 'Always show measurements', 'toggle', 'measured', 'list'],
          [preferences.read('compare difference', false) ? 'Show the videos' : 'Show the difference to the base', 'toggle', 'difference', 'compare'],
          edits && [grid.exported && !grid.exported_newer ? 'Download the exported page' : 'Export as a page', 'export', 'page', 'download'], edits && ['Export as one GIF', 'export', 'gif', 'download'],
          edits && ['Export as one PNG', 'export', 'png', 'download'], edits && ['Delete this comparison', 'moveToBin', '', 'bin', 'danger']])}</div>
      ${gridIn(mode, grid, name, { edits, measured: preferences.read('compare measured', false), difference: preferences.read('compare difference', false) })}`;
  }

  // ---- actions

  keepWipe({ detail }) { drafts.keep(`wipe ${this.path[0]}`, detail); this.redraw(); }
  make() { this.making = { names: [] }; }
  change() { this.making = { grid: this.grid }; }
  go(target) { goTo('compare', target.value, ...(this.mode === 'grid' ? [] : [this.mode])); }

  toggle(target) {
    const name = `compare ${target.dataset.value}`;
    preferences.keep(name, !preferences.read(name, false));
    if (this.mode !== 'grid') goTo('compare', this.path[0]);
  }

  async generate() { await this.act('grids/generate', { name: this.path[0] }, { said: 'Requested.' }); }
  async stop() { await this.act('grids/stop', { name: this.path[0] }, { said: 'The remaining videos are canceled.', undo: () => page.transport.call('grids/generate', { name: this.path[0] }) }); }

  async export(target) {
    const format = target.dataset.value;
    if (format === 'page' && this.grid.exported && !this.grid.exported_newer) { await saveFile(this.grid.exported); return; }
    const made = await this.act('grids/export', { name: this.path[0], format });
    if (made) await saveFile(made.file);
  }

  async moveToBin() {
    const [name] = this.path;
    const gone = await this.act('grids/remove', { name }, { said: 'Moved to the bin.', undo: async (one) => { await page.transport.call('grids/restore', { name: one.id }); goTo('compare', name); } });
    if (gone) goTo('compare');
  }

  // ---- keys and the palette

  press(key) {
    if (!this.shown) return false;
    if (this.mode === 'vote') return this.querySelector('wb-vote')?.press(key) ?? false;
    const [name] = this.path;
    if (key !== 'w') return false;
    const player = this.querySelector('wb-grid');
    if (player && document.activeElement?.closest('.cell')) {
      const [row, column] = player.at;
      drafts.keep(`wipe ${name}`, { row, left: this.shown.columns[column].reference, right: column });
    }
    goTo('compare', name, ...(this.mode === 'wipe' ? [] : ['wipe']));
    return true;
  }

  commands() {
    const [name] = this.path ?? [];
    const one = this.shown ? MODES.slice(1).map(([mode, title]) => ({ title: `${title}: ${this.shown.title}`, icon: 'compare', to: address('compare', name, mode) })) : [];
    return [...one, { title: 'New comparison', icon: 'plus', run: () => this.make() }];
  }
}
define('wb-compare', Compare);

// ---- making or changing a comparison ----

// start: {names: a run or LoRAs} for a new comparison, {grid} to change one;  closed(): called when the dialog closes
class NewComparison extends FillingElement {
  static properties = ['start', 'filling'];
  beside = { model: '', speed: 'exact' };
  needs() { return { models: ['settings/choices', { form: 'sample', name: 'model' }, 'once'], speeds: ['settings/choices', { form: 'sample', name: 'speed' }, 'once'] }; }

  arrived() {
    super.arrived();
    if (this.filling) return;
    const { grid } = this.start;
    this.filling = new Filling('grid', {
      where: grid || this.start.names.length ? '' : 'new comparison', start: grid ? { ...grid.settings } : {}, check: (filling) => this.look(filling),
    });
    this.begin();
  }

  async begin() {
    const { names = [], grid } = this.start, { filling } = this;
    await filling.load();
    if (grid || filling.resumed) return;
    const loras = names.filter((name) => name.includes('/'));
    const library = loras.length ? await page.transport.call('loras/list', { checkpoints: true }).catch(() => []) : [];
    this.beside.model = library.find(({ name }) => name === loras[0])?.model ?? '';
    const run = names.find((name) => !name.includes('/')) ?? /^runs\/([^@]+)/.exec(loras[0] ?? '')?.[1] ?? '';
    const found = await page.transport.call('grids/suggest', { run }).catch(() => null);
    if (found) filling.fill(loras.length ? { prompts: found.grid.prompts, loras: ['none', ...loras] } : found.grid);
    filling.filled.clear();
  }

  async look(filling) {
    const sample = this.start.grid ? {} : { speed: this.beside.speed, ...(!filling.get('run') && this.beside.model ? { model: this.beside.model } : {}) };
    this.proposed = await page.transport.call('grids/propose', { grid: filling.values, sample });
    return this.proposed;
  }

  view() {
    const { filling, proposed, start: { grid } } = this;
    if (!filling?.settings.length) return html``;
    const stacks = !filling.get('run') || filling.differs('loras');
    const others = filling.settings.filter(({ name }) => !GRID_FIELDS.includes(name) && !(stacks && name === 'loras'));
    const title = grid ? `Columns of ${grid.title}` : 'New comparison';
    return sheet('new-comparison', title, html`<div class="two-columns">${field('Run', this.control(filling.setting('run')), '', filling.problems.run)}${filling.get('run') || grid ? '' : field('Model', select([['', 'the default'], ...(this.models ?? []).map(({ value, title: text }) => [value, text])],
        this.beside.model, 'name="model" data-change="besides"'), 'For a comparison without a run.')}</div>
      ${this.checkpoints()}${stacks ? settingField(filling, 'loras', 'One column each.') : ''}
      ${field('Scales', html`<input class="input" name="scales" value="${(filling.get('scales') ?? []).join(', ')}" placeholder="1" data-input="typed" inputmode="decimal">`, 'Strengths of the LoRA: 0.5, 0.75, 1.', filling.problems.scales)}
      ${field('Prompts', html`<textarea class="input" name="prompts" rows="4" placeholder="One per line; the run's preview prompts if empty" data-input="typed">${(filling.get('prompts') ?? []).join('\n')}</textarea>`, 'One per line, one row each.', filling.problems.prompts)}
      ${proposed?.lacking.length ? html`<p class="row minor"><span class="state warn">${icon('warn')}A prompt lacks ${proposed.lacking.join(', ')}</span>${button(`Insert ${proposed.lacking.join(', ')}`, 'insert', { kind: 'small' })}</p>` : ''}
      <details><summary class="minor">${stacks ? 'Seeds' : 'LoRAs, seeds'} and ${count(others.length - (stacks ? 1 : 2), 'more setting')}</summary><div class="section">${others.map(({ name, help }) => settingField(filling, name, help))}${
        grid ? '' : field('Speed', select((this.speeds ?? []).map(({ value }) => value), this.beside.speed, 'name="speed" data-change="besides"'))}</div></details>
      ${otherProblems(filling, filling.settings.map(({ name }) => name))}<p class="minor faint" role="status">${proposed?.cost ?? ''}</p>
      <div class="row"><span class="spacer"></span><button type="button" class="button primary" data-do="make">${icon(grid ? 'good' : 'plus')}${grid ? 'Change and generate' : 'Compare'}</button></div>`, { submit: 'make' });
  }

  checkpoints() {
    const { filling } = this;
    if (!filling.get('run')) return '';
    const choices = filling.choices(filling.setting('checkpoints')), chosen = new Set(filling.get('checkpoints'));
    return html`<fieldset class="field" aria-label="Checkpoints"><span>Checkpoints</span><div class="chips">${(choices ?? []).map(({ value }) => html`<label class="chip check"><input type="checkbox" value="${value}" data-change="checkpoint"
      ?checked=${chosen.has(value)}>${value === 'base' ? 'Base model' : value === 'final' ? 'Final LoRA' : `Step ${value}`}</label>`)}</div><span class="hint ${filling.problems.checkpoints && 'bad'}">${
      filling.problems.checkpoints ?? (choices?.length === 1 ? 'This run has no checkpoints yet.' : 'One column each.')}</span></fieldset>`;
  }

  updated() { this.modal(() => this.closed?.()); }

  // Choosing a run fills in its prompts and checkpoints.
  async chosen(target) {
    super.chosen(target);
    if (target.name !== 'run' || !target.value) return;
    const found = await page.transport.call('grids/suggest', { run: target.value }).catch(() => null);
    if (found) this.filling.fill(Object.fromEntries(SUGGESTED.map((name) => [name, found.grid[name]])));
  }

  checkpoint() {
    this.filling.set('checkpoints', [...this.querySelectorAll('.chip input:checked')].map(({ value }) => value));
  }

  besides(target) { this.beside[target.name] = target.value; this.filling.later(0); }
  insert() { this.filling.set('prompts', this.proposed.with_words); }

  async make() {
    const { filling, start: { grid } } = this;
    const refused = (problem) => { filling.refuse(problem, this); toast(problem.message, null, 'bad'); };
    const sample = { speed: this.beside.speed, ...(!filling.get('run') && this.beside.model ? { model: this.beside.model } : {}) };
    const made = grid ? await this.act('grids/change', { name: grid.grid, grid: filling.values }, { refused }) : await this.act('grids/make', { grid: filling.values, sample }, { refused });
    if (!made) return;
    if (made.warning) toast(made.warning, null, 'bad');
    filling.forget();
    this.close();
    goTo('compare', made.grid);
  }
}
define('wb-new-comparison', NewComparison);
