// One clip: its video, the part and crop taken from its source video, its caption, and its model input.

// Limit a part to the frames of its source video, and to at least one frame.
function boundedPart({ start, end }, frames) {
  const from = Math.max(0, Math.min(Math.round(start), frames - 1));
  return { start: from, end: Math.max(from + 1, Math.min(Math.round(end), frames)) };
}

// The outline of a waveform, mirrored at 100: levels go from 0 to 100.
const wavePath = (levels) => `M0 100${levels.map((level, at) => `L${at + 0.5} ${99 - level}`).join('')}L${levels.length} 100${levels.map((level, at) => `L${at + 0.5} ${101 + level}`).reverse().join('')}Z`;

const CUTTING_KEYS = [['I O', 'start, end at the playhead'], ['M', 'mark a cut'], ['[ ]', 'previous, next mark'], ['+ -', 'zoom the strip']];
const CLOSEST = 24; // fewest frames that the strip shows

// The range of a strip that shows `wanted` of `frames` frames, centered on `frame` if possible.
function zoomed(frame, wanted, frames) {
  const many = Math.min(frames, Math.max(CLOSEST, Math.round(wanted)));
  const from = Math.max(0, Math.min(Math.round(frame - many / 2), frames - many));
  return { from, to: from + many };
}

// The base of a clip's page and its mask's. A subclass has `clock`, the name of the clock that its videos follow, `footage`, which
// has `frames` and `fps` of these videos, and tick().
class PlayedClip extends WorkbenchElement {
  static properties = ['path'];
  get name() { return this.path?.[0] ?? ''; }
  get clipId() { return this.path?.[2] ?? ''; }
  get of() { return { name: this.name, clip: this.clipId }; }

  get frame() { return Math.max(0, Math.min(this.footage.frames - 1, Math.floor(Clock.named(this.clock).time * this.footage.fps + 0.001))); }

  stopAt(frame) {
    const clock = Clock.named(this.clock);
    if (clock.playing) clock.play(false);
    clock.seek((Math.max(0, Math.min(frame, this.footage.frames - 1)) + 0.5) / this.footage.fps);
  }

  // Shown in place of a clip that is not there yet, or not at all.
  unready(problem, title) {
    const { name } = this;
    if (problem) return absent('Clip not found', problem, linkTo(`Back to ${name}`, address('dataset', name), { kind: 'primary' }));
    return html`<div class="head">${crumbs(address('dataset', name), name, title)}</div>${skeleton('aspect-ratio:3/2;max-width:640px')}`;
  }

  // Links to the clips before and after it. more: the rest of their address
  neighbors({ previous, next }, ...more) {
    return [[previous, 'left', 'Previous clip'], [next, 'right', 'Next clip']].map(([id, picture, label]) => (id ? linkTo('', address('dataset', this.name, 'clip', id, ...more), { kind: 'square', name: picture, label })
      : button('', 'stay', { kind: 'square', name: picture, label, off: true })));
  }

  // Call tick() whenever the clock moves. Returns whether this is another clock than before.
  followClock() {
    const clock = Clock.named(this.clock);
    if (this.clockOf === clock) return false;
    PlayedClip.prototype.left.call(this);
    this.clockOf = clock;
    this.ticked = () => this.tick();
    clock.listeners.add(this.ticked);
    return true;
  }

  left() { this.clockOf?.listeners.delete(this.ticked); this.clockOf = null; }
}

class ClipPage extends PlayedClip {
  static listens = { 'pointerdown': 'grab', 'caption-done': 'toNextCaption' };
  threshold = 2; // of a cut: factor by which a frame must differ more than its neighbors
  get heading() { return this.clip?.name ?? 'Clip'; }

  // The draft that holds a part and a crop until they are applied.
  get where() { return `cut ${this.name} ${this.clipId}`; }
  keep() { drafts.keep(this.where, { part: this.chosenPart, box: this.box, cuts: this.cuts }); this.redraw(); }
  get clock() { return `clip ${this.clipId}`; }
  get footage() { return this.source; }
  get shape() { return preferences.read(`shape ${this.name}`, preferences.read('shape', { model: '', frames: null })); }

