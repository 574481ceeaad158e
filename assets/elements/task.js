// Background tasks of a dataset: progress, result, and the form that starts one.

// A task: progress and Stop while it runs, then its result. task: from datasets/about
class Task extends WorkbenchElement {
  static properties = ['task', 'datasetName'];

  view() {
    const { task } = this;
    if (!task) return html``;
    if (task.activity) return underWay(task.share, capital(task.activity));
    if (!task.sentence) return html``;
    const tone = { finished: 'good', stopped: 'idle' }[task.state] ?? 'bad';
    return html`<div class="task" role="status"><div class="row">${html`<p class="state ${tone}">${icon(TONE_ICONS[tone])}<span>${prose(task.sentence)}</span></p>`}<span class="spacer"></span>${
      task.actions.includes('resume') ? button('Resume', 'resume', { kind: 'small' }) : ''}${
      task.actions.includes('dismiss') ? button('', 'dismiss', { kind: 'quiet square small', name: 'close', label: 'Dismiss' }) : ''}</div>
      ${task.details.length ? html`<details ?open=${task.details.length < 4}><summary class="minor">${count(task.details.length, 'line')} more</summary><ul class="minor faint">${task.details.map(
    (text) => html`<li>${prose(text)}</li>`)}</ul></details>` : ''}
      ${task.log && html`<details><summary class="minor">Log</summary><pre class="log">${task.log}</pre></details>`}</div>`;
  }

  stop() { return this.tell('stop'); }
  resume() { return this.tell('start'); }
  dismiss() { return this.tell('dismiss'); }
  tell(verb) { return this.act(`datasets/${verb}`, { name: this.datasetName, task: this.task.name }); }
}
define('wb-task', Task);

// The files that would be uploaded to the Hub. sizes: bytes by name;  notes: warnings
const uploadPlan = ({ sentence, sizes, notes = [] }) => html`<details class="upload-plan"><summary class="minor">${sentence}</summary>${notes.map((note) => html`<p class="minor warn">${prose(note)}</p>`)}<div
  class="plan-files"><table class="table"><tbody>${Object.entries(sizes).map(([file, size]) => html`<tr><td>${file}</td><td class="right">${bytes(size)}</td></tr>`)}</tbody></table></div></details>`;

// The form of a task. Its draft is kept under `where` until the task starts.
//   form: name for `settings/show`;  first: settings to show at the top;  without: settings to hide;  labels: replace the settings' titles
//   does: operation that starts it;  values: its other inputs;  label: text of its button;  said: message after the start
//   lists: operation that returns the files to upload, for `uploadPlan`
class TaskForm extends FillingElement {
  static properties = ['filling', 'form', 'where', 'first', 'labels', 'without', 'does', 'values', 'label', 'said', 'begun', 'lists'];

  arrived() {
    super.arrived();
    if (this.filling) return;
    this.filling = new Filling(this.form, { where: this.where, check: this.lists ? (filling) => this.look(filling) : null });
    this.filling.load();
  }

  view() {
    const { filling, without = [] } = this;
    if (!filling?.settings.length) return html`${skeleton('height:120px')}`;
    const off = new Set([...without, ...filling.without.filter((name) => !filling.differs(name))]);
    const first = this.first.filter((name) => !off.has(name));
    const others = filling.settings.map(({ name }) => name).filter((name) => !off.has(name) && !first.includes(name));
    const changed = others.filter((name) => filling.differs(name)).length;
    return html`<div class="task-fields">${first.map((name) => settingField(filling, name, filling.setting(name).help, this.labels?.[name]))}</div>
      ${others.length ? html`<details ?open=${others.some((name) => filling.problems[name])}><summary class="minor">${count(others.length, 'more setting')}${changed ? `, ${changed} changed` : ''}</summary>
        <div class="task-fields">${others.map((name) => settingField(filling, name, filling.setting(name).help))}</div></details>` : ''}
      ${otherProblems(filling, [...first, ...others])}${this.files ? uploadPlan(this.files) : ''}<div class="row">${button(this.label, 'begin', { kind: 'primary' })}</div>`;
  }

  async look(filling) {
    const checked = await page.transport.call('settings/check', { form: this.form, values: filling.values });
    const told = filling.get('repo_id') && !Object.keys(checked.problems).length;
    this.files = told ? await page.transport.call(this.lists, { ...filling.values, ...this.values }).catch(() => null) : null;
    return checked;
  }

  async begin() {
    const answer = await this.act(this.does, { ...this.filling.values, ...this.values }, { said: this.said, refused: (problem) => this.filling.refuse(problem, this) });
    if (!answer) return;
    this.filling.forget();
    this.begun?.(answer);
  }
}
define('wb-task-form', TaskForm);
