// One dataset: its clips with checks beside them, and tabs for pairs, model input, history and export.

// Tabs and modes below a dataset's address -> title of the window.
const DATASET_VIEWS = { '': 'Clips', pairs: 'Pairs', input: 'Model input', history: 'History', export: 'Export', captions: 'Captions', edit: 'Edit captions', split: 'Cut clips', add: 'Add clips', notes: 'Title, group and notes' };
const OF_PAIRS = /^(beside|mask)_/; // kinds of findings

class Dataset extends WorkbenchElement {
  static properties = ['path'];
  get name() { return this.path?.[0] ?? ''; }
  get tab() { return this.path?.[1] ?? ''; }
  get heading() { return this.tab ? `${this.about?.title ?? this.name}: ${DATASET_VIEWS[this.tab] ?? ''}` : this.about?.title ?? this.name; }

  // The model and frames that clips are checked for, as last chosen for this dataset.
  get shape() { return preferences.read(`shape ${this.name}`, preferences.read('shape', { model: '', frames: null })); }

  needs() {
    return {
      about: ['datasets/about', { name: this.name, ...this.shape }],
      models: ['settings/choices', { form: 'train', name: 'model' }, 'once'],
      ...(this.tab === 'captions' ? { captioners: ['clips/list-captioners', {}, 'once'] } : {}),
    };
  }

  arrived() {
    this.keys = (event) => this.undoKey(event);
    document.addEventListener('keydown', this.keys);
  }

  left() { document.removeEventListener('keydown', this.keys); }

  view() {
    const { about, name, tab } = this;
    if (this.refused.about) return absent(`${name} not found`, this.refused.about, linkTo('All datasets', address('dataset'), { kind: 'primary' }));
    if (!about) return html`<div class="head"><h1 tabindex="-1">${name}</h1></div>${skeleton('height:28px;width:60%')}${skeleton('height:300px')}`;
    this.watchImport(about);
    return html`${this.head(about)}${this.tabs(about)}${about.damage.map((text) => alarm(text))}
      ${['', 'add'].includes(tab) || this.task('import')?.activity ? html`<wb-import data-id="import" .task=${this.task('import')} .datasetName=${name}></wb-import>` : ''}
      ${about.tasks.filter((one) => one.name !== 'import' && (one.activity || one.state !== 'finished') && !this.own(tab).includes(one.name)).map((one) => html`<wb-task data-id="task-${one.name}" .task=${one} .datasetName=${name}></wb-task>`)}
      ${this.open(tab, about)}`;
  }

  task(name) { return this.about.tasks.find((one) => one.name === name); }

  // The tasks that a tab shows itself.
  own(tab) {
    const checking = this.about.summary.clips && this.task('check')?.activity ? ['check'] : [];
    return { captions: ['caption'], split: ['split'], export: ['export'], '': checking, pairs: checking }[tab] ?? [];
  }

