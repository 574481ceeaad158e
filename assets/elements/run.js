// One run: state, progress, facts, verdict and next action. Its tabs are in run_tabs.js; a table of all runs is above or beside it.

const STARTS = ['go on', 'from start'];
// The address that samples a LoRA or a checkpoint.
const sampleAddress = (lora) => address('sample', 'with', lora);
// The address of a new run with another run's settings, or from its checkpoint.
const fromAddress = (name, step = null) => address('train', 'new', 'from', name, ...(step === null ? [] : [String(step)]));

class RunPage extends WorkbenchElement {
  static properties = ['path'];
  get name() { return this.path?.[0] ?? ''; }
  get tab() { return this.path?.[1] ?? 'overview'; }
  get heading() { return this.name; }

  needs() {
    if (!this.name) return {};
    const { name, tab } = this;
    const shown = tab === 'overview' ? { charts: ['progress/curves', { name }], videos: ['progress/previews', { name }] } : {}; // asked before `RunOverview` exists
    return { runs: ['runs/list', { sort: preferences.read('order of runs', 'newest') }], now: ['progress/state', { name }], ...shown };
  }

  changed() { this.opened = false; this.stacks = null; }

  arrived() {
    WIDE.addEventListener('change', this.widthChanged ??= () => this.redraw());
  }

  left() { WIDE.removeEventListener('change', this.widthChanged); }

  // Whether all runs are listed: in a wide window beside the run unless closed, otherwise above it if opened.
  get listed() { return WIDE.matches ? preferences.read('runs beside', true) : Boolean(this.opened); }

  view() {
    const { now, listed } = this;
    return html`<div class="run-place ${WIDE.matches && listed && 'docked'}"><section class="run-list section" aria-label="Runs">${this.bar()}${
      listed && this.runs ? html`<wb-run-table .runs=${this.runs} .current=${this.name}></wb-run-table>` : ''}</section>
      <div class="section run">${now ? this.run() : this.refused.now ? this.missing() : html`<div class="head"><h1 tabindex="-1" class="one-line">${this.name}</h1></div>${skeleton('height:18px')}${skeleton('height:240px')}`}</div></div>`;
  }

  missing() {
    if (this.name === EXAMPLE) return html`<wb-example-run></wb-example-run>`;
    return absent('Run not found', this.refused.now, linkTo('All runs', address('train'), { kind: 'primary' }));
  }

  bar() {
    const { runs = [] } = this;
    const running = runs.find(isRunning);
    const waiting = runs.filter(isWaiting).length;
    const [before, after] = this.neighbors;
    return html`<div class="run-bar"><button type="button" class="button quiet" data-do="list" aria-expanded="${String(this.listed)}">${icon('list')}${this.runs ? count(runs.length, 'run') : 'Runs'}</button>${
      running && running.name !== this.name ? html`<a class="state going" href="${address('train', running.name)}">${ring(running.share)}<span class="live">${percent(running.share ?? 0)}</span></a>` : ''}<span class="faint minor">${
      waiting ? `${waiting} waiting` : ''}</span><span class="spacer"></span>${linkTo('', before, { kind: 'quiet square', name: 'left', label: 'Previous run' })}${
      linkTo('', after, { kind: 'quiet square', name: 'right', label: 'Next run' })}${linkTo('New run', address('train', 'new'), { name: 'plus' })}</div>`;
  }

  get neighbors() {
    const names = arranged(this.runs ?? []).filter(({ run }) => run).map(({ run }) => run.name);
    const at = names.indexOf(this.name);
    const to = (by) => address('train', names.length ? names[(at + by + names.length) % names.length] : this.name);
    return [to(-1), to(1)];
  }

