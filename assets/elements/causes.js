// Which clips caused what a sample shows: mark a fault, start the search, and see the clips for and against it.

const CAUSES_SHOWN = 6; // clips on each side

// made: the sample, from samples/made
class Causes extends WorkbenchElement {
  static properties = ['made'];
  static listens = { pointerdown: 'grab' };

  // A tab keeps the mark until the search starts.
  changed() { this.box = null; this.span = null; this.chosen = ''; }
  needs() { return { known: ['samples/known-causes', { id: this.made.id }] }; }
  get clock() { return `causes of ${this.made.id}`; }
  get found() { return this.known?.find(({ id }) => id === this.chosen) ?? this.known?.[0]; }

  view() {
    const { made, known, found } = this;
    if (!known || this.refused.known) return pending(this.refused.known, 'height:160px');
    return html`<section class="section causes" aria-label="Which clips caused this?"><div class="causes-grid"><div class="section">${this.marker(made)}</div><div class="section">
      ${known.length > 1 ? segments('causes', known.map((one) => [one.id, this.marked(one)]), found.id, 'choose', 'Which question') : ''}${found ? this.answer(found) : html`<p class="minor faint">The search compares what
      each clip of the run taught the LoRA with what this sample shows. Mark a fault to ask about it alone.</p>`}</div></div></section>`;
  }

  marked({ box, frames }) {
    return [box.length ? `${box[2]}×${box[3]} at ${box[0]}, ${box[1]}` : '', frames.length ? `frames ${frames[0] + 1} to ${frames[1] + 1}` : ''].filter(Boolean).join(', ') || 'whole sample';
  }

  // ---- the mark

  marker({ video: file, title, width, height, frames }) {
    const [left, top, wide, tall] = this.box ?? [0, 0, width, height];
    const [first, last] = this.span ?? [0, frames - 1];
    const numbers = [['Left', left, 0, width], ['Top', top, 0, height], ['Width', wide, 1, width], ['Height', tall, 1, height]];
    return html`<div class="stage" style="--aspect:${width}/${height}">${video(file, title, { clock: this.clock, width, height })}${this.box ? cropBox(this.box, this.made, true) : ''}</div>
      <wb-scrubber data-id="scrub" .clock=${this.clock} .frames=${frames}></wb-scrubber>
      <div class="row">${button('Mark a box', 'mark', { kind: 'small', name: 'crop', pressed: Boolean(this.box) })}<label class="row tight minor">Frames<input class="input number" type="number" min="1" max="${frames}" name="0" value="${
  first + 1}" data-change="spanned" aria-label="First marked frame"></label><label class="row tight minor">to<input class="input number" type="number" min="1" max="${frames}" name="1" value="${last + 1}" data-change="spanned" aria-label="Last marked frame"></label></div>
      ${this.box ? html`<div class="row crop-numbers">${numbers.map(([label, value, low, high], index) => field(label, html`<input class="input" type="number" min="${low}" max="${high}" name="${index}" value="${value}" data-change="boxed">`))}</div>` : ''}
      <div class="row">${button(this.box || this.span ? 'Find what caused the mark' : 'Find the clips', 'ask', { kind: 'primary' })}</div>`;
  }

  mark() {
    const { width, height } = this.made;
    this.box = this.box ? null : [width / 4, height / 4, width / 2, height / 2].map(Math.round);
    if (this.box) Clock.named(this.clock).play(false);
  }

  grab(event) {
    dragCorner(event, this.querySelector('.stage'), this.made, () => this.box, (box) => { this.box = box; this.redraw(); });
  }

  boxed(target) { this.box = this.box.with(Number(target.name), Number(target.value)); }

  spanned(target) {
    const { frames } = this.made, [first, last] = (this.span ?? [0, frames - 1]).with(Number(target.name), Number(target.value) - 1);
    this.span = first > 0 || last < frames - 1 ? [first, last] : null;
  }

  async ask() {
    const asked = await this.act('samples/causes', { id: this.made.id, box: this.box ?? [], frames: this.span ?? [] });
    if (asked) this.chosen = asked.id;
  }

