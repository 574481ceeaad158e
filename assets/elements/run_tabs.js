// The tabs of a run: previews and curves, checkpoints, settings, log, notes. now: from progress/state;  runs: all runs

const COLUMNS = 4; // of previews, including the base model, before "Show all"
const KEPT_MS = 600; // from the last keystroke to saving notes

// Thin a list to at most `most` items, evenly spaced, including the last.
const thinned = (list, most) => (list.length <= most ? list : Array.from({ length: most }, (_, index) => list[Math.round((index * (list.length - 1)) / (most - 1))]));

class RunTab extends WorkbenchElement {
  static properties = ['now', 'runs'];
  get name() { return this.now?.name; }
}

// ---- previews beside curves

class RunOverview extends RunTab {
  needs() {
    const { name } = this;
    if (!name) return {};
    return { videos: ['progress/previews', { name }], charts: ['progress/curves', { name }], ...(this.detailed ? { more: ['progress/curves', { name, more: true }] } : {}) };
  }

  view() {
    const { now, videos, charts } = this;
    if (now.headline === 'waiting' && !now.step) return empty('Previews and curves appear with the first step.');
    return html`<div class="overview"><section class="section" aria-label="Previews">${videos ? this.previews() : skeleton('height:220px')}</section><section class="section" aria-label="Curves">${
      charts ? html`<wb-charts .charts=${charts.charts} .until=${now.alive ? now.steps : 0}></wb-charts>${charts.note && html`<p class="faint minor">${charts.note}</p>`}${this.details()}` : skeleton('height:220px')}</section></div>`;
  }

  details() {
    if (!this.charts.charts.length) return '';
    return html`<section class="section">${button(this.detailed ? 'Fewer curves' : 'Loss by noise band, learning rate, loss per step', 'detail', { kind: 'quiet small', name: this.detailed ? 'close' : 'fold' })}${
      this.detailed ? this.more ? html`<wb-charts .charts=${this.more.charts} .until=${this.now.alive ? this.now.steps : 0}></wb-charts>` : skeleton('height:120px') : ''}</section>`;
  }

  detail() { this.detailed = !this.detailed; }

  // The steps to show, and upcoming steps with previews.
  get columns() {
    const { steps, coming } = this.videos;
    if (this.every) return [steps, coming];
    const next = coming.slice(0, 1);
    const room = COLUMNS - next.length;
    const [base, rest] = steps[0] === 0 ? [[0], steps.slice(1)] : [[], steps];
    const later = this.now.alive ? rest.slice(-(room - base.length)) : thinned(rest, room - base.length);
    const missing = room - base.length - later.length;
    return [[...base, ...later], coming.slice(0, next.length + Math.max(0, missing))];
  }

  previews() {
    const { videos, now } = this;
    const [shown, coming] = this.columns;
    const small = videos.width && videos.width <= TINY;
    const title = (step) => (step ? `Step ${step.toLocaleString('en-US')}` : 'Base model');
    const one = (file, prompt, step) => (file ? video(file, `${prompt}, ${title(step).toLowerCase()}`, { clock: 'prev', width: videos.width, height: videos.height }) : html`<span></span>`);
    const hidden = videos.steps.length > shown.length;
    const shape = `aspect-ratio:${videos.width || 3}/${videos.height || 2}`;
    const columns = (steps) => steps.map((step) => html`<span class="column">${title(step)}</span>`);
    const slot = (step) => html`<div class="skeleton slot" style="${shape}"><span class="fine faint live">${step ? this.inWords(step) : 'first'}</span></div>`;
    const first = videos.rows.length ? [] : [0, ...coming]; // until there are any
    return html`<header><h2>Previews</h2><span class="fine faint">same seed, played in sync</span><span class="spacer"></span>${videos.steps.length ? html`<wb-scrubber .clock=${'prev'} .frames=${videos.frames}></wb-scrubber>` : ''}</header>
      ${videos.rows.length ? html`<div class="previews ${small && 'small'}" style="--columns:${shown.length + coming.length}">${columns([...shown, ...coming])}${
        videos.rows.map(({ prompt, control, told, sample, videos: files }) => html`<p class="prompt row tight"><span class="one-line" title="${prompt}">${prompt}</span>${control && html` <span class="faint tight">should not change</span>`}${told && html`<span class="faint one-line" title="Inputs besides the prompt">told ${
          told}</span>`}${sample && html`<a class="link fine tight" href="${address('sample', 'file', sample)}" title="Its settings and inputs">Use in Sample</a>`}</p>${
          shown.map((step) => one(files[videos.steps.indexOf(step)], prompt, step))}${coming.map(slot)}`)}</div>` : ''}
      ${first.length > 1 ? html`<div class="previews ${small && 'small'}" style="--columns:${first.length}">${columns(first)}${first.map(slot)}</div>` : ''}
      ${hidden || this.every ? html`<div class="row">${button(this.every ? 'Show fewer' : `Show all ${videos.steps.length} steps`, 'everyStep', { kind: 'quiet small' })}</div>` : ''}
      ${videos.note && html`<p class="faint minor">${videos.note} ${now.actions.some(({ kind }) => kind === 'decode') ? button('Decode previews', 'decode', { kind: 'small' }) : ''}</p>`}
      ${this.request()}${this.scaled()}${this.live()}${this.inputs()}`;
  }

