// What if a run were trained without a clip, a word, or with another setting: ask, follow the trainings, see both side by side.

const ASKED = [['without_clip', 'Without clip', '07_cat, 09_dog', 'Names or ids. Separate several with commas to leave them out together.'],
  ['without_word', 'Without word', 'neon', 'Left out of the captions.'], ['setting', 'With setting', 'rank=8', 'NAME=VALUE, as in Settings.']];
const MEASURED = { sample: 'Toward the sample', effect: 'Effect', drift: 'Drift', held_out_loss: 'Held-out loss' };
const SAID = { told: ['warn', 'makes a difference'], chance: ['idle', 'no clear difference'], same: ['idle', 'exactly the same'] };

// now: from progress/state
class RunWhatIf extends RunTab {
  needs() { return this.name ? { known: ['runs/known-what-ifs', { name: this.name }] } : {}; }
  get draft() { return `what if ${this.name}`; }
  get found() { return this.known.find(({ id }) => id === this.chosen) ?? this.known[0]; }

  view() {
    const { known } = this;
    if (!known || this.refused.known) return pending(this.refused.known, 'height:160px');
    const { found } = this;
    return html`<section class="section what-if" aria-label="What if"><form class="section" data-submit="ask"><div class="fields-row">${ASKED.map(([name, title, example, hint]) =>
      field(title, html`<input class="input" name="${name}" placeholder="${example}" value="${drafts.read(this.draft)[name] ?? ''}" autocomplete="off" data-input="type">`, hint))}</div><div class="row"><button class="button primary" type="submit" ?disabled=${
      this.asking}>Try it</button><span class="minor faint">Trains part of the run again, with and without, four times each. This takes about as long as the run.</span></div>${
      this.problem ? html`<p class="state bad" role="alert">${icon('bad')}<span>${prose(this.problem)}</span></p>` : ''}</form>
      ${known.length > 1 ? segments('what-ifs', known.map((one) => [one.id, one.asked.join('; ')]), found.id, 'choose', 'Which question') : ''}${found ? this.answer(found) : ''}</section>`;
  }

  answer(found) {
    const title = html`<h2 class="one-line">${capital(found.asked.join('; '))}?</h2>`;
    if (found.activity) return html`${title}${underWay(found.share, found.activity)}`;
    if (!found.changes.length) return html`${title}${alarm(`${found.message || 'It has not finished.'} Ask the same question again to continue.`)}`;
    const first = found.changes[0].measures.map(({ name }) => name), points = (name, value) => (name === 'held_out_loss' ? value.toFixed(4) : `${(100 * value).toFixed(1)}%`);
    return html`${title}${found.changes.map(({ sentence: said, verdict }) => html`<div class="verdict ${verdict === 'told' ? '' : 'idle'}"><span class="${verdict === 'told' ? 'warn' : 'faint'}">${icon(verdict === 'told' ? 'warn' : 'wait')}</span><div class="text">${said}</div></div>`)}
      <div class="table-frame"><table class="table"><thead><tr><th scope="col">Change</th>${first.map((name) => html`<th scope="col" class="right">${MEASURED[name]}</th>`)}</tr></thead><tbody><tr><td>As it was</td>${
      found.changes[0].measures.map((one) => html`<td class="right">${points(one.name, one.before)}</td>`)}</tr>${found.changes.map((one) => html`<tr><td>${capital(one.change)}</td>${
      one.measures.map((told) => html`<td class="right" title="95%: ${points(told.name, told.low)} to ${points(told.name, told.high)}; seeds alone vary by ±${points(told.name, told.band)}">${
        points(told.name, told.after)} ${state(SAID[told.verdict][0], SAID[told.verdict][1])}</td>`)}</tr>`)}</tbody></table></div>${this.sheet(found)}<p class="fine faint">${
      found.repeats} trainings each, of ${count(found.steps, 'step')}, from step ${found.begin}. Measured on the same clips and the same noise.</p>`;
  }

  // Videos from the same noise, as it was and with each change.
  sheet({ videos, changes, width, height }) {
    if (!videos.length) return '';
    const columns = ['As it was', ...changes.map(({ change }) => capital(change))];
    return html`<header><h3>Side by side</h3><span class="fine faint">same prompt and seed</span><span class="spacer"></span><wb-scrubber .clock=${this.draft}></wb-scrubber></header><div class="previews small" style="--columns:${columns.length}">${
      columns.map((title) => html`<span class="column one-line" title="${title}">${title}</span>`)}${videos.map(({ prompt, before, after }) => html`<p class="prompt one-line" title="${prompt}">${prompt}</p>${[before, ...after].map((file, index) => video(file, columns[index], { clock: this.draft, width, height }))}`)}</div>`;
  }

  type(target) { drafts.keep(this.draft, { [target.name]: target.value }); }
  choose(target) { this.chosen = target.value; }
  stop() { return this.act('runs/stop-what-if', { id: this.found.id }); }

  async ask() {
    const typed = drafts.read(this.draft), given = ASKED.map(([name]) => [name, (typed[name] ?? '').trim()]).filter(([, text]) => text);
    this.asking = true;
    this.problem = '';
    const asked = await this.act('runs/what-if', { name: this.name, ...Object.fromEntries(given.map(([name, text]) => [name, [text]])) }, { refused: ({ message }) => { this.problem = message; } });
    if (asked) { this.chosen = asked.id; drafts.forget(this.draft); }
    this.asking = false;
  }
}
define('wb-run-what-if', RunWhatIf);
