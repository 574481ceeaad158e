// The home page: a recorded run to explore, import, what needs attention, the newest samples.

const LARGEST = 12; // screen pixels for one pixel of the tiny model's videos
const EXAMPLE = 'example'; // address of the recorded run, unless a run has that name

// "24 clips, Tiny CogVideoX, 6 min on 2 cores."
const exampleFacts = ({ clips, model, seconds, device }) => `${count(clips, 'clip')}, ${model}, ${duration(seconds)} on ${device.replace(/^(CPU|processor), /, '')}.`;

// A slider over the steps that have previews, which calls `scrub`. at: index of the step;  label: text for screen readers
const stepSlider = (steps, at, label) => {
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => steps[Math.round(share * (steps.length - 1))]);
  return html`<div class="steps"><input type="range" min="0" max="${steps.length - 1}" value="${at}" data-input="scrub" aria-label="Training step" aria-valuetext="${label}">
    <div class="ticks">${ticks.map((tick, index) => html`<span>${!index ? 'Before training' : index === 4 ? `Step ${tick.toLocaleString('en-US')}` : tick.toLocaleString('en-US')}</span>`)}</div></div>`;
};

// A recorded run: a training clip beside the model's video at a step, with a slider over the steps.
class Example extends WorkbenchElement {
  static properties = ['example'];

  view() {
    const { example } = this;
    if (!example) return html`<div class="duo">${skeleton('aspect-ratio:1')}${skeleton('aspect-ratio:1')}</div>${skeleton('height:44px')}`;
    const steps = example.previews.map(([step]) => step);
    this.at = Math.min(this.at ?? Math.round(0.6 * (steps.length - 1)), steps.length - 1);
    const [step, file] = example.previews[this.at];
    const size = { width: example.width, height: example.height };
    const label = step ? `The model's video at step ${step}` : "The model's video before training";
    return html`<div class="duo" style="--largest:${LARGEST * example.width}px">
      <figure>${video(example.clip, 'One of the training clips', { clock: 'example', width: example.width, height: example.height })}<figcaption>One of ${
        count(example.clips, 'training clip')}</figcaption></figure>
      <figure>${video(file, label, { clock: 'example', ...size })}<figcaption><span>The model’s video</span><b>${step ? `step ${step}` : 'before training'}</b></figcaption></figure></div>
      ${stepSlider(steps, this.at, label)}
      <p class="minor faint one-line" title="${example.prompt}">“${example.prompt}”</p>`;
  }

  scrub(target) { this.at = Number(target.value); }
}
define('wb-example', Example);

class Home extends WorkbenchElement {
  heading = 'Home';

  needs() {
    return {
      now: ['home/now', {}],
      demo: ['home/demo', {}],
      example: ['home/example', {}, 'once'],
      overview: ['overview/overview', {}],
    };
  }

  view() {
    const { now, example, overview } = this;
    const first = now?.first;
    return html`${overview?.machine && html`<p class="state warn" role="status">${icon('warn')}${overview.machine}</p>`}
      <section class="hero" aria-label="Start"><div class="section"><header><h1 tabindex="-1">${first ? 'Teach a video model something new' : 'A real run, step by step'}</h1></header>
        ${this.refused.example ? refusal(this.refused.example) : html`<wb-example .example=${example}></wb-example>
        <div class="row">${linkTo('Explore this run', address('train', EXAMPLE), { name: 'train' })}<span class="minor faint">${example ? exampleFacts(example) : ''}</span></div>`}</div>
      <div class="section bring"><button type="button" class="dropzone" data-do="choose">${icon('upload')}<strong>Bring your clips</strong><span class="minor faint">Drop videos, pictures, a folder or a zip
        anywhere on this page. Import starts at once.</span><span class="button">Choose files</span></button>${this.demoRow(first)}</div></section>
      ${!now ? this.waiting() : first ? this.goes(example) : html`${this.entries(now)}${this.samples(now)}`}`;
  }

  demoRow(first) {
    const { demo } = this;
    const alive = ['running', 'starting', 'waiting', 'paused', 'stopping'].includes(demo?.state);
    const words = !demo ? '' : alive ? `Training: ${demo.run}.`
      : `A tiny model on ${count(demo.clips, 'clip')}, about ${duration(demo.seconds)} on this machine.`;
    return html`<div class="row tight">${alive ? linkTo('Watch the demo', address('train', demo.run), { kind: first ? 'primary large' : 'large', name: 'train' })
      : button('Train the demo', 'train', { kind: first ? 'primary large' : 'large', name: 'play' })}<span class="minor faint">${words}</span></div>`;
  }

