// Captions: a field that saves itself, the selection of clips, and changes to many captions at once.

// The chosen clips of each dataset: name -> ids. It outlives the views that show it.
const chosenClips = {
  all: new Map(),
  of(dataset) {
    if (!this.all.has(dataset)) this.all.set(dataset, new Set());
    return this.all.get(dataset);
  },
};

// The caption of a clip. Leaving the field or Ctrl Enter saves it; Esc restores the saved caption. If somebody else has changed the
// caption since typing began, both versions are kept and a person chooses.
//   clip: its card;  rows: of the field
// Ctrl Enter dispatches the event `caption-done`.
class Caption extends WorkbenchElement {
  static properties = ['datasetName', 'clip', 'rows'];
  static listens = { keydown: 'press', focusout: 'save' };
  problem = '';
  get where() { return `caption ${this.datasetName} ${this.clip.id}`; }

  changed(name) {
    if (name === 'clip' && this.shown !== this.clip?.id) { this.shown = this.clip?.id; this.problem = ''; }
  }

  view() {
    const { clip } = this;
    const draft = drafts.read(this.where);
    const text = draft.text ?? clip.caption;
    return html`<textarea class="input caption ${!text.trim() && 'none'}" rows="${this.rows ?? 3}" placeholder="What does the clip show?" aria-label="Caption of ${clip.name}" data-input="typed"
      ?readonly=${Boolean(clip.latents_model && clip.caption_by === 'file')}>${text}</textarea>${this.problem ? html`<div class="state bad" role="alert"><span>${this.problem}</span></div><div class="row">${
      button('Keep mine', 'keepMine', { kind: 'small' })}${button('Use theirs', 'putBack', { kind: 'small' })}</div>` : ''}`;
  }

  get field() { return this.querySelector('textarea'); }

  typed(target) {
    const draft = drafts.read(this.where);
    if (target.value === this.clip.caption) drafts.forget(this.where);
    else drafts.keep(this.where, { text: target.value, over: draft.over ?? this.clip.caption });
    target.classList.toggle('none', !target.value.trim());
  }

  // Save the draft, and what is typed meanwhile. Returns false if it was refused.
  async save() {
    const next = () => this.saveDraft();
    this.saving = (this.saving ?? Promise.resolve()).then(next, next);
    return this.saving;
  }

  async saveDraft() {
    const { text, over } = drafts.read(this.where);
    if (text === undefined) return true;
    const { clip, datasetName, where } = this;
    // Dispatched before the call: the changed list may arrive before the answer, and its filter could drop the card.
    this.dispatchEvent(new CustomEvent('caption-saving', { bubbles: true, detail: clip.id }));
    const made = await this.act('clips/caption', { name: datasetName, clip: clip.id, text, over }, { refused: (problem) => { this.problem = problem.message; } });
    if (made) {
      if (drafts.read(where).text === text) drafts.forget(where);
      clip.caption = made.caption;
      this.problem = '';
      say('Caption saved.');
    }
    this.redraw();
    return Boolean(made);
  }

  async keepMine() {
    const { text } = drafts.read(this.where);
    const made = await this.act('clips/caption', { name: this.datasetName, clip: this.clip.id, text });
    if (made) { this.clip.caption = made.caption; this.putBack(); }
  }

  putBack() {
    drafts.forget(this.where);
    this.problem = '';
    this.field.value = this.clip.caption;
    this.field.classList.toggle('none', !this.clip.caption.trim());
    this.redraw();
  }

  async press(event) {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      const { id } = this.clip;
      if (await this.save()) this.dispatchEvent(new CustomEvent('caption-done', { bubbles: true, detail: id }));
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      this.putBack();
      this.closest('.clip')?.querySelector('a')?.focus();
    }
  }
}
define('wb-caption', Caption);

const captionsChanged = ({ changed }) => `${count(changed, 'caption')} changed.`;

