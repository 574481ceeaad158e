// Forms made from declared settings: the state of a form, the field of a setting, and the list of all settings. Rules, sentences and
// choices come from the server: `settings/show`, `settings/choices`, `settings/check`, `settings/adapt`.

const CHECK_MS = 250;
const OTHER = '…other'; // value of the option to type an unlisted value

// ---- LoRAs with scales ----

const SCALES = [0, 1.5, 0.05]; // least, most and step of the slider; the field beside it takes any number

// 'runs/ring=0.8[0-9:0.5]' -> ['runs/ring', 0.8, '[0-9:0.5]']
function lorasScale(text) {
  const [, lora, blocks = ''] = /^(.*\S)\s*(\[[^[\]]*:[^[\]]*\])\s*$/.exec(text) ?? [text, text];
  const found = /^(.+)=(-?[\d.]+(?:e-?\d+)?)$/i.exec(lora);
  return found && !/\.safetensors$/i.test(found[2]) ? [found[1], Number(found[2]), blocks] : [lora, 1, blocks];
}

const withScale = (name, scale, blocks = '') => `${name}${scale === 1 ? '' : `=${scale}`}${blocks}`;

// ---- factors of a LoRA's blocks: '[0-9:0.5,12:0,rest:1]' <-> {0: 0.5, …, 12: 0, rest: 1}

const SLIDERS = 8; // most sliders for a LoRA's blocks

function blockFactors(text) {
  const factors = {};
  for (const [, first, last = first, factor] of text.matchAll(/(\w+)(?:\s*-\s*(\d+))?\s*:\s*([^\s,\]]+)/g)) {
    if (first === 'rest') factors.rest = Number(factor);
    else for (let block = Number(first); block <= Number(last); block += 1) factors[block] = Number(factor);
  }
  return factors;
}

function blocksText(factors) {
  const runs = [];
  for (const block of Object.keys(factors).filter((name) => name !== 'rest').map(Number).sort((one, other) => one - other)) {
    const before = runs.at(-1), factor = factors[block];
    if (before && before.last === block - 1 && before.factor === factor) before.last = block;
    else runs.push({ first: block, last: block, factor });
  }
  const parts = runs.filter(({ factor }) => factor !== 1).map(({ first, last, factor }) => `${first === last ? first : `${first}-${last}`}:${factor}`);
  if ((factors.rest ?? 1) !== 1) parts.push(`rest:${factors.rest}`);
  return parts.length ? `[${parts.join(',')}]` : '';
}

// Blocks in at most SLIDERS groups: {title, blocks, share}. found: the answer of `loras/blocks`
function blockGroups(found) {
  const inside = found.filter(({ block }) => block !== null), rest = found.find(({ block }) => block === null);
  const size = Math.ceil(inside.length / SLIDERS), groups = [];
  for (let at = 0; at < inside.length; at += size) {
    const part = inside.slice(at, at + size), first = part[0].block, last = part.at(-1).block;
    groups.push({ title: first === last ? `Block ${first}` : `Blocks ${first}–${last}`, blocks: part.map(({ block }) => block), share: part.reduce((sum, { share }) => sum + share, 0) });
  }
  return rest ? [...groups, { title: 'Other layers', blocks: ['rest'], share: rest.share }] : groups;
}

// ---- values of fields ----

const textOfValue = (setting, value) => {
  if (value === null || value === undefined) return '';
  if (setting.kind === 'texts') return value.join('\n');
  if (setting.kind === 'numbers') return Array.isArray(value) ? value.join(', ') : String(value);
  if (typeof value === 'number' && value !== 0 && Math.abs(value) < 0.001) return value.toExponential();
  return setting.kind === 'object' ? JSON.stringify(value) : String(value);
};