  waiting() {
    return html`<section class="section" aria-busy="true"><header><h2>Now</h2></header>${skeleton('height:40px')}${skeleton('height:40px')}</section>`;
  }

  // ---- what needs attention

  entries(now) {
    if (!now.entries.length) {
      return html`<section class="section"><header><h2>Now</h2></header><p class="faint">Nothing is running, and nothing needs your attention.</p></section>`;
    }
    const main = now.entries.findIndex(({ operation }) => operation); // gets the page's only primary button
    return html`<section class="section"><header><h2>Now</h2></header><ul class="now">${now.entries.map((line, index) => this.line(line, index === main))}</ul></section>`;
  }

  line(line, primary) {
    const to = line.kind === 'run' ? address('train', line.name) : address('dataset', line.name);
    const words = capital(line.state);
    const mark = line.share === null ? html`<span class="${line.tone}">${icon(line.tone === 'plain' ? 'wait' : TONE_ICONS[line.tone], words)}</span>` : html`<span role="img" aria-label="${words}">${ring(line.share)}</span>`;
    const kind = `small ${primary && 'primary'}`;
    return html`<li data-id="${line.kind}-${line.name}">${mark}<a class="one-line" href="${to}" title="${line.title}"><b>${line.title}</b></a>
      <span class="what">${line.claim && html`<b class="${line.tone} ${line.share !== null && 'live'}">${line.claim}</b> `}<span class="${line.tone === 'idle' && 'faint'}">${prose(line.sentence)}</span></span>
      <span class="when">${ago(line.at)}</span>${line.operation ? button(line.label, 'go', { kind, value: `${line.kind}-${line.name}` }) : linkTo(line.label, address(...line.address), { kind })}</li>`;
  }

  async go(target) {
    const line = this.now.entries.find(({ kind, name }) => `${kind}-${name}` === target.dataset.value);
    await this.act(line.operation, line.values, { said: `${line.title}: ${line.label.toLowerCase()}.` });
  }

  // ---- the newest samples

  samples({ samples }) {
    if (!samples.length) return '';
    const tag = (one) => (one.width && one.width <= TINY ? `${one.width}×${one.height}` : one.seconds ? `${one.seconds.toFixed(1)} s` : '');
    return html`<section class="section"><header><h2>Newest samples</h2><a class="link minor" href="#/sample">All samples</a></header><div class="tiles single" style="--tile:300px">${samples.map((one) => html`<div
      class="tile" data-id="sample-${one.id}"><a href="${address('sample', one.id)}" aria-label="Open the sample: ${[one.prompt, tag(one)].filter(Boolean).join(', ')}">${video(one.video, one.prompt, {
        width: one.width, height: one.height, tag: tag(one) })}</a>${twoLines(one.prompt)}<p class="about">${oneLine(one.loras)}<span class="spacer"></span>${ago(one.at)}</p></div>`)}</div></section>`;
  }

  // ---- a first visit

  goes(example) {
    const last = example?.previews.at(-1), middle = example?.previews[Math.round(example.previews.length / 3)];
    const size = { width: example?.width, height: example?.height };
    const ways = [
      ['Bring clips', '5 to 50 short ones. A model can write the captions.', example?.clip, address('dataset')],
      ['Train in the background', 'Previews and a verdict show whether it learns.', middle?.[1], address('train')],
      ['Sample, compare, publish', 'At any scale, in ComfyUI too.', last?.[1], address('sample')],
    ];
    return html`<section class="section"><header><h2>How it works</h2>${documentation()}</header><div class="tiles" style="--tile:240px">${ways.map(([title, text, file, to], index) => html`<a class="tile way" href="${to}">${
      file ? video(file, title, size) : skeleton('aspect-ratio:3/2')}<b>${index + 1}. ${title}</b><span class="minor faint">${text}</span></a>`)}</div></section>`;
  }

  // ---- actions

  choose() { chooseFiles((files) => importInto(null, files)); }

  async train() {
    const made = await this.act('home/train-demo', {}, { said: (demo) => `${demo.run} has started.` });
    if (made) goTo('train', made.run);
  }

  commands() {
    return [{ title: 'Train the demo', icon: 'play', run: () => this.train() }];
  }
}
define('wb-home', Home);