  head(about) {
    const { clips, seconds, sizes, fps } = about.summary;
    const models = this.models ?? [];
    const size = Object.keys(sizes), rate = Object.keys(fps).map((one) => String(Number(one)));
    const all = (list) => (list.length > 2 ? `${list[0]} and ${list.length - 1} more` : list.join(', '));
    return html`<div class="section" style="gap:10px"><div class="head"><h1 tabindex="-1" class="one-line" title="${about.title}">${about.title}</h1>${
      linkTo('', address('dataset', this.name, 'notes'), { kind: 'quiet small square', name: 'edit', label: 'Rename, or add notes' })}<div class="actions">${button('Add clips', 'choose', { name: 'plus' })}${menu([
      ['More ways to add', 'go', 'add', 'plus'], ['Write captions with a model', 'go', 'captions', 'edit'], ['Edit many captions', 'go', 'edit', 'find'], ['Cut clips', 'go', 'split', 'crop'],
      ['Title, group and notes', 'go', 'notes', 'settings'], ['Export', 'go', 'export', 'download'], about.undo && [`Undo: ${about.undo.slice(0, 40)}`, 'undo'], about.redo && [`Redo: ${about.redo.slice(0, 40)}`, 'redo'],
      ['Move to the bin', 'toBin', '', 'bin', 'danger']])}${clips ? button(`Train on ${count(clips, 'clip')}`, 'train', { kind: ['', 'pairs', 'input', 'history', 'notes'].includes(this.tab) ? 'primary' : '' }) : ''}</div></div>
      <div class="chips"><label class="chip"><span>Model</span><select aria-label="Model" data-change="judge" name="model"><option value="">any</option>${models.map(({ title, value }) => html`<option value="${value}" ?selected=${value === this.shape.model}>${title}</option>`)}${
  this.shape.model && !models.some(({ value }) => value === this.shape.model) ? html`<option value="${this.shape.model}" selected>${this.shape.model}</option>` : ''}</select>${icon('fold')}</label><label class="chip"><span>Frames</span><input aria-label="Frames" name="frames" inputmode="numeric"
  placeholder="default" data-change="judge" value="${this.shape.frames ?? ''}"></label><label class="chip"><span>Trigger</span><input aria-label="Trigger word" placeholder="none" value="${about.trigger_word}" data-change="trigger"></label><span class="facts">${clips
  ? html`<span><b>${clips.toLocaleString('en-US')}</b> ${clips === 1 ? 'clip' : 'clips'}</span><span><b>${duration(seconds)}</b></span><span><b>${withTimes(all(size))}</b></span><span><b>${all(rate)}</b> fps</span>` : ''}${
  about.left_out ? html`<a class="warn" href="${address('dataset', this.name, 'input')}">${count(about.left_out, 'clip')} left out by this model</a>` : ''}<span>changed ${ago(about.changed_at)}</span></span></div>${about.problem ? alarm(about.problem) : ''}</div>`;
  }

  tabs(about) {
    const to = (tab) => (tab ? address('dataset', this.name, tab) : address('dataset', this.name));
    const place = ['', 'pairs', 'input', 'history', 'export'].includes(this.tab) ? this.tab : '';
    return tabs([[to(''), 'Clips', about.summary.clips], [to('pairs'), 'Pairs', about.summary.paired || ''], [to('input'), 'Model input'], [to('history'), 'History'], [to('export'), 'Export']], to(place), 'Dataset');
  }

  open(tab, about) {
    const { name } = this;
    const chosen = [...chosenClips.of(name)];
    const back = html`<div class="row"><h2>${DATASET_VIEWS[tab]}</h2><span class="spacer"></span>${linkTo('Back to the clips', address('dataset', name))}</div>`;
    const scope = (verb, none) => html`<p class="minor faint">${chosen.length ? `${verb} ${count(chosen.length, 'chosen clip')}.` : none}</p>`;
    if (tab === 'input') return html`<wb-model-input data-id="input" .datasetName=${name} .shape=${this.shape}></wb-model-input>`;
    if (tab === 'history') return html`<wb-dataset-history data-id="history" .datasetName=${name} .about=${about}></wb-dataset-history>`;
    if (tab === 'export') return html`<wb-export data-id="export" .datasetName=${name} .about=${about}></wb-export>`;
    if (tab === 'add') return html`${back}<wb-add data-id="add" .datasetName=${name}></wb-add>`;
    if (tab === 'notes') return html`${back}<wb-dataset-notes data-id="notes" .about=${about}></wb-dataset-notes>`;
    if (tab === 'edit') return html`${back}<wb-edit-captions data-id="edit" .datasetName=${name} .trigger=${about.trigger_word}></wb-edit-captions>`;
    if (tab === 'captions') {
      return html`${back}<div class="section" style="gap:4px">${scope('A model describes', 'A model describes the clips without a caption. Captions that you wrote stay.')}${(this.captioners ?? []).map((one) => html`<p class="fine faint"><b>${one.title}.</b> ${one.needs}</p>`)}</div><wb-task data-id="own" .task=${this.task('caption')} .datasetName=${name}></wb-task>
        <wb-task-form data-id="captions" .form=${'captions'} .where=${`dataset ${name} captions`} .first=${['captioner', 'which', 'model', 'base_url', 'endpoint_model', 'instruction']} .without=${chosen.length ? ['which', 'chosen'] : ['chosen']}
        .does=${'clips/auto-caption'} .values=${chosen.length ? { name, chosen } : { name }} .label=${'Write captions'} .said=${'A model is writing captions in the background.'}></wb-task-form>`;
    }
    if (tab === 'split') {
      return html`${back}${scope('Cuts', 'Cuts all clips between shots or at a fixed length.')}<wb-task data-id="own" .task=${this.task('split')} .datasetName=${name}></wb-task>
        <wb-task-form data-id="split" .form=${'split'} .where=${`dataset ${name} split`} .first=${['mode', 'detector', 'threshold', 'window_seconds', 'min_seconds', 'max_seconds', 'preview']} .without=${['clips']}
        .does=${'clips/split'} .values=${{ name, clips: chosen }} .label=${'Cut'} .said=${'Cutting clips in the background.'}></wb-task-form>`;
    }
    const pairs = tab === 'pairs';
    return html`<div class="split" data-id="${tab || 'clips'}">${pairs ? html`<wb-pairs-tab data-id="pairs-${name}" .datasetName=${name} .partnerRole=${this.path[2] ?? ''}></wb-pairs-tab>`
      : html`<wb-clips data-id="clips-${name}" .datasetName=${name} .trigger=${about.trigger_word}></wb-clips>`}${
      about.summary.clips ? html`<details class="aside" data-id="checks" ?open=${window.innerWidth > 1099}><summary>Checks</summary><wb-checks .datasetName=${name} .shape=${this.shape} .task=${this.task('check')} .only=${pairs ? OF_PAIRS : null} .missing=${
        pairs ? 0 : about.summary.missing_captions}></wb-checks></details>` : ''}</div>`;
  }

