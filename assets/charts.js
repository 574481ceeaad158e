// The browser's half of workbench/display/charts.py, on the page, in a notebook and in a saved report: every chart is plotted at the
// width there is, says its values under the pointer or by the arrow keys, is zoomed by dragging, and has a log axis.
// A chart that a tick replaces keeps all of this: what a person chose is kept here, under the chart's name.
'use strict';

if (window.workbenchCharts) return;
window.workbenchCharts = true;

const STORED = 'workbench-log-axes'; // where the browser keeps the titles of charts with a log axis
const DRAG = 6; // pixels; less is a click
const HELP = 'Arrow keys read the values, plus and minus zoom, Escape shows all.';
const states = new Map(); // by name of a chart: {view, hidden, reading: {plot, step}, log}
const groups = new Map(); // what is on the page: a chart or several with one legend -> {name, state, plots}
const spoken = make('div', { className: 'chart-spoken' });
spoken.setAttribute('aria-live', 'polite');
let focused = null; // {name, control}: where the focus is, to find it again in a chart that replaces this one
let hovered = null; // {name, plot, x}
let drag = null; // {name, plot, from, to}: pixels

function stored() {
  try { return JSON.parse(localStorage.getItem(STORED)) ?? []; } catch { return []; } // a saved file may have no storage
}
function store(title, log) {
  const titles = stored().filter((one) => one !== title);
  try { localStorage.setItem(STORED, JSON.stringify(log ? [...titles, title] : titles)); } catch { /* this visit alone */ }
}

// ---- a group of charts: one as a rule, or several that share legend, zoom and axis

const control = (tag, name, properties, ...children) => {
  const made = make(tag, properties, ...children);
  made.dataset.control = name;
  return made;
};

function adopt(element) {
  for (const left of element.querySelectorAll('.chart-tools, .ruler, .band, .reading')) left.remove();
  const title = element.dataset.charts;
  const name = [element.closest('[id]')?.id ?? '', element.dataset.owner, title].join('/');
  if (!states.has(name)) states.set(name, { view: null, hidden: new Set(), reading: null, log: stored().includes(title) });
  const state = states.get(name);
  const plots = [...element.querySelectorAll('.plot')].map((box, index) => adoptPlot(box, index));
  const group = { element, name, title, state, plots, possible: plots.every(({ lines }) => canBeLog(lines)) };
  for (const key of element.querySelectorAll('.legend .key')) {
    const line = key.textContent;
    const button = control('button', `line ${line}`, { type: 'button', className: key.className }, ...key.childNodes);
    button.addEventListener('click', () => {
      if (!state.hidden.delete(line)) state.hidden.add(line);
      draw(group);
    });
    key.replaceWith(button);
  }
  group.log = control('button', 'log', { type: 'button', textContent: 'log', label: `Log axis: ${title}`, hidden: !group.possible });
  group.log.addEventListener('click', () => { state.log = !state.log; store(title, state.log); draw(group); });
  group.reset = control('button', 'reset', { type: 'button', textContent: 'show all', label: `Show all steps: ${title}` });
  group.reset.addEventListener('click', () => { group.plots[0].box.focus({ preventScroll: true }); show(group, null); });
  element.querySelector('b').after(make('span', { className: 'chart-tools' }, group.log, group.reset));
  groups.set(element, group);
  marks(group);
  for (const plot of plots) sizes.observe(plot.ruler);
  if (focused?.name === name && document.activeElement !== focused.at) find(group, focused.control)?.focus({ preventScroll: true });
}

function adoptPlot(box, index) {
  const svg = box.querySelector('svg');
  const { width, height } = svg.viewBox.baseVal;
  box.dataset.control = `plot ${index}`;
  box.tabIndex = 0;
  box.setAttribute('role', 'application');
  box.setAttribute('aria-roledescription', 'chart');
  box.setAttribute('aria-label', `${svg.getAttribute('aria-label')}. ${HELP}`);
  svg.setAttribute('aria-hidden', 'true');
  const ruler = make('i', { className: 'ruler' }); // as wide as the plot, so that a change of its height is none of ours
  const band = make('i', { className: 'band', hidden: true });
  const reading = make('div', { className: 'reading', hidden: true });
  box.append(ruler, band, reading);
  return { box, svg, ruler, band, reading, given: box.dataset.lines, lines: JSON.parse(box.dataset.lines), ratio: height / width, height };
}

