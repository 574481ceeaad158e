// One LoRA beside the library: verdict, facts and actions; and the dialog of an operation on LoRAs.

class OneLora extends WorkbenchElement {
  static properties = ['name'];
  needs() { return { lora: ['loras/show', { name: this.name }], formats: ['loras/formats', {}, 'once'] }; }

  view() {
    const { lora } = this;
    if (this.refused.lora) return html`<aside class="aside">${refusal(this.refused.lora)}<div>${linkTo('Show all LoRAs', address('loras'))}</div></aside>`;
    if (!lora) return html`<aside class="aside" aria-busy="true">${skeleton('height:28px')}${skeleton('aspect-ratio:3/2')}${skeleton('height:120px')}</aside>`;
    const starred = lora.marks.includes('starred');
    return html`<aside class="aside" aria-label="${lora.title}"><div class="row tight"><h2 class="one-line" title="${lora.title}">${lora.title}</h2><span class="spacer"></span>
      ${button('', 'star', { kind: 'quiet small square', name: 'star', pressed: starred, label: starred ? 'Starred: protected from removal' : 'Star: protected from removal' })}
      ${menu([['Move to the bin', 'toBin', '', 'bin']])}<a class="button quiet small square" href="#/loras" aria-label="Close" title="Close">${icon('close')}</a></div>
      ${lora.videos.length > 0 && html`<div class="lora-videos">${lora.videos.map((one) => html`<div data-id="${one.file}" title="${one.prompt}">${videoOf(lora, one, { clock: `lora ${lora.name}` })}</div>`)}</div>`}
      ${lora.verdict && html`<div>${verdictOf(lora, true)}</div>`}
      <p class="minor faint">${[lora.verdict?.evidence, lora.origin].filter(Boolean).map((text) => `${capital(text)}.`).join(' ')}</p>
      <div class="row">${linkTo('Sample', address('sample', 'with', lora.name), { kind: 'primary' })}${lora.run && linkTo('Open the run', address('train', lora.run))}${
        !lora.damaged && button('Download', 'download', { name: 'download' })}</div>
      ${this.facts(lora)}
      <ul>${!lora.damaged && html`<li data-id="programs"><div><b>For other programs</b></div><div class="row">${each(this.formats?.filter(({ id }) => lora.formats.includes(id)), ({ id, title, help }) => button(title.split(' (')[0], 'convert', { kind: 'small', value: id, title: `${title}: ${help}` }))}</div></li>
        <li data-id="check"><div><b>Is the file intact?</b></div><div class="row">${button('Check the file', 'check', { kind: 'small', title: 'Compare it with the test that it carries since its training' })}</div>${this.checking()}</li>
        <li data-id="make"><div><b>Merge, resize, fuse</b></div><div class="row">${button('Merge with…', 'begin', { kind: 'small', value: 'merge' })}${
        button('Resize…', 'begin', { kind: 'small', value: 'resize' })}${button('Fuse into the model…', 'begin', { kind: 'small', value: 'fuse' })}${
        button('What survives fusing?', 'begin', { kind: 'small', value: 'survives', title: 'How much of it is left in a model of bf16, fp8 or nf4 weights' })}</div></li>
        <li data-id="repair"><div><b>Does it change other prompts?</b></div><div class="row">${button('Repair…', 'begin', { kind: 'small', value: 'repair', title: 'Train it to keep its effect and leave other prompts alone' })}</div></li>
        <li data-id="publish"><div><b>Publish to the Hub</b></div><wb-publish .name=${lora.name}></wb-publish></li>`}</ul></aside>`;
  }

