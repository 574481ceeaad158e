// The base of every element: templates that escape their values, in-place updates of the DOM so that playing videos and
// half-typed text survive a redraw, and calls of the workbench's operations.
//
// All files of this folder form one script with one scope, in the order of `order.txt`. The page, a notebook and an exported
// report load the same script and differ in their `transport`:
//
//   transport.call('runs/pause', {name})               -> Promise of the answer; rejects with a Problem
//   transport.watch('runs/show', {name}, got, failed)  -> stop(); calls got(answer) at once and after each change
//   transport.file(path)                               -> Promise of an address that <video> or <img> can load
//   transport.upload(files, progressed)                -> Promise of the paths of the files on the server

const page = { transport: null, more: null }; // more(tries): loads the elements that the page's first script left out

// Capitalize a sentence for the page, because the library's start in lower case after "Error: ". File names stay as they are.
const sentence = (text) => (/^[a-z]+('s)?[ ,;:]/.test(text ?? '') ? text[0].toUpperCase() + text.slice(1) : text);

// Why an operation was refused: `message` for people, `problems` by setting.
class Problem extends Error {
  constructor(message, problems = {}) {
    super(sentence(message));
    this.problems = problems;
  }
}

// ---- templates ----

class Markup {
  constructor(text) { this.text = text; }
}

const ESCAPES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
const escaped = (value) => String(value).replace(/[&<>"']/g, (letter) => ESCAPES[letter]);

// Values of properties, until their elements exist.
const held = new Map();
let lastHeld = 0;

const textOf = (value) => {
  if (value instanceof Markup) return value.text;
  if (Array.isArray(value)) return value.map(textOf).join('');
  return value === null || value === undefined || value === false ? '' : escaped(value);
};

// A template: html`<b title="${text}">${text}</b>`. It escapes all values except templates and lists of them.
//   .name=${value}    sets a property of the element
//   ?name=${on}       sets the attribute if `on` is true
function html(strings, ...values) {
  let text = strings[0];
  values.forEach((value, index) => {
    const special = /\s([.?])([\w-]+)=$/.exec(strings[index]);
    if (special) {
      text = text.slice(0, -special[0].length);
      if (special[1] === '?') {
        text += value ? ` ${special[2]}` : '';
      } else {
        lastHeld += 1;
        held.set(lastHeld, value);
        text += ` data-held${lastHeld}="${special[2]}"`;
      }
    } else {
      text += textOf(value);
    }
    text += strings[index + 1];
  });
  return new Markup(text);
}

// Apply a template to each item of a list, or return `empty`.
const each = (list, template, empty = '') => (list?.length ? list.map(template) : empty);

// ---- updating the DOM in place ----

const HELD = /^data-held(\d+)$/;
// Attributes that a person changes and templates do not.
const THEIRS = new Set(['open']);
const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.id || '' : '');
const alike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName;

// Update the children of `parent` to match a template. Elements with `data-id` or `id` are matched by it, all others by position.
// A trailing `guest`, such as a dialog, belongs to no template and stays.
function morph(parent, markup) {
  const template = document.createElement('template');
  template.innerHTML = markup.text;
  morphChildren(parent, template.content);
}

function morphChildren(parent, wanted) {
  const keyed = new Map([...parent.children].filter(keyOf).map((node) => [keyOf(node), node]));
  let at = parent.firstChild;
  for (const model of [...wanted.childNodes]) {
    const key = keyOf(model);
    let node = key ? keyed.get(key) : at;
    while (!key && node && keyOf(node)) node = node.nextSibling;
    if (node && alike(node, model)) {
      if (node === at) at = at.nextSibling;
      else if (parent.moveBefore) parent.moveBefore(node, at);
      else parent.insertBefore(node, at);
      morphNode(node, model);
    } else {
      parent.insertBefore(filled(document.importNode(model, true)), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    if (!at.guest) at.remove();
    at = next;
  }
}

// Set the properties of a new node and its descendants.
function filled(node) {
  const elements = node.nodeType === 1 ? [node, ...node.querySelectorAll('*')] : [];
  for (const element of elements) {
    for (const { name, value } of [...element.attributes]) takeHeld(element, name, value);
    if (element.matches('input, textarea, select')) element.rendered = fieldValue(element);
  }
  return node;
}

function takeHeld(element, name, property) {
  const found = HELD.exec(name);
  if (!found) return false;
  element[property] = held.get(Number(found[1]));
  held.delete(Number(found[1]));
  element.removeAttribute(name);
  return true;
}

// The value that a template gives to a field.
function fieldValue(field) {
  if (field.type === 'checkbox' || field.type === 'radio') return field.hasAttribute('checked');
  if (field.nodeName === 'TEXTAREA') return field.textContent;
  if (field.nodeName === 'SELECT') return (field.querySelector('option[selected]') ?? field.querySelector('option'))?.value;
  return field.getAttribute('value') ?? '';
}

function morphNode(node, model) {
  if (node.nodeType !== 1) {
    if (node.data !== model.data) node.data = model.data;
    return;
  }
  const before = node.dataset.do;
  for (const { name, value } of [...model.attributes]) {
    if (!takeHeld(node, name, value) && node.getAttribute(name) !== value && !THEIRS.has(name)) node.setAttribute(name, value);
  }
  for (const { name } of [...node.attributes]) {
    if (!model.hasAttribute(name) && !THEIRS.has(name) && !node.ours?.has(name)) node.removeAttribute(name);
  }
  if (node.dataset.do !== before && node.matches(':hover')) node.turned = performance.now();
  const field = node.matches('input, textarea, select');
  if (node.nodeName !== 'TEXTAREA' && !(node instanceof WorkbenchElement)) morphChildren(node, model);
  // Change a field only if its template has changed, not because a person has typed since.
  if (field && node.rendered !== fieldValue(model)) {
    node.rendered = fieldValue(model);
    if (typeof node.rendered === 'boolean') node.checked = node.rendered;
    else if (node.value !== node.rendered) node.value = node.rendered;
  }
}

// ---- elements ----

// The base class of elements. A subclass defines
//   static properties  names of properties that templates set with `.name=`; each change redraws it. Properties and methods must
//                      not have names that all elements have: `dataset`, `title`, `part`, `remove`, `before` ...
//   static listens     more events than the four below and the methods that handle them: {keydown: 'key'}. They call redraw()
//   needs()            operations to watch while it is in the document: {field: ['runs/show', {name: this.name}]}. With 'once'
//                      as a third item the operation is called once. `this.field` is undefined until the answer arrives, and
//                      `this.refused.field` is the Problem if it was refused
//   view()             its template
//   born()             called when it is first added to a document
//   arrived(), left()  called each time it is added to or removed from a document
//   updated()          called after each drawing
// In its template data-do="name" calls this.name(target, event) on click, data-input on every keystroke, data-change when a
// field is done, data-submit when a form is submitted, and redraws it afterwards. During an asynchronous call its button is busy
// and ignores clicks. Whatever else changes what it shows calls redraw().
class WorkbenchElement extends HTMLElement {
  static properties = [];
  static listens = {};
  refused = {};
  watches = new Map();

  connectedCallback() {
    if (!this.listens) {
      this.listens = true;
      for (const [event, mark] of EVENTS) this.addEventListener(event, (found) => this.dispatch(found, mark));
      for (const [event, name] of Object.entries(this.constructor.listens)) this.addEventListener(event, (found) => this[name](found));
      this.born?.();
    }
    this.present = true;
    this.arrived?.();
    this.follow();
    this.draw();
  }

  disconnectedCallback() {
    // An element that is only moved returns within the same task.
    this.present = false;
    queueMicrotask(() => {
      if (this.present) return;
      for (const { stop } of this.watches.values()) stop();
      this.watches.clear();
      this.left?.();
    });
  }

  // With this method, browsers that support moveBefore do not call the other two for a move.
  connectedMoveCallback() {}
  needs() { return {}; }
  view() { return html``; }

  // Watch what is needed now, and stop watching the rest.
  follow() {
    const wanted = Object.entries(this.needs());
    const names = new Set(wanted.map(([name]) => name));
    for (const [name, { stop }] of this.watches) {
      if (!names.has(name)) { stop(); this.watches.delete(name); this[name] = undefined; }
    }
    for (const [name, [operation, values, once]] of wanted) {
      const mark = JSON.stringify([operation, values]);
      const before = this.watches.get(name);
      if (before?.mark === mark) continue;
      before?.stop();
      this[name] = undefined;
      delete this.refused[name];
      const kept = { mark, stop: () => {} };
      this.watches.set(name, kept);
      const got = (value) => {
        if (this.watches.get(name) !== kept) return;
        this[name] = value;
        delete this.refused[name];
        this.redraw();
      };
      const failed = (problem) => {
        if (this.watches.get(name) !== kept) return;
        this.refused[name] = problem;
        this.redraw();
      };
      if (once) page.transport.call(operation, values).then(got, failed);
      else kept.stop = page.transport.watch(operation, values, got, failed);
    }
  }

  // Repeat calls that are made 'once', after something has changed their answer.
  reread(...names) {
    for (const name of names.length ? names : [...this.watches.keys()]) {
      const need = this.needs()[name];
      if (need?.[2]) {
        page.transport.call(need[0], need[1]).then((value) => {
          this[name] = value;
          this.redraw();
        }, (problem) => { this.refused[name] = problem; this.redraw(); });
      }
    }
  }

  // Draw soon, once for all changes, and watch what is needed now.
  redraw() {
    if (this.due || !this.present) return;
    this.due = true;
    queueMicrotask(() => {
      this.due = false;
      if (!this.present) return;
      this.follow();
      this.draw();
    });
  }

  draw() {
    morph(this, this.view());
    this.updated?.();
  }

  // Open the dialog in the template. closed(): called after it closes, before a redraw;  lightly: a click outside also closes it
  modal(closed, lightly = false) {
    const dialog = this.querySelector('dialog');
    if (!dialog || dialog.open) return;
    dialog.addEventListener('close', () => { closed(); this.redraw(); }, { once: true });
    if (lightly) dialog.addEventListener('click', ({ target }) => { if (target === dialog) dialog.close(); });
    dialog.showModal();
    (dialog.querySelector('[autofocus]') ?? dialog).focus(); // or the browser would focus the Close button
  }

  close() { this.querySelector('dialog[open]')?.close(); }

  stay() {} // for forms and buttons that do nothing
  act(operation, values, more) { return attempt(() => page.transport.call(operation, values), more); }

  dispatch(event, mark) {
    const target = event.target.closest?.(`[data-${mark}]`);
    if (!target || ownerOf(target) !== this || target.matches(':disabled, [aria-busy=true]')) return;
    if (event.type === 'submit') event.preventDefault();
    target.closest('details.menu')?.removeAttribute('open');
    const done = this[target.dataset[mark]](target, event);
    this.redraw();
    if (!(done instanceof Promise)) return;
    if (mark === 'do') {
      (target.ours ??= new Set()).add('aria-busy');
      target.setAttribute('aria-busy', 'true');
    }
    done.finally(() => {
      target.ours?.delete('aria-busy');
      if (mark === 'do') target.removeAttribute('aria-busy');
      this.redraw();
    });
  }
}

const EVENTS = [['click', 'do'], ['input', 'input'], ['change', 'change'], ['submit', 'submit']];

// The element whose template contains a node.
function ownerOf(node) {
  let one = node.parentNode;
  while (one && !(one instanceof WorkbenchElement)) one = one.parentNode;
  return one;
}

// ---- buttons that take another's place under the pointer ----

// A click on one is ignored for SETTLE_MS unless the pointer has moved, because it was meant for the button that was there before.
const SETTLE_MS = 500;
const controlOf = (node) => node.closest?.('[data-do], a[href]') ?? null;
let meant = { control: null, does: '' }; // what the pointer was on when a person last moved it
let slid = { control: null, at: -Infinity }; // what has come under it since

const mean = (control) => { meant = { control, does: control?.dataset.do }; };
document.addEventListener('pointermove', ({ target }) => mean(controlOf(target)), true);
document.addEventListener('pointerover', ({ target, pointerType }) => {
  const control = controlOf(target);
  if (pointerType !== 'mouse') mean(control); // fingers do not rest on a button
  if (control !== slid.control) slid = { control, at: performance.now() };
}, true);
document.addEventListener('click', (event) => {
  const control = controlOf(event.target);
  if (!event.detail || !control || !meant.control || (control === meant.control && control.dataset.do === meant.does)) return;
  if (performance.now() - Math.max(control === slid.control ? slid.at : -Infinity, control.turned ?? -Infinity) > SETTLE_MS) return;
  event.preventDefault();
  event.stopPropagation();
}, true);

const defined = new Set(); // by this copy of the script; a notebook loads several

// Register an element. A changed property redraws it and updates what it watches.
function define(tag, kind) {
  if (defined.has(tag)) throw new TypeError(`<${tag}> is defined twice: rename one`);
  defined.add(tag);
  // A method named `remove` would replace the browser's own.
  const hides = Object.getOwnPropertyNames(kind.prototype).find((name) => name !== 'constructor' && typeof Object.getOwnPropertyDescriptor(kind.prototype, name).value === 'function' && name in HTMLElement.prototype);
  if (hides) throw new TypeError(`<${tag}>: browser elements already have a method ${hides}(): rename it`);
  // A property named `dataset` would hide the browser's own.
  const taken = kind.properties.find((name) => name in HTMLElement.prototype);
  if (taken) throw new TypeError(`<${tag}>: browser elements already have a property ${taken}: rename it`);
  for (const name of kind.properties) {
    const field = `_${name}`;
    Object.defineProperty(kind.prototype, name, {
      get() { return this[field]; },
      set(value) {
        if (Object.is(this[field], value)) return;
        this[field] = value;
        this.changed?.(name);
        if (this.present) { this.follow(); this.redraw(); }
      },
    });
  }
  customElements.define(tag, kind);
}

// ---- drafts by address, which survive a reload of the tab ----

const drafts = {
  read(address) {
    try { return JSON.parse(sessionStorage.getItem(`draft ${address}`)) ?? {}; } catch { return {}; }
  },
  keep(address, values) {
    try { sessionStorage.setItem(`draft ${address}`, JSON.stringify(values)); } catch { /* a frame without storage */ }
  },
  forget(address) {
    try { sessionStorage.removeItem(`draft ${address}`); } catch { /* a frame without storage */ }
  },
};

// A person's preferences, which survive the visit.
const preferences = {
  read(name, otherwise) {
    try { return JSON.parse(localStorage.getItem(`workbench ${name}`)) ?? otherwise; } catch { return otherwise; }
  },
  keep(name, value) {
    try { localStorage.setItem(`workbench ${name}`, JSON.stringify(value)); } catch { /* a frame without storage */ }
  },
};

// ---- addresses ----

// The parts of an address: '#/train/hiker%202/log' -> ['train', 'hiker 2', 'log'].
const parts = (hash) => hash.replace(/^#\/?/, '').split('/').map((part) => {
  try { return decodeURIComponent(part); } catch { return part; }
}).filter((part, index) => part || index);
const address = (...names) => `#/${names.map((name) => encodeURIComponent(name)).join('/')}`;
const goTo = (...names) => { window.location.hash = address(...names); };

// ---- messages ----

// Show a message at the bottom of the page, with an Undo button if `undo` is given.
function toast(text, undo = null, tone = '') {
  document.dispatchEvent(new CustomEvent('workbench-toast', { detail: { text, undo, tone } }));
}

// Do something that may be refused, such as calling an operation. Returns the answer, or null after showing the problem.
//   said: message after success, or a function of the answer;  undo(answer): reverts it
//   refused(problem): handles the problem instead, for forms that show it in their fields
async function attempt(does, { said = '', undo = null, refused = (problem) => toast(problem.message, null, 'bad') } = {}) {
  try {
    const answer = await does();
    const text = typeof said === 'function' ? said(answer) : said;
    if (text) toast(text, undo && (() => undo(answer)));
    return answer;
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    refused(problem);
    return null;
  }
}

// Tell screen readers something.
function say(text) {
  const node = document.getElementById('wb-say');
  if (node) node.textContent = text;
}