  // Check the new clips when an import ends while the dataset is open.
  watchImport(about) {
    const task = about.tasks.find(({ name }) => name === 'import');
    const ended = (this.importing || newlyTaken.has(this.name)) && task && !task.activity && task.new;
    this.importing = Boolean(task?.activity);
    if (task) newlyTaken.delete(this.name);
    if (ended) page.transport.call('datasets/check', { name: this.name, ...this.checked }).catch(() => {});
  }

  // The model and frames for `datasets/check`.
  get checked() { return this.shape.model ? this.shape : {}; }

  // ---- actions

  choose() { chooseFiles((files) => this.dropped(files)); }
  dropped(files) { importInto(this.name, files); }
  go(target) { goTo('dataset', this.name, target.dataset.value); }

  train() {
    const before = drafts.read('train/new');
    const shape = Object.fromEntries(Object.entries(this.shape).filter(([, value]) => value));
    drafts.keep('train/new', { ...before, values: { ...before.values, dataset: this.name, ...shape } });
    goTo('train', 'new');
  }

  judge(target) {
    const typed = target.value.trim();
    const value = target.name === 'frames' ? (typed ? Number(typed) : null) : typed;
    if (target.name === 'frames' && typed && !Number.isInteger(value)) { toast('Frames must be a whole number, or empty for the model’s default.', null, 'bad'); return; }
    const shape = { ...this.shape, [target.name]: value }, { about } = this;
    preferences.keep(`shape ${this.name}`, shape);
    preferences.keep('shape', shape);
    this.follow();
    this.about ??= about; // show the old state until the answer arrives
  }

  trigger(target) {
    const before = this.about.trigger_word, { name } = this;
    return this.act('clips/trigger', { name, word: target.value }, {
      said: ({ trigger_word: word }) => (word ? `Trigger word: ${word}.` : 'No trigger word.'), undo: () => this.act('clips/trigger', { name, word: before }),
    });
  }

  async undo() { await this.act('datasets/undo', { name: this.name }, { said: ({ what }) => `Undone: ${what}.`, undo: () => this.redo() }); }
  async redo() { await this.act('datasets/redo', { name: this.name }, { said: ({ what }) => `Redone: ${what}.` }); }

  async toBin() {
    const { name } = this;
    const [planned] = await this.act('datasets/to-remove', { name }) ?? [];
    if (!planned) return;
    const done = await this.act('datasets/remove', { name }, {
      said: `${name} moved to the bin. ${planned.needed}`, undo: async () => { await this.act('datasets/restore', { id: await binnedDataset(name) }, { said: `${name} restored.` }); goTo('dataset', name); },
    });
    if (done) goTo('dataset');
  }

