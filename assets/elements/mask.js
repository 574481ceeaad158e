// The mask of a clip: paint some frames, track the rest, and correct frames that the tracker is unsure about.

// Run-length encode a mask row by row: lengths of outside, inside, outside ... opacity: RGBA bytes of its picture
function runsOf(opacity) {
  const runs = [];
  let inside = false, length = 0;
  for (let at = 3; at < opacity.length; at += 4) {
    if (opacity[at] > 127 !== inside) { runs.push(length); inside = !inside; length = 0; }
    length += 1;
  }
  return [...runs, length];
}

// "Frames 31 to 36 are unsure": the frames with confidence below `sure`, counted from 1.
function unsureWords(confidence, sure) {
  const low = confidence.flatMap((one, frame) => (one < sure ? [frame] : []));
  if (!low.length) return '';
  const spans = low.reduce((found, frame) => (found.length && frame === found.at(-1)[1] + 1 ? [...found.slice(0, -1), [found.at(-1)[0], frame]] : [...found, [frame, frame]]), []);
  const words = spans.slice(0, 2).map(([first, last]) => (first === last ? `${first + 1}` : `${first + 1} to ${last + 1}`)).join(' and ');
  return `${low.length === 1 ? 'Frame' : 'Frames'} ${words}${spans.length > 2 ? ` and ${count(spans.length - 2, 'other part')}` : ''} ${low.length === 1 ? 'is' : 'are'} unsure`;
}

const OVERLAYS = [['#3b5bfd', 'Blue'], ['#e0218a', 'Pink'], ['#00a878', 'Green'], ['#ffb000', 'Yellow']];
const MOST_UNDONE = 20; // strokes

class MaskPage extends PlayedClip {
  static listens = { pointerdown: 'grab', keydown: 'move' };
  tool = 'paint';
  size = 36;
  get heading() { return this.mask ? `Mask of ${this.mask.name}` : 'Mask'; }
  get clock() { return `mask ${this.clipId}`; }
  get footage() { return this.mask ?? { frames: 1, fps: 1 }; }
  get color() { return preferences.read('mask color', OVERLAYS[0][0]); }
  get model() { return preferences.read('mask model', ''); }
  needs() { return { mask: ['clips/mask', this.of], trackers: ['clips/list-trackers', {}, 'once'] }; }

  changed(name) {
    if (name !== 'path') return;
    this.local = new Map(); // frame -> its painted pixels, until the server has them
    this.strokes = [];
    this.cursor = null;
    this.drawn = '';
  }

  left() { super.left(); cancelAnimationFrame(this.next); }

  view() {
    const { name, mask } = this;
    if (!mask || this.refused.mask) return this.unready(this.refused.mask, 'Mask');
    return html`<div class="head">${crumbs(address('dataset', name), name, `Mask of ${mask.name}`)}<span class="faint minor tight">${mask.number} of ${mask.of}</span><div class="actions">${this.neighbors(mask, 'mask')}${linkTo('Done', address('dataset', name, 'clip', mask.clip))}</div></div>
      <div class="split"><div class="section">${this.stage(mask)}</div>${this.aside(mask)}</div>`;
  }

  stage(mask) {
    const size = { clock: this.clock, width: mask.width, height: mask.height };
    return html`<div class="section cutter" style="max-width:min(1280px, calc((100vh - 330px) * ${(mask.width / mask.height).toFixed(3)}))"><div class="stage painting" style="--aspect:${mask.width}/${mask.height}">${video(mask.file, mask.name, size)}<div
      class="mask-source" aria-hidden="true">${mask.mask ? video(mask.mask, '', size) : ''}</div><canvas data-id="paint-${mask.clip}" class="paint" width="${mask.width}" height="${mask.height}" tabindex="0" role="application" aria-label="Paint the mask: arrow keys move the brush, space paints"></canvas><span
      class="brush" hidden></span></div>
      ${this.bars(mask)}<wb-scrubber data-id="scrub-${mask.clip}" .clock=${this.clock} .frames=${mask.frames} .speeds=${true}></wb-scrubber></div>`;
  }