  // ---- the answer

  answer(found) {
    if (found.activity) return underWay(found.share, found.activity);
    if (!found.clips.length) return found.message ? alarm(found.message) : '';
    const caused = found.clips.filter(({ part }) => part === 'caused it'), against = found.clips.filter(({ part }) => part === 'against');
    const speak = found.clips.filter(({ part }) => part === 'for');
    const most = Math.max(...found.clips.map(({ score }) => Math.abs(score)), 1e-9);
    const rows = (list, title) => (list.length ? html`<h3>${title}</h3><ul class="cause-rows">${list.map((one) => this.row(one, most))}</ul>` : '');
    return html`<div class="verdict ${found.sure ? '' : 'idle'}"><span class="${found.sure ? 'warn' : 'faint'}">${icon(found.sure ? 'warn' : 'wait')}</span><div class="text">${found.sentence}</div></div>
      ${found.sure ? html`<div class="row">${button(`Remove ${caused.length === 1 ? 'this clip' : `these ${caused.length} clips`} from the dataset`, 'leaveOut', { kind: 'small' })}${button('Try without', 'tryWithout', { kind: 'small' })}${linkTo('Train again', fromAddress(found.run), { kind: 'small' })}</div>` : ''}
      ${rows(caused, 'Caused it')}${rows(speak.slice(0, CAUSES_SHOWN), 'Pulled toward it')}${rows(against.slice(-CAUSES_SHOWN).reverse(), 'Pulled away from it')}
      <p class="fine faint">${count(found.clips.length, 'clip')} of ${found.run} compared at ${found.steps.length === 1 ? 'step' : 'steps'} ${found.steps.join(', ')}; agreement between two noise draws ${found.agreement.toFixed(2)}.${
        found.missing.length ? ` No longer there: ${found.missing.join(', ')}.` : ''}</p>`;
  }

  row(one, most) {
    const share = (50 * Math.abs(one.score)) / most;
    return html`<li data-id="${one.dataset}-${one.clip}">${one.picture ? html`<wb-video .file=${one.picture} .label=${one.name}></wb-video>` : skeleton('aspect-ratio:3/2')}<div class="about">${one.file
      ? html`<a class="link one-line" href="${address('dataset', one.dataset, 'clip', one.clip)}" title="${one.name}">${one.name}</a>` : html`<span class="one-line faint" title="Removed from the dataset">${one.name}</span>`}${oneLine(one.caption)}</div><div class="balance ${
      one.part.replace(' ', '-')}" role="img" aria-label="${one.score >= 0 ? 'For' : 'Against'}: ${one.score.toFixed(3)}"><i style="${one.score < 0 ? 'right:50%' : 'left:50%'};width:${share.toFixed(1)}%"></i></div><span class="minor right">${one.score >= 0 ? '+' : '−'}${
      Math.abs(one.score).toFixed(3)}</span></li>`;
  }

  choose(target) { this.chosen = target.value; }
  stop() { return this.act('samples/stop-causes', { id: this.found.id }); }

  // Train part of the run again without the named clips, and show what becomes of the mark.
  async tryWithout() {
    const { run, sample, box, frames, clips } = this.found, named = clips.filter(({ part }) => part === 'caused it').map(({ clip }) => clip);
    const asked = await this.act('runs/what-if', { name: run, without_clip: [named.join(',')], sample, box, frames });
    if (asked) window.location.hash = address('train', run, 'what-if');
  }

  async leaveOut() {
    const caused = this.found.clips.filter(({ part, file }) => part === 'caused it' && file), [{ dataset: name } = {}] = caused;
    const clips = caused.filter((one) => one.dataset === name).map(({ clip }) => clip);
    if (clips.length) await this.act('clips/remove-clips', { name, clips }, { said: `${count(clips.length, 'clip')} removed from ${name}.`, undo: () => page.transport.call('clips/restore-clips', { name, clips }) });
  }
}
define('wb-causes', Causes);