// Convert typed text to a JSON value. Text of the wrong kind stays text, which the server refuses with a sentence.
function valueOfText(setting, text) {
  const bare = text.trim();
  if (setting.kind === 'texts') return text.split('\n').map((line) => line.trim()).filter(Boolean);
  if (bare === '' && setting.optional && (setting.kind !== 'text' || setting.source)) return null;
  if (setting.kind === 'object') {
    try { return JSON.parse(bare || '{}'); } catch { return text; }
  }
  if (setting.kind === 'numbers') {
    const numbers = bare.split(/[\s,]+/).filter(Boolean).map(Number);
    return numbers.every(Number.isFinite) ? numbers : text;
  }
  if (setting.kind === 'integer' || setting.kind === 'number') return bare !== '' && Number.isFinite(Number(bare)) ? Number(bare) : text;
  return setting.rows > 1 ? text : bare;
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

// What a form calls a choice.
const labelOf = ({ choices, labels }, value) => labels?.[choices.indexOf(value)] ?? value;

// A value in words: "none", "on", "512 / 768", "1 step".
function valueInWords(setting, value) {
  if (value === null || value === undefined || value === '' || value.length === 0) return 'none';
  if (typeof value === 'boolean') return value ? 'on' : 'off';
  const text = Array.isArray(value) ? value.join(' / ') : labelOf(setting, textOfValue(setting, value));
  return setting.unit ? `${text} ${value === 1 ? setting.unit.replace(/s$/, '') : setting.unit}` : text;
}

// Settings that contain every typed word in title, name, help, section or their names in other programs.
function foundSettings(settings, typed) {
  const spaced = (text) => text.replaceAll('_', ' ');
  return settings.filter(({ title, name, help, section, also }) => hasWords(spaced(`${title} ${name} ${help} ${section} ${also}`), spaced(typed)));
}

// ---- the state of a form ----

// A form that is being filled in. Elements (`wb-setting`, `wb-settings`) show it and redraw as it changes.
//   form: name for `settings/show`;  where: address that keeps it as a draft
//   start: initial values;  beside: values of fields that are not settings, kept with it
//   several: allow several values per setting (numbers as text with commas, choices and switches as lists), which are in `tried`
//     instead of `single`
//   check(filling): called after each change for {problems, without_effect, notes}; default `settings/check`
class Filling {
  static declared = new Map();

  constructor(form, { where = '', start = {}, beside = {}, several = false, check = null } = {}) {
    const kept = where ? drafts.read(where, form) : {};
    Object.assign(this, {
      form, where, several, values: { ...start, ...kept.values }, beside: { ...beside, ...kept.beside }, settings: [], problems: {}, missing: {}, without: [], notes: [],
      own: {}, filled: new Set(), touched: new Set(), listeners: new Set(), lists: new Map(), last: 0,
    });
    this.asked = check ?? (() => page.transport.call('settings/check', { form, values: this.values }));
    this.resumed = Boolean(kept.values);
  }

  // Load the declarations, once for all forms of a kind.
  async load() {
    if (!Filling.declared.has(this.form)) Filling.declared.set(this.form, page.transport.call('settings/show', { form: this.form }));
    this.settings = await Filling.declared.get(this.form);
    this.named = new Map(this.settings.map((setting) => [setting.name, setting]));
    this.told();
    await this.check();
    return this;
  }

  setting(name) { return this.named?.get(name); }
  get(name) { return name in this.values ? this.values[name] : this.setting(name)?.default; }
  differs(name) { return name in this.values; }

  // Values that equal the default are not stored.
  put(name, value) { if (same(value, this.setting(name).default)) delete this.values[name]; else this.values[name] = value; }

  // Set a value, as a person does.
  set(name, value) {
    this.touched.add(name);
    this.put(name, value);
    for (const told of [this.problems, this.missing]) delete told[name];
    delete this.problems[''];
    this.filled.delete(name);
    this.keep();
    if (name === 'model') this.adapt(); else this.later();
  }

  reset(name) { this.set(name, this.setting(name).default); }

  note(name, value) {
    this.beside[name] = value;
    delete this.problems[name];
    this.keep();
    this.later();
  }

  // Fill in several values, which are marked as filled in until they change.
  fill(values) {
    for (const [name, value] of Object.entries(values)) {
      if (!this.setting(name)) continue;
      if (!same(this.get(name), value)) this.filled.add(name);
      this.put(name, value);
    }
    this.problems = {};
    this.keep();
    this.later(0);
  }

  // After a change of the model, reset what it does not support. `notes` says so.
  async adapt() {
    const { values, notes } = await page.transport.call('settings/adapt', { form: this.form, values: this.values }).catch(() => ({ values: {}, notes: [] }));
    for (const [name, value] of Object.entries(values)) this.put(name, value);
    this.adapted = notes;
    this.keep();
    this.later(0);
  }

  // Return a function that sets the form to these values, by default the current ones.
  backTo(values = { ...this.values }, beside = { ...this.beside }) {
    return () => {
      Object.assign(this, { values, beside, problems: {} });
      this.filled.clear();
      this.keep();
      this.later(0);
    };
  }

  keep() {
    if (this.where) drafts.keep(this.where, { values: this.values, beside: this.beside }, this.form);
    this.told();
  }

  // Drop the draft, after it was sent.
  forget() { drafts.forget(this.where, this.form); }

  // Settings with several values: ["learning_rate=1e-4, 3e-4", "optimizer=adamw,muon"].
  get tried() { return this.settings.filter(({ name }) => this.hasSeveral(name)).map(({ name }) => `${name}=${this.values[name]}`); }

  hasSeveral(name) {
    const value = this.values[name];
    if (this.isListed(name)) return value.length > 1;
    return this.several && typeof value === 'string' && ['integer', 'number'].includes(this.setting(name)?.kind) && value.includes(',');
  }

  // Whether a choice or switch shows a checkbox per value.
  isListed(name) { return this.several && Array.isArray(this.values[name]) && ['choice', 'switch'].includes(this.setting(name)?.kind); }

  // Settings with one value, for operations.
  get single() {
    return Object.fromEntries(Object.entries(this.values).filter(([name]) => !this.hasSeveral(name)).map(([name, value]) => [name, this.isListed(name) ? value[0] : value]));
  }

  later(wait = CHECK_MS) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), wait);
    this.told();
  }

  // Check the values, and ignore answers that a later change has overtaken.
  async check() {
    this.last += 1;
    const number = this.last;
    this.checking = true;
    try {
      const answer = await this.asked(this);
      if (number !== this.last) return;
      [this.problems, this.missing] = this.sorted(answer.problems);
      if (!Object.keys(this.problems).length) this.without = answer.without_effect ?? [];
      this.notes = answer.notes ?? [];
      if (Object.keys(answer.own ?? {}).length) this.own = answer.own;
      this.model = answer.model || this.model;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (number === this.last) this.refuse(problem, null);
    } finally {
      if (number === this.last) { this.checking = false; this.told(); }
    }
  }

  // Split problems into wrong and missing values. Before the form is sent, an empty field that nobody has touched is only missing.
  sorted(problems) {
    const quiet = (name) => !this.sent && !this.touched.has(name) && this.setting(name) && ['', null, undefined].includes(this.get(name));
    return [false, true].map((which) => Object.fromEntries(Object.entries(problems).filter(([name]) => Boolean(quiet(name)) === which)));
  }

  // Show why the form was refused, and focus the first wrong field within `element`.
  refuse(problem, element) {
    if (element) this.sent = true;
    this.problems = Object.keys(problem.problems).length ? { ...problem.problems } : { '': problem.message };
    this.told();
    if (element) setTimeout(() => (element.querySelector('[aria-invalid=true]') ?? element.querySelector('.problems'))?.focus());
  }

  // The current choices of a setting, or undefined until they arrive.
  choices(setting) {
    const mark = JSON.stringify([setting.name, this.get('model'), this.get('run')]);
    if (!this.lists.has(mark)) {
      this.lists.set(mark, undefined);
      page.transport.call('settings/choices', { form: this.form, name: setting.name, values: this.single }).then((found) => {
        this.lists.set(mark, found);
        this.told();
      }, () => this.lists.delete(mark));
    }
    return this.lists.get(mark);
  }

  told() { for (const one of this.listeners) one(); }
}