  undoKey(event) {
    if (event.key !== 'z' || !(event.ctrlKey || event.metaKey) || event.target.matches('input, textarea, select') || !this.about?.undo) return;
    event.preventDefault();
    if (event.shiftKey) this.redo(); else this.undo();
  }

  press(key, event) { return this.querySelector('wb-clips')?.press(key, event) ?? false; }

  commands() {
    const to = (tab) => address('dataset', this.name, tab);
    return [
      { title: `Write captions with a model`, icon: 'edit', to: to('captions') },
      { title: `Export dataset ${this.name}`, icon: 'download', to: to('export') },
      { title: `Pair clips of ${this.name} with control clips, masks`, icon: 'link', to: to('pairs') },
      { title: `Cut clips of ${this.name}`, icon: 'crop', to: to('split') },
      { title: `Train on ${this.name}`, icon: 'train', run: () => this.train() },
      ...(this.about?.undo ? [{ title: `Undo: ${this.about.undo}`, icon: 'left', key: 'Ctrl Z', run: () => this.undo() }] : []),
    ];
  }
}
define('wb-dataset', Dataset);

// The findings of the last check by kind, with their fixes. task: the check;  shape: its model and frames
//   only: a regular expression for the kinds to show, or null
class Checks extends WorkbenchElement {
  static properties = ['datasetName', 'shape', 'task', 'missing', 'only'];
  needs() { return { checks: ['datasets/checks', { name: this.datasetName }] }; }

  view() {
    const { checks, task } = this;
    if (this.refused.checks) return refusal(this.refused.checks);
    if (!checks) return html`${skeleton('height:60px')}${skeleton('height:60px')}`;
    const kinds = checks.kinds.filter(({ kind }) => !this.only || this.only.test(kind));
    const number = kinds.reduce((sum, { count: found }) => sum + found, 0);
    return html`<p class="fine faint">${task?.activity ? '' : checks.checked_at ? html`${count(number, 'finding')}, ${ago(checks.checked_at)}` : 'Not checked yet.'}</p>
      ${task?.activity ? html`<wb-task .task=${task} .datasetName=${this.datasetName}></wb-task>` : ''}
      <ul>${this.missing && !checks.kinds.some(({ kind }) => kind === 'no_caption') ? html`<li data-id="missing"><div class="title"><span class="warn">${icon('warn')}</span><b class="minor">${count(this.missing, 'clip has', 'clips have')} no caption</b></div>
        <p class="faint">The model would learn ${this.missing === 1 ? 'it' : 'them'} from the trigger word alone.</p><div>${linkTo('Write with a model', address('dataset', this.datasetName, 'captions'), { kind: 'small' })}</div></li>` : ''}${
  kinds.map((group) => this.group(group))}</ul>
      ${checks.checked_at && !number ? state('good', 'Nothing to fix') : ''}
      ${task?.activity ? '' : html`<div class="row">${checks.new_clips ? button(`Check ${count(checks.new_clips, checks.checked_at ? 'new clip' : 'clip')}`, 'check', { kind: 'small' }) : button('Check again', 'check', { kind: 'quiet small' })}</div>`}${
  checks.checked_at ? html`<p class="fine faint">Imported clips are checked automatically.</p>` : ''}`;
  }

  group(group) {
    const [first, ...others] = group.fixes;
    const sentences = group.findings.map(({ sentence, clips }) => html`<p class="faint">${clips.length === 1 ? html`<a href="${address('dataset', this.datasetName, 'clip', clips[0])}">${sentence}</a>` : sentence}</p>`);
    return html`<li data-id="${group.kind}-${group.title}"><div class="title"><span class="${group.tone}">${icon('warn', group.severity)}</span><b class="minor">${group.count > 1 ? `${group.count} × ` : ''}${group.title}</b></div>
      ${sentences[0]}${sentences.length > 1 ? html`<details><summary class="fine">All ${group.count}</summary>${sentences.slice(1)}${group.count > group.findings.length ? html`<p class="faint">and ${group.count - group.findings.length} more</p>` : ''}</details>` : ''}
      ${group.kind === 'no_caption' ? html`<div>${linkTo('Write with a model', address('dataset', this.datasetName, 'captions'), { kind: 'small' })}</div>` : first ? html`<p class="faint">${first.does}${first.seconds ? ` About ${duration(first.seconds)}.` : ''}</p><div class="row tight">${this.fix(group, first, 'small')}${
    others.length ? menu(others.map((one) => [`${one.label}: ${one.does}${one.seconds ? ` About ${duration(one.seconds)}.` : ''}`, 'fixIt', `${group.kind} ${one.fix}`]), `Other ways: ${group.title}`) : ''}</div>` : ''}</li>`;
  }

