// Sample: describe a video, generate it, and continue from it. The form is a draft until it is cleared. Queue, result and history
// are in samples.js.

// Settings with their own place in the form. "More settings" has the others.
const SAMPLE_FIELDS = ['model', 'prompt', 'negative_prompt', 'loras', 'guidance_scale', 'steps', 'seed', 'frames', 'image', 'last_image', 'video', 'mask', 'continue_from', 'continue_to', 'control', 'reference', 'given_sound', 'given_video'];
const SLOTS = { image: ['First frame', 'image/*'], last_image: ['Last frame', 'image/*'], video: ['Video to change', 'video/*'], mask: ['Mask', 'video/*'],
  continue_from: ['Video to continue', 'video/*'], continue_to: ['Video that follows', 'video/*'], control: ['Control video', 'video/*'], reference: ['Reference', 'image/*,video/*'],
  given_sound: ['Sound to follow', 'audio/*,video/*'], given_video: ['Video to give a sound', 'video/*'] };
const OF_SCENE = /^scene (\d+)$/; // a scene's own last frame
const VIDEO_FILE = /\.(mp4|mov|webm|mkv|avi|gif)$/i;
const PICTURE_FILE = /\.(png|jpe?g|webp|bmp)$/i;
const SOUND_FILE = /\.(wav|mp3|flac|m4a|aac|ogg|aiff?)$/i;
const OWN_FILE = /\.(mp4|json|safetensors)$/i; // may hold settings

// Options for the size: the model's default first, as "", and the current one even if it is not listed.
function sizeOptions(sizes, width, height) {
  const texts = sizes.map(([wide, high]) => [`${wide}x${high}`, `${wide}×${high}`]);
  const own = texts.length ? [['', texts[0][1]], ...texts.slice(1)] : [['', "The model's default"]];
  const chosen = width || height ? `${width ?? sizes[0]?.[0] ?? '?'}x${height ?? sizes[0]?.[1] ?? '?'}` : '';
  const listed = chosen === '' || own.some(([value]) => value === chosen);
  return { options: listed ? own : [...own, [chosen, chosen.replace('x', '×')]], chosen };
}

// The scenes of a prompt, one per line, each with an optional last frame: "a door opens@@17 last=door.png".
const LAST = /(?:^|\s+)last=(.+?)(?=\s+(?:last|key)=|$)/;
const sceneLines = (prompt) => prompt.split('\n').filter((line) => line.trim()).map((line) => {
  const [text, own = ''] = line.split(/@@(.*)/);
  return { text: text.trim(), own, last: LAST.exec(own)?.[1] ?? '' };
});

// Set the last frame of a scene (counted from 0) in the prompt; "" removes it.
function withLast(prompt, number, file) {
  return sceneLines(prompt).map(({ text, own }, at) => {
    const all = at === number ? [own.replace(LAST, '').trim(), file && `last=${file}`].filter(Boolean).join(' ') : own.trim();
    return all ? `${text}@@${all}` : text;
  }).join('\n');
}

// Options for the number of frames, with seconds.
function lengthOptions(lengths, own, fps, frames) {
  const text = (number) => `${number} · ${(number / fps).toFixed(1)} s`;
  const others = lengths.filter((number) => number !== own).map((number) => [number, text(number)]);
  const more = frames && frames !== own && !lengths.includes(frames) ? [[frames, text(frames)]] : [];
  return [['', own ? text(own) : "The model's default"], ...others, ...more];
}

class Sample extends FillingElement {
  static properties = ['path', 'filling'];
  plan = null;
  submitted = drafts.read('sample requests').ids ?? [];
  needs() { return { library: ['loras/list', { checkpoints: true }, 'once'], batch: ['settings/show', { form: 'batch' }, 'once'] }; }

  // The id of the large sample; "" for the newest.
  get opened() { return /^\d/.test(this.path?.[0] ?? '') ? this.path[0] : ''; }
  get heading() { return 'Sample'; }