// The base of elements that show a form, their property `filling`.
class FillingElement extends WorkbenchElement {
  told = () => this.redraw();
  arrived() { this.filling?.listeners.add(this.told); }
  left() { this.filling?.listeners.delete(this.told); }

  changed(name) {
    if (name !== 'filling') return;
    this.shown?.listeners.delete(this.told);
    this.shown = this.filling;
    if (this.present) this.filling?.listeners.add(this.told);
  }

  // ---- handlers of fields

  typed(target) {
    const setting = this.filling.setting(target.name);
    this.filling.set(target.name, valueOfText(setting, target.value));
  }

  chosen(target) {
    if (target.value === OTHER) this.typing = target.name; else this.typed(target);
  }

  switched(target) { this.filling.set(target.name, target.checked); }

  // Switch between one and several values of a choice or switch.
  trySeveral(target) {
    const { filling } = this;
    const name = target.dataset.value;
    const value = filling.get(name);
    filling.set(name, Array.isArray(value) ? value[0] : [value]);
  }

  // Toggle one of several values. The last one stays.
  tries(target) {
    const { filling } = this;
    const value = target.value === 'true' ? true : target.value === 'false' ? false : target.value;
    const before = filling.get(target.name);
    const after = target.checked ? [...before, value] : before.filter((one) => one !== value);
    if (after.length) filling.set(target.name, after);
    else target.checked = true;
  }