  // A bar for the confidence of each frame, with marks for painted frames.
  bars(mask) {
    const { confidence, sure, frames, doubtful, painted } = mask;
    const unsure = unsureWords(confidence, sure);
    const middle = (frame) => `${((100 * (frame + 0.5)) / frames).toFixed(2)}%`;
    const title = confidence.length ? `Tracked through ${count(frames, 'frame')}` : mask.mask ? 'Imported mask' : painted.length ? `${count(painted.length, 'painted frame')}, not tracked yet` : 'No mask yet';
    return html`<div class="section bars-of-mask"><div class="row minor"><b>${title}</b>${confidence.length ? html`<span class="faint">Bars: confidence of ${mask.by || 'the tracker'}.</span>` : ''}<span class="spacer"></span>${unsure ? html`${state('warn', unsure)}${button(
      `Go to frame ${doubtful[0] + 1}`, 'jump', { kind: 'link', value: doubtful[0] })}` : confidence.length ? state('good', 'No doubtful frames') : ''}</div>
      ${confidence.length ? html`<div class="certainty" role="img" aria-label="Certainty of the mask by frame${unsure && `: ${unsure}`}" data-do="pick">${confidence.map((one, frame) => html`<i class="${one < sure && 'low'}" style="height:${Math.max(8, Math.round(100 * one))}%" title="Frame ${frame + 1}: ${percent(one)} sure"></i>`)}<span class="playhead"></span></div>` : ''}
      ${painted.length ? html`<div class="keyframes">${painted.map(({ frame }) => html`<button type="button" style="left:${middle(frame)}" data-do="jump" data-value="${frame}" title="Painted frame ${frame + 1}" aria-label="Painted frame ${frame + 1}">◆<span>${frame + 1}</span></button>`)}</div>` : ''}</div>`;
  }

  aside(mask) {
    const here = mask.painted.some(({ frame }) => frame === this.frame) || this.local.has(this.frame);
    return html`<aside class="aside"><h2>Brush</h2>${segments('tool', [['paint', 'Paint'], ['erase', 'Erase']], this.tool, 'choose', 'Tool')}
      <label class="field"><span>Size</span><input type="range" min="2" max="${Math.round(mask.width / 4)}" value="${this.size}" data-input="resize"></label>
      <div class="row">${button('Undo', 'unpaint', { kind: 'small', off: !this.strokes.length })}${button('Clear the frame', 'wipe', { kind: 'small', title: 'Paint this frame as entirely outside' })}${here ? button('Track this frame instead', 'forget', { kind: 'small quiet', title: 'Discard the paint on this frame' }) : ''}</div>
      <hr><p class="minor faint">Paint one frame, then track. Where the bars drop, paint again. Each ◆ corrects the frames around it.</p>
      ${this.tracker()}${mask.problem && !mask.activity ? alarm(mask.problem) : ''}
      ${mask.activity ? html`<div class="task" role="status">${progress(mask.share, mask.activity)}<span class="minor live">${mask.activity}</span></div>` : button(`Track ${count(mask.frames, 'frame')}${this.model ? '' : ` · ${duration(mask.seconds)}`}`, 'track', { kind: 'primary', off: !mask.painted.length && !this.local.size })}
      <hr><label class="field"><span>Soft edge, pixels</span><input class="input" type="number" min="0" max="200" step="1" value="${mask.soften}" name="soften" data-change="edge" ?disabled=${!mask.mask}></label>
      <label class="check"><input type="checkbox" name="invert" data-change="edge" ?checked=${mask.invert} ?disabled=${!mask.mask}>Invert</label>
      <label class="field"><span>Overlay</span>${select(OVERLAYS, this.color, 'data-change="tint"')}</label>
      <div class="row">${button('Import a file', 'file', { kind: 'small', name: 'upload', title: 'A mask video or picture' })}${mask.mask ? button('Remove the mask', 'toBin', { kind: 'small quiet', name: 'bin' }) : ''}</div>
      ${shortcuts(['[ ]', 'size'], ['E', 'paint or erase'], ['T', 'track'], [', .', 'frame'])}</aside>`;
  }

  // The choice of tracker: optical flow or a model.
  tracker() {
    const { model, trackers = [] } = this;
    const options = [['', 'Optical flow, no model'], ...trackers.map((one) => [one.id, modelWords(one)]), ...(model && !trackers.some(({ id }) => id === model) ? [[model, model]] : []), ['another', 'Another model…']];
    return html`<label class="field"><span>Track with</span>${select(options, model, 'name="model" data-change="trackWith"')}</label>`;
  }