  born() {
    this.filling = new Filling('sample', { where: 'sample', beside: { videos: 1, each_line: false, scenes: false }, check: (filling) => this.look(filling) });
    this.ready = this.filling.load();
    this.handover = Promise.all([this.handover, this.handedOver()]);
    this.addEventListener('wb-fill', ({ detail }) => this.fill(detail));
    this.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.querySelector('[data-do=generate]').click(); }
    });
    this.addEventListener('drop', ({ target }) => { this.onto = target.closest?.('[data-slot]')?.dataset.slot ?? ''; }, true);
  }

  changed(name) {
    super.changed(name);
    if (name === 'path' && this.ready) this.handover = Promise.all([this.handover, this.handedOver()]);
  }

  // Fill the form from an address: '#/sample/with/runs%2Fhiker' with LoRAs, '#/sample/cell/GRID/KEY' with the settings of a
  // comparison's video, '#/sample/file/PATH' with the settings and inputs of a preview.
  async handedOver() {
    const [what, ...names] = this.path ?? [];
    const mark = JSON.stringify(this.path);
    if (!['with', 'cell', 'file'].includes(what) || this.handing === mark) return;
    this.handing = mark;
    await this.ready;
    window.location.replace(address('sample'));
    this.handing = '';
    if (what === 'with') {
      const known = await page.transport.call('settings/choices', { form: 'sample', name: 'model' }).catch(() => []);
      const loras = await page.transport.call('loras/list', { checkpoints: true }).catch(() => []);
      const model = loras.find(({ name }) => name === names[0])?.base_model;
      // Fill an empty prompt with the run's first preview prompt.
      const run = /^runs\/([^@]+)/.exec(names[0])?.[1];
      const watched = run && !this.filling.get('prompt') ? await page.transport.call('progress/previews', { name: run }).catch(() => null) : null;
      const prompt = watched?.rows[0]?.prompt;
      this.fill({ values: { loras: names, ...(known.some(({ value }) => value === model) ? { model } : {}), ...(prompt ? { prompt } : {}) }, message: `The form now uses ${names.length === 1 ? 'this LoRA' : 'these LoRAs'}.` });
    } else if (what === 'file') {
      const found = await this.act('samples/read-file', { file: names[0] });
      if (found) this.fill(found);
    } else {
      const found = await this.act('grids/details', { name: names[0], key: names[1] });
      if (found) this.fill({ values: found.settings, message: 'The form now has the settings of this video.' });
    }
  }

  async look(filling) {
    this.plan = await page.transport.call('samples/plan', { values: { ...filling.values, ...filling.beside } });
    filling.without = this.plan.without_effect; // even if values are missing, so that a model that needs a picture shows its slot
    return this.plan;
  }

  view() {
    const { filling, plan } = this;
    if (!filling?.settings.length) return html`<h1 tabindex="-1" class="unseen">Sample</h1>${skeleton('height:84px')}`;
    const { problems } = filling;
    const shown = [...SAMPLE_FIELDS, 'height', 'width', 'videos', 'each_line', 'scenes'];
    return html`<h1 tabindex="-1" class="unseen">Sample</h1>
      <div class="prompt-row"><label><span class="unseen">Prompt</span><textarea class="input" name="prompt" rows="2" maxlength="20000" placeholder="Describe a video"
        aria-keyshortcuts="Control+Enter" data-input="typed" ?aria-invalid=${problems.prompt}>${filling.get('prompt')}</textarea></label>${
        button(this.generateText(), 'generate', { kind: 'primary large', name: 'sample' })}</div>
      ${problems.prompt && alarm(problems.prompt)}
      ${plan?.lacking.length ? html`<p class="row minor"><span class="state warn">${icon('warn')}The prompt lacks ${plan.lacking.join(', ')}</span><span class="faint">that the LoRA was trained with.
        Without it the LoRA may have little effect.</span>${button(`Insert ${plan.lacking.join(', ')}`, 'insert', { kind: 'small' })}</p>` : ''}
      ${otherProblems(filling, shown)}
      <div class="sample-grid"><form class="section" data-submit="generate" aria-label="Settings">${this.form()}</form>
        <div class="section sample-right"><wb-queue data-id="queue" .submitted=${this.submitted}></wb-queue><wb-result data-id="result" .sample=${this.opened}></wb-result></div></div>
      <wb-sample-history data-id="history" .opened=${this.opened}></wb-sample-history>${this.adding && this.addDialog()}`;
  }

  generateText() {
    const { videos, seconds } = this.plan ?? {};
    return [videos > 1 ? `Generate ${videos}` : 'Generate', seconds && duration(seconds)].filter(Boolean).join(' · ');
  }

  updated() { this.modal(() => { this.adding = false; }); }

  // ---- the form

  form() {
    const { filling, plan } = this;
    const { problems } = filling;
    const off = new Set(filling.without);
    const setting = (name) => filling.setting(name);
    const { options, chosen } = sizeOptions(plan?.sizes ?? [], filling.get('width'), filling.get('height'));
    const lengths = lengthOptions(plan?.lengths ?? [], plan?.own.frames, plan?.fps ?? 8, filling.get('frames'));
    const others = filling.settings.filter(({ name }) => !SAMPLE_FIELDS.includes(name) && (!off.has(name) || filling.differs(name)));
    const negative = !off.has('negative_prompt');
    const slots = Object.keys(SLOTS).filter((name) => !off.has(name) || filling.get(name));
    return html`${field('Model', this.control(setting('model')), withTimes(sentence(plan?.model ?? '')), problems.model)}
      ${filling.adapted?.length ? html`<ul class="fine faint">${filling.adapted.map((note) => html`<li>${note}</li>`)}</ul>` : ''}
      ${this.loraStack()}
      <div class="two-columns">${settingField(filling, 'guidance_scale')}${settingField(filling, 'steps')}
        <div class="field"><span><label for="sample-seed">Seed</label>${filling.get('seed') === null ? '' : button('random', 'random', { kind: 'link fine' })}</span><input class="input" id="sample-seed"
          name="seed" value="${filling.get('seed') ?? ''}" placeholder="random" inputmode="numeric" autocomplete="off" data-input="typed" ?aria-invalid=${problems.seed}><span
          class="hint ${problems.seed && 'bad'}">${problems.seed}</span></div>
        ${field('Videos', html`<input class="input" type="number" min="1" max="100" name="videos" value="${filling.beside.videos}" data-input="noted">`, '', problems.videos)}
        ${field('Size', select(options, chosen, `data-change="size" ${off.has('width') ? 'disabled' : ''}`), '', problems.width ?? problems.height)}
        ${field('Frames', select(lengths, filling.get('frames') ?? '', 'name="frames" data-change="typed"'), '', problems.frames)}</div>
      <div class="slots" role="group" aria-label="Input pictures and videos">${slots.map((name) => this.slotOf(name, SLOTS[name][0], filling.get(name)))}</div>
      ${filling.beside.scenes && !off.has('last_image') ? html`<div class="slots" role="group" aria-label="Last frames of the scenes">${sceneLines(filling.get('prompt')).map(({ text, last }, at) => this.slotOf(`scene ${at}`, `Scene ${at + 1}: last frame`, last, text))}</div>` : ''}
      ${this.sending !== undefined && progress(this.sending, 'Uploading')}
      <details class="more-settings"><summary class="minor">${negative ? 'Negative prompt and ' : ''}${count(others.length + this.switches.length, negative ? 'more setting' : 'setting')}</summary>
        <div class="section">${negative && html`<label class="field"><span>Negative prompt</span><textarea class="input" name="negative_prompt" rows="2" data-input="negative">${
          filling.get('negative_prompt') ?? plan?.own.negative_prompt ?? ''}</textarea><span class="hint">${filling.differs('negative_prompt') ? 'Edited. Clear it for none.'
          : plan?.own.negative_prompt ? "The model's default." : ''}</span></label>`}
          ${this.switches.map(({ name, title, help }) => html`<div><label class="check"><input type="checkbox" name="${name}" data-change="noted"
            ?checked=${filling.beside[name]}>${title}</label><p class="fine faint">${help}</p>${problems[name] && html`<p class="fine bad" role="alert">${problems[name]}</p>`}</div>`)}
          ${others.map(({ name, help }) => settingField(filling, name, html`<span title="${help}">${help.split(/(?<=\.)\s/)[0]}</span>`))}</div></details>
      <div class="row">${button('Settings from a file', 'chooseFile', { kind: 'quiet small', name: 'upload', title: 'A video or LoRA made by the workbench, or its JSON. You can also drop it anywhere.' })}${
        button('Clear', 'clear', { kind: 'quiet small' })}</div>
      <wb-enhancer data-id="enhancer" .prompt=${filling.get('prompt')} .model=${filling.get('model')} .image=${filling.get('image')}></wb-enhancer>`;
  }

  // The switches of a batch.
  get switches() { return (this.batch ?? []).filter(({ kind }) => kind === 'switch'); }

  loraStack() {
    const { filling } = this;
    const problem = filling.problems.loras;
    const known = new Map((this.library ?? []).flatMap((one) => [[one.file, one], [one.name, one], [one.name.replace(/^runs\//, ''), one]]));
    return html`<section class="section lora-stack"><div class="row tight"><h3>LoRAs</h3><span class="spacer"></span>${button('Add', 'add', { kind: 'small quiet', name: 'plus' })}</div>
      ${this.loraLines((name) => known.get(name))}${problem ? html`<p class="fine bad" role="alert">${prose(problem)}</p>` : ''}</section>`;
  }

  slotOf(name, title, file, about = '') {
    const problem = this.filling.problems[name];
    return html`<div data-id="slot-${name}" data-slot="${name}" title="${about}">${file ? html`<div class="slot-filled">${video(file, title)}${
      button('', 'emptySlot', { kind: 'square small', name: 'close', label: `Remove: ${title}`, value: name })}<span class="fine one-line" title="${file}">${title}</span></div>`
      : dropSlot('fillSlot', html`<span class="fine">${title}</span>`, { value: name, name: 'plus' })}${
      problem ? html`<p class="fine bad" role="alert">${problem}</p>` : ''}</div>`;
  }

  addDialog() {
    const wanted = this.wanted ?? '';
    const taken = new Set(this.filling.get('loras').map((text) => lorasScale(text)[0]));
    const found = (this.filling.choices(this.filling.setting('loras')) ?? []).filter(({ title, value, group }) => !taken.has(value) && hasWords(`${title} ${value} ${group}`, wanted));
    let group = null;
    return sheet('add-lora', 'Add a LoRA', html`<input class="input" type="search" placeholder="Find, or enter a file's path or OWNER/NAME on the Hub" aria-label="Find a LoRA"
      value="${wanted}" data-input="find" autofocus><ul class="lora-choices">${found.slice(0, 200).map((one) => {
        const head = one.group !== group && html`<li class="fine faint">${one.group}</li>`;
        group = one.group;
        return html`${head}<li>${button(one.title, 'take', { kind: 'quiet', value: one.value })}</li>`;
      })}${/[/.]/.test(wanted) ? html`<li>${button(`Use ${wanted}`, 'take', { kind: 'quiet', value: wanted, name: 'plus' })}</li>` : ''}</ul>${
      !found.length && !wanted ? html`<p class="faint">No LoRAs yet. ${linkTo('Train one', address('train', 'new'), { kind: 'small' })}</p>` : ''}`);
  }

  // ---- handlers of fields

  noted(target) { this.filling.note(target.name, target.type === 'checkbox' ? target.checked : target.value === '' ? 1 : Number(target.value)); }
  random() { this.filling.reset('seed'); }

  size(target) {
    const [width, height] = target.value ? target.value.split('x').map(Number) : [null, null];
    this.filling.set('width', width);
    this.filling.set('height', height);
  }

  // The model's default is shown but counts as not set.
  negative(target) { this.filling.set('negative_prompt', target.value === (this.plan?.own.negative_prompt ?? '') ? null : target.value); }
  add() { this.adding = true; this.wanted = ''; this.filling.lists.clear(); this.reread('library'); }
  find(target) { this.wanted = target.value; }
  take(target) { this.filling.set('loras', [...this.filling.get('loras'), target.dataset.value]); this.close(); }
  insert() { this.filling.set('prompt', this.plan.with_words); }

  clear() {
    const undo = this.filling.backTo();
    this.filling.backTo({}, { videos: 1, each_line: false, scenes: false })();
    toast('Form cleared.', undo);
  }

  // ---- files

  fillSlot(target) {
    const name = target.dataset.value;
    chooseFiles(([file]) => this.putInto(name, file), { accept: SLOTS[name]?.[1] ?? 'image/*', multiple: false });
  }

  emptySlot({ dataset: { value: name } }) {
    const scene = OF_SCENE.exec(name);
    if (scene) this.filling.set('prompt', withLast(this.filling.get('prompt'), Number(scene[1]), '')); else this.filling.reset(name);
  }

  chooseFile() { chooseFiles((files) => this.dropped(files), { accept: '.mp4,.json,.safetensors', multiple: false }); }

  async send(file) {
    this.sending = 0;
    this.redraw();
    const paths = await attempt(() => page.transport.upload([file], (share) => { this.sending = share; this.redraw(); }));
    this.sending = undefined;
    this.redraw();
    return paths?.[0];
  }

  async putInto(name, file, sent = null) {
    const path = sent ?? await this.send(file), scene = OF_SCENE.exec(name);
    const kept = path && await this.act('samples/keep-file', { file: path, name: scene ? 'last_image' : name });
    if (kept && scene) this.filling.set('prompt', withLast(this.filling.get('prompt'), Number(scene[1]), kept.file));
    else if (kept) this.filling.fill({ [name]: kept.file, ...(name === 'video' ? { continue_from: '' } : name === 'continue_from' ? { video: '' } : {}) });
  }

  // A dropped file goes to the slot under it. Otherwise a video or LoRA made by the workbench fills the form, and others become inputs.
  async dropped([file]) {
    const { onto } = this;
    this.onto = '';
    if (onto) { this.putInto(onto, file); return; }
    if (PICTURE_FILE.test(file.name)) { this.putInto('image', file); return; }
    if (SOUND_FILE.test(file.name)) { this.putInto('given_sound', file); return; }
    if (!OWN_FILE.test(file.name) && !VIDEO_FILE.test(file.name)) {
      toast(`${file.name} is not a picture, video, sound or LoRA.`, null, 'bad');
      return;
    }
    const path = await this.send(file);
    if (!path) return;
    await this.act('samples/read-file', { file: path }, { refused: (problem) => {
      if (VIDEO_FILE.test(file.name)) this.putInto('video', file, path);
      else toast(problem.message, null, 'bad');
    } }).then((found) => found && this.fill(found));
  }

  // Fill the form with an operation's answer: {values, scenes, message}.
  fill({ values, scenes, message }) {
    const undo = this.filling.backTo();
    this.filling.fill(values);
    if (scenes) this.filling.note('scenes', true);
    else if ('prompt' in values && this.filling.beside.scenes) this.filling.note('scenes', false);
    toast(message, undo);
    this.querySelector('.prompt-row textarea').focus({ preventScroll: true });
    window.scrollTo({ top: 0, behavior: calm.matches ? 'instant' : 'smooth' });
  }

  // ---- generating

  async generate() {
    await this.handover; // wait until the address has filled the form
    const { filling } = this;
    const answer = await this.act('samples/request', { ...filling.single, ...filling.beside }, {
      refused: (problem) => {
        filling.refuse(problem, this);
        toast(problem.message, null, 'bad');
      },
    });
    if (!answer) return;
    this.submitted = [...this.submitted, answer.id, ...answer.more].slice(-60);
    drafts.keep('sample requests', { ids: this.submitted });
    say(`${count(1 + answer.more.length, 'video')} requested.`);
    if (this.opened) goTo('sample');
  }

  commands() { return [{ title: 'Generate a video', icon: 'sample', run: () => this.querySelector('[data-do=generate]').click() }]; }
}
define('wb-sample', Sample);

// ---- the prompt enhancer: a language model writes a long prompt, which a person can edit and use ----

const ENHANCER_FIELDS = ['enhancer', 'base_url', 'endpoint_model', 'local_model'];

class Enhancer extends FillingElement {
  static properties = ['filling', 'prompt', 'model', 'image'];
  needs() { return this.opened ? { now: ['samples/enhanced', {}] } : {}; }

  view() {
    const { filling, now } = this;
    return html`<details data-id="fold"><summary class="minor" data-do="unfold">Prompt enhancer</summary>${this.opened && html`<div class="section">
      <p class="fine faint">Video models follow long, detailed prompts better. Your language model expands a few words into one. Nothing is sent or used before you press a button.</p>
      ${filling?.settings.length ? html`${ENHANCER_FIELDS.map((name) => settingField(filling, name))}<details><summary class="minor">More settings</summary><div class="section">${
        filling.settings.filter(({ name }) => !ENHANCER_FIELDS.includes(name)).map(({ name }) => settingField(filling, name))}</div></details>${
        otherProblems(filling, filling.settings.map(({ name }) => name))}` : skeleton('height:120px')}
      <div class="row">${now?.going ? button('Stop', 'stop', { kind: 'small', name: 'stop' }) : button('Write a long prompt', 'write', { kind: 'small' })}</div>
      ${now?.going ? progress(null, now.message) : ''}${now?.message && html`<p class="fine ${now.going ? 'faint' : 'bad'}" role="status">${now.message}</p>`}
      ${now?.prompt && html`<label class="field"><span>Written prompt</span><textarea class="input" rows="6" data-input="edit">${now.prompt}</textarea><span class="hint">${
        now.limit ? `${now.tokens} of the ${now.limit} tokens that the video model reads.` : 'You can edit it.'}</span></label>
        <div class="row">${button('Use this prompt', 'use', { kind: 'small' })}${button('Back to the short prompt', 'back', { kind: 'small quiet' })}</div>`}</div>`}</details>`;
  }

  unfold() {
    if (this.opened) return;
    this.opened = true;
    page.transport.call('samples/enhanced').then(({ settings }) => {
      this.filling = new Filling('enhancer', { where: 'enhancer', start: settings, check: async () => ({ problems: {} }) });
      this.filling.load();
    });
  }

  edit(target) { this.text = target.value; }

  async write() {
    const { prompt, model, image } = this;
    this.text = undefined;
    await this.act('samples/enhance', { ...this.filling.single, prompt, model, image }, { refused: (problem) => this.filling.refuse(problem, this) });
  }

  async stop() { await this.act('samples/stop-enhancing', {}); }

  async use() {
    const found = await this.act('samples/use-enhanced', { text: this.text ?? this.now.prompt, prompt: this.prompt });
    if (found) this.dispatchEvent(new CustomEvent('wb-fill', { detail: found, bubbles: true }));
  }

  back() {
    const detail = { values: { prompt: this.now.short }, message: 'The form has the short prompt again.' };
    this.dispatchEvent(new CustomEvent('wb-fill', { detail, bubbles: true }));
  }
}
define('wb-enhancer', Enhancer);