  added(target) {
    const before = this.filling.get(target.name) ?? [];
    if (target.value) this.filling.set(target.name, [...before, target.value]);
    target.value = '';
  }

  reset(target) { this.filling.reset(target.dataset.value); }

  // The setting `loras` as a list with sliders. known(name): the library's entry of a LoRA, if any
  loraLines(known) {
    return html`<ul class="lora-lines">${this.filling.get('loras').map((text, index) => {
      const [name, scale, blocks] = lorasScale(text), lora = known(name);
      const title = lora?.title ?? name.split('/').at(-1);
      const about = lora?.verdict ?? { tone: 'faint', claim: lora?.base_model ?? '' };
      return html`<li data-id="lora-${name}"><span class="one-line" title="${name}"><b>${title}</b> <span class="fine ${about.tone}" title="${about.evidence ?? ''}">${about.claim}</span></span>
        <input class="input" value="${scale.toFixed(2)}" inputmode="decimal" aria-label="Scale of ${title}" data-at="${index}" data-change="scale">${
        button('', 'mix', { kind: 'quiet square small', name: 'settings', label: `Blocks of ${title}`, value: name, pressed: Boolean(this.mixing?.[name]) || blocks !== '' })}${
        button('', 'without', { kind: 'quiet square small', name: 'close', label: `Remove ${title}`, value: index })}
        <input type="range" min="${SCALES[0]}" max="${SCALES[1]}" step="${SCALES[2]}" value="${scale}" data-at="${index}" data-input="scale" aria-label="Scale of ${title}, slider">${this.mixing?.[name] && this.mixer(index, name, blocks, title)}</li>`;
    })}</ul>`;
  }