  needs() {
    const { of } = this;
    const all = { clip: ['clips/view', { ...of, ...this.shape }] };
    if (this.clip?.cuttable && this.clip.id === this.clipId) all.source = ['clips/source', of, 'once'];
    if (this.asked?.clip === this.clipId) all.back = ['clips/reconstruction', { id: this.asked.id }];
    return all;
  }

  changed(name) {
    if (name !== 'path') return;
    const { part = null, box, cuts = null } = drafts.read(this.where);
    this.chosenPart = part;
    this.box = box;
    this.cropping = box !== undefined;
    this.cuts = cuts; // in seconds, found or marked by hand
    this.searched = this.shown = this.played = null;
  }

  view() {
    const { name, clip } = this;
    if (!clip || this.refused.clip) return this.unready(this.refused.clip, 'Clip');
    if (clip.id !== this.clipId) { queueMicrotask(() => this.open(clip.id, true)); return html``; }
    return html`<div class="head">${crumbs(address('dataset', name), name, clip.name)}<span class="faint minor tight">${
      clip.number.toLocaleString('en-US')} of ${clip.of.toLocaleString('en-US')}</span><div class="actions">${this.neighbors(clip)}${clip.cuttable ? linkTo('Paint a mask', address('dataset', name, 'clip', clip.id, 'mask'), { name: 'brush' }) : ''}${menu([
      ['Remove this clip', 'toBin', '', 'bin', 'danger']])}</div></div>
      <div class="split"><div class="section">${clip.cuttable && this.source ? this.cutter(clip, this.source) : this.still(clip)}${this.input(clip)}${clip.latents_model ? '' : html`<wb-pairs data-id="pairs" .datasetName=${name} .clipId=${clip.id}></wb-pairs>`}</div>${this.aside(clip)}</div>`;
  }

  still(clip) {
    if (clip.latents_model) return html`<p class="faint">Latents of ${clip.latents_model}, which go to the model unchanged. There is no video to watch.</p>`;
    if (clip.cuttable && !this.refused.source) return skeleton('aspect-ratio:3/2;max-width:640px');
    return html`<div class="cutter" style="max-width:min(1280px, calc((100vh - 200px) * ${(clip.width / clip.height).toFixed(3)}))">${video(clip.file, clip.name, { width: clip.width, height: clip.height })}</div>${this.refused.source && clip.cuttable ? refusal(this.refused.source) : ''}`;
  }

  // ---- cutting

  get span() { return this.chosenPart ?? { start: this.source.start, end: this.source.end }; }
  get crop() { return this.box === undefined ? this.source.crop : this.box; }
  get shownCrop() { return this.crop ?? [0, 0, this.source.width, this.source.height]; }

  get cutAnew() {
    const { source, span, crop } = this;
    return span.start !== source.start || span.end !== source.end || JSON.stringify(crop) !== JSON.stringify(source.crop);
  }

