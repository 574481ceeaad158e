// Publishing to the Hub: the account, the repository, the upload plan, and progress.

// The form that pushes a LoRA or its demo Space. Each change updates the upload plan, so that the button sends what is shown.
//   name: of the LoRA;  what: 'lora' or 'space';  known: from `publishing/show`
class PushForm extends FillingElement {
  static properties = ['filling', 'name', 'what', 'known'];

  arrived() {
    super.arrived();
    const form = this.what === 'space' ? 'publish-space' : 'publish';
    this.filling = new Filling(form, { where: `${form} ${this.name}`, check: () => this.look() });
    this.filling.load();
  }

  changed(name) {
    super.changed(name);
    // The account, and with it the repository, is known a moment later.
    if (name === 'known' && this.filling?.named && this.place.repo_id !== this.planned) this.filling.later(0);
  }

  get place() { return this.known[this.what]; }
  get push() { return this.what === 'space' ? this.known.space_push : this.known.push; }
  get values() { return { ...this.filling.single, name: this.name, repo_id: this.filling.get('repo_id') || this.place.repo_id }; }

  async look() {
    this.plan = null;
    this.planned = this.place.repo_id;
    if (!this.values.repo_id) return { problems: {} };
    this.plan = await page.transport.call(`publishing/plan-${this.what}`, this.values);
    return { problems: {} };
  }

  view() {
    const { filling, plan, place, push } = this;
    if (!filling?.settings.length) return skeleton('height:120px');
    const going = push && ['starting', 'running', 'paused', 'stopping'].includes(push.state);
    const tone = going ? 'going' : { finished: 'good', stopped: 'idle' }[push?.state] ?? 'bad';
    const size = plan && Object.values(plan.sizes).reduce((sum, one) => sum + one, 0);
    const hint = { repo_id: place.repo_id && `Empty: ${place.repo_id}` };
    const fields = (advanced) => filling.settings.filter((one) => Boolean(one.advanced) === advanced).map(({ name, help }) => settingField(filling, name, hint[name] ?? help));
    return html`${place.url && html`<p class="minor">On the Hub: <a class="link" href="${place.url}" target="_blank" rel="noopener">${place.repo_id}</a> <span class="faint">${
      place.private ? 'private' : 'public'}, ${ago(place.time)}</span></p>`}
      ${fields(false)}${filling.settings.some((one) => one.advanced) && html`<details><summary class="minor">More</summary>${fields(true)}</details>`}
      ${otherProblems(filling, filling.settings.map(({ name }) => name))}
      ${plan && html`${uploadPlan(plan)}
        ${plan.readme && html`<details><summary class="minor">${this.what === 'space' ? 'Its README' : 'Model card'}</summary><pre class="log model-card">${plan.readme}</pre></details>`}`}
      ${push && html`<div data-id="push">${state(tone, push.activity)}${going ? progress(push.share, push.activity) : ''}${push.url && !going ? html` <a class="link" href="${push.url}" target="_blank" rel="noopener">Open</a>` : ''}</div>`}
      <div class="row">${going ? button('Stop', 'stop', { kind: 'small', off: push.state === 'stopping' })
      : button(`${this.what === 'space' ? 'Make the Space' : 'Publish'}${size ? ` · ${bytes(size)}` : ''}`, 'publish', { kind: 'small', name: 'upload', off: !plan || filling.checking || Boolean(this.known.login) })}</div>`;
  }

  async publish() {
    if (await this.act(`publishing/${this.what}`, { ...this.values, repo_id: this.plan.repo_id })) this.filling.forget();
  }

  stop() { return this.act('publishing/stop', { id: this.push.id }); }
}
define('wb-push', PushForm);

// name: of a LoRA, or of a run that trained all weights
class Publish extends WorkbenchElement {
  static properties = ['name'];
  needs() { return { known: ['publishing/show', { name: this.name }] }; }

  view() {
    const { known } = this;
    if (!known || this.refused.known) return pending(this.refused.known, 'height:160px');
    const { account, login } = known;
    const who = !known.known ? 'Checking which Hub account is logged in on this machine…' : login || account.problem || `Logged in as ${account.name}.`;
    return html`<div class="task-fields"><p class="minor ${known.known && !account.name ? 'warn' : 'faint'}" role="status">${prose(who)}</p>
      <wb-push data-id="lora ${this.name}" class="task-fields" .name=${this.name} .what=${'lora'} .known=${known}></wb-push>
      <details><summary class="minor">Make a Space: a demo page to generate videos with it</summary>${known.lora.url
      ? html`<wb-push data-id="space ${this.name}" class="task-fields" .name=${this.name} .what=${'space'} .known=${known}></wb-push>`
      : html`<p class="minor faint">Publish the LoRA first: its Space loads it from the Hub.</p>`}</details></div>`;
  }
}
define('wb-publish', Publish);