  // Sliders for the blocks of a LoRA. Each also shows the block's share of the LoRA's change.
  mixer(index, name, text, title) {
    const found = this.mixing[name], factors = blockFactors(text), full = name.includes('/') ? name : `runs/${name}`;
    if (found.problem) return html`<p class="fine bad">${sentence(found.problem)}</p>`;
    if (!found.groups) return html`<p class="fine faint" role="status">Reading the file…</p>`;
    return html`<div class="mixer" role="group" aria-label="Blocks of ${title}">${found.groups.map(({ title: group, blocks, share }, at) => {
      const factor = factors[blocks[0]] ?? 1, mixed = blocks.some((block) => (factors[block] ?? 1) !== factor);
      return html`<label title="${(share * 100).toFixed(1)} % of the LoRA's change"><span class="fine">${group}</span><span class="share" style="--share:${share / found.most}"></span><input type="range" min="0" max="1.5" step="0.05" value="${factor}" data-at="${index}" data-group="${at}" data-input="blockScale"
        aria-label="${group} of ${title}"><span class="fine tabular">${mixed ? 'mixed' : factor.toFixed(2)}</span></label>`;
    })}<div class="row tight"><span class="fine faint">The bars show where the LoRA changes the model.</span><span class="spacer"></span>${text && button('Reset', 'resetBlocks', { kind: 'link fine', value: index })}${
      linkTo('Compare', address('compare', 'new', full, ...(text ? [`${full}${text}`] : found.groups.slice(0, SLIDERS).map(({ blocks }) => `${full}${blocksText(Object.fromEntries(blocks.map((block) => [block, 0])))}`))), {
        kind: 'link fine', title: text ? 'With and without these factors' : 'With each group of blocks off' })}</div></div>`;
  }

  async mix(target) {
    const name = target.dataset.value;
    this.mixing ??= {};
    if (this.mixing[name]) { delete this.mixing[name]; return; }
    this.mixing[name] = {};
    const found = await page.transport.call('loras/blocks', { lora: name }).catch((problem) => problem);
    const groups = Array.isArray(found) && blockGroups(found);
    this.mixing[name] = groups ? { groups, most: Math.max(...groups.map(({ share }) => share)) || 1 } : { problem: found.message };
  }

  blockScale(target) {
    this.changeLora(target.dataset.at, (name, scale, text) => {
      const { blocks } = this.mixing[name].groups[Number(target.dataset.group)];
      return [name, scale, blocksText({ ...blockFactors(text), ...Object.fromEntries(blocks.map((block) => [block, Number(target.value)])) })];
    });
  }

  resetBlocks(target) { this.changeLora(target.dataset.value, (name, scale) => [name, scale]); }

  scale(target) {
    const scale = Number(target.value);
    if (Number.isFinite(scale)) this.changeLora(target.dataset.at, (name, _, blocks) => [name, scale, blocks]);
  }

  // Change a LoRA of the list. change(name, scale, blocks): returns them as they should be
  changeLora(at, change) {
    const loras = this.filling.get('loras');
    this.filling.set('loras', loras.with(Number(at), withScale(...change(...lorasScale(loras[Number(at)])))));
  }

  without(target) { this.filling.set('loras', this.filling.get('loras').filter((_, index) => index !== Number(target.dataset.value))); }