  cutter(clip, source) {
    const { start, end } = this.span;
    const { crop } = this;
    const { from, to } = this.strip;
    const share = (frame) => `${((100 * (frame - from)) / (to - from)).toFixed(3)}%`;
    const used = `frames ${start + 1} to ${end}, ${((end - start) / source.fps).toFixed(1)} s`;
    return html`<div class="section cutter" style="max-width:min(1280px, calc((100vh - 330px) * ${(source.width / source.height).toFixed(3)}))"><div class="stage" style="--aspect:${source.width}/${source.height}">${video(source.file, clip.name, { clock: this.clock, width: source.width, height: source.height })}${
      this.cropping || crop ? cropBox(this.shownCrop, source, this.cropping) : ''}</div>
      <div class="film ${source.waveform.length && 'heard'}" data-do="jump"><div class="reel" style="left:${share(0)};width:${((100 * source.frames) / (to - from)).toFixed(3)}%">${video(source.strip, 'Frames of the source video')}</div>${source.waveform.length ? html`<svg class="reel wave" style="left:${share(0)};width:${((100 * source.frames) / (to - from)).toFixed(3)}%" viewBox="0 0 ${source.waveform.length} 200" preserveAspectRatio="none" role="img"
      aria-label="Loudness of the source video"><path d="${wavePath(source.waveform)}"/></svg>` : ''}<span class="out" style="left:0;width:${share(Math.max(start, from))}"></span><span class="out" style="right:0;left:${share(end)}"></span>${
  source.taken.map(([first, last]) => html`<span class="taken" title="Already a clip" style="left:${share(first)};width:${share(from + last - first)}"></span>`)}${(this.cuts ?? []).map((second) => html`<span class="mark" style="left:${share(second * source.fps)}"></span>`)}<span
      class="chosen" style="left:${share(start)};right:calc(100% - ${share(end)})"></span><span class="playhead"></span></div>
      <div class="dual"><label><span class="unseen">Start</span><input type="range" min="${from}" max="${to}" value="${start}" name="start" data-input="trim" aria-valuetext="Starts at frame ${start + 1}"></label><label><span class="unseen">End</span><input
      type="range" min="${from}" max="${to}" value="${end}" name="end" data-input="trim" aria-valuetext="Ends at frame ${end}"></label></div>
      <wb-scrubber data-id="scrub-${this.clipId}" .clock=${this.clock} .frames=${source.frames} .speeds=${true}></wb-scrubber></div>
      <div class="row minor"><span class="faint">Used part</span><b>${used}</b><span class="faint">of ${source.frames}</span>${this.cutAnew ? html`${button('Discard changes', 'forget', { kind: 'small quiet' })}${button(
  `Keep ${start === source.start && end === source.end ? 'this part of the picture' : `${count(end - start, 'frame')}`}`, 'apply', { kind: 'small primary' })}` : ''}${source.frames > CLOSEST ? html`<span class="row tight"><span class="faint">Zoom</span>${button('−', 'zoom', { kind: 'square small', value: 2, label: 'Show more of the strip' })}${
  button('', 'zoom', { kind: 'square small', name: 'plus', value: 0.5, label: 'Show less of the strip, larger' })}</span>` : ''}</div>
      <div class="row">${button('Split here', 'splitHere', { kind: 'small' })}${button('Mark a cut', 'mark', { kind: 'small', title: 'Mark or unmark the frame at the playhead' })}${this.cuts?.length ? button(`Split at ${count(this.cuts.length, 'cut')}`, 'splitAtCuts', { kind: 'small' }) : button('Find cuts', 'findCuts', { kind: 'small' })}${
  this.searched ? html`<label class="row tight faint">Sensitivity<input type="range" class="sensitivity" min="1.2" max="10" step="0.1" value="${this.threshold}" data-change="sensitivity" title="Lower finds more cuts" aria-label="Sensitivity: lower finds more cuts"></label>` : ''}${
  button('Crop', 'startCrop', { kind: 'small', name: 'crop', pressed: Boolean(this.cropping) })}${button('Crop black bars', 'bars', { kind: 'small' })}${source.crop ? button('Whole picture', 'uncrop', { kind: 'small' }) : ''}<form class="row tight" data-submit="rate"><input class="input rate" name="fps"
  inputmode="decimal" placeholder="${Number(clip.fps.toFixed(2))} fps" aria-label="Frames per second"><button class="button small">Set frame rate</button></form>${clip.cut ? button('Reset', 'reset', { kind: 'small quiet' }) : ''}</div>
      ${this.cropping ? this.cropNumbers(source) : ''}`;
  }

  cropNumbers(source) {
    const box = this.shownCrop;
    return html`<div class="row crop-numbers">${['Left', 'Top', 'Width', 'Height'].map((title, index) => html`<label class="field"><span>${title}</span><input class="input" type="number" step="2" min="0" max="${index % 2 ? source.height : source.width}" name="${index}" value="${box[index]}" data-change="number"></label>`)}<span class="fine faint">Drag the corners, or enter pixels of the ${source.width}×${source.height} source.</span></div>`;
  }

