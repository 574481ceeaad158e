// Import: upload files with progress, import them at once, and report the result of each file.

// Change a dataset, show a message, and offer to undo exactly this change, even after later ones.
//   said(answer): returns the message;  undone(): called after Undo
async function changeDataset(operation, values, said, undone = () => {}) {
  const { name } = values;
  const call = (does, given, more) => attempt(() => page.transport.call(does, given), more);
  const answer = await call(operation, values);
  if (answer === null) return null;
  const { number, undoable } = (await call('datasets/history', { name }))?.at(-1) ?? {};
  const undo = async () => { if (await call('datasets/undo', { name, number }, { said: ({ what }) => `Undone: ${what}.` })) undone(); };
  toast(said(answer), undoable ? undo : null);
  return answer;
}

// The title of a new dataset: the common start of its file names.
function titleOf(files) {
  const names = files.map(({ name }) => name.replace(/(\.tar)?\.[^.]+$/, ''));
  let common = names[0];
  for (const name of names) while (!name.startsWith(common)) common = common.slice(0, -1);
  const title = names.length === 1 ? common : common.replace(/[\s\d_.-]+$/, '');
  return title.length > 1 ? title : `Clips of ${new Date().toLocaleDateString('en-US', { month: 'short', day: 'numeric' })}`;
}

// Uploads in progress, shown at the bottom of any page.
class Uploads extends WorkbenchElement {
  static going = new Set();

  // Return the document's only element of this kind, made on first use.
  static shown() {
    let one = document.querySelector('wb-uploads');
    if (!one) {
      one = document.createElement('wb-uploads');
      one.className = 'workbench';
      document.body.append(one);
    }
    return one;
  }

  view() {
    return html`${[...Uploads.going].map(({ number, words, share }) => html`<div class="upload" data-id="upload-${number}" role="status"><b>${words}</b>${
      progress(share, 'Upload')}<span class="fine">${share === null ? '' : percent(share)}</span></div>`)}`;
  }
}
define('wb-uploads', Uploads);

// Datasets whose first import was started here. It may end before their page is drawn.
const newlyTaken = new Set();

// Upload files, import them into a dataset (null: a new one), and go there.
//   settings: import settings;  title: of a new dataset
async function importInto(dataset, files, { settings = {}, title = '' } = {}) {
  const one = { number: Math.random(), words: `Uploading ${files.length === 1 ? files[0].name : count(files.length, 'file')}`, share: 0 };
  const draw = () => Uploads.shown().redraw();
  Uploads.going.add(one);
  draw();
  const task = await attempt(async () => {
    const paths = await page.transport.upload(files, (share) => { one.share = share; draw(); });
    Object.assign(one, { words: 'Checking the files', share: null });
    draw();
    return page.transport.call('datasets/take', { name: dataset ?? '', title: title || titleOf(files), files: paths, ...settings });
  });
  Uploads.going.delete(one);
  draw();
  if (task && !dataset) newlyTaken.add(task.dataset);
  if (task) goTo('dataset', task.dataset);
}

// Outcomes of an import and their tones, in reading order.
const OUTCOMES = [['taken', 'good'], ['converted', 'good'], ['already here', 'idle'], ['refused', 'bad'], ['skipped', 'bad']];
const toneOf = (words) => OUTCOMES.find(([one]) => one === words)?.[1] ?? 'idle';

// The progress of an import, and the result of each file. task: from datasets/about
class ImportStrip extends WorkbenchElement {
  static properties = ['task', 'datasetName'];

  view() {
    const { task } = this;
    if (!task || (!task.activity && !task.sentence)) return html``;
    if (task.activity || !Object.keys(task.counts).length) return html`<wb-task .task=${task} .datasetName=${this.datasetName}></wb-task>`;
    const shown = OUTCOMES.filter(([words]) => task.counts[words]);
    return html`<div class="strip" role="status">${shown.map(([words, tone]) => state(tone, `${task.counts[words].toLocaleString('en-US')} ${words}`))}
      <span class="faint">${ago(task.ended_at)}</span>
      <details><summary>Each file</summary><div class="table-frame"><table class="table"><tbody>${task.files.map((file) => html`<tr><td>${
        state(toneOf(file.outcome), file.outcome)}</td><td>${file.name}</td><td class="faint">${file.note}</td></tr>`)}</tbody></table></div>${
        task.details.map((text) => html`<p class="faint">${prose(sentence(text))}</p>`)}</details>
      ${task.state !== 'finished' ? state('bad', task.sentence) : ''}<span class="spacer"></span><span class="row tight">${task.new ? button('Undo import', 'undo', { kind: 'small' }) : ''}${
      task.actions.includes('resume') ? button('Resume', 'resume', { kind: 'small' }) : ''}${
      button('', 'dismiss', { kind: 'quiet square small', name: 'close', label: 'Dismiss' })}</span></div>`;
  }

  undo() {
    return changeDataset('datasets/undo-import', { name: this.datasetName }, ({ clips }) => `${count(clips, 'clip')} removed.`);
  }

  resume() { return this.act('datasets/start', { name: this.datasetName, task: 'import' }); }
  dismiss() { return this.act('datasets/dismiss', { name: this.datasetName, task: 'import' }); }
}
define('wb-import', ImportStrip);
