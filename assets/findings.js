// The browser's half of workbench/ui/datasets/findings.py: what the dataset check found, by kind, and its fixes.
// Gradio runs this as a function of (element, trigger, props, server, watch). Whatever comes from a person's files is
// set as text, never as markup. A call of `server` answers undefined when the server cannot be reached.
'use strict';

const UNREACHED = 'The server does not answer: nothing was changed. Try again.';
const MOST_UNFOLDED = 4; // findings of a kind that are shown at once

const summary = make('div', { className: 'note' });
const outcome = make('p', { className: 'note good outcome', role: 'status', hidden: true });
const groups = make('div', { className: 'groups' });
const whole = make('section', { className: 'check-report', label: 'What the check found', hidden: true }, summary, outcome, groups);
element.replaceChildren(whole);

let shown = '', closeQuestion = () => {};
const unfolded = new Map(); // kind -> whether a person opened or closed its list

function tell(text, tone) {
  set(outcome, text);
  outcome.className = `note ${tone} outcome`;
  outcome.hidden = !text;
}

// ---- the question before a fix: what each way would do, one of them chosen

async function ask(chosen, opener, slot) {
  closeQuestion();
  tell('', 'plain');
  const request = { dataset: props.value.dataset, ...chosen };
  const answer = await server.fix_ways(request);
  if (!answer?.ways) return tell(answer?.problem ?? UNREACHED, 'bad');
  closeQuestion(); // another one was opened while this one was on its way
  const radio = (way, index) => make('label', { className: 'check' },
    make('input', { type: 'radio', name: 'fix-way', value: way.fix, checked: index === 0 }),
    make('span', { textContent: way.does }));
  const yes = make('button', { type: 'button', className: 'primary', textContent: 'Fix' });
  const no = make('button', { type: 'button', textContent: 'Cancel' });
  const question = make('div', { className: 'fix-question', role: 'group', label: 'How to fix it' }, ...answer.ways.map(radio),
    make('p', { className: 'hint', textContent: 'It is one change: Undo takes it back.' }), make('div', { className: 'tools' }, yes, no));
  closeQuestion = () => { question.remove(); opener.setAttribute('aria-expanded', 'false'); closeQuestion = () => {}; };
  const cancel = () => { closeQuestion(); opener.focus(); };
  no.addEventListener('click', cancel);
  question.addEventListener('keydown', (event) => { if (event.key === 'Escape') cancel(); });
  yes.addEventListener('click', () => fix({ ...request, fix: question.querySelector('input:checked').value }, yes));
  slot.append(question);
  opener.setAttribute('aria-expanded', 'true');
  question.querySelector('input').focus();
}

async function fix(request, button) {
  button.disabled = true;
  const answer = await server.fix(request);
  button.disabled = false;
  if (!answer || answer.problem) return tell(answer?.problem ?? UNREACHED, 'bad');
  closeQuestion();
  tell(answer.done ? `${answer.done} Undo takes it back.` : 'The fix has begun; its progress is shown above.', 'good');
  trigger('changed', {});
}

// ---- the list

function fixButton(text, name, chosen, slot) {
  const made = make('button', { type: 'button', className: 'fix', textContent: text, label: name });
  made.setAttribute('aria-expanded', 'false');
  made.addEventListener('click', () => (made.getAttribute('aria-expanded') === 'true' ? closeQuestion() : ask(chosen, made, slot)));
  return made;
}

function findingOf(one, group) {
  const pictures = one.pictures.map(({ url, name }) => make('img', { src: url, alt: name, loading: 'lazy' }));
  const line = make('div', { className: 'line' }, make('div', { className: 'pictures' }, ...pictures), make('span', { textContent: one.sentence }));
  const item = make('li', {}, line);
  if (group.fixable && group.count > 1) line.append(fixButton('Fix', `Fix: ${one.sentence}`, { kind: group.kind, title: group.title, finding: one.id }, item));
  return item;
}

function groupOf(group) {
  const severity = make('span');
  badge(severity, { state: group.severity, tone: group.tone, icon: group.icon });
  const head = make('div', { className: 'line' }, severity, make('h4', { textContent: group.title }));
  const slot = make('div');
  if (group.fixable) head.append(fixButton(group.count > 1 ? `Fix all ${group.count}` : 'Fix', `Fix all: ${group.title}`, { kind: group.kind, title: group.title }, slot));
  const list = make('ul', { className: 'findings' }, ...group.findings.map((one) => findingOf(one, group)));
  oneTabStop(list, '.fix');
  const more = group.count - group.findings.length;
  if (more > 0) list.append(make('li', { textContent: `and ${more} more` }));
  const fold = make('details', { open: unfolded.get(group.kind) ?? group.count <= MOST_UNFOLDED },
    make('summary', { textContent: group.counted }), list);
  fold.firstElementChild.addEventListener('click', () => unfolded.set(group.kind, !fold.open));
  return make('section', { className: 'group' }, head, slot, fold);
}

function update() {
  const value = props.value ?? {};
  whole.hidden = !value.sentence;
  set(summary, value.sentence ?? '');
  summary.className = `note ${value.tone}`;
  const wanted = JSON.stringify([value.dataset, value.groups ?? []]);
  if (wanted === shown) return; // a question that is open stays open
  if (!shown.startsWith(JSON.stringify([value.dataset]).slice(0, -1))) { tell('', 'plain'); unfolded.clear(); }
  shown = wanted;
  closeQuestion();
  groups.replaceChildren(...(value.groups ?? []).map(groupOf));
}
watch('value', update);
update();