  updated() {
    if (!this.source || this.clip?.id !== this.clipId) return;
    this.followClock();
    for (const one of this.querySelectorAll('.dual input')) one.value = this.span[one.name]; // its value may be outside the strip
    this.tick();
  }

  // The playhead follows the video, which loops over the used part.
  tick() {
    const { clockOf: clock, source } = this;
    const head = this.querySelector('.playhead');
    if (!head || !source || !clock) return;
    const frame = clock.time * source.fps, { start, end } = this.span;
    const { from, to } = this.strip;
    head.style.left = `${((100 * (Math.min(source.frames, frame) - from)) / (to - from)).toFixed(2)}%`;
    if (clock.playing && clock.duration && (frame >= end - 0.01 || frame < start - 1)) clock.seek((start + 0.5) / source.fps);
  }

  jump(target, event) {
    const edge = target.getBoundingClientRect();
    const { from, to } = this.strip;
    this.stopAt(from + Math.floor(((event.clientX - edge.left) / edge.width) * (to - from)));
  }

  // ---- the strip: its range, and marks for splitting the clip

  get strip() { return this.shown ?? { from: 0, to: this.source.frames }; }
  get marks() { return (this.cuts ?? []).map((second) => Math.round(second * this.source.fps)); }
  zoom(target) { this.zoomBy(Number(target.dataset.value)); }

  zoomBy(factor) {
    const { from, to } = this.strip;
    this.shown = zoomed(this.frame, (to - from) * factor, this.source.frames);
  }

  mark() {
    const { frame, marks } = this;
    if (!frame) return;
    const frames = marks.includes(frame) ? marks.filter((one) => one !== frame) : [...marks, frame].sort((one, other) => one - other);
    this.cuts = frames.map((one) => one / this.source.fps);
    this.keep();
  }

  // Go to the previous or next mark, or to an end.
  toMark(by) {
    const { frame, marks, source: { frames } } = this;
    const there = by < 0 ? Math.max(0, ...marks.filter((one) => one < frame)) : Math.min(frames - 1, ...marks.filter((one) => one > frame));
    this.stopAt(there);
    const { from, to } = this.strip;
    if (there < from || there >= to) this.shown = zoomed(there, to - from, frames);
  }

  trim(target) {
    const span = { ...this.span, [target.name]: Number(target.value) };
    if (target.name === 'start') span.start = Math.min(span.start, span.end - 1); else span.end = Math.max(span.end, span.start + 1);
    target.value = span[target.name];
    this.setPart(span);
    this.stopAt(target.name === 'start' ? span.start : span.end - 1);
  }

  setPart(span) { this.chosenPart = boundedPart(span, this.source.frames); this.keep(); }
  forget() { drafts.forget(this.where); this.chosenPart = null; this.box = undefined; this.cropping = false; }
  startCrop() { this.cropping = !this.cropping; }

  number(target) {
    this.box = this.shownCrop.with(Number(target.name), Number(target.value));
    this.keep();
  }

  grab(event) {
    dragCorner(event, this.querySelector('.stage'), this.source, () => this.shownCrop, (box) => { this.box = box; this.keep(); });
  }

  // ---- changing the clip. A clip that is cut gets a new id.

  open(id, instead = false) {
    const to = address('dataset', this.name, 'clip', id);
    if (instead) window.location.replace(to); else window.location.hash = to;
  }

  toNextCaption() { if (this.clip.missing) this.open(this.clip.missing); else toast('Every clip has a caption.'); }

  async recut(operation, values, said) {
    const { name, clipId: id } = this;
    const made = await changeDataset(operation, { ...this.of, ...values }, typeof said === 'string' ? () => said : said, () => window.location.replace(address('dataset', name, 'clip', id)));
    const one = Array.isArray(made) ? made[0] : made;
    if (one) { this.forget(); this.cuts = null; if (one.id === this.clipId) this.reread('source'); else this.open(one.id, true); }
  }