  inWords(step) {
    const { now } = this;
    const seconds = now.step_seconds ? (step - now.step) * now.step_seconds : null;
    return now.headline === 'running' && seconds !== null ? (seconds > 0 ? `in ${duration(seconds)}` : 'now') : 'pending';
  }

  // A preview of another prompt, with the weights after the current step.
  request() {
    if (!this.now.actions.some(({ kind }) => kind === 'live sample')) return '';
    const cost = this.videos.preview_seconds;
    const { sample } = this;
    return html`<form class="section" data-submit="sampleNow"><div class="row tight another"><input class="input" name="prompt" placeholder="Preview another prompt" aria-label="Another prompt" autocomplete="off"><button class="button" type="submit" ?disabled=${
      this.asking}>${cost ? `Preview · ${duration(cost)}` : 'Preview'}</button>${button('', 'sampleSettings', { kind: 'quiet square', name: 'settings', label: 'Seed, guidance, steps, LoRA scale', pressed: Boolean(this.settingUp) })}</div>${
      this.settingUp && sample?.settings.length ? html`<div class="fields-row">${['seed', 'guidance_scale', 'steps', 'scale'].map((name) => settingField(sample, name))}</div>` : ''}${sample ? otherProblems(sample, this.settingUp ? ['seed', 'guidance_scale', 'steps', 'scale'] : []) : ''}</form>`;
  }

  sampleSettings() {
    this.settingUp = !this.settingUp;
    this.filling();
  }

  filling() {
    if (this.sample) return this.sample;
    this.sample = new Filling('live-sample');
    this.sample.listeners.add(() => this.redraw());
    this.sample.load();
    return this.sample;
  }

  async sampleNow(form) {
    if (this.asking) return;
    this.asking = true;
    const input = form.querySelector('[name=prompt]');
    const done = await this.act('runs/live-sample', { name: this.name, ...this.sample?.values, prompt: input.value.trim() }, {
      said: 'The preview will be generated after this step. It appears here and in Sample.', refused: (problem) => this.filling().refuse(problem, this),
    });
    if (done) input.value = '';
    this.asking = false;
  }

  scaled() {
    const { scaled, width, height } = this.videos;
    if (!scaled) return '';
    return html`<section class="section" aria-label="LoRA scales"><header><h2>LoRA scales</h2><span class="fine faint">step ${scaled.step}</span></header><div class="previews ${width <= TINY && 'small'}" style="--columns:${scaled.scales.length}">${
      scaled.scales.map((scale) => html`<span class="column">${scale ? `Scale ${scale}` : 'Base model'}</span>`)}${scaled.rows.map(({ prompt, videos }) => html`<p class="prompt one-line" title="${prompt}">${prompt}</p>${
      videos.map((file, index) => (file ? video(file, `${prompt}, scale ${scaled.scales[index]}`, { clock: 'prev', width, height }) : html`<span></span>`))}`)}</div></section>`;
  }