const find = ({ element }, name) => element.querySelector(`[data-control="${CSS.escape(name)}"]`);
const visible = (group, plot) => plot.lines.filter((line) => !group.state.hidden.has(line.name));
const wholeOf = (group) => extent(group.plots.flatMap((plot) => plot.lines));

// What the buttons say.
function marks({ element, state, log, reset, possible }) {
  log.setAttribute('aria-pressed', possible && state.log);
  reset.hidden = !state.view;
  for (const key of element.querySelectorAll('button.key')) {
    key.setAttribute('aria-pressed', !state.hidden.has(key.dataset.control.slice(5)));
  }
}

function draw(group) {
  marks(group);
  for (const plot of group.plots) drawPlot(group, plot);
}

function drawPlot(group, plot) {
  const width = plot.ruler.clientWidth;
  if (!width) return;
  const least = Math.min(plot.height, 190);
  const height = Math.round(Math.min(Math.max(width * plot.ratio, least), 1.25 * plot.height));
  const { view, log } = group.state;
  const made = plotted([width, height], visible(group, plot), plot.lines, view, log && group.possible);
  Object.assign(plot, { width, drawn: made });
  plot.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  plot.svg.innerHTML = `${made.markup}<g class="cursor"></g>`;
  drawReading(group, plot);
}

function show(group, view) {
  group.state.view = view;
  draw(group);
}

// ---- reading

function drawReading(group, plot) {
  const index = group.plots.indexOf(plot);
  const under = hovered && !drag && hovered.name === group.name && hovered.plot === index;
  const kept = group.state.reading?.plot === index ? group.state.reading.step : null;
  const { across, up } = plot.drawn;
  const lines = visible(group, plot);
  const step = under && lines.length ? stepAfter(lines, across.value(hovered.x), 0) : kept;
  const there = step !== null && lines.length && step >= across.low && step <= across.high;
  plot.reading.hidden = !there;
  const cursor = plot.svg.querySelector('.cursor');
  if (!there) { cursor.innerHTML = ''; return; }
  const points = readAt(lines, step, [across.low, across.high]);
  const x = across(step);
  cursor.innerHTML = `<path d="M${x.toFixed(1)} ${up.end}V${up.start}"/>${points.filter((point) => !group.state.log || point.value > 0)
    .map((point) => `<circle cx="${across(point.step).toFixed(1)}" cy="${up(point.value).toFixed(1)}" r="3.5" style="fill:${point.css}"/>`).join('')}`;
  plot.reading.innerHTML = `<b>step ${longNumber(step)}</b>${points.map((point) => `<span class="${point.style}"><i style="color:${point.css}"></i>${escaped(point.name)}`
    + `<b>${shortNumber(point.value)}</b>${point.step === step ? '' : `<small>at ${longNumber(point.step)}</small>`}</span>`).join('')}`;
  const left = x > plot.width / 2;
  plot.reading.style.cssText = left ? `right:${(plot.width - x + 10).toFixed(0)}px` : `left:${(x + 10).toFixed(0)}px`;
}

function say(group, index) {
  const plot = group.plots[index];
  const { reading } = group.state;
  if (reading) set(spoken, sentence(reading.step, readAt(visible(group, plot), reading.step, [plot.drawn.across.low, plot.drawn.across.high])));
}

// ---- pointer

// The group and the plot that an element lies in.
function place(target) {
  const box = target.closest?.('.plot[data-control]');
  const group = box && groups.get(box.closest('[data-charts]'));
  return group ? { group, index: group.plots.findIndex((plot) => plot.box === box) } : null;
}
const named = (name) => [...groups.values()].find((group) => group.name === name && group.element.isConnected);
const pixel = (plot, event) => event.clientX - plot.box.getBoundingClientRect().left;
const within = ({ drawn: { across } }, x) => Math.min(Math.max(x, across.start), across.end);

function hover(at) {
  const before = hovered && named(hovered.name);
  hovered = at;
  for (const group of new Set([before, at && named(at.name)])) if (group) group.plots.forEach((plot) => plot.drawn && drawReading(group, plot));
}