  apply() {
    const { start, end } = this.span;
    return this.recut('clips/recut', { start, end, crop: this.crop }, (made) => `The clip now has ${made.frames} frames of ${made.width}×${made.height}.`);
  }

  splitHere() { return this.recut('clips/split-at', { seconds: [this.frame / this.source.fps] }, (made) => `Split into ${made.length} clips.`); }
  splitAtCuts() { return this.recut('clips/split-at', { seconds: this.cuts }, (made) => `Split into ${made.length} clips.`); }
  sensitivity(target) { this.threshold = Number(target.value); return this.findCuts(); }

  async findCuts() {
    const found = await this.act('clips/find-cuts', { ...this.of, threshold: this.threshold }, { said: ({ seconds }) => (seconds.length ? '' : 'No cuts found: the clip is a single shot.') });
    this.cuts = found?.seconds ?? null;
    this.searched = true;
    this.keep();
  }

  bars() { return this.recut('clips/crop-bars', {}, 'Black bars cropped.'); }
  uncrop() { return this.recut('clips/uncrop', {}, 'Crop removed.'); }

  reset() {
    const { name, clipId: id } = this;
    return this.recut('clips/reset-cut', { name, clip: undefined, clips: [id] }, 'Reset to the whole source video.');
  }

  rate(form) {
    const fps = form.fps.value.trim(), { name, clipId: id } = this;
    return this.recut('clips/set-fps', { name, clip: undefined, clips: [id], fps: fps ? Number(fps) : null }, fps ? `The clip now has ${fps} frames per second.` : 'The clip has all frames of its source again.');
  }

  async toBin() {
    const { name, clip } = this;
    const done = await changeDataset('clips/remove-clips', { name, clips: [clip.id] }, () => `${clip.name} removed.`, () => window.location.replace(address('dataset', name, 'clip', clip.id)));
    if (!done) return;
    if (clip.next || clip.previous) this.open(clip.next || clip.previous, true); else window.location.replace(address('dataset', name));
  }

  // ---- model input

  input(clip) {
    if (!this.shape.model) return html`<p class="fine faint">Choose a model in the <a class="link" href="${address('dataset', this.name)}">dataset</a> to see its input from this clip.</p>`;
    return html`<section class="section"><header><h2>Model input</h2><span class="minor faint">${[clip.plan, clip.use].filter(Boolean).join('; ')}</span></header>
      ${clip.warnings.map((text) => warning(text))}
      <div class="row">${button('Play the model input', 'play', { kind: 'small', name: 'play', off: clip.plan.startsWith('left out') })}${button('Play it through the VAE', 'reconstruct', { kind: 'small', off: clip.plan.startsWith('left out') })}</div>
      ${this.played ? html`<figure class="beside">${video(this.played.file, 'The model input')}<figcaption class="minor faint">Exactly the model input: ${this.played.sentence}</figcaption></figure>` : ''}${this.reconstruction()}</section>`;
  }

  reconstruction() {
    const { back } = this;
    if (this.asked?.clip !== this.clipId) return '';
    if (!back || !back.message && !back.beside) return html`<div class="task" role="status">${progress(null, 'VAE reconstruction')}<span class="minor">The VAE is encoding and decoding the clip.</span></div>`;
    if (!back.beside) return alarm(back.message);
    return html`<figure class="beside">${video(back.beside, 'The model input and the VAE reconstruction')}<figcaption class="minor faint">Left: the model input. Right: the VAE reconstruction, ${back.psnr.toFixed(1)} dB, worst frame ${back.psnr_worst.toFixed(1)} dB.</figcaption></figure>`;
  }

  get wanted() { return Object.fromEntries(Object.entries(this.shape).filter(([, value]) => value)); }

  async play() { this.played = await this.act('clips/planned', { ...this.of, ...this.wanted }); }

  async reconstruct() {
    const asked = await this.act('clips/reconstruct', { ...this.of, ...this.wanted });
    if (!asked) return;
    this.asked = { clip: this.clipId, id: asked.id };
  }