  facts(lora) {
    const rows = [
      ['Trigger word', lora.trigger], ['Model', lora.model_title || 'unknown'], ['Rank', lora.rank > 0 && lora.strength], ['Steps', lora.steps?.toLocaleString('en-US')], ['Size', bytes(lora.bytes)],
      ['Created', ago(lora.created)], ...lora.fit, ...lora.made_of.map((one) => ['Made of', `${one.weight} × ${one.name}${one.blocks}`]),
      ['On the Hub', lora.published && html`<a class="link" href="${lora.published}" target="_blank" rel="noopener">${lora.published.replace(/^https?:\/\//, '')}</a>`], ['Name', html`<span class="mono">${lora.name}</span>`],
    ];
    return html`<div class="lora-facts">${rows.filter(([, value]) => value).map(([label, value]) => html`<span>${label}</span><span>${value}</span>`)}</div>
      ${lora.repair && html`<details data-id="repair"><summary class="minor">What the repair changed</summary><wb-repair data-id="found" .found=${lora.repair}></wb-repair></details>`}
      ${Object.keys(lora.metadata).length > 0 && html`<details><summary class="minor">In the file's metadata</summary><div class="lora-facts mono fine">${
      Object.entries(lora.metadata).map(([key, text]) => html`<span>${key}</span><span>${text}</span>`)}</div></details>`}`;
  }

  // The verdict on the file, once a person asked for it.
  checking() {
    const { name, found } = this.checked ?? {};
    if (name !== this.name) return '';
    if (!found) return html`<p class="minor faint" role="status">Checking…</p>`;
    const tone = found.good ? 'good' : found.code === 'no test' ? '' : 'bad';
    return html`<p class="minor ${tone}" role="status">${capital(found.sentence)}.</p>${found.details.map((text) => html`<p class="minor faint">${text}.</p>`)}`;
  }

  async check() {
    const { name } = this;
    this.checked = { name };
    const found = await this.act('loras/check', { lora: name });
    this.checked = found && { name, found };
  }

  star() { return this.act('loras/star', { name: this.name, off: this.lora.marks.includes('starred') }); }

  async toBin() {
    if (this.lora.keeps) toast(`${this.lora.title} ${this.lora.keeps}.`, null, 'bad');
    else if (await removeLoras(this, [this.name])) goTo('loras');
  }

  download() { return saveFile(this.lora.file, `${this.lora.title.replace(/[^\w.-]+/g, '-')}.safetensors`); }

  convert(target) {
    const format = this.formats.find(({ id }) => id === target.dataset.value);
    return this.act('loras/convert', { lora: this.name, format: format.id }, { said: `Converting for ${format.title}. The file to download appears above.` });
  }

  begin(target) { this.closest('wb-loras').querySelector('wb-lora-task').begin(target.dataset.value, [this.name]); }
}
define('wb-lora', OneLora);

// ---- the dialog of an operation, the bin or a cleanup

// kind -> title, form and text of its button;  of: the setting that takes the chosen LoRAs
const LORA_TASKS = {
  import: { title: 'Import a LoRA', form: 'lora-import', go: 'Import' },
  extract: { title: 'Extract a LoRA from a fine-tuned model', form: 'extract', go: 'Extract' },
  merge: { title: 'Merge LoRAs', form: 'merge', go: 'Merge', of: 'loras' },
  resize: { title: 'Resize a LoRA', form: 'resize', go: 'Resize', of: 'lora' },
  fuse: { title: 'Fuse into the model', form: 'fuse', go: 'Fuse', of: 'loras' },
  repair: { title: 'Repair', form: 'repair', go: 'Repair', of: 'lora' },
  survives: { title: 'What survives fusing', form: 'survives', go: 'Measure', of: 'loras' },
  convert: { title: 'Convert for another program', form: 'convert', go: 'Convert', of: 'lora' },
  clean: { title: 'Clean up', form: 'lora-cleanup' },
  bin: { title: 'Bin' },
};

class LoraTask extends FillingElement {
  static properties = ['filling'];
  names = [];

  // Watch only what is open.
  needs() {
    if (this.kind === 'bin') return { bin: ['loras/bin', {}] };
    return this.kind === 'convert' ? { formats: ['loras/formats', {}, 'once'] } : {};
  }

  begin(kind, names) {
    const { form, of } = LORA_TASKS[kind];
    Object.assign(this, { kind, names, found: undefined, sure: false });
    // Several LoRAs are converted one by one.
    this.each = kind === 'convert' && names.length > 1;
    const value = of === 'loras' ? names.map((name) => `${name}=1`) : names[0];
    const start = of && names.length && !this.each ? { [of]: value } : {};
    this.filling = form ? new Filling(form, { where: `loras ${kind}`, check: kind === 'clean' ? (filling) => this.look(filling) : null }) : null;
    this.filling?.load().then((filling) => filling.fill(start));
    this.follow();
    this.draw();
  }

  updated() { this.modal(() => { this.kind = ''; }); }

  view() {
    if (!this.kind) return html``;
    return sheet('', LORA_TASKS[this.kind].title, this.kind === 'bin' ? this.removed() : this.fields(), { submit: this.kind === 'clean' ? 'clean' : 'start' });
  }

  fields() {
    const { filling, kind } = this;
    const shown = filling.settings.filter(({ name }) => !(this.each && ['lora', 'low_noise', 'target'].includes(name)));
    const part = (list) => list.map(({ name, help }) => (name === 'loras' ? this.weights() : settingField(filling, name, help)));
    const rare = shown.filter(({ advanced }) => advanced);
    const format = this.formats?.find(({ id }) => id === filling.get('format'));
    return html`${kind === 'import' ? html`<button type="button" class="dropzone" data-do="choose">${icon('upload')}<strong>Choose a file</strong><span class="faint">.safetensors, or a PyTorch checkpoint (.pt, .bin, .ckpt). You can also drop it anywhere on this page.</span></button>` : ''}
      ${this.each && html`<p class="minor">${this.names.join(', ')}</p>`}
      <div class="task-fields">${part(shown.filter(({ advanced }) => !advanced))}</div>${format && html`<p class="minor faint">${format.help}</p>`}
      ${rare.length > 0 && html`<details><summary class="minor">More</summary><div class="task-fields">${part(rare)}</div></details>`}
      ${otherProblems(filling, shown.map(({ name }) => name))}${kind === 'clean' ? this.cleaning() : html`<div class="row"><span class="spacer"></span><button class="button primary" ?disabled=${this.busy}>${
      LORA_TASKS[kind].go}${this.each && ` ${count(this.names.length, 'LoRA')}`}</button></div>`}`;
  }