document.addEventListener('pointermove', (event) => {
  if (drag) {
    const plot = named(drag.name)?.plots[drag.plot];
    if (!plot?.drawn) return;
    drag.to = within(plot, pixel(plot, event));
    plot.band.hidden = Math.abs(drag.to - drag.from) < DRAG;
    plot.band.style.cssText = `left:${Math.min(drag.from, drag.to)}px;width:${Math.abs(drag.to - drag.from)}px`;
    return;
  }
  const found = place(event.target);
  if (!found?.group.plots[found.index].drawn) { if (hovered) hover(null); return; }
  found.group.state.reading = null;
  hover({ name: found.group.name, plot: found.index, x: pixel(found.group.plots[found.index], event) });
});
document.addEventListener('pointerdown', (event) => {
  const found = event.button === 0 ? place(event.target) : null;
  const plot = found?.group.plots[found.index];
  if (!plot?.drawn) return;
  const x = within(plot, pixel(plot, event));
  hover({ name: found.group.name, plot: found.index, x });
  drag = { name: found.group.name, plot: found.index, from: x, to: x };
});
document.addEventListener('pointerup', () => {
  if (!drag) return;
  const { name, plot: index, from, to } = drag;
  drag = null;
  const group = named(name);
  if (!group) return;
  const { band, drawn: { across } } = group.plots[index];
  band.hidden = true;
  hovered = { name, plot: index, x: to };
  if (Math.abs(to - from) >= DRAG) show(group, viewBetween(across.value(from), across.value(to), wholeOf(group)) ?? group.state.view);
});
document.addEventListener('pointercancel', () => {
  if (drag) for (const { band } of named(drag.name)?.plots ?? []) band.hidden = true;
  drag = null;
});
document.addEventListener('dblclick', (event) => {
  const found = place(event.target);
  if (found) show(found.group, null);
});

// ---- keyboard

document.addEventListener('keydown', (event) => {
  const found = event.target.matches?.('.plot') ? place(event.target) : null;
  const plot = found?.group.plots[found.index];
  if (!plot?.drawn || event.altKey || event.ctrlKey || event.metaKey) return;
  const { group, index } = found;
  const { state } = group;
  const lines = visible(group, plot);
  if (!lines.length) return;
  const { across } = plot.drawn;
  const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  const factor = { '+': 2, '=': 2, '-': 0.5, _: 0.5 }[event.key];
  if (!by && !factor && event.key !== 'Escape') return;
  event.preventDefault();
  event.stopPropagation();
  hovered = null;
  const at = state.reading?.plot === index ? state.reading.step : null;
  if (by) {
    const next = at === null && Math.abs(by) === 1 ? stepAfter(lines, (across.low + across.high) / 2, 0)
      : stepAfter(lines, at ?? across.low, by * (event.shiftKey ? 10 : 1));
    state.reading = { plot: index, step: next };
    state.view = viewWith(state.view, next);
  } else if (factor) {
    state.view = zoomed(state.view, factor, at ?? (across.low + across.high) / 2, wholeOf(group));
  } else {
    state.view = state.reading = null;
  }
  draw(group);
  if (by) say(group, index);
  else {
    const [first, last] = (state.view ?? wholeOf(group)).map(Math.round);
    set(spoken, `steps ${longNumber(first)} to ${longNumber(last)}`);
  }
});

document.addEventListener('focusin', ({ target }) => {
  const element = target.closest?.('[data-charts]');
  const group = element && groups.get(element);
  focused = group && target.dataset.control ? { name: group.name, control: target.dataset.control, at: target } : null;
});
// A chart that is replaced loses the focus as well, but then it is no longer on the page.
document.addEventListener('focusout', ({ target }) => setTimeout(() => {
  if (focused?.at === target && target.isConnected && document.activeElement !== target) focused = null;
}));

// ---- charts come and go

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const group = groups.get(target.closest('[data-charts]'));
    const plot = group?.plots.find(({ ruler }) => ruler === target);
    if (plot && target.clientWidth && target.clientWidth !== plot.width) drawPlot(group, plot);
  }
});
// Gradio does not replace a chart but makes the old elements equal to the new ones, which removes what was added here.
const intact = ({ log, plots }) => log.isConnected && plots.every(
  ({ box, reading, given }) => reading.isConnected && box.dataset.lines === given);
const candidates = document.getElementsByClassName('plot'); // kept up to date by the browser
function look() {
  for (const [element, group] of groups) {
    if (element.isConnected && intact(group)) continue;
    for (const { ruler } of group.plots) sizes.unobserve(ruler);
    groups.delete(element);
  }
  for (const box of candidates) {
    const element = box.closest('[data-charts]');
    if (element && !groups.has(element)) adopt(element);
  }
}
const begin = () => {
  document.body.append(spoken);
  look();
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
};
if (document.body) begin(); else document.addEventListener('DOMContentLoaded', begin);
