// A new run: eight fields with their cost, all settings, whether it fits and how long it takes. Several values in a field make a
// sweep. plans/look provides hints and estimates while a person types.

const SUBJECTS = [['', 'Choose…'], ['character', 'Character'], ['object', 'Object'], ['style', 'Look or style'], ['motion', 'Motion'], ['camera', 'Camera move'], ['effect', 'Effect'],
  ['control', 'Mode: follow a control video'], ['first and last frame', 'Mode: first and last frame'], ['reference', 'Mode: a reference in context'], ['masked', 'Mode: learn inside masks'], ['slider', 'Mode: a slider from prompts'], ['training adapter', 'Mode: a model for few steps']];
const OF_SLIDER = ['slider_positive', 'slider_negative', 'slider_neutral'];
const OF_CLIPS = ['dataset', 'more_datasets', 'regularization_dataset']; // not used by a slider from prompts
const FIELDS = ['dataset', 'model', 'frames', 'height', 'width', 'steps', 'learning_rate', 'rank', 'batch_size', 'preview_prompts', 'start_from'];
const MEASURED_MS = 1000; // between checks of a measurement
const shapeText = ({ frames, height, width }) => `${frames} at ${width}×${height}`;
const gigabytes = (gb) => (gb >= 0.95 ? `${gb.toFixed(1)} GB` : `${Math.round(1024 * gb)} MB`);

class NewRun extends FillingElement {
  static properties = ['path', 'filling'];
  heading = 'New run';

  // The run whose settings are copied, and the step to continue from, if any.
  get from() { return this.path?.[1] === 'from' ? this.path[2] : ''; }
  get step() { return this.path?.[3] ?? ''; }
  get where() { return address('train', ...(this.path ?? ['new'])); }

  needs() {
    return {
      targets: ['targets/list', {}, 'once'], presets: ['plans/presets', {}, 'once'], measured: ['plans/measuring', {}],
      ...(this.from ? { parent: ['progress/settings', { name: this.from }, 'once'] } : {}),
    };
  }

  changed(name) {
    super.changed(name);
    if (name === 'path' && this.present) this.begin();
  }

  arrived() { super.arrived(); this.begin(); }

  async begin() {
    const { where, from, step } = this;
    if (this.begun === where && this.filling) return;
    this.begun = where;
    this.recipe = this.reshaping = this.plan = null;
    const filling = new Filling('train', {
      where, several: true, beside: { name: '', subject: '', target: '', gpu: '', fork: step ? `${from}@${step}` : '', changed: [] }, check: (one) => this.look(one),
    });
    this.filling = filling;
    if (from && !filling.resumed) {
      const parent = await page.transport.call('progress/settings', { name: from }).catch((problem) => ({ problem }));
      if (this.filling !== filling) return;
      if (parent.problem) this.lostParent = parent.problem.message; else filling.values = parent.settings;
    }
    for (const name of filling.beside.changed) filling.filled.add(name);
    await filling.load();
    if (filling.get('slider_positive').length && !filling.get('dataset')) filling.beside.subject = 'slider';
    if (filling.get('dataset') || this.slider) return;
    // Suggest the newest dataset.
    const { datasets } = await page.transport.call('overview/overview', {});
    const newest = datasets.find(({ clips }) => clips) ?? datasets[0];
    if (newest && this.filling === filling && !filling.get('dataset') && !this.slider) filling.set('dataset', newest.name);
  }

  // Whether the run learns a slider from prompts.
  get slider() { return this.filling?.beside.subject === 'slider'; }

  async look(filling) {
    const { fork, gpu, target } = filling.beside;
    const plan = await page.transport.call('plans/look', { settings: filling.single, tried: filling.tried, fork, target, ...(gpu ? { gpu_memory: gpu } : {}) });
    const gone = plan.problems.dataset && filling.get('dataset');
    this.binned = gone ? await binnedDataset(gone).catch(() => null) : null;
    // While a value is wrong, the last plan's figures stay, in gray.
    if (this.filling === filling) this.plan = plan.fits === null && this.plan ? { ...this.plan, problems: plan.problems, stale: true } : plan;
    return plan;
  }

