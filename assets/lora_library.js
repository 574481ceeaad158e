// The browser's half of workbench/ui/loras/grid.py: the LoRAs of a workspace as cards.
// Gradio runs this as a function of (element, trigger, props, server, watch). Whatever comes from files is set as text.
'use strict';

const SEARCH_MS = 200;
const LATE_MS = 10_000; // so long an answer may be older than what was ticked last
const still = window.matchMedia('(prefers-reduced-motion: reduce)');
const option = (value, text) => make('option', { value, textContent: text });

const search = make('input', { type: 'search', placeholder: 'Search names and trigger words', label: 'Search LoRAs' });
const base = make('select', { label: 'Base model' });
const sort = make('select', { label: 'Order' }, ...Object.entries(SORTS).map(([key, [text]]) => option(key, text)));
const steps = make('input', { type: 'checkbox' });
const stepsLabel = make('label', { className: 'check' }, steps, 'Checkpoints too');
const count = make('span', { className: 'count', role: 'status' });
const none = make('button', { type: 'button', textContent: 'Clear selection', hidden: true });
const cards = make('ul', { className: 'cards', label: 'LoRAs' });
const message = make('p', { className: 'message', hidden: true });
const whole = make('section', { className: 'lora-library', label: 'LoRAs', hidden: true },
  make('div', { className: 'tools' }, search, base, sort, stepsLabel, none, count), message, cards);
element.replaceChildren(whole);
oneTabStop(cards, 'input');

let all = [], most = 500, renderedJson = '';
let chosen = new Set(), announced = 0; // when it was, until the server has answered to it

const query = () => ({ text: search.value, base: base.value, checkpoints: steps.checked });
const matching = () => all.filter((lora) => matches(lora, query(), chosen));

function cardOf(lora) {
  const box = make('input', { type: 'checkbox', checked: chosen.has(lora.name), label: `Choose ${lora.title}` });
  const picture = make('div', { className: 'picture' });
  if (lora.video) {
    const video = make('video', { src: lora.video, muted: true, loop: true, autoplay: !still.matches, playsInline: true, label: `${lora.title}, a preview` });
    video.addEventListener('loadedmetadata', () => video.classList.toggle('pixelated', video.videoWidth <= 128));
    picture.append(video);
  } else picture.append(make('span', { className: 'nothing', textContent: 'no preview yet: generate a video with it' }));
  const flags = make('div', { className: 'flags' }, ...lora.flags.map((flag) => make('span', { className: `flag ${flag}`, textContent: flag })));
  if (lora.sound) flags.append(make('span', { className: 'flag bad', textContent: 'damaged', title: lora.sound }));
  const facts = make('p', { className: 'facts', textContent: lora.facts.join(' · ') });
  const what = make('p', { className: 'base', textContent: lora.base, title: lora.origin });
  const word = make('p', { className: 'trigger' });
  if (lora.trigger) word.append('trigger ', make('b', { textContent: lora.trigger }));
  const made = make('li', { className: 'card' }, make('label', {}, picture,
    make('span', { className: 'name' }, box, make('b', { textContent: lora.title, title: lora.name }))), flags, what, facts, word);
  made.classList.toggle('selected', box.checked);
  box.addEventListener('change', () => {
    if (box.checked) chosen.add(lora.name);
    else chosen.delete(lora.name);
    made.classList.toggle('selected', box.checked);
    announce();
  });
  return made;
}

function announce() {
  renderedJson = JSON.stringify([all, [...chosen]]); // the cards show it already, and keep the focus
  showCount();
  announced = Date.now();
  trigger('chosen', { names: [...chosen] });
}
function showCount() {
  none.hidden = !chosen.size;
  count.textContent = countText(matching().length, chosen.size);
}
function render() {
  const found = matching().sort(SORTS[sort.value][1]);
  cards.replaceChildren(...found.slice(0, most).map(cardOf));
  message.hidden = found.length > 0 && found.length <= most;
  if (!found.length) message.textContent = 'No LoRA matches: search for less, or choose another base model.';
  else message.textContent = `The first ${most} of ${found.length} are shown: search for the others.`;
  showCount();
}

let timer = 0;
search.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(render, SEARCH_MS); });
for (const field of [base, sort, steps]) field.addEventListener('change', render);
none.addEventListener('click', () => { chosen.clear(); render(); announce(); });

function update() {
  const value = props.value ?? {};
  all = value.loras ?? [];
  most = value.most ?? 500;
  whole.hidden = !all.length;
  if (Date.now() - announced > LATE_MS || sameChoice(value.chosen, chosen)) announced = 0;
  chosen = keptChoice(all, announced ? chosen : value.chosen);
  const models = [...new Set(all.map((lora) => lora.base))].sort();
  const kept = base.value;
  base.replaceChildren(option('', 'All base models'), ...models.map((name) => option(name, name)));
  base.value = models.includes(kept) ? kept : '';
  base.hidden = models.length < 2;
  stepsLabel.hidden = !all.some((lora) => lora.run);
  const json = JSON.stringify([all, [...chosen]]);
  if (json !== renderedJson) render();
  renderedJson = json;
}
watch('value', update);
update();