  fix({ kind }, { fix, label, does }, style) { return button(label, 'fixIt', { kind: style, value: `${kind} ${fix}`, title: does }); }

  fixIt(target) {
    const [kind, how] = target.dataset.value.split(' ');
    const name = this.datasetName;
    return changeDataset('datasets/fix', { name, kind, how }, (task) => task.sentence || 'The fix is running.');
  }

  check() { return this.act('datasets/check', { name: this.datasetName, ...(this.shape.model ? this.shape : {}) }); }
}
define('wb-checks', Checks);

// The model input of all clips, the best buckets, and statistics.
class ModelInput extends WorkbenchElement {
  static properties = ['datasetName', 'shape'];
  buckets = 3;

  needs() {
    const of = { name: this.datasetName, ...Object.fromEntries(Object.entries(this.shape ?? {}).filter(([, value]) => value)) };
    return { plan: ['clips/plan', of, 'once'], groups: ['clips/plan', { ...of, buckets: this.buckets }, 'once'], numbers: ['datasets/stats', { name: this.datasetName }, 'once'] };
  }

  view() {
    const { plan, groups, numbers } = this;
    const left = plan?.clips.filter(({ dropped }) => dropped) ?? [];
    const rows = plan ? [...left, ...plan.clips.filter(({ dropped }) => !dropped)] : [];
    const most = groups ? Math.max(1, ...Object.values(groups.buckets)) : 1;
    return html`<section class="section"><header><h2>Model input</h2>${this.shape?.model ? '' : html`<span class="fine faint">for the built-in model: choose another above</span>`}</header>${this.refused.plan ? refusal(this.refused.plan) : !plan ? skeleton('height:120px') : html`<p>${withTimes(plan.sentence)}</p><div class="table-frame tall"><table class="table"><thead><tr><th>Clip</th><th>Frames and picture</th><th>Use</th></tr></thead><tbody>${
      rows.slice(0, 500).map((one) => html`<tr><td><a href="${address('dataset', this.datasetName, 'clip', one.file_name.replace(/^.*\//, '').replace(/\.[^.]+$/, ''))}">${one.name}</a></td><td class="${one.dropped && 'bad'}">${withTimes(one.sentence)}</td><td class="faint">${[one.use, ...one.warnings].filter(Boolean).join('; ')}</td></tr>`)}</tbody></table></div>`}</section>
      <section class="section"><header><h2>Best buckets</h2><label class="row tight minor faint" style="width:240px"><span class="tight">At most ${this.buckets}</span><input type="range" min="1" max="8" value="${this.buckets}" data-change="most" aria-label="Most buckets"></label></header>${
  !groups ? skeleton('height:60px') : html`<p class="minor faint">${groups.sentence}</p><div class="bars">${Object.entries(groups.buckets).map(([name, clips]) => html`<span>${withTimes(name)}</span>${meter(clips / most, name)}<b>${clips}</b>`)}</div>${
    groups.clips.filter(({ dropped }) => dropped).slice(0, 50).map((one) => html`<p class="minor faint">${one.name}: ${one.dropped}</p>`)}`}</section>
      <section class="section"><h2>Statistics</h2>${!numbers ? skeleton('height:120px') : html`<p class="minor">${numbers.notes.join(' ')}</p><div class="numbers">${Object.values(numbers.histograms).map((one) => this.bars(`${one.title} (${one.unit})`, one.counts.map((number, index) => [
    `${this.short(one.edges[index])} to ${this.short(one.edges[index + 1])}`, number])))}${Object.entries(numbers.counts).map(([title, counts]) => this.bars(title, Object.entries(counts).slice(0, 12)))}</div>`}</section>`;
  }