  async trackWith(target) {
    const model = target.value === 'another' ? await ask('Another model', MODEL_WANTED, { does: 'Use it' }) : target.value;
    if (model !== null) preferences.keep('mask model', model);
  }

  // ---- the mask of the frame at the playhead

  get canvas() { return this.querySelector('canvas.paint'); }
  get source() { return this.querySelector('.mask-source video'); }
  get pen() { return this.canvas.getContext('2d', { willReadFrequently: true }); }

  updated() {
    if (!this.mask || !this.canvas) return;
    if (this.followClock() && this.clockOf.playing) this.clockOf.play(false); // to paint on a still frame
    const { source } = this;
    if (source && source !== this.heard) {
      this.heard = source;
      for (const event of ['seeked', 'loadeddata']) source.addEventListener(event, () => this.tick());
    }
    if (this.seen !== this.mask) {
      this.seen = this.mask;
      for (const { frame } of this.mask.painted) if (!this.saving?.has(frame)) this.local.delete(frame);
      this.drawn = '';
    }
    this.tick();
  }

  tick() {
    const { mask, canvas } = this;
    if (!mask || !canvas || this.stroke) return;
    const { frame } = this;
    const head = this.querySelector('.playhead');
    if (head) head.style.left = `${((100 * (frame + 0.5)) / mask.frames).toFixed(2)}%`;
    if (frame !== this.shownFrame) { this.shownFrame = frame; this.strokes = []; this.redraw(); }
    const mark = `${frame} ${this.color} ${mask.mask} ${this.source?.readyState >= 2} ${this.source?.seeking} ${this.source?.currentTime}`;
    if (mark !== this.drawn) { this.drawn = mark; this.show(frame); }
    cancelAnimationFrame(this.next);
    if (this.clockOf?.playing) this.next = requestAnimationFrame(() => this.tick());
  }

  // Draw the mask of a frame, as painted or else as tracked.
  async show(frame) {
    const { pen, canvas, mask, local } = this;
    const painted = mask.painted.find((one) => one.frame === frame);
    if (local.has(frame)) { pen.putImageData(local.get(frame), 0, 0); return; }
    if (painted) {
      const picture = new Image();
      picture.src = `${await page.transport.file(painted.file)}?${Date.now()}`;
      await picture.decode().catch(() => {});
      if (this.frame === frame && !this.stroke && picture.width && canvas === this.canvas) this.cover(picture);
      return;
    }
    if (this.source?.readyState >= 2) this.cover(this.source); else pen.clearRect(0, 0, canvas.width, canvas.height);
  }

