// The browser's half of workbench/ui/core/problems.py: what is wrong with a form, at its button and at the fields.
// Gradio runs this as a function of (element, trigger, props, server, watch). The value is
// {problems: [{name, text, lasts}], at}. A sentence goes when its field changes; one of no field goes at the next change on
// the tab. One that lasts until its cause goes is asked for as long as it is seen.
'use strict';

const ASK_MS = 5000;
const VALUES = 'input, textarea, select';
const box = make('div', { role: 'alert' });
element.replaceChildren(box);
let marks = []; // {text, lasts, block, control, note, line, was}
let seen = 0;

const idOf = (name) => (name.startsWith('#') ? name.slice(1) : props.prefix + name); // '#' and the id: of no setting
const pause = () => new Promise((go) => setTimeout(go, 50));

// The block of a field, which is folded away perhaps, and then not on the page before the fold is open.
async function reveal(name) {
  const own = `[id^="${CSS.escape(props.prefix)}"]`;
  for (let tries = 0; tries < 60; tries += 1) {
    const block = document.getElementById(idOf(name));
    if (block) block.setAttribute('data-problem', '');
    if (block?.offsetParent) return block;
    const more = document.querySelector(own)?.closest('.form-parts')?.querySelector('.more');
    const content = more?.querySelector(':scope > [data-testid=accordion-content]');
    if (more && content?.style.display === 'none') more.querySelector(':scope > button').click();
    await pause();
  }
  return null;
}

const drop = (mark) => {
  marks = marks.filter((one) => one !== mark);
  mark.line.remove();
  if (!box.querySelector('li')) box.replaceChildren();
  if (!mark.block) return;
  mark.note.remove();
  mark.block.removeAttribute('data-problem');
  mark.control?.removeAttribute('aria-invalid');
  if (mark.described) mark.control.setAttribute('aria-describedby', mark.described); // its help, as before
  else mark.control?.removeAttribute('aria-describedby');
};

const focus = (block) => {
  const show = () => (block ?? box).scrollIntoView({ block: 'center', behavior: 'instant' });
  show();
  block?.querySelector(VALUES)?.focus({ preventScroll: true });
  setTimeout(show, 300); // a fold that opens moves what is below it
};

async function markField(mark, name, text) {
  const block = await reveal(name);
  if (!block || !marks.includes(mark)) return null;
  const note = make('p', { className: 'field-problem', id: `${idOf(name)}-problem`, textContent: text });
  block.append(note);
  const control = block.querySelector(VALUES);
  control?.setAttribute('aria-invalid', 'true');
  const described = control?.getAttribute('aria-describedby');
  control?.setAttribute('aria-describedby', note.id);
  Object.assign(mark, { block, control, note, described, was: contentOf(block) });
  return block;
}

async function show() {
  const { problems = [], at = 0 } = props.value ?? {};
  if (at && at === seen) { // asked again: some have gone
    const left = problems.map(({ text }) => text);
    return marks.filter((mark) => !left.includes(mark.text)).forEach(drop);
  }
  [...marks].forEach(drop);
  if (!problems.length) return;
  const list = make('ul', { className: 'note bad problems' });
  const found = problems.map(({ name, text, lasts }) => {
    const line = make('li', {}, text);
    list.append(line);
    return { name, text, mark: { line, text, lasts } };
  });
  marks = found.map(({ mark }) => mark);
  box.replaceChildren(list);
  seen = at;
  let first = null;
  for (const { name, text, mark } of found) {
    if (!name) continue;
    const block = await markField(mark, name, text);
    if (block && !first) focus(first = block);
  }
  if (!first) focus(null);
}

const changed = () => setTimeout(() => {
  for (const mark of marks) if (mark.block && contentOf(mark.block) !== mark.was) drop(mark);
}, 100);
const typed = (event) => {
  changed();
  if (!event.target.closest('[role=tabpanel]')?.contains(element)) return;
  for (const mark of marks) if (!mark.block) drop(mark);
};
let asked = 0;
let away = false;
const ask = () => {
  if (!marks.some((mark) => mark.lasts)) return;
  const here = element.offsetParent && !document.hidden;
  if (here && (away || Date.now() - asked > ASK_MS)) { asked = Date.now(); trigger('again'); }
  away = !here;
};
if (!element.dataset.listens) {
  element.dataset.listens = 'yes';
  setInterval(ask, 500);
  for (const name of ['input', 'change']) document.addEventListener(name, typed);
  for (const name of ['click', 'keyup', 'focusout']) document.addEventListener(name, changed);
}
watch('value', show);