  short(number) { return Number(number.toPrecision(3)); }

  bars(title, rows) {
    const most = Math.max(1, ...rows.map(([, number]) => number));
    return html`<section class="section"><h3>${title}</h3><div class="bars">${rows.map(([name, number]) => html`<span class="one-line" title="${name}">${withTimes(name)}</span>${meter(number / most, name)}<b>${number}</b>`)}</div></section>`;
  }

  most(target) { this.buckets = Number(target.value); }
}
define('wb-model-input', ModelInput);

// The changes of a dataset, newest first, with undo, and its removed clips.
class DatasetHistory extends WorkbenchElement {
  static properties = ['datasetName', 'about'];
  shown = 100;
  needs() { return { list: ['datasets/history', { name: this.datasetName }], removed: ['clips/removed-clips', { name: this.datasetName }] }; }

  view() {
    const { list, removed } = this;
    if (!list) return html`${skeleton('height:160px')}`;
    const newest = [...list].reverse();
    return html`<section class="section"><h2>Changes</h2>${newest.length ? html`<ul class="now history">${newest.slice(0, this.shown).map((one) => html`<li data-id="change-${one.number}"><span class="faint">${icon(one.kind === 'note' ? 'upload' : one.kind === 'undo' ? 'left' : 'edit')}</span><span
      class="what"><b>${capital(one.sentence)}</b>${one.clips ? html` <span class="faint">${count(one.clips, 'clip')}</span>` : ''}</span><span class="when">${ago(one.time)}</span>${this.ways(one)}</li>`)}</ul>${
  newest.length > this.shown ? html`<div class="row">${button('Show more', 'more')}</div>` : ''}` : html`<p class="faint">No changes yet.</p>`}${this.about.redo ? html`<div class="row">${button(`Redo: ${this.about.redo}`, 'redo')}</div>` : ''}</section>
      ${removed?.length ? html`<section class="section"><header><h2>Removed clips</h2><span class="fine faint">${removed.length}</span><span class="spacer"></span>${removed.length > 1 ? button('Restore all', 'all', { kind: 'small' }) : ''}</header><ul class="now">${removed.slice(0, this.shown).map((one) => html`<li
        data-id="removed-${one.id}"><span class="faint">${icon('bin')}</span><b class="one-line" title="${one.name}">${one.name}</b><span class="what faint">${one.caption}</span><span></span>${button('Restore', 'restore', { kind: 'small', value: one.id })}</li>`)}</ul></section>` : ''}`;
  }

  // The changes after another one that can be undone, the newest first.
  laterThan(number) { return this.list.filter((one) => one.undoable && one.number > number).reverse(); }

  ways(one) {
    const later = this.laterThan(one.number).length;
    return html`<span class="row tight">${later && (one.undoable || one.kind === 'note') ? button('Undo to here', 'undoTo', { kind: 'quiet small', value: one.number, title: `Undo the ${later === 1 ? 'change' : `${later} changes`} after this one` }) : ''}${
      one.undoable ? button('Undo', 'undo', { kind: 'small', value: one.number, label: `Undo: ${one.sentence}` }) : ''}</span>`;
  }

  more() { this.shown += 200; }

  async undoTo(target) {
    const name = this.datasetName, undone = this.laterThan(Number(target.dataset.value));
    for (const { number } of undone) if (!await this.act('datasets/undo', { name, number })) return;
    toast(`${count(undone.length, 'change')} undone.`, async () => {
      for (let left = undone.length; left; left -= 1) await this.act('datasets/redo', { name });
    });
  }

  undo(target) { return this.act('datasets/undo', { name: this.datasetName, number: Number(target.dataset.value) }, { said: ({ what }) => `Undone: ${what}.` }); }
  redo() { return this.act('datasets/redo', { name: this.datasetName }, { said: ({ what }) => `Redone: ${what}.` }); }
  restore(target) { return this.bring([target.dataset.value]); }
  all() { return this.bring(this.removed.map(({ id }) => id)); }
  bring(clips) { return this.act('clips/restore-clips', { name: this.datasetName, clips }, { said: `${count(clips.length, 'clip')} restored.` }); }
}
define('wb-dataset-history', DatasetHistory);