  run() {
    const { now, name } = this;
    const tab = (part, text, number = '') => [address('train', name, ...(part ? [part] : [])), text, number];
    const pages = [tab('', 'Overview'), tab('checkpoints', 'Checkpoints', now.checkpoints.length || ''), tab('settings', 'Settings'), tab('what-if', 'What if'), tab('log', 'Log'), tab('notes', 'Notes')];
    const open = { overview: 'wb-run-overview', checkpoints: 'wb-run-checkpoints', settings: 'wb-run-settings', 'what-if': 'wb-run-what-if', log: 'wb-run-log', notes: 'wb-run-notes' }[this.tab] ?? 'wb-run-overview';
    return html`<div class="section run-head">${this.head()}${this.progress()}${this.facts()}</div>${this.verdict()}${this.stacks ? html`<section class="section" aria-label="Stacks"><header><h2>Stacks</h2><span
      class="spacer"></span>${button('Close', 'closeStacks', { kind: 'quiet small' })}</header><pre class="log" tabindex="0">${this.stacks}</pre></section>` : ''}${
      tabs(pages, address('train', name, ...(this.tab === 'overview' ? [] : [this.tab])), 'Run')}${
      new Markup(`<${open} data-id="${open}"${html` .now=${now} .runs=${this.runs ?? []}`.text}></${open}>`)}`;
  }

  // ---- name, state, main actions

  head() {
    const { now, name } = this;
    return html`<div class="head run-title"><h1 tabindex="-1" class="one-line" title="${name}">${name}</h1>${this.pill()}<span class="minor faint tight">${now.alive ? html`<span class="live">${now.time_left}</span>`
      : ago(now.ended_at)}</span><div class="actions">${this.actions()}${this.more()}</div></div>`;
  }

  pill() {
    const { headline, share, step, position, activity } = this.now;
    if (headline === 'running' && share === null) return state('going', activity ? capital(activity) : 'Loading', { pill: true });
    const shown = share === null ? '' : html` <span class="live">${percent(share)}</span>`;
    switch (headline) {
      case 'running': return state('going', html`Training${shown}`, { pill: true });
      case 'paused': return state('going', html`Paused${shown}`, { pill: true, name: 'pause' });
      case 'starting': return state('going', 'Loading', { pill: true, name: 'wait' });
      case 'stopping': return state('going', 'Stopping', { pill: true, name: 'stop' });
      case 'waiting': return state('idle', position === 1 ? 'Next in the queue' : `Waiting, ${ordinal(position)}`, { pill: true });
      case 'finished': return state('good', 'Finished', { pill: true });
      case 'failed': case 'died': return state('bad', step ? `Failed at step ${step.toLocaleString('en-US')}` : 'Failed', { pill: true });
      case 'stopped': return state('idle', `Stopped at step ${step.toLocaleString('en-US')}`, { pill: true, name: 'stop' });
      default: return state('idle', 'Not started', { pill: true });
    }
  }

  offered(kind) { return this.now.actions.find((one) => one.kind === kind); }
  get main() { return this.now.verdict?.action; }

  actions() {
    const { now } = this;
    if (now.headline === 'waiting') {
      return html`${button('Start first', 'first', { off: now.position === 1 })}${button('Remove', 'unqueue', { name: 'close' })}`;
    }
    if (now.alive) {
      const paused = now.headline === 'paused';
      const [pause, stop, kill] = [this.offered('pause'), this.offered('stop'), this.offered('kill')];
      return html`${kill ? button('Force stop', 'perform', { kind: 'danger', value: 'kill' }) : ''}${button(paused ? 'Resume' : 'Pause', paused ? 'resume' : 'pause', { kind: 'steady', name: paused ? 'play' : 'pause', off: !pause && !paused })}${
        button('Stop', 'stop', { kind: 'danger', name: 'stop', off: !stop })}`;
    }
    const lora = this.lora;
    const start = this.offered('go on');
    return html`${start && this.main?.kind !== 'go on' ? button(start.label, 'perform', { value: 'go on', name: 'play' }) : ''}${lora && this.main?.kind !== 'sample' ? linkTo('Sample', sampleAddress(lora), { name: 'sample' }) : ''}`;
  }

  // The LoRA to sample: the run's export, or its newest checkpoint.
  get lora() {
    const { now } = this;
    if (now.lora) return `runs/${now.name}`;
    return now.checkpoints.length ? `runs/${now.name}@${now.checkpoints[0].step}` : '';
  }

