// The browser's half of workbench/ui/home/tab.py: what goes on in the workspace, changed in place.
// Gradio runs this as a function of (element, trigger, props, server, watch).
'use strict';

const button = (label, event, data, extra = {}) => {
  const made = make('button', { type: 'button', textContent: label, ...extra });
  made.addEventListener('click', () => {
    made.disabled = true; // the demo takes some seconds to begin
    setTimeout(() => { made.disabled = false; }, 3000);
    trigger(event, data);
  });
  return made;
};
const opening = (kind, name, label, extra) => button(label, 'open', { kind, name }, extra);
const section = (title, list, empty) => {
  const message = make('p', { className: 'message', textContent: empty });
  const whole = make('section', { label: title }, make('h3', { textContent: title }), list, message);
  whole.update = () => { message.hidden = list.children.length > 0; list.hidden = !message.hidden; };
  return whole;
};

const steps = make('ul', { className: 'next-steps' });
const runs = make('ul', { className: 'lines' });
const samples = make('ul', { className: 'tiles' });
const datasets = make('ul', { className: 'lines' });
const machine = make('p', { className: 'note bad', hidden: true });
for (const list of [runs, samples, datasets]) oneTabStop(list, 'button');
const sections = [
  section('Runs', runs, 'No run yet. Training starts in the Train tab.'),
  section('Newest samples', samples, 'No sample yet. Videos are generated in the Sample tab.'),
  section('Datasets', datasets, 'No dataset yet. Clips are imported in the Dataset tab.'),
];
const whole = make('div', { className: 'home', hidden: true }, machine, steps, ...sections);
element.replaceChildren(whole);

// The events of the next steps; the other steps open a run or a dataset.
const eventOf = { demo: 'demo', train: 'train', sample: 'sample' };

function stepOf(one) {
  const item = make('li', {}, make('p', { textContent: one.reason }), button(one.label, eventOf[one.kind] ?? 'open', { kind: one.kind === 'run' ? 'run' : 'dataset', name: one.target }, { className: 'primary' }));
  item.dataset.id = one.id;
  return item;
}

function runOf(one) {
  const state = make('span', { className: 'badge' });
  const activity = make('p', { className: 'hint' });
  const message = make('p', { className: 'why' });
  const share = make('i');
  const bar = make('div', { className: 'bar going', role: 'progressbar', label: `${one.name}, steps done` }, share);
  const item = make('li', {}, make('div', { className: 'line' }, opening('run', one.name, one.name, { className: 'name' }), state), activity, bar, message);
  item.dataset.id = one.id;
  item.update = (now) => {
    badge(state, now);
    set(activity, now.activity);
    set(message, now.message);
    message.hidden = !now.message;
    bar.hidden = !now.active;
    bar.classList.toggle('unknown', now.share === null);
    share.style.width = now.share === null ? '' : `${100 * now.share}%`;
    if (now.share !== null) bar.setAttribute('aria-valuenow', Math.round(100 * now.share));
  };
  return item;
}

function sampleOf(one) {
  const video = make('video', { src: `${one.url}#t=0.1`, muted: true, loop: true, playsInline: true, preload: 'metadata', tabIndex: -1 });
  video.disablePictureInPicture = true;
  if (one.pixelated) video.classList.add('pixelated');
  const tile = opening('sample', one.id, '', { className: 'sample', title: one.prompt });
  tile.append(video, make('span', { className: 'prompt', textContent: one.prompt }), make('span', { className: 'hint', textContent: one.about }));
  for (const name of ['pointerenter', 'focus']) tile.addEventListener(name, () => video.play().catch(() => {}));
  for (const name of ['pointerleave', 'blur']) tile.addEventListener(name, () => video.pause());
  const item = make('li', {}, tile);
  item.dataset.id = one.id;
  return item;
}

function datasetOf(one) {
  const contents = make('p', { className: 'hint' });
  const item = make('li', {}, make('div', { className: 'line' }, opening('dataset', one.name, one.title, { className: 'name' })), contents);
  item.dataset.id = one.id;
  item.update = (now) => set(contents, [now.contents, now.activity].filter(Boolean).join(' · '));
  return item;
}

function update() {
  const value = props.value ?? {};
  whole.hidden = !value.runs; // before the first answer nothing is known, not even that there is nothing
  patch(steps, value.next_steps ?? [], stepOf);
  patch(runs, value.runs ?? [], runOf);
  patch(samples, value.samples ?? [], sampleOf);
  patch(datasets, value.datasets ?? [], datasetOf);
  set(machine, value.machine ?? '');
  machine.hidden = !value.machine;
  steps.hidden = !steps.children.length;
  for (const one of sections) one.update();
}
watch('value', update);
update();