// Download the dataset as an archive, or export it in any layout.
class ExportDataset extends WorkbenchElement {
  static properties = ['datasetName', 'about'];

  view() {
    const { about, datasetName: dataset } = this;
    const task = about.tasks.find(({ name }) => name === 'export');
    return html`<div class="section"><h2>Export</h2><p class="faint">A folder of clips with a <span class="mono">.txt</span> beside each, as kohya, ai-toolkit and diffusion-pipe read it.</p><div class="row">${task?.activity ? '' : about.download
      ? html`<wb-download .file=${about.download} .size=${about.download_bytes}></wb-download>${button('Make a new zip', 'make', { kind: 'quiet' })}` : button('Make a zip to download', 'make', { kind: 'primary', name: 'download', off: !about.summary.clips })}</div></div>
      ${about.download && task?.state === 'finished' ? '' : html`<wb-task data-id="own" .task=${task} .datasetName=${dataset}></wb-task>`}
      <details><summary>To a folder, an archive or the Hub</summary><wb-task-form .form=${'export'} .where=${`dataset ${dataset} export`} .first=${['layout', 'target', 'repo_id', 'private']} .does=${'datasets/send'} .lists=${'datasets/to-send'} .values=${{ name: dataset }} .label=${'Export'} .said=${'The export has started.'}></wb-task-form></details>`;
  }

  make() { return this.act('datasets/download', { name: this.datasetName }); }
}
define('wb-export', ExportDataset);

// A download link. file: its path;  size: bytes
class Download extends WorkbenchElement {
  static properties = ['file', 'size'];
  arrived() { this.find(); }
  changed() { if (this.present) this.find(); }

  async find() {
    this.at = await page.transport.file(this.file);
    this.redraw();
  }

  view() {
    const name = this.file.replace(/^.*[\\/]/, '');
    return html`${this.at ? html`<a class="button primary" href="${this.at}" download="${name}">${icon('download')}Download ${name} · ${bytes(this.size)}</a>` : ''}`;
  }
}
define('wb-download', Download);

// Title, group, notes.
class DatasetNotes extends WorkbenchElement {
  static properties = ['about'];
  needs() { return { list: ['datasets/cards', {}] }; }

  view() {
    const { about } = this;
    const groups = [...new Set((this.list ?? []).map(({ group }) => group).filter(Boolean))];
    return html`<div class="section" style="max-width:560px">${field('Title', html`<input class="input" value="${about.title}" data-change="rename">`, 'The name follows from it. Runs still find the dataset.', this.problem)}
      ${field('Group', html`<input class="input" value="${about.group}" list="dataset-groups" data-change="group"><datalist id="dataset-groups">${groups.map((one) => html`<option value="${one}"></option>`)}</datalist>`, 'The list shows datasets of a group together.')}
      ${field('Your notes', html`<textarea class="input" rows="6" data-change="note">${about.own_notes}</textarea>`, 'Private; they are never published.')}
      <p class="fine faint">${about.created_at ? html`Made ${ago(about.created_at)}. ` : ''}Saved when you leave a field.</p></div>`;
  }

  async rename(target) {
    const { name, title } = this.about;
    this.problem = '';
    const made = await this.act('datasets/rename', { name, title: target.value }, {
      said: (one) => `It is now called ${one.title}.`, undo: (one) => this.act('datasets/rename', { name: one.name, title }).then((back) => back && goTo('dataset', back.name, 'notes')),
      refused: (problem) => { this.problem = problem.message; },
    });
    if (made && made.name !== name) goTo('dataset', made.name, 'notes');
  }

  group(target) { return this.act('datasets/group', { name: this.about.name, label: target.value.trim() }, { said: 'Group saved.' }); }
  note(target) { return this.act('datasets/note', { name: this.about.name, text: target.value }, { said: 'Notes saved.' }); }
}
define('wb-dataset-notes', DatasetNotes);