  // Draw white in the overlay's color and black as transparent.
  cover(picture) {
    const { pen, canvas } = this;
    pen.globalCompositeOperation = 'copy';
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    pen.globalCompositeOperation = 'source-over';
    const pixels = pen.getImageData(0, 0, canvas.width, canvas.height);
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(this.color.slice(at, at + 2), 16));
    const { data } = pixels;
    for (let at = 0; at < data.length; at += 4) {
      data[at + 3] = data[at] > 8 ? data[at] : 0;
      data[at] = red; data[at + 1] = green; data[at + 2] = blue;
    }
    pen.putImageData(pixels, 0, 0);
  }

  // ---- painting

  grab(event) {
    if (event.target !== this.canvas || event.button > 0) return;
    event.preventDefault();
    this.canvas.focus();
    const { canvas } = this, edge = canvas.getBoundingClientRect();
    const place = ({ clientX, clientY }) => [((clientX - edge.left) / edge.width) * canvas.width, ((clientY - edge.top) / edge.height) * canvas.height];
    this.begin();
    let last = place(event);
    this.line(last, last);
    followPointer((moved) => { const now = place(moved); this.line(last, now); last = now; }, () => this.end());
  }

  begin() {
    const clock = Clock.named(this.clock);
    if (clock.playing) clock.play(false);
    this.stroke = this.frame + 1;
    this.strokes = [...this.strokes, this.pixels].slice(-MOST_UNDONE);
  }

  get pixels() { return this.pen.getImageData(0, 0, this.canvas.width, this.canvas.height); }

  line([fromX, fromY], [toX, toY]) {
    const { pen } = this;
    Object.assign(pen, { lineCap: 'round', lineWidth: this.size, strokeStyle: this.color, globalCompositeOperation: this.tool === 'erase' ? 'destination-out' : 'source-over' });
    pen.beginPath();
    pen.moveTo(fromX, fromY);
    pen.lineTo(toX, toY + 0.01);
    pen.stroke();
    pen.globalCompositeOperation = 'source-over';
  }

  end() { this.stroke = 0; return this.save(); }

  // Save the painting of this frame.
  async save() {
    const { frame, pixels } = this;
    this.local.set(frame, pixels);
    this.saving ??= new Set();
    this.saving.add(frame);
    this.redraw();
    await this.act('clips/paint', { ...this.of, frame, runs: runsOf(pixels.data) });
    this.saving.delete(frame);
  }

  unpaint() {
    const before = this.strokes.pop();
    if (!before) return null;
    this.pen.putImageData(before, 0, 0);
    return this.save();
  }

  wipe() {
    this.begin();
    this.pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    return this.end();
  }

  async forget() {
    const { frame } = this;
    this.local.delete(frame);
    this.strokes = [];
    await this.act('clips/paint', { ...this.of, frame });
    this.drawn = '';
  }

  // Arrow keys move the brush, space paints.
  move(event) {
    if (event.target !== this.canvas) return;
    const { canvas } = this, step = event.shiftKey ? 1 : Math.max(4, this.size / 3);
    const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    if (!by && event.key !== ' ') return;
    event.preventDefault();
    event.stopPropagation();
    const [x, y] = this.cursor ?? [canvas.width / 2, canvas.height / 2];
    this.cursor = by ? [Math.max(0, Math.min(canvas.width, x + by[0])), Math.max(0, Math.min(canvas.height, y + by[1]))] : [x, y];
    const ring = this.querySelector('.brush');
    (ring.ours ??= new Set(['style'])).add('hidden');
    ring.hidden = false;
    ring.style.cssText = `left:${(100 * this.cursor[0]) / canvas.width}%;top:${(100 * this.cursor[1]) / canvas.height}%;width:${(100 * this.size) / canvas.width}%`;
    if (!by) { this.begin(); this.line(this.cursor, this.cursor); this.end(); say(`${this.tool === 'erase' ? 'Erased' : 'Painted'} at ${Math.round(this.cursor[0])}, ${Math.round(this.cursor[1])}`); }
  }

  choose(target) { this.tool = target.value; }
  resize(target) { this.size = Number(target.value); }
  tint(target) { preferences.keep('mask color', target.value); this.drawn = ''; this.local.clear(); this.tick(); }

  // ---- frames

  jump(target) { this.stopAt(Number(target.dataset.value)); }

  pick(target, event) {
    const edge = target.getBoundingClientRect();
    this.stopAt(Math.floor(((event.clientX - edge.left) / edge.width) * this.mask.frames));
  }

  // ---- actions

  track() {
    const { soften, invert, clip } = this.mask;
    return this.act('clips/track', { name: this.name, clips: [clip], model: this.model, soften, invert });
  }

  edge(target) {
    const edges = { soften: this.mask.soften, invert: this.mask.invert, [target.name]: target.name === 'invert' ? target.checked : Number(target.value) };
    return changeDataset('clips/mask-edge', { ...this.of, ...edges }, () => 'Mask edge changed.');
  }

  file() { chooseFiles((files) => attachFile(this.name, this.clipId, 'mask', files[0]), { accept: 'video/*,image/*', multiple: false }); }
  dropped(files) { return attachFile(this.name, this.clipId, 'mask', files[0]); }
  toBin() { return changeDataset('clips/detach', { name: this.name, kind: 'mask', clips: [this.clipId] }, () => 'Mask removed.'); }

  press(key) {
    const { mask } = this;
    if (!mask) return false;
    const most = Math.round(mask.width / 4);
    const does = { '[': () => { this.size = Math.max(2, this.size - 4); }, ']': () => { this.size = Math.min(most, this.size + 4); }, e: () => { this.tool = this.tool === 'erase' ? 'paint' : 'erase'; }, t: () => { if (mask.painted.length && !mask.activity) this.track(); } }[key];
    if (!does) return false;
    does();
    return true;
  }

  commands() { return [{ title: `Track the mask through ${count(this.mask?.frames ?? 0, 'frame')}`, icon: 'brush', run: () => this.track() }]; }
}
define('wb-mask', MaskPage);