  // The control for a setting's kind and choices.
  control(setting) {
    const { filling } = this;
    const value = filling.get(setting.name);
    const text = typeof value === 'string' ? value : textOfValue(setting, value);
    const marks = new Markup(`name="${setting.name}" aria-label="${escaped(setting.title)}"${filling.problems[setting.name] ? ' aria-invalid="true"' : ''}${
      filling.filled.has(setting.name) ? ' data-filled' : ''}`);
    const placeholder = filling.own[setting.name] ?? /Empty: ([^.]*)/.exec(setting.help)?.[1] ?? (setting.optional ? 'none' : '');
    if (filling.isListed(setting.name)) {
      const options = setting.kind === 'switch' ? [[true, 'On'], [false, 'Off']] : setting.choices.map((one) => [one, labelOf(setting, one)]);
      return html`<div class="several" role="group" aria-label="${setting.title}">${options.map(([one, words]) => html`<label class="check"><input type="checkbox" name="${setting.name}" value="${String(one)}" data-change="tries" ?checked=${
        value.includes(one)}>${words}</label>`)}${button('one value', 'trySeveral', { kind: 'link', value: setting.name })}</div>`;
    }
    const more = filling.several && (setting.kind === 'switch' || (setting.kind === 'choice' && !setting.source))
      ? button('try several', 'trySeveral', { kind: 'link try-several', value: setting.name, label: `Try several: ${setting.title}` }) : '';
    if (setting.kind === 'switch') {
      return html`<div class="row tight"><label class="check"><input type="checkbox" ${marks} data-change="switched" ?checked=${value}><span>${value ? 'On' : 'Off'}</span></label>${more}</div>`;
    }
    if (setting.kind === 'texts') {
      const choices = setting.source ? filling.choices(setting) ?? [] : [];
      return html`<textarea class="input" rows="${Math.min(8, Math.max(setting.rows, setting.source ? 1 : 2, value?.length ?? 0))}" ${marks} placeholder="${placeholder}" data-input="typed">${
        text}</textarea>${choices.length ? html`<select class="input" name="${setting.name}" aria-label="Add to ${setting.title}" data-change="added"><option value="">Add…</option>${
        choices.map((one) => html`<option value="${one.value}">${one.title}</option>`)}</select>` : ''}`;
    }
    if (setting.source && this.typing !== setting.name) return this.list(setting, text, marks);
    if (setting.kind === 'choice') {
      return html`<div class="row tight"><select class="input" ${marks} data-change="chosen">${setting.choices.map((one) => html`<option value="${one}" ?selected=${one === value}>${labelOf(setting, one)}</option>`)}</select>${more}</div>`;
    }
    if (setting.rows > 1) return html`<textarea class="input" rows="${setting.rows}" ${marks} placeholder="${placeholder}" data-input="typed">${text}</textarea>`;
    const mode = { integer: filling.several ? 'text' : 'numeric', number: filling.several ? 'text' : 'decimal' }[setting.kind] ?? 'text';
    return html`<input class="input" ${marks} value="${text}" inputmode="${mode}" placeholder="${placeholder}" autocomplete="off" spellcheck="false" data-input="typed">`;
  }

  // A list of choices. It includes an unlisted current value, and an option to type one if the setting takes paths.
  list(setting, text, marks) {
    const choices = this.filling.choices(setting) ?? [];
    const groups = [...new Set(choices.map(({ group }) => group))];
    const options = (list) => list.map((one) => html`<option value="${one.value}" ?selected=${one.value === text}>${one.title}</option>`);
    return html`<select class="input" ${marks} data-change="chosen">${(setting.optional || text === '') && html`<option value="" ?selected=${text === ''}>none</option>`}${
      text !== '' && !choices.some(({ value }) => value === text) ? html`<option value="${text}" selected>${text}</option>` : ''}${groups.map((group) => {
      const members = choices.filter((one) => one.group === group);
      return group ? html`<optgroup label="${group}">${options(members)}</optgroup>` : options(members);
    })}${(setting.path || setting.source === 'caption_models') && html`<option value="${OTHER}">Another…</option>`}</select>`;
  }
}

// The field of a setting.
//   hint: text below it, such as its cost;  label: replaces the setting's title
class SettingField extends FillingElement {
  static properties = ['filling', 'name', 'hint', 'label'];

  view() {
    const setting = this.filling?.setting(this.name);
    if (!setting) return html`${field(this.label ?? this.name, skeleton('height:var(--wb-control)'))}`;
    const unit = setting.unit && !setting.title.toLowerCase().includes(setting.unit) && !this.label ? html`<span class="faint">${setting.unit}</span>` : '';
    return field(html`<span title="${setting.help}">${this.label ?? setting.title}</span>${unit}`, this.control(setting), this.hint ?? '', this.filling.problems[setting.name]);
  }
}
define('wb-setting', SettingField);

const settingField = (filling, name, hint = '', label = undefined) => html`<wb-setting data-id="setting-${name}" .filling=${filling} .name=${name} .hint=${hint} .label=${label}></wb-setting>`;

