// The browser's half of workbench/ui/sample/lora_stack.py: rows of a LoRA and its scale.
// Gradio runs this as a function of (element, trigger, props, server, watch). The value is a list of NAME=SCALE texts.
'use strict';

const ELSEWHERE = '\u0000'; // no LoRA is called so
let offered = []; // {name, title, group}
const rows = make('div', { className: 'lora-rows' });
const add = make('button', { type: 'button', className: 'add', textContent: 'Add a LoRA' });
const hint = make('p', { className: 'hint', textContent: 'Each changes what the model draws, as strongly as its scale says. Several add up.' });
element.replaceChildren(make('div', { className: 'lora-stack' }, make('span', { className: 'title', textContent: 'LoRAs' }), hint, rows, add));

const parse = (text) => {
  const at = text.lastIndexOf('=');
  const scale = at > 0 ? Number(text.slice(at + 1)) : NaN;
  return Number.isFinite(scale) && text.slice(at + 1).trim() ? { name: text.slice(0, at), scale } : { name: text, scale: 1 };
};
const texts = () => [...rows.children].map((row) => row.read()).filter(({ name }) => name)
  .map(({ name, scale }) => (scale === 1 ? name : `${name}=${scale}`));
const known = (name) => offered.find((one) => one.name === name || one.name === `runs/${name}`);

let sent = JSON.stringify([]);
const tell = () => {
  const now = texts();
  if (JSON.stringify(now) === sent) return;
  sent = JSON.stringify(now);
  props.value = now;
  trigger('change');
};

const fill = (pick, name) => {
  const groups = new Map();
  for (const one of offered) {
    if (!groups.has(one.group)) groups.set(one.group, make('optgroup', { label: one.group }));
    groups.get(one.group).label = one.group;
    groups.get(one.group).append(make('option', { value: one.name, textContent: one.title }));
  }
  pick.replaceChildren(
    make('option', { value: '', textContent: 'Choose a LoRA …' }), ...groups.values(),
    make('option', { value: ELSEWHERE, textContent: 'A file, or one on the Hub …' }));
  pick.value = known(name)?.name ?? (name ? ELSEWHERE : '');
};

function rowOf({ name, scale }) {
  let own = name;
  const pick = make('select', { label: 'LoRA' });
  const other = make('input', { type: 'text', label: 'File or name on the Hub', placeholder: '/path/to/lora.safetensors or OWNER/NAME' });
  const slide = make('input', { type: 'range', min: 0, max: 2, step: 0.05, label: 'Scale' });
  const number = make('input', { type: 'number', step: 0.05, label: 'Scale as a number' });
  const away = make('button', { type: 'button', className: 'away', textContent: '×', label: 'Take this LoRA away', title: 'Take it away' });
  const about = make('p', { className: 'about' });
  const row = make('div', { className: 'lora-row' }, pick, other, make('div', { className: 'scale' }, slide, number, away), about);
  const show = () => { other.hidden = pick.value !== ELSEWHERE; };
  const look = async () => {
    const asked = own;
    if (!asked) return about.replaceChildren();
    const answer = await server.lora_facts({ name: asked });
    if (asked !== own) return;
    about.textContent = answer?.problem ?? answer?.text ?? '';
    about.classList.toggle('bad', Boolean(answer?.problem));
  };
  row.read = () => ({ name: own, scale: Number.isFinite(number.valueAsNumber) ? number.valueAsNumber : 1 });
  row.refill = () => { fill(pick, own); show(); };
  slide.value = number.value = String(scale);
  other.value = name;
  row.refill();
  pick.addEventListener('focus', refresh);
  pick.addEventListener('change', () => {
    own = pick.value === ELSEWHERE ? other.value.trim() : pick.value;
    show();
    if (pick.value === ELSEWHERE) other.focus();
    look();
    tell();
  });
  other.addEventListener('change', () => { own = other.value.trim(); look(); tell(); });
  slide.addEventListener('input', () => { number.value = slide.value; });
  slide.addEventListener('change', tell);
  number.addEventListener('change', () => { slide.value = number.value; tell(); });
  away.addEventListener('click', () => { row.remove(); tell(); add.focus(); });
  look();
  return row;
}

async function refresh() {
  const answer = await server.lora_choices({});
  if (!answer?.choices || JSON.stringify(answer.choices) === JSON.stringify(offered)) return;
  offered = answer.choices;
  for (const row of rows.children) row.refill();
}

add.addEventListener('click', async () => {
  await refresh();
  const row = rowOf({ name: '', scale: 1 });
  rows.append(row);
  row.querySelector('select').focus();
});

async function follow() {
  const given = JSON.stringify(props.value ?? []);
  if (given === sent) return;
  sent = given;
  if ((props.value ?? []).length) await refresh();
  rows.replaceChildren(...(props.value ?? []).map((text) => rowOf(parse(text))));
}
watch('value', follow);
follow();