  live() {
    const { live, width, height } = this.videos;
    if (!live.length) return '';
    return html`<section class="section" aria-label="Other prompts"><h2>Other prompts</h2><div class="tiles" style="--tile:180px">${live.map((one) => html`<figure class="tile" data-id="${one.video}">${
      video(one.video, one.prompt, { width, height })}<figcaption>${twoLines(one.prompt)}<p class="fine faint">${one.facts}</p></figcaption></figure>`)}</div></section>`;
  }

  inputs() {
    const { inputs, width, height } = this.videos;
    if (!inputs.length) return '';
    return html`<details class="section"><summary class="link">Training inputs: clips as the model reads them, and their VAE reconstruction</summary><div class="tiles" style="--tile:260px">${inputs.map((one) => html`<figure class="tile"><div class="pair">${
      video(one.clip, `${one.caption}, as the model reads it`, { width, height, tag: 'input' })}${one.reconstruction ? video(one.reconstruction, `${one.caption}, VAE reconstruction`, { width, height, tag: 'VAE' }) : ''}</div><figcaption>${
      twoLines(one.caption)}</figcaption></figure>`)}</div></details>`;
  }

  everyStep() { this.every = !this.every; }
  async decode() { await this.act('runs/decode', { name: this.name }, { said: 'Decoding the previews in the background. They appear one by one.' }); }
}
define('wb-run-overview', RunOverview);

// ---- checkpoints

class RunCheckpoints extends RunTab {
  view() {
    const { now } = this;
    if (!now.checkpoints.length) return empty(now.alive ? 'No checkpoint yet. "Save a checkpoint now" saves one at once.' : 'This run saved no checkpoint.');
    return html`<div class="table-frame"><table class="table"><thead><tr><th scope="col"><span class="unseen">Star</span></th><th scope="col">Step</th><th scope="col" class="right">Held-out</th><th scope="col" class="wide right">Change</th><th scope="col"
      class="wide right">Drift</th><th scope="col" class="wide right">Size</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead><tbody>${now.checkpoints.map((one) => this.row(one))}</tbody></table></div>
      ${this.pruning()}${now.parent?.run ? html`<p class="minor faint">This run continues <a class="link" href="${address('train', now.parent.run)}">${now.parent.run}</a> from step ${now.parent.step}.</p>` : ''}
      <p class="fine faint">Starred checkpoints are kept. "Continue from here" opens the form of a new run that continues with the checkpoint's weights and optimizer. You can change its settings and clips.</p>`;
  }