  view() {
    const { filling } = this;
    const title = this.step ? `Continue ${this.from} from step ${this.step}` : this.from ? `New run like ${this.from}` : 'New run';
    return html`<div class="head">${crumbs(address('train'), 'Train', title)}<div class="actions">${linkTo('Cancel', address('train'), { kind: 'quiet' })}${this.more()}</div></div>
      ${this.lostParent ? alarm(this.lostParent) : ''}<div class="split new-run"><form class="section" data-submit="start" novalidate autocomplete="off">${
        filling?.settings.length ? this.fields() : skeleton('height:320px')}</form><aside class="aside start-bar" aria-label="Whether it fits">${this.fit()}</aside></div>`;
  }

  more() {
    const { presets = [] } = this;
    return html`<details class="menu"><summary class="button square" aria-label="Presets" title="Presets">${icon('more')}</summary><div>${presets.map((one) => html`<span class="row tight">${button(one.name, 'preset', { kind: 'quiet', value: one.name, off: Boolean(one.problem), title: one.problem || `Fill in the preset ${one.name}` })}<span
      class="spacer"></span>${button('', 'downloadPreset', { kind: 'quiet square', name: 'download', value: one.name, label: `Download ${one.name}.json` })}</span>`)}${presets.length ? html`<hr>` : ''}${button('Save as a preset', 'savePreset', { kind: 'quiet', name: 'star' })}${
      button('Add a preset from a file', 'addPreset', { kind: 'quiet', name: 'upload' })}${button('Clear the form', 'clear', { kind: 'quiet', name: 'close' })}</div></details>`;
  }

  // ---- the fields