  // LoRAs with their weights.
  weights() {
    const { filling } = this;
    const setting = filling.setting('loras');
    const taken = new Set(filling.get('loras').map((text) => lorasScale(text)[0]));
    const others = (filling.choices(setting) ?? []).filter(({ value }) => !taken.has(value));
    return html`<div class="field"><span title="${setting.help}">${setting.title}</span>${this.loraLines(() => null)}${select([['', 'Add…'], ...others.map(({ value, title }) => [value, title]), [OTHER, 'A file…']], '', 'name="loras" data-change="adds" aria-label="Add a LoRA"')}<span
      class="hint ${filling.problems.loras && 'bad'}">${prose(filling.problems.loras ?? 'One weight each.')}</span></div>`;
  }

  async adds(target) {
    if (target.value !== OTHER) { this.added(target); return; }
    target.value = '';
    const file = await ask('Add a LoRA', 'A .safetensors file on this machine', { does: 'Add' });
    if (file) this.filling.set('loras', [...this.filling.get('loras'), file]);
  }

  async start() {
    if (this.busy) return;
    this.busy = true;
    const given = this.each ? this.names.map((lora) => ({ ...this.filling.single, lora })) : [this.filling.single];
    const refused = (problem) => this.filling.refuse(problem, this);
    let done = true;
    for (const values of given) done = done && await this.act(`loras/${this.kind}`, values, { refused });
    if (done) { this.filling.forget(); this.close(); this.closest('wb-loras').scrollIntoView(); }
    this.busy = false;
  }

  // Import a file of this computer at once, with the settings of the form.
  choose() {
    chooseFiles((files) => {
      this.close();
      this.closest('wb-loras').dropped(files, this.filling.single);
    }, { accept: '.safetensors,.pt,.bin,.ckpt' });
  }

  // ---- a cleanup, with a list of what it would remove

  async look(filling) {
    this.found = undefined;
    this.found = await page.transport.call('loras/to-clean', filling.values);
    return { problems: {} };
  }

  cleaning() {
    if (!this.found) return skeleton('height:60px');
    if (!this.found.length) return html`<p class="minor faint">Nothing to remove: every LoRA is new, starred, best, published, or from an active run.</p>`;
    const size = this.found.reduce((sum, one) => sum + one.bytes, 0);
    return html`<div class="plan-files"><table class="table"><tbody>${this.found.map((one) => html`<tr><td>${one.name}</td><td class="right">${bytes(one.bytes)}</td></tr>`)}</tbody></table></div>
      <div class="row"><span class="spacer"></span><button class="button primary">Move ${this.found.length} to the bin · ${bytes(size)}</button></div>`;
  }

  async clean() {
    if (!this.found?.length) return;
    if (await removeLoras(this, this.found.map(({ name }) => name))) {
      this.close();
      this.closest('wb-loras').reread('cleanup');
    }
  }

  // ---- the bin

  removed() {
    if (!this.bin || this.refused.bin) return pending(this.refused.bin, 'height:120px');
    if (!this.bin.length) return html`<p class="faint">The bin is empty.</p>`;
    const size = this.bin.reduce((sum, one) => sum + one.bytes, 0);
    return html`<div class="plan-files"><table class="table"><tbody>${this.bin.map((one) => html`<tr data-id="${one.id}"><td>${one.title}</td><td>${ago(one.time)}</td><td class="right">${bytes(one.bytes)}</td><td class="right">${
      button('Restore', 'restore', { kind: 'small', value: one.id })}</td></tr>`)}</tbody></table></div>
      <div class="row"><span class="spacer"></span>${this.sure ? html`<span class="minor">This cannot be undone.</span>${button(`Delete ${count(this.bin.length, 'LoRA')} for good`, 'emptyBin', { kind: 'danger' })}`
      : button(`Empty the bin · ${bytes(size)}`, 'ask', { kind: 'danger' })}</div>`;
  }

  restore(target) { return this.act('loras/restore', { id: target.dataset.value }, { said: (lora) => `${lora.title} restored.` }); }
  ask() { this.sure = true; }

  async emptyBin() {
    await this.act('loras/empty-bin', {}, { said: ({ bytes: freed }) => `${bytes(freed)} freed.` });
    this.sure = false;
  }
}
define('wb-lora-task', LoraTask);
