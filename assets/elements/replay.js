// A recorded run: its verdict and curves, its previews at the step of a slider, and a comparison of its checkpoints. Shown in a file
// of its own (`workbench replay --page`) and as the home page's example.

const REPLAY_MS = 30000; // for the whole run
const COMPARISON = 'wb-exported-grid'; // which the page loads later

// replay: {title, description, facts, chart, steps, seconds: of each step, rows: [{prompt, videos}], settings, width, height, frames,
//          verdict: {tone, claim, evidence} or null, grid: as from `grids/show`, or null}
class Replay extends WorkbenchElement {
  static properties = ['replay'];

  view() {
    const { replay } = this;
    const at = this.at ??= replay.steps.length - 1;
    const { title, description, facts, chart, steps, seconds, rows, settings, verdict, grid } = replay;
    const size = { clock: 'replay', width: replay.width, height: replay.height };
    const words = steps[at] ? `step ${steps[at].toLocaleString('en-US')}` : 'before training';
    const moment = `${steps[at] ? words : 'Before training'}, ${seconds[at] ? `${duration(seconds[at])} after the start` : 'at the start'}`;
    return html`<header class="section run-head"><div class="head run-title"><h1 tabindex="-1" class="one-line" title="${title}">${title}</h1>${state('good', 'Finished', { pill: true })}</div><div class="facts">${
      facts.map((fact) => html`<span>${fact}</span>`)}</div>${description && html`<p class="minor faint">${description}</p>`}</header>${verdict && verdictLine(verdict)}
      <div class="row">${button(this.timer ? 'Pause' : 'Play', 'toggle', { kind: 'steady', name: this.timer ? 'pause' : 'play' })}<span class="minor">${moment}</span><span class="spacer"></span><wb-scrubber .clock=${'replay'} .frames=${replay.frames}></wb-scrubber></div>
      ${stepSlider(steps, at, words)}
      <div class="overview"><section class="section" aria-label="Previews"><div class="tiles">${rows.map(({ prompt, videos }) => html`<figure class="tile ${replay.width <= TINY && 'small'}"><div class="pair">${
        video(videos[0], `${prompt}, before training`, { ...size, tag: 'before' })}${video(videos[at], `${prompt}, ${words}`, { ...size, tag: words })}</div><figcaption>${twoLines(prompt)}</figcaption></figure>`)}</div></section>
      <wb-charts .charts=${[chart]} .until=${0}></wb-charts></div>
      ${grid && new Markup(`<${COMPARISON} class="section"${html` .grid=${grid} .inside=${true}`.text}></${COMPARISON}>`)}
      <details><summary class="link">Settings</summary><p class="minor faint">${settings}</p></details>`;
  }

  // Move the chart's cursor to the step that is shown.
  updated() {
    const chart = this.querySelector('wb-chart');
    if (!chart || this.read === this.at) return;
    this.read = this.at;
    chart.cursor = this.replay.steps[this.at];
    chart.redraw();
  }

  left() { clearInterval(this.timer); }
  scrub(target) { this.stop(); this.at = Number(target.value); }

  toggle() {
    if (this.timer) { this.stop(); return; }
    const last = this.replay.steps.length - 1;
    if (this.at === last) this.at = 0;
    this.timer = setInterval(() => { this.at += 1; if (this.at >= last) this.stop(); this.redraw(); }, REPLAY_MS / Math.max(1, last));
  }

  stop() { clearInterval(this.timer); this.timer = 0; }
}
define('wb-replay', Replay);

// The recorded run that comes with the workbench.
class ExampleRun extends WorkbenchElement {
  needs() { return { replay: ['home/replay', {}, 'once'] }; }

  view() {
    return this.replay ? html`<wb-replay .replay=${this.replay}></wb-replay>` : pending(this.refused.replay, 'height:240px');
  }
}
define('wb-example-run', ExampleRun);