  row(one) {
    const { name } = this;
    const share = (value) => (value === null ? '-' : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)}%`);
    const why = one.reasons.filter((reason) => !['starred', 'newest'].includes(reason) && !(one.best && reason.startsWith('lowest')));
    return html`<tr data-id="step-${one.step}"><td>${button('', 'star', { kind: 'quiet small square', name: 'star', value: String(one.step), label: `Star step ${one.step}`, title: 'Starred checkpoints are kept', pressed: one.starred })}</td><td><b>${
      one.step.toLocaleString('en-US')}</b> ${one.best ? html`<span title="Lowest held-out loss with good previews">${state('good', 'best')}</span>` : ''}<span class="fine faint wide">${why.join(', ')}</span></td><td class="right">${
      one.held_out === null ? '-' : one.held_out.toFixed(3)}</td><td class="wide right">${share(one.change)}</td><td class="wide right">${share(one.drift)}</td><td class="wide right">${bytes(one.bytes)}</td><td><span class="row tight end">${
      linkTo('Sample', sampleAddress(`runs/${name}@${one.step}`), { kind: 'small' })}<span class="wide row tight">${linkTo('Continue from here', fromAddress(name, one.step), { kind: 'small' })}${
      one.file && button('Download', 'download', { kind: 'small', name: 'download', value: String(one.step) })}</span></span></td></tr>`;
  }

  // Removing old checkpoints, after listing them.
  pruning() {
    const { listed } = this;
    if (!listed) return html`<div class="row">${button('Remove old checkpoints', 'list', { kind: 'small', name: 'bin' })}</div>`;
    if (!listed.length) return html`<p class="minor faint">Nothing to remove: the newest, the best and the starred checkpoints are kept.</p>`;
    const size = bytes(listed.reduce((sum, one) => sum + one.bytes, 0));
    return html`<div class="row minor"><span><b>Steps ${listed.map(({ step }) => step.toLocaleString('en-US')).join(', ')}</b> will be removed, ${size}. They cannot be restored.</span>${
      button(`Remove ${count(listed.length, 'checkpoint')}`, 'prune', { kind: 'small danger', name: 'bin' })}${button('Keep them', 'keep', { kind: 'small quiet' })}</div>`;
  }

  async star(target) {
    const step = Number(target.dataset.value);
    const on = target.getAttribute('aria-pressed') === 'true';
    await this.act(on ? 'runs/unstar' : 'runs/star', { name: this.name, step }, { said: on ? `Step ${step} may be removed.` : `Step ${step} will be kept.`, undo: () => this.act(on ? 'runs/star' : 'runs/unstar', { name: this.name, step }) });
  }

  async list() {
    const { settings } = await page.transport.call('progress/settings', { name: this.name });
    this.keeping = settings.keep_checkpoints ?? 3;
    this.listed = await this.act('runs/to-prune', { name: this.name, keep: this.keeping });
  }

  keep() { this.listed = null; }

  async prune() {
    const wanted = this.listed.map(({ step }) => step);
    const now = await this.act('runs/to-prune', { name: this.name, keep: this.keeping });
    // Remove only what was listed.
    if (!now || now.some(({ step }) => !wanted.includes(step))) { this.listed = now; return; }
    const gone = await this.act('runs/prune', { name: this.name, keep: this.keeping }, { said: (found) => `${count(found.length, 'checkpoint')} removed, ${bytes(found.reduce((sum, one) => sum + one.bytes, 0))}.` });
    if (gone) this.listed = null;
  }

  async download(target) {
    const found = this.now.checkpoints.find(({ step }) => String(step) === target.dataset.value);
    await saveFile(found.file, `${this.name}-step-${found.step}.safetensors`);
  }
}
define('wb-run-checkpoints', RunCheckpoints);

// ---- settings

class RunSettingsTab extends RunTab {
  typed = '';

  needs() {
    return this.name ? { given: ['progress/settings', { name: this.name }, 'once'], settings: ['settings/show', { form: 'train' }, 'once'] } : {};
  }

  view() {
    if (!this.given || !this.settings || this.refused.given) return pending(this.refused.given, 'height:220px');
    const values = this.given.settings;
    const changed = (setting) => setting.name in values;
    const found = foundSettings(this.settings, this.typed).filter((setting) => !this.only || changed(setting));
    const differ = this.settings.filter(changed).length;
    return html`<div class="row"><input class="input" type="search" style="max-width:320px" placeholder="Find a setting: memory, flip, save_every" aria-label="Find a setting" value="${this.typed}" data-input="find"><label class="check"><input
      type="checkbox" data-change="turn" ?checked=${this.only}>Only the ${differ} that differ from the defaults</label><span class="spacer"></span>${linkTo('Copy to a new run', fromAddress(this.name), { name: 'plus' })}</div>
      <div class="key-values">${found.length ? found.map((setting) => html`<b data-id="name-${setting.name}" class="${changed(setting) && 'changed'}" title="${setting.help}">${setting.title}</b><span data-id="value-${setting.name}" class="${
  changed(setting) && 'changed'}">${valueInWords(setting, changed(setting) ? values[setting.name] : setting.default)}</span><span data-id="other-${setting.name}" class="faint fine mono" title="${setting.also && `Elsewhere: ${setting.also}`}">${setting.name}</span>`)
    : html`<span class="faint">No setting matches “${this.typed}”.</span>`}</div>${this.given.forks.length ? html`<p class="minor faint">Runs that continue this one: ${this.given.forks.map((name, index) => html`${index ? ', ' : ''}<a class="link" href="${
      address('train', name)}">${name}</a>`)}.</p>` : ''}`;
  }

  find(target) { this.typed = target.value; }
  turn(target) { this.only = target.checked; }
}
define('wb-run-settings', RunSettingsTab);

