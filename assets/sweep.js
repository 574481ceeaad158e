/* global FORM -- ui/train/sweep.py puts it in front */
// The browser's half of workbench/ui/train/sweep.py: rows of a setting and the values that are tried of it.
// Gradio runs this as a function of (element, trigger, props, server, watch). The value is a list of SETTING=VALUE,VALUE
// texts. FORM, which stands before this script, is where the browser keeps what the form holds.
'use strict';

const UNREACHED = 'The server does not answer: the values are checked when the run is started.';
let settings = null; // of a run, once they are needed
let checks = 0, sent = JSON.stringify([]);
const names = make('datalist', { id: 'sweep-settings' });
const rows = make('div', { className: 'sweep-rows' });
const add = make('button', { type: 'button', className: 'add', textContent: 'Add a setting' });
const total = make('p', { className: 'hint', role: 'status' });
const about = make('p', { className: 'hint', textContent: 'Every combination of the values becomes a run of its own, named after its values. They train one after the other. Without a setting here: one run.' });
element.replaceChildren(make('div', { className: 'sweep' }, about, names, rows, add, total));

async function load() {
  if (settings) return;
  settings = (await server.sweep_settings({}))?.settings ?? null;
  names.replaceChildren(...(settings ?? []).map((one) => Object.assign(make('option', { value: one.title }), { label: [one.section, one.name, one.also].filter(Boolean).join(' · ') })));
}

// What the form holds now, as the browser keeps it.
function present(one) {
  let kept = {};
  try { kept = JSON.parse(localStorage.getItem(FORM)) ?? {}; } catch { /* a private window keeps nothing */ }
  return one.name in kept ? valueText(kept[one.name]) : one.default;
}

function rowOf({ name, values }) {
  let setting = null;
  const pick = make('input', { type: 'text', className: 'setting', placeholder: 'Find a setting by its label', label: 'Setting' });
  pick.setAttribute('list', names.id);
  const away = make('button', { type: 'button', className: 'away', textContent: '×', label: 'Remove this setting', title: 'Remove' });
  const facts = make('p', { className: 'hint' });
  const field = make('input', { type: 'text', className: 'values', label: 'Values to try' });
  const ticks = make('div', { role: 'group', className: 'ticks', label: 'Values to try', hidden: true });
  const problem = make('p', { className: 'field-problem', id: `sweep-problem-${rowOf.made = (rowOf.made ?? 0) + 1}`, hidden: true });
  const row = make('div', { className: 'sweep-row' }, make('div', { className: 'line' }, pick, away), facts, field, ticks, problem);
  const ticked = () => [...ticks.querySelectorAll('input:checked')].map((one) => one.value);
  row.read = () => {
    if (!pick.value.trim()) return '';
    return sweepText(setting?.name ?? pick.value, setting?.choices.length ? ticked().map(quoted).join(', ') : field.value);
  };
  row.show = (sentence) => {
    problem.hidden = !sentence;
    set(problem, sentence);
    for (const one of [pick, field]) one.removeAttribute('aria-invalid');
    const wrong = setting ? field : pick;
    if (sentence) { wrong.setAttribute('aria-invalid', 'true'); wrong.setAttribute('aria-describedby', problem.id); } else wrong.removeAttribute('aria-describedby');
  };
  const settle = (given) => {
    setting = settingOf(settings ?? [], pick.value);
    if (setting) pick.value = setting.title;
    facts.textContent = setting ? `${setting.help} Now: ${present(setting)}.` : '';
    const choices = setting?.choices ?? [];
    const chosen = new Set(given ?? [present(setting ?? { name: '', default: '' })]);
    ticks.replaceChildren(...choices.map(([value, title]) => make('label', { className: 'check' }, make('input', { type: 'checkbox', value, checked: chosen.has(value) }), title)));
    ticks.hidden = !choices.length;
    field.hidden = !setting || Boolean(choices.length);
    field.placeholder = setting ? `with commas between them: ${setting.rule}` : '';
  };
  pick.value = name;
  field.value = values;
  if (name) settle(listedValues(values));
  else field.hidden = true;
  pick.addEventListener('focus', load);
  pick.addEventListener('change', async () => { await load(); field.value = ''; settle(); announce(); });
  for (const one of [field, ticks]) one.addEventListener('change', () => announce());
  away.addEventListener('click', () => { row.remove(); announce(); add.focus(); });
  return row;
}

async function announce() {
  const shown = [...rows.children].filter((row) => row.read());
  const texts = shown.map((row) => row.read());
  if (JSON.stringify(texts) !== sent) {
    sent = JSON.stringify(texts);
    props.value = texts;
    trigger('change');
  }
  await check(shown, texts);
}

async function check(shown, texts) {
  const mine = ++checks;
  const answer = texts.length ? await server.sweep_check({ texts }) : { problems: [], runs: 0 };
  if (mine !== checks) return;
  shown.forEach((row, index) => row.show(answer?.problems?.[index] ?? ''));
  set(total, !answer ? UNREACHED : answer.problem ?? (answer.runs ? `${answer.runs === 1 ? 'One run' : `${answer.runs} runs`} will be started.` : ''));
}

add.addEventListener('click', async () => {
  await load();
  const row = rowOf({ name: '', values: '' });
  rows.append(row);
  row.querySelector('input').focus();
});

async function update() {
  const given = Array.isArray(props.value) ? props.value : [];
  if (JSON.stringify(given) === sent) return;
  sent = JSON.stringify(given);
  if (given.length) await load();
  rows.replaceChildren(...given.map((text) => rowOf(sweepParts(text))));
  check([...rows.children], given);
}
watch('value', update);
update();