  more() {
    const { now } = this;
    const running = this.offered('preview');
    return menu([
      this.offered('save') && ['Save a checkpoint now', 'save', '', 'download'],
      running && ['Preview now', 'preview', '', 'play'],
      running && ['Preview at LoRA scales 0, 0.5 and 1', 'previewScales', '', 'play'],
      this.offered('decode') && ['Decode previews', 'perform', 'decode', 'play'],
      this.offered('new run') && ['Copy settings to a new run', 'copy', '', 'plus'],
      ['Compare with another run', 'compare', '', 'compare'],
      this.offered('report') && ['Write a report', 'report', '', 'list'],
      now.step > 0 && ['Film of all previews', 'film', '', 'play'],
      now.report && ['Download the report', 'download', now.report.file, 'download'],
      now.lora && ['Download the LoRA', 'downloadLora', '', 'download'],
      now.state === 'running' && now.headline !== 'waiting' && ['Show what it is doing', 'showStacks', '', 'find'],
      !now.alive && ['Rename', 'rename', '', 'edit'],
      !now.alive && ['Move to the bin', 'toBin', '', 'bin', 'danger'],
    ], 'More actions');
  }

  // ---- progress and facts

  progress() {
    const { now } = this;
    const bad = ['failed', 'died'].includes(now.headline);
    if (!now.steps || now.headline === 'waiting' || !(now.alive || bad || now.headline === 'stopped')) return '';
    const share = Math.min(1, now.alive && now.share !== null ? now.share : now.step / now.steps);
    return html`<div class="run-progress" role="progressbar" aria-label="Training" aria-valuemin="0" aria-valuemax="100" aria-valuenow="${Math.round(100 * share)}"><div class="meter ${bad && 'bad'}"><i style="width:${
      (100 * share).toFixed(2)}%"></i></div>${now.checkpoints.filter(({ step }) => step > 0 && step < now.steps).map(({ step }) => html`<i class="checkpoint" style="left:${((100 * step) / now.steps).toFixed(2)}%" title="checkpoint, step ${step}"></i>`)}${
      now.alive ? html`<i class="playhead" style="left:${(100 * share).toFixed(2)}%"></i>` : ''}</div>`;
  }

  facts() {
    const { now } = this;
    if (now.headline === 'waiting' && !now.step) return '';
    const fact = (key) => now.facts.find((one) => one.key === key);
    const shown = (key, before, after = '') => {
      const found = fact(key);
      return found ? html`<span class="${found.tone === 'bad' && 'bad'}">${before} <b class="live">${`${found.value} ${found.unit}`.trim()}</b>${after}</span>` : '';
    };
    const all = now.facts.filter(({ key }) => !['loss', 'held_out_loss', 'memory', 'step_seconds'].includes(key));
    return html`<div class="facts">${now.step || now.alive ? html`<span>step <b class="live">${now.step.toLocaleString('en-US')}</b>${now.steps ? ` of ${now.steps.toLocaleString('en-US')}` : ''}</span>` : ''}${
      shown('loss', 'loss')}${shown('held_out_loss', 'held-out')}${shown('change', 'change')}${shown('prior_drift', 'drift')}${shown('step_seconds', '', ' a step')}${shown('memory', '')}${
      shown('stops_at', 'time limit')}${all.length ? html`<details class="all-facts"><summary class="link">All figures</summary><dl>${all.map((one) => html`<dt>${one.label}</dt><dd>${
      `${one.value} ${one.unit}`.trim()}</dd>`)}</dl></details>` : ''}</div>${now.notes.filter(({ text }) => !text.startsWith(now.verdict?.claim.replace(/\.$/, '') ?? ' ')).map(({ text, tone }) => html`<p class="minor ${tone === 'bad' ? 'bad' : 'faint'}">${prose(text)}</p>`)}`;
  }

  // ---- verdict and next action

  verdict() {
    const { verdict, log } = this.now;
    if (!verdict) return '';
    return verdictLine(verdict, log ? html`<details><summary class="link">The log's last lines</summary><pre class="log" tabindex="0">${log}</pre></details>` : '', verdict.action ? this.doing(verdict.action) : '');
  }