// More ways to add clips: files and folders on this machine, datasets on the Hub, import settings. datasetName: "" for a new one
class AddClips extends WorkbenchElement {
  static properties = ['datasetName'];
  get where() { return `dataset ${this.datasetName} add`; }
  needs() { return this.browsing ? { folder: ['datasets/browse', { folder: this.at ?? '' }, 'once'] } : {}; }

  view() {
    const { datasetName: dataset } = this;
    const title = dataset || this.titled;
    return html`${dataset ? '' : html`<div style="max-width:420px">${field('Title', html`<input class="input" value="${title}" data-input="name">`, 'What its clips show, in a few words.')}</div>`}
      <wb-task-form data-id="form" .form=${'import'} .where=${this.where} .first=${['sources', 'hub_dataset', 'trigger_word']} .labels=${{ sources: 'Files and folders on this machine' }} .without=${['datasetName']} .does=${'datasets/import'} .values=${{ name: title }} .label=${'Import'}
        .begun=${(task) => { drafts.forget(`${this.where} title`); goTo('dataset', task.dataset); }}></wb-task-form>
      <div class="row">${this.browsing ? '' : button('Browse this machine', 'browse', { kind: 'small', name: 'list' })}${button('Preview the import', 'preview', { kind: 'small' })}${button('Upload files with these options', 'upload', { kind: 'small', name: 'upload' })}</div>
      ${this.browsing ? this.browser() : ''}
      ${this.found ? html`<div class="task"><ul class="minor">${this.found.map((text) => html`<li>${text}</li>`)}</ul></div>` : ''}`;
  }

  get filling() { return this.querySelector('wb-task-form').filling; }
  get values() { return this.filling.values; }

  // A file browser of this machine, to open folders and choose files and folders.
  browser() {
    const { folder } = this;
    if (this.refused.folder) return html`${refusal(this.refused.folder)}<div>${button('Start over', 'enter', { kind: 'small' })}</div>`;
    if (!folder) return skeleton('height:120px');
    const taken = new Set(this.filling?.get('sources') ?? []);
    const inside = (name) => `${folder.path.replace(/[\\/]$/, '')}/${name}`;
    const box = (name) => html`<label class="check"><input type="checkbox" name="${inside(name)}" data-change="take" ?checked=${taken.has(inside(name))}><span class="unseen">Take ${name}</span></label>`;
    return html`<section class="section" aria-label="This machine"><div class="row"><b class="mono">${folder.path}</b>${folder.parent && button('Up', 'enter', { kind: 'small', value: folder.parent, name: 'left' })}<span class="spacer"></span>${
      button('Close', 'browse', { kind: 'small quiet' })}</div><ul class="browser">${folder.folders.map((name) => html`<li data-id="in-${name}">${box(name)}${button(name, 'enter', { kind: 'quiet small', name: 'dataset', value: inside(name) })}</li>`)}${
      folder.files.map((name) => html`<li data-id="file-${name}">${box(name)}<span class="minor">${name}</span></li>`)}</ul>${folder.more ? html`<p class="fine faint">and ${folder.more} more</p>` : ''}</section>`;
  }

  browse() { this.browsing = !this.browsing; }
  enter(target) { this.at = target.dataset.value; }

  take(target) {
    const others = (this.filling.get('sources') ?? []).filter((one) => one !== target.name);
    this.filling.set('sources', target.checked ? [...others, target.name] : others);
  }

  // The title of a new dataset.
  get titled() { return drafts.read(`${this.where} title`).title ?? ''; }
  name(target) { drafts.keep(`${this.where} title`, { title: target.value }); }

  // The values of the form, without some.
  valuesBut(...names) { return Object.fromEntries(Object.entries(this.values).filter(([name]) => !names.includes(name))); }

  async preview() {
    const found = await this.act('datasets/preview', { paths: this.values.sources ?? [], ...this.valuesBut('sources', 'trigger_word', 'longest_side', 'keep_sound', 'own_source') });
    this.found = found?.sentences ?? null;
  }

  // Upload files and import them with the settings of the form.
  upload() {
    const settings = this.valuesBut('sources', 'hub_dataset', 'revision', 'hub_config', 'own_source');
    chooseFiles((files) => importInto(this.datasetName || null, files, { settings, title: this.titled }));
  }
}
define('wb-add', AddClips);