// All settings of a form except `without`, with a search. usual: what "differ" compares with, such as "the defaults"
class SettingsList extends FillingElement {
  static properties = ['filling', 'without', 'usual', 'placeholder'];
  search = '';

  // The focused field shows its help. While the pointer is down nothing opens or closes, so that nothing moves under it.
  helped = '';

  born() {
    const help = (name) => { if (this.helped !== name) { this.helped = name; this.redraw(); } };
    let pressed = false;
    let next = '';
    this.addEventListener('focusin', ({ target }) => {
      next = target.closest('.setting')?.dataset.id ?? '';
      if (!pressed) help(next);
    });
    window.addEventListener('pointerdown', () => { pressed = true; }, true);
    for (const end of ['pointerup', 'pointercancel']) window.addEventListener(end, () => setTimeout(() => { pressed = false; help(next); }), true);
  }

  view() {
    const { filling } = this;
    if (!filling?.settings.length) return skeleton('height:200px');
    const all = filling.settings.filter(({ name }) => !this.without?.includes(name));
    const off = new Set(filling.without.filter((name) => !filling.differs(name)));
    const fits = foundSettings(all, this.search);
    const shown = fits.filter(({ name }) => !off.has(name));
    const differ = all.filter(({ name }) => filling.differs(name)).length;
    const hidden = fits.length - shown.length;
    const result = !fits.length ? `No setting matches “${this.search.trim()}”.`
      : `${shown.length} of ${count(all.length, 'setting')}${hidden ? `, and ${hidden} more that ${hidden === 1 ? 'has' : 'have'} no effect with the current values` : ''}`;
    let section = null;
    return html`<header><h2>All settings</h2><span class="fine faint">${count(all.length, 'setting')}${differ ? `, of which ${differ} ${differ === 1 ? 'differs' : 'differ'} from ${
      this.usual ?? 'the defaults'}` : ''}</span></header>
      <input class="input find-setting" type="search" value="${this.search}" placeholder="${this.placeholder ?? 'Find: memory, flip, network_alpha, save_every'}" aria-label="Find a setting"
        data-input="find"><p class="fine faint" role="status">${this.search.trim() && result}</p>
      <div class="settings-list ${this.search.trim() && 'searched'}">${shown.map((setting) => {
        const head = setting.section !== section && html`<h3 data-id="section-${setting.section}">${setting.section}</h3>`;
        section = setting.section;
        return html`${head}${this.line(setting)}`;
      })}</div>`;
  }

  line(setting) {
    const { filling } = this;
    const problem = filling.problems[setting.name];
    const differs = filling.differs(setting.name);
    return html`<div class="setting ${differs && 'differs'} ${this.helped === `line-${setting.name}` && 'helped'}" data-id="line-${setting.name}" title="${setting.help}"><div><b>${setting.title}</b>${setting.unit && html` <span class="faint">${setting.unit}</span>`}</div>
      <div>${this.control(setting)}${problem ? html`<span class="fine bad" role="alert">${prose(problem)}</span>` : ''}<p class="help">${prose(setting.help)}</p></div>
      <div><span class="mono fine faint" title="${setting.also ? `Elsewhere: ${setting.also}` : ''}">${setting.name}</span>${
  differs && button('Default', 'reset', { kind: 'quiet small', value: setting.name, label: `${setting.title}: back to ${valueInWords(setting, setting.default)}` })}</div></div>`;
  }

  find(target) { this.search = target.value; }
}
define('wb-settings', SettingsList);

// Problems of fields that are not shown. shown: names of fields that show their own problems
const otherProblems = (filling, shown = []) => {
  const left = Object.entries(filling.problems).filter(([name]) => !shown.includes(name));
  return left.length ? html`<ul class="problems bad" role="alert" tabindex="-1">${left.map(([name, text]) => html`<li>${filling.setting(name) ? html`<b>${filling.setting(name).title}:</b> ` : ''}${prose(sentence(text))}</li>`)}</ul>` : '';
};