// ---- log and tracker

class RunLog extends RunTab {
  needs() { return this.name ? { log: ['progress/log', { name: this.name }] } : {}; }

  view() {
    const { log, now } = this;
    if (!log) return skeleton('height:220px');
    const { tracker } = now;
    return html`<pre class="log" tabindex="0" aria-label="Log">${log.tail || 'The log is empty.'}</pre><div class="row">${log.file ? button('Download the log', 'download', { kind: 'small', name: 'download' }) : ''}${
      now.target && html`<span class="faint minor">Trains on ${now.target}.</span>`}</div>${tracker ? html`<section class="section" aria-label="Tracker"><header><h2>Tracker</h2><span class="spacer"></span>${tracker.frame ? html`<a class="button small" href="${
      tracker.frame}" target="_blank" rel="noopener">${icon('link')}Open trackio</a>` : ''}</header>${tracker.text && html`<p class="minor faint">${tracker.text}</p>`}${
      tracker.frame ? html`<iframe class="tracker" src="${tracker.frame}" title="trackio" loading="lazy"></iframe>` : ''}</section>` : ''}`;
  }

  updated() {
    const box = this.querySelector('.log');
    if (!box || this.shown === this.log?.tail) return;
    // Keep the end in view if a person has scrolled there.
    if (this.shown === undefined || box.scrollTop + box.clientHeight > box.scrollHeight - 120) box.scrollTop = box.scrollHeight;
    this.shown = this.log?.tail;
  }

  async download() { await saveFile(this.log.file); }
}
define('wb-run-log', RunLog);

// ---- notes and group, saved while typing

class RunNotes extends RunTab {
  get draft() { return `notes of ${this.name}`; }
  get typed() { return drafts.read(this.draft); }

  view() {
    const { now, typed } = this;
    const known = [...new Set(this.runs.map(({ group }) => group).filter(Boolean))];
    return html`<div class="section" style="max-width:760px">${field('Notes', html`<textarea class="input" rows="6" name="notes" placeholder="What did you want to find out?" data-input="type">${typed.notes ?? this.kept?.[this.name] ?? now.own_notes}</textarea>`)}${
      field('Group', html`<input class="input" name="group" list="groups-of-runs" value="${typed.group ?? now.group}" autocomplete="off" data-change="regroup"><datalist id="groups-of-runs">${known.map((one) => html`<option value="${one}">`)}</datalist>`,
        'The list shows runs of a group together. Empty: no group.')}<p class="fine faint" role="status">${this.problem ? html`<span class="bad">${this.problem}</span>` : this.saving ? 'Saving…' : 'Saved as you type.'}</p></div>`;
  }

  type(target) {
    drafts.keep(this.draft, { notes: target.value });
    this.saving = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.save(target.value), KEPT_MS);
  }

  // Save what was typed just before a reload.
  arrived() { if (this.typed.notes !== undefined) this.save(this.typed.notes); }

  async save(text) {
    const { name, draft } = this;
    this.problem = '';
    // Do not replace the field's text, because a person may still be typing.
    if (await this.act('runs/note', { name, text }, { refused: (problem) => { this.problem = problem.message; } })) this.kept = { [name]: text };
    if (!this.problem && drafts.read(draft).notes === text) drafts.forget(draft);
    this.saving = false;
    this.redraw();
  }

  async regroup(target) {
    const before = this.now.group;
    await this.act('runs/group', { name: this.name, label: target.value }, { said: target.value ? `Moved to the group ${target.value}.` : 'Removed from the group.', undo: () => this.act('runs/group', { name: this.name, label: before }) });
  }
}
define('wb-run-notes', RunNotes);