  doing(action) {
    if (action.kind === 'sample') {
      const { lora, name } = this.now;
      const at = action.step !== null && !(lora && action.step === this.now.checkpoints[0]?.step) ? `runs/${name}@${action.step}` : this.lora;
      return linkTo(action.label, sampleAddress(at), { kind: 'primary' });
    }
    if (action.kind === 'stacks') return button(action.label, 'showStacks', { kind: 'primary' });
    return button(action.label, 'perform', { kind: 'primary', value: action.kind, title: action.label });
  }

  // Perform an offered action, then show the run it leads to, or the form of a new run with the settings it returns.
  async perform(target) {
    const { value: kind, label } = { value: target.dataset.value, label: target.title };
    const done = await this.act('runs/act', { name: this.name, kind, label: label ?? '' }, { said: ({ message }) => message || (STARTS.includes(kind) ? `${this.name} continues.` : '') });
    if (!done) return;
    if (Object.keys(done.settings).length) {
      const before = await page.transport.call('progress/settings', { name: this.name }).catch(() => ({ settings: {} }));
      const changed = Object.keys({ ...before.settings, ...done.settings }).filter((name) => !same(before.settings[name], done.settings[name]));
      drafts.keep(fromAddress(this.name), { values: done.settings, beside: { changed } });
      window.location.hash = fromAddress(this.name);
    } else if (done.name !== this.name) {
      goTo('train', done.name);
    }
  }

  // ---- actions

  list() {
    if (WIDE.matches) preferences.keep('runs beside', !this.listed);
    else this.opened = !this.opened;
  }

  async first() {
    const before = this.now.position;
    await this.act('runs/move', { name: this.name, position: 1 }, { said: `${this.name} is next.`, undo: () => this.act('runs/move', { name: this.name, position: before }) });
  }

  async unqueue() {
    const { name, now: { position } } = this;
    await this.act('runs/stop', { name }, { said: `${name} was removed from the queue.`, undo: async () => {
      if (await this.act('runs/start', { name })) await this.act('runs/move', { name, position });
    } });
  }

  async pause() { await this.act('runs/pause', { name: this.name }, { said: `${this.name} pauses after this step.`, undo: () => this.act('runs/resume', { name: this.name }) }); }
  async resume() { await this.act('runs/resume', { name: this.name }, { said: `${this.name} continues.` }); }
  async stop() { await this.act('runs/stop', { name: this.name }, { said: `${this.name} stops after this step and saves. It can be resumed.` }); }
  async save() { await this.act('runs/save', { name: this.name }, { said: 'A checkpoint will be saved after this step.' }); }
  async preview() { await this.act('runs/preview', { name: this.name }, { said: 'Previews will be generated after this step.' }); }

  async previewScales() {
    await this.act('runs/preview', { name: this.name, scale: [0, 0.5, 1] }, { said: 'Previews will be generated after this step, at LoRA scales 0, 0.5 and 1.' });
  }

  copy() { window.location.hash = fromAddress(this.name); }

  async compare() {
    const others = this.runs.map(({ name }) => name).filter((name) => name !== this.name);
    const other = await ask('Compare', `The run to compare ${this.name} with`, { list: others, value: others[0] ?? '', does: 'Compare' });
    if (other) window.location.hash = compareAddress([this.name, other]);
  }

  async report() {
    const done = await this.act('runs/report', { name: this.name }, { said: 'Report written, as one self-contained file.' });
    if (done) await saveFile(done.file);
  }

  async film() {
    const done = await this.act('runs/film', { name: this.name }, { said: ({ steps }) => `${count(steps.length, 'step')} in one video.` });
    if (done) await saveFile(done.file, `${this.name}.mp4`);
  }

  async download(target) { await saveFile(target.dataset.value); }
  async downloadLora() { await saveFile(this.now.lora, `${this.name}.safetensors`); }

  async showStacks() {
    const found = await this.act('runs/stacks', { name: this.name });
    this.stacks = found?.stacks ?? null;
  }

  closeStacks() { this.stacks = null; }