  fields() {
    const { filling, plan } = this;
    const hints = plan?.hints ?? {};
    const one = (name, label) => settingField(filling, name, hints[name] ?? '', label);
    const { subject } = filling.beside;
    const { slider } = this;
    const missing = !slider && (filling.problems.dataset ?? filling.missing.dataset) && !filling.get('dataset');
    return html`${this.forking()}<div class="eight">${field('What to teach', select(SUBJECTS, subject, 'name="subject" data-change="teach"'), this.teaching ? 'filling in…' : slider ? 'its scale turns something up or down' : 'fills in the rest')}${
      slider ? '' : one('dataset')}${one('model')}${this.shape()}${one('steps')}${one('learning_rate')}${one('rank')}${one('batch_size', 'Batch')}</div>
      ${slider ? html`<div class="two-columns">${settingField(filling, 'slider_positive', 'as in “a large ball rolls”', 'More, one prompt per line')}${settingField(filling, 'slider_negative', 'as in “a small ball rolls”', 'Less, one prompt per line')}</div>${
  settingField(filling, 'slider_neutral', 'what to turn up and down, as in “a ball rolls”; if empty, every prompt a little', 'Neutral, one prompt per line')}` : ''}${this.messages()}
      ${missing ? html`<p class="minor">${linkTo('Make a dataset from clips', address('dataset'), { kind: 'small', name: 'upload' })}</p>` : ''}
      ${this.binned ? html`<p class="row minor"><span>${filling.get('dataset')} is in the bin.</span>${button('Restore the dataset', 'restore', { kind: 'small' })}</p>` : ''}
      <div class="twin">${field('Name', html`<input class="input" name="name" value="${filling.beside.name}" placeholder="${plan?.name ?? ''}" data-input="name" ${new Markup(filling.problems.name ? 'aria-invalid="true"' : '')}>`, '', filling.problems.name)}${
        this.origin()}${this.target()}</div>
      ${one('preview_prompts', 'Preview prompts, one per line')}${plan?.trigger ? html`<p class="row minor warn">${icon('warn')}<span>A prompt lacks ${plan.trigger.words}, the dataset's trigger word. Without it a preview may show little.</span>${
        button(`Insert ${plan.trigger.words}`, 'insertTrigger', { kind: 'small' })}</p>` : ''}
      <wb-settings .filling=${filling} .without=${slider ? [...FIELDS, ...OF_SLIDER] : FIELDS} .usual=${'the defaults'}></wb-settings>`;
  }

  // For a fork: what it continues, and the changes.
  forking() {
    const { fork } = this.filling.beside;
    if (!fork) return '';
    const changes = this.plan?.changes ?? [];
    return html`<section class="section minor" aria-label="What would change"><p>It continues with the weights and the optimizer of <b>${fork.replace('@', ', step ')}</b>. Change any setting below.</p>${changes.length ? html`<div class="table-frame"><table class="table"><thead><tr><th scope="col">What would change</th>
      <th scope="col">Before</th><th scope="col">After</th></tr></thead><tbody>${changes.map((one) => html`<tr><td>${one.title}</td><td class="faint">${one.before}</td><td><b>${one.after}</b></td></tr>`)}</tbody></table></div>` : html`<p class="faint">No changes yet.</p>`}</section>`;
  }

  // Frames and size as one choice, or as separate fields.
  shape() {
    const { filling, plan } = this;
    const own = filling.own;
    const now = Object.fromEntries(['frames', 'height', 'width'].map((name) => [name, filling.get(name) ?? Number(own[name] ?? 0)]));
    const shapes = plan?.shapes ?? [];
    const known = shapes.some((one) => same(one, now));
    const problem = filling.problems.frames ?? filling.problems.height ?? filling.problems.width;
    const by_hand = this.reshaping || (shapes.length && !known);
    const options = [...shapes.map((one) => [JSON.stringify(one), shapeText(one)]), [OTHER, 'Another…']];
    return html`${field('Frames and size', select(options, by_hand ? OTHER : JSON.stringify(now), `data-change="reshape" aria-label="Frames and size"${problem ? ' aria-invalid="true"' : ''}`), plan?.hints.frames ?? '', by_hand ? '' : problem)}${
      by_hand ? html`<div class="by-hand">${settingField(filling, 'frames')}${settingField(filling, 'width')}${settingField(filling, 'height')}</div>` : ''}`;
  }

  reshape(target) {
    if (target.value === OTHER) { this.reshaping = true; return; }
    this.reshaping = false;
    const { filling } = this;
    const chosen = JSON.parse(target.value);
    for (const [name, value] of Object.entries(chosen)) filling.set(name, String(value) === filling.own[name] ? null : value);
  }

  // The initial weights: none, another LoRA's, or the address's checkpoint.
  origin() {
    const { filling, parent, from } = this;
    const { fork } = filling.beside;
    const setting = filling.setting('start_from');
    const exported = filling.choices(setting) ?? [];
    const now = fork ? `fork ${fork}` : filling.get('start_from') ?? '';
    const forks = (parent?.checkpoints ?? []).map((step) => [`fork ${from}@${step}`, `${from}, step ${step}`]).reverse();
    const options = [['', 'Nothing: a new LoRA'], ...exported.map(({ value, title }) => [value, `${title}, its finished LoRA`])];
    if (now && ![...options, ...forks].some(([value]) => value === now)) options.push([now, now.replace('fork ', '').replace('@', ', step ')]);
    const problem = filling.problems.start_from;
    return field('Continue from', html`<select class="input" data-change="originate" ${new Markup(problem ? 'aria-invalid="true"' : '')}>${options.map(([value, text]) => html`<option value="${value}" ?selected=${value === now}>${text}</option>`)}${
      forks.length ? html`<optgroup label="Weights and optimizer">${forks.map(([value, text]) => html`<option value="${value}" ?selected=${value === now}>${text}</option>`)}</optgroup>` : ''}<option value="${OTHER}">A file…</option></select>`,
    fork ? 'with its optimizer' : now ? 'weights only' : '', problem);
  }

  async originate(target) {
    const { filling } = this;
    const { value } = target;
    if (value === OTHER) {
      const file = await ask('Continue from', 'A .safetensors file on this machine, from this or another trainer', { value: filling.get('start_from') ?? '', does: 'Use it' });
      if (file !== null) { filling.beside.fork = ''; filling.set('start_from', file || null); }
      return;
    }
    filling.note('fork', value.startsWith('fork ') ? value.slice(5) : '');
    filling.set('start_from', value && !value.startsWith('fork ') ? value : null);
  }

  async restore() {
    await this.act('datasets/restore', { id: this.binned }, { said: ({ name }) => `${name} restored.` });
    this.filling.later(0);
  }

  target() {
    const { targets } = this;
    if (!targets?.length) return '';
    return field('Where it trains', select([['', 'This machine'], ...targets.map(({ name, kind }) => [name, `${name}${kind ? ` (${kind})` : ''}`])], this.filling.beside.target, 'name="target" data-change="beside"'));
  }

  name(target) { this.filling.beside.name = target.value; delete this.filling.problems.name; this.filling.keep(); }
  beside(target) { this.filling.note(target.name, target.value); }
  insertTrigger() { this.filling.set('preview_prompts', this.plan.trigger.prompts); this.filling.later(0); }

  messages() {
    const { recipe, filling, plan } = this;
    const notes = [...filling.adapted ?? [], ...filling.notes];
    const warnings = plan?.warnings ?? [];
    return html`${recipe ? this.reasons(recipe) : ''}${notes.length || warnings.length ? html`<ul class="notes minor">${notes.map((text) => html`<li class="faint">${prose(text)}</li>`)}${warnings.map((text) => html`<li class="warn">${icon('warn')} ${prose(text)}</li>`)}</ul>` : ''}`;
  }

  reasons(recipe) {
    const advice = recipe.reasons.filter(({ setting }) => !setting);
    const values = recipe.reasons.filter(({ setting }) => setting);
    const sources = (list) => list.map(({ title, url }, index) => html`${index ? ', ' : ''}${url ? html`<a class="link" href="${url}" target="_blank" rel="noopener noreferrer">${title}</a>` : title}`);
    const line = (one) => html`<dt>${one.setting ? `${one.title}: ${one.value}` : one.title}</dt><dd>${one.reason} <span class="faint">${sources(one.sources)}</span></dd>`;
    return html`<section class="section minor recipe" aria-label="The recipe"><p>${prose(recipe.evidence)}</p>${recipe.warning && warning(recipe.warning)}<dl>${advice.map(line)}</dl>${
      values.length ? html`<details><summary class="link">Why these values</summary><dl>${values.map(line)}</dl></details>` : ''}</section>`;
  }

  // Put aside settings that do not apply to the new subject, and restore those that were put aside before.
  exchange(names) {
    const { filling } = this, { aside = {} } = filling.beside;
    filling.beside.aside = Object.fromEntries(names.filter((name) => filling.differs(name)).map((name) => [name, filling.values[name]]));
    filling.fill({ ...Object.fromEntries(names.map((name) => [name, filling.setting(name).default])), ...aside });
  }

  async teach(target) {
    const { filling } = this;
    const subject = target.value, { slider } = this;
    filling.note('subject', subject);
    this.recipe = null;
    if (slider !== this.slider) this.exchange(slider ? OF_SLIDER : OF_CLIPS);
    if (!subject) return;
    this.teaching = true;
    const undo = filling.backTo();
    const [recipe] = await this.act('settings/recipes', { subject, model: filling.get('model'), dataset: filling.get('dataset') ?? '', ...(filling.beside.gpu ? { gpu_memory: filling.beside.gpu } : {}) }) ?? [];
    this.teaching = false;
    if (recipe) {
      this.recipe = recipe;
      filling.fill(recipe.settings);
      toast(`The recipe filled in ${count(Object.keys(recipe.settings).length, 'setting')}.`, undo);
    }
  }

  // ---- fit and start

  fit() {
    const { plan, filling, measured } = this;
    if (!plan || !filling) return html`${skeleton('height:48px')}${skeleton('height:12px')}${skeleton('height:40px')}`;
    const known = plan.fits !== null;
    const elsewhere = Boolean(filling.beside.target);
    const total = Math.max(plan.memory_gb, plan.need_gb) || 1;
    return html`<div class="${plan.stale && 'stale'} section" aria-live="polite"><h2>${known ? html`<span class="${plan.fits ? 'good' : 'bad'}">${plan.fits ? 'Fits:' : 'Does not fit:'}</span> ${plan.need_gb.toFixed(1)} of ${plan.memory_gb.toFixed(0)} GB${
      plan.fits ? html`<br>about ${duration(plan.seconds)}` : ''}` : plan.advice || 'Size not known yet'}</h2>${known ? html`<div class="stack" role="img" aria-label="Memory: ${plan.parts.map(({ title, gb }) => `${title} ${gigabytes(gb)}`).join(', ')}">${
      plan.parts.map(({ gb, tone }) => html`<i class="${plan.fits ? tone : 'over'}" style="width:${((100 * gb) / total).toFixed(2)}%"></i>`)}</div><ul class="fine faint stack-parts">${plan.parts.map(({ title, gb, tone }) => html`<li><i class="${
      plan.fits ? tone : 'over'}"></i>${title}<span class="spacer"></span>${gigabytes(gb)}</li>`)}</ul>${plan.fits ? '' : html`<p class="minor">${plan.advice}</p>`}` : ''}</div>
      ${otherProblems(filling, [...filling.settings.map(({ name }) => name), 'name'])}${this.startButton(known, elsewhere)}<p class="fine faint">${this.begins()}</p>
      ${known ? html`${plan.fits && plan.advice ? html`<p class="fine warn">${plan.advice}</p>` : ''}<div class="row">${measured?.alive ? html`${button('Stop measuring', 'stopMeasuring', { kind: 'small quiet' })}` : button('Measure it', 'measure', { kind: 'small quiet', title: 'Run a few steps on this machine for exact figures' })}${
        plan.gpus ? button('Use all GPUs', 'useGpus', { kind: 'small quiet', title: plan.gpus.sentence }) : ''}</div>${measured?.said && (measured.alive || this.measuring) ? html`<p class="fine" role="status">${measured.said}</p>${measured.alive ? progress(null, 'Measuring') : ''}` : ''}${this.phases()}` : ''}`;
  }

  begins() {
    const { plan, filling } = this;
    if (filling.missing.dataset && !this.slider) return 'Choose a dataset first, or make one from your clips.';
    const done = plan.begins_in !== null && plan.seconds ? new Date(Date.now() + 1000 * (plan.begins_in + plan.runs * plan.seconds)) : null;
    const clock = done?.toLocaleTimeString('en-US', { hour: 'numeric', minute: '2-digit' });
    return done ? `${plan.when.replace(/\.$/, '')}; done about ${clock}.` : plan.when;
  }

  // Whether it would wait for another run.
  get waits() { return this.plan?.when.startsWith('Waits'); }

  startButton(known, elsewhere) {
    const { plan, filling } = this;
    const wrong = Object.keys(filling.problems).length > 0;
    const time = known && plan.seconds && !elsewhere ? ` · ${duration(plan.runs * plan.seconds)}` : '';
    const text = `${plan.runs > 1 ? `Start ${plan.runs} runs` : this.waits ? 'Add to queue' : 'Start'}${time}`;
    const off = this.starting || (wrong && !filling.checking);
    if (known && !plan.fits && !elsewhere) {
      return html`${button('Choose settings that fit', 'fitIn', { kind: 'primary large' })}${this.fitting ? html`<p class="minor ${this.fitting.fits ? 'good' : 'bad'}" role="status">${this.fitting.why}</p>` : ''}${
        button('Start anyway', 'start', { kind: 'small quiet', off })}`;
    }
    return button(text, 'start', { kind: 'primary large', off });
  }

  phases() {
    const { plan, filling } = this;
    return html`<details class="minor"><summary class="link">Memory and time, by phase</summary><div class="section phases"><p class="fine faint">${plan.sentence} On ${plan.gpu}.</p><dl class="fine">${plan.phases.map((one) => html`<dt class="${!one.fits && 'bad'}">${one.name}</dt><dd title="${
      one.made_of}">${gigabytes(one.gb)}${one.measured ? ' measured' : ''}</dd>`)}${plan.beside.map(({ title, text }) => html`<dt>${title}</dt><dd>${text}</dd>`)}</dl>${
      field('GPU', select(plan.estimable, filling.beside.gpu || plan.estimable[0], 'name="gpu" data-change="beside"'), 'Estimate for another GPU. The run still trains where it is started.')}</div></details>`;
  }

  // Start the run, once.
  async start() {
    if (this.starting) return;
    this.starting = true;
    const { filling } = this;
    const { name, fork, target } = filling.beside, { waits } = this;
    const made = await this.act('runs/create', { settings: filling.single, tried: filling.tried, name: name.trim() || null, fork, target }, {
      said: (one) => (one.created.length > 1 ? `${one.created.length} runs are in the queue and train one after another.` : `${one.name} is ${one.position && waits ? 'in the queue' : 'starting'}.`),
      refused: (problem) => { filling.refuse(problem, this); say(problem.message); },
    });
    if (made) {
      filling.forget();
      this.begun = this.filling = null;
      goTo('train', made.created[0]);
    }
    this.starting = false;
  }

  async fitIn() {
    const { filling } = this;
    const undo = filling.backTo();
    this.fitting = await this.act('plans/fitting', { settings: filling.single, ...(filling.beside.gpu ? { gpu_memory: filling.beside.gpu } : {}) });
    if (this.fitting?.fits) {
      filling.fill(this.fitting.settings);
      toast(this.fitting.why, undo);
      this.fitting = null;
    }
  }

  useGpus() { this.filling.fill(this.plan.gpus.settings); toast(this.plan.gpus.sentence); }

  async measure() {
    this.measuring = true;
    await this.act('plans/measure', { settings: this.filling.single });
    const again = async () => {
      if (!this.present) return;
      if (this.measured?.alive) setTimeout(again, MEASURED_MS); else this.filling?.check();
    };
    setTimeout(again, 2 * MEASURED_MS);
  }

  async stopMeasuring() { await this.act('plans/stop-measuring', {}); }

  // ---- presets

  preset(target) {
    const { filling } = this;
    const undo = filling.backTo();
    const preset = this.presets.find(({ name }) => name === target.dataset.value);
    filling.fill(preset.settings);
    toast(`The preset ${preset.name} filled in the form.`, undo);
  }

  async savePreset() {
    const title = await ask('Save as a preset', 'Name. The settings are saved without the datasets, for any run of this workspace.', { value: '' });
    if (title === null) return;
    if (await this.act('plans/save-preset', { title, settings: this.filling.single }, { said: ({ name }) => `Preset ${name} saved.` })) this.reread('presets');
  }

  addPreset() {
    chooseFiles(async ([file]) => {
      const settings = await file.text().then(JSON.parse).catch(() => null);
      if (!settings) { toast(`${file.name} is not a JSON object of settings.`, null, 'bad'); return; }
      if (await this.act('plans/save-preset', { title: file.name.replace(/\.json$/, ''), settings }, { said: ({ name }) => `Preset ${name} added. Choose it to fill in the form.` })) this.reread('presets');
    }, { accept: '.json', multiple: false });
  }

  downloadPreset(target) {
    const preset = this.presets.find(({ name }) => name === target.dataset.value);
    const text = URL.createObjectURL(new Blob([JSON.stringify(preset.settings, null, 2)], { type: 'application/json' }));
    save(text, `${preset.name}.json`);
    URL.revokeObjectURL(text);
  }

  clear() {
    const { filling } = this;
    const undo = filling.backTo();
    this.recipe = null;
    filling.backTo({}, { ...filling.beside, name: '', subject: '', fork: '' })();
    toast('Form cleared.', undo);
  }

  commands() {
    return [{ title: 'Start this run', icon: 'play', run: () => this.start() }, { title: 'Save these settings as a preset', icon: 'star', run: () => this.savePreset() }];
  }
}
define('wb-new-run', NewRun);