// Change the captions of the chosen clips, or of all if none is chosen: find and replace, add text, remove a tag, the trigger word.
class EditCaptions extends WorkbenchElement {
  static properties = ['datasetName', 'trigger'];
  needs() { return { tags: ['clips/tags', { name: this.datasetName }] }; }
  get kept() { return drafts.read(`edit captions ${this.datasetName}`); }
  get clips() { return [...chosenClips.of(this.datasetName)]; }

  view() {
    const { find = '', replacement = '', text = '', expression, match_case: matchCase, whole_word: wholeWord } = this.kept;
    const number = this.clips.length;
    const of = number ? `in ${count(number, 'chosen clip')}` : 'in all clips';
    const box = (name, title, on) => html`<label class="check"><input type="checkbox" name="${name}" data-change="note" ?checked=${Boolean(on)}>${title}</label>`;
    return html`<div class="two-columns"><div>${field('Find', html`<input class="input" name="find" value="${find}" data-input="note">`)}</div><div>${
      field('Replace with', html`<input class="input" name="replacement" value="${replacement}" data-input="note">`)}</div></div>
      <div class="row" style="column-gap:16px">${box('match_case', 'Match case', matchCase)}${box('whole_word', 'Whole words', wholeWord)}${box('expression', 'Regular expression', expression)}<span class="spacer"></span>${
        button('Preview changes', 'preview', { kind: 'small', off: !find })}${button(`Replace ${of}`, 'replace', { kind: 'small', off: !find })}</div>
      ${this.would ? html`<div class="table-frame"><table class="table"><caption class="unseen">Preview of changes</caption><thead><tr><th>${count(this.would.length, 'caption')} would change</th><th>Now</th><th>Then</th></tr></thead><tbody>${
        this.would.slice(0, 12).map((one) => html`<tr><td>${one.name}</td><td class="faint">${one.before}</td><td>${one.after}</td></tr>`)}</tbody></table></div>` : ''}
      <div class="row" style="align-items:end"><div style="flex:1;min-width:180px">${field('Text', html`<input class="input" name="text" list="caption-tags" value="${text}" data-input="note"><datalist id="caption-tags">${
        (this.tags ?? []).map(({ tag }) => html`<option value="${tag}"></option>`)}</datalist>`, `To add before or after captions ${of}, or a tag to remove from them.`)}</div></div>
      <div class="row">${button('Add before', 'edit', { kind: 'small', value: 'prefix', off: !text })}${button('Add after', 'edit', { kind: 'small', value: 'suffix', off: !text })}${
        button('Remove this tag', 'edit', { kind: 'small', value: 'remove-tag', off: !text })}${button('Add the trigger word to all captions', 'write', { kind: 'small', value: 'write', off: !this.trigger })}${
        button('Remove it from all', 'write', { kind: 'small', value: 'remove', off: !this.trigger })}</div>`;
  }

  note(target) {
    drafts.keep(`edit captions ${this.datasetName}`, { ...this.kept, [target.name]: target.type === 'checkbox' ? target.checked : target.value });
    this.would = null;
  }

  get search() {
    const { find, replacement = '', expression = false, match_case: matchCase = false, whole_word: wholeWord = false } = this.kept;
    return { name: this.datasetName, find, replacement, clips: this.clips, expression, match_case: matchCase, whole_word: wholeWord };
  }

  async preview() { this.would = await this.act('clips/to-replace', this.search); }

  async replace() {
    if (await changeDataset('clips/replace', this.search, captionsChanged)) this.would = null;
  }

  edit(target) {
    const { text } = this.kept;
    const verb = target.dataset.value;
    return changeDataset(`clips/${verb}`, { name: this.datasetName, clips: this.clips, [verb === 'remove-tag' ? 'tag' : 'text']: text }, captionsChanged);
  }

  write(target) { return changeDataset('clips/trigger', { name: this.datasetName, [target.dataset.value]: true }, captionsChanged); }
}
define('wb-edit-captions', EditCaptions);