  async rename() {
    const { name } = this;
    const typed = await ask('Rename', 'New name', { value: name, does: 'Rename' });
    if (!typed || typed === name) return;
    const done = await this.act('runs/rename', { name, new_name: typed }, { said: (run) => `Renamed to ${run.name}.`, undo: async (run) => {
      if (await this.act('runs/rename', { name: run.name, new_name: name })) goTo('train', name);
    } });
    if (done) goTo('train', done.name);
  }

  async toBin() {
    const { name } = this;
    const done = await this.act('runs/remove', { names: [name] }, { said: `${name} was moved to the bin.`, undo: async () => {
      await restoreRuns(this, [name]);
      goTo('train', name);
    } });
    if (done) goTo('train');
  }

  // ---- palette and keys

  commands() {
    if (!this.now) return [];
    const found = [{ title: `New run like ${this.name}`, icon: 'plus', run: () => this.copy() }];
    const { headline } = this.now;
    if (this.offered('pause')) found.unshift({ title: `Pause ${this.name}`, icon: 'pause', run: () => this.pause() });
    if (headline === 'paused') found.unshift({ title: `Resume ${this.name}`, icon: 'play', run: () => this.resume() });
    if (this.offered('stop') && headline !== 'waiting') found.push({ title: `Stop ${this.name}`, icon: 'stop', run: () => this.stop() });
    if (this.offered('save')) found.push({ title: 'Save a checkpoint now', icon: 'download', run: () => this.save() }, { title: 'Preview now', icon: 'play', run: () => this.preview() });
    if (this.offered('report')) found.push({ title: 'Write a report', icon: 'list', run: () => this.report() });
    if (!this.now.alive) found.push({ title: `Move ${this.name} to the bin`, icon: 'bin', run: () => this.toBin() });
    return found;
  }

  press(key) {
    const by = { k: 0, j: 1 }[key];
    if (by === undefined) return false;
    window.location.hash = this.neighbors[by];
    return true;
  }
}
define('wb-run', RunPage);

// ---- several runs in the same charts

class RunComparison extends WorkbenchElement {
  static properties = ['names'];

  needs() {
    const { names } = this;
    return names ? { charts: ['progress/compared', { names }], tables: ['runs/compare', { names }] } : {};
  }

  view() {
    const { charts, tables } = this;
    const refused = this.refused.charts ?? this.refused.tables;
    if (!charts || !tables || refused) return pending(refused, 'height:220px');
    const table = (title, rows) => (Object.keys(rows).length ? html`<section class="section"><h2>${title}</h2><div class="table-frame"><table class="table"><thead><tr><th scope="col"></th>${tables.names.map((name) => html`<th scope="col"><a
      class="link" href="${address('train', name)}">${name}</a></th>`)}</tr></thead><tbody>${Object.entries(rows).map(([row, texts]) => html`<tr><td class="faint">${capital(row)}</td>${texts.map((text) => html`<td>${text}</td>`)}</tr>`)}</tbody></table></div></section>` : '');
    return html`${charts.note && html`<p class="faint">${charts.note}</p>`}<div class="compared"><wb-charts .charts=${charts.charts}></wb-charts></div>${
      table('What differs', tables.settings) || html`<p class="faint">All settings are the same.</p>`}${table('Results', tables.results)}${this.previews()}`;
  }

  previews() {
    const { previews, names } = this.tables;
    if (!previews.length) return '';
    const columns = names.length + 1;
    return html`<section class="section" aria-label="Previews"><header><h2>Previews</h2><span class="fine faint">the newest previews of each run, same prompts</span><span class="spacer"></span><wb-scrubber .clock=${'compared'}></wb-scrubber></header>
      <div class="previews" style="--columns:${columns}"><span class="column">Base model</span>${names.map((name) => html`<span class="column one-line" title="${name}">${name}</span>`)}${previews.map(({ prompt, videos }) => html`${
  new Markup(`<p class="prompt one-line" title="${escaped(prompt)}">${escaped(prompt)}</p>`)}${videos.map((file, index) => (file ? video(file, `${prompt}, ${index ? names[index - 1] : 'base model'}`, { clock: 'compared' }) : html`<span></span>`))}`)}</div></section>`;
  }
}
define('wb-run-comparison', RunComparison);
