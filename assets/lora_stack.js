// The browser's half of workbench/ui/core/lora_stack.py: rows of a LoRA and its scale.
// Gradio runs this as a function of (element, trigger, props, server, watch). The value is a list of NAME=SCALE texts.
'use strict';

const ELSEWHERE = '\u0000'; // no LoRA has this name
let offered = []; // {name, title, group}
const rows = make('div', { className: 'lora-rows' });
const add = make('button', { type: 'button', className: 'add', textContent: 'Add a LoRA' });
const hint = make('p', { className: 'hint', hidden: true, textContent: 'Each LoRA changes the video with the strength of its scale. Several add up. The Delete key removes the one whose name has the focus, the arrow keys left and right go through its row.' });
const help = make('button', { type: 'button', className: 'help-button', label: 'Help: LoRAs', title: hint.textContent });
help.setAttribute('aria-expanded', false);
help.addEventListener('click', () => { hint.hidden = !hint.hidden; help.setAttribute('aria-expanded', !hint.hidden); });
const head = make('div', { className: 'head' }, make('span', { className: 'title', textContent: 'LoRAs' }), help, add);
element.replaceChildren(make('div', { className: 'lora-stack' }, head, hint, rows));

const texts = () => [...rows.children].map((row) => row.read()).filter(({ name }) => name)
  .map(formatLora);

let sent = JSON.stringify([]);
const announce = () => {
  const now = texts();
  if (JSON.stringify(now) === sent) return;
  sent = JSON.stringify(now);
  props.value = now;
  trigger('change');
};

const fill = (pick, name) => {
  const groups = [...grouped(offered)].map(([label, members]) => Object.assign(
    make('optgroup', {}, ...members.map((one) => make('option', { value: one.name, textContent: one.title }))), { label }));
  pick.replaceChildren(
    make('option', { value: '', textContent: 'Choose a LoRA …' }), ...groups,
    make('option', { value: ELSEWHERE, textContent: 'A file, or one on the Hub …' }));
  pick.value = choiceOf(offered, name)?.name ?? (name ? ELSEWHERE : '');
};

function rowOf({ name, scale }) {
  let own = name;
  const pick = make('select', { label: 'LoRA', ariaKeyShortcuts: 'Delete' });
  const other = make('input', { type: 'text', label: 'File or name on the Hub', placeholder: '/path/to/lora.safetensors or OWNER/NAME', tabIndex: -1 });
  const slide = make('input', { type: 'range', min: 0, max: 2, step: 0.05, label: 'Scale', tabIndex: -1 });
  const number = make('input', { type: 'number', step: 0.05, label: 'Scale as a number', tabIndex: -1 });
  const away = make('button', { type: 'button', className: 'away', textContent: '×', label: 'Remove this LoRA', title: 'Remove (Delete)', tabIndex: -1 });
  const about = make('p', { className: 'about' });
  const row = make('div', { className: 'lora-row' }, pick, other, make('div', { className: 'scale' }, slide, number, away), about);
  const show = () => { other.hidden = pick.value !== ELSEWHERE; };
  const showFacts = async () => {
    const name = own;
    if (!name) return about.replaceChildren();
    const answer = await server.lora_facts({ name });
    if (name !== own) return; // changed meanwhile
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
    showFacts();
    announce();
  });
  other.addEventListener('change', () => { own = other.value.trim(); showFacts(); announce(); });
  slide.addEventListener('input', () => { number.value = slide.value; });
  slide.addEventListener('change', announce);
  number.addEventListener('change', () => { slide.value = number.value; announce(); });
  pick.addEventListener('keydown', ({ key }) => { if (key === 'Delete') away.click(); });
  away.addEventListener('click', () => { row.remove(); announce(); add.focus(); });
  oneTabStop(row, 'select, input[type=text]:not([hidden]), input[type=number], .away', true);
  showFacts();
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

async function update() {
  const value = JSON.stringify(props.value ?? []);
  if (value === sent) return;
  sent = value;
  if ((props.value ?? []).length) await refresh();
  rows.replaceChildren(...(props.value ?? []).map((text) => rowOf(parseLora(text))));
}
watch('value', update);
update();