  // ---- the sidebar

  aside(clip) {
    const written = { '': '', hand: 'written by hand', file: 'came with the file' }[clip.caption_by] ?? `written by ${clip.caption_by}`;
    return html`<aside class="aside"><div class="field"><span>Caption${written && html` <span class="faint">${written}</span>`}</span><wb-caption data-id="caption-${clip.id}" .datasetName=${this.name} .clip=${clip} .rows=${6}></wb-caption>${
      clip.trigger_word && !clip.caption.includes(clip.trigger_word) ? html`<span class="hint">Trained as “${clip.trigger_word} ...”</span>` : ''}</div>
      <div class="row">${button('Write it with a model', 'writeIt', { kind: 'small' })}</div>${clip.caption.trim() || clip.marks.includes('No caption') ? '' : state('warn', 'No caption')}
      ${clip.marks.map((text) => state('warn', text))}
      <dl class="about-clip"><dt>Size</dt><dd>${clip.width}×${clip.height}</dd>${clip.image ? html`<dt>Kind</dt><dd>picture</dd>` : html`<dt>Length</dt><dd>${clip.seconds.toFixed(1)} s, ${clip.frames} frames, ${Number(clip.fps.toFixed(2))} fps</dd>`}<dt>From</dt><dd class="one-line" title="${clip.source}">${clip.source}</dd>${
  clip.sound ? html`<dt>Sound</dt><dd>${clip.sound.seconds.toFixed(1)} s, ${clip.sound.rate / 1000} kHz, ${{ 1: 'mono', 2: 'stereo' }[clip.sound.channels] ?? count(clip.sound.channels, 'channel')}</dd>` : ''}${
  clip.span ? html`<dt>Part</dt><dd>${clip.span[0].toFixed(2)} to ${clip.span[1].toFixed(2)} s</dd>` : ''}${clip.crop ? html`<dt>Crop</dt><dd>${clip.crop[2]}×${clip.crop[3]} at ${clip.crop[0]}, ${clip.crop[1]}</dd>` : ''}${clip.tags.length ? html`<dt>Marks</dt><dd>${clip.tags.join(', ')}</dd>` : ''}</dl>
      ${clip.first_frame ? html`<figure>${video(clip.first_frame, 'The first frame imported with it', { width: clip.width, height: clip.height })}<figcaption class="fine faint">The first frame imported with it</figcaption></figure>` : ''}
      <hr>${shortcuts(['J K', 'next, previous clip'], ...(clip.cuttable ? CUTTING_KEYS : []), ['Ctrl Enter', 'next without a caption'])}</aside>`;
  }

  writeIt() {
    chosenClips.of(this.name).clear();
    chosenClips.of(this.name).add(this.clip.id);
    goTo('dataset', this.name, 'captions');
  }

  dropped(files) { importInto(this.name, files); }

  press(key) {
    const { clip } = this;
    if (key === 'j' && clip?.next) { this.open(clip.next); return true; }
    if (key === 'k' && clip?.previous) { this.open(clip.previous); return true; }
    if (!this.source || !clip?.cuttable) return false;
    const does = { m: () => this.mark(), '[': () => this.toMark(-1), ']': () => this.toMark(1), '+': () => this.zoomBy(0.5), '=': () => this.zoomBy(0.5), '-': () => this.zoomBy(2) }[key];
    if (does) { does(); return true; }
    const { frame, span } = this;
    if (key === 'i') { this.setPart({ start: frame, end: frame >= span.end ? this.source.frames : span.end }); return true; }
    if (key === 'o') { this.setPart({ start: frame < span.start ? 0 : span.start, end: frame + 1 }); return true; }
    return false;
  }

  commands() {
    return [{ title: 'Split the clip here', icon: 'crop', run: () => this.splitHere() }, { title: 'Crop the clip', icon: 'crop', run: () => this.startCrop() }];
  }
}
define('wb-clip', ClipPage);
