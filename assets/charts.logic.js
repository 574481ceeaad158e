// What assets/charts.js computes without the page: which part of the curves is plotted and how, what is read at a step,
// what a zoom leaves. `plotted` makes the same as `plot` in workbench/display/charts.py, which renders a chart where no script runs.
// A line is {name, css, style, steps, values, marked}; a view is the first and the last step plotted, null for all.
'use strict';

const LEFT = 44, RIGHT = 14, TOP = 12, BOTTOM = 26;
const EDGE = 0.02; // share of the raw values, at either end, that may lie outside
const LETTER = 6.5; // pixels that a letter of a word in a chart takes about
const DOTS = 60; // measured points that each get a dot, at most
const CLOSEST = 2; // steps that a view spans at least

const entities = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#x27;' };
const escaped = (text) => String(text).replace(/[&<>"']/g, (sign) => entities[sign]);

// A number as people write it: 25000 is 25k, 0.04128 four digits, 1e-4 short.
function shortNumber(value) {
  if (Number.isInteger(value) && Math.abs(value) < 1e9) {
    return value && value % 1000 === 0 && Math.abs(value) >= 10000 ? `${value / 1000}k` : String(value);
  }
  const [digits, power] = value.toExponential(3).split('e').map(Number);
  return power < -4 || power >= 4 ? `${digits}e${power}` : String(Number(value.toPrecision(4)));
}
const longNumber = (value) => (Number.isInteger(value) ? value.toLocaleString('en') : shortNumber(value));

// ---- ranges and ticks

const extent = (lines) => {
  const first = Math.min(...lines.map((line) => line.steps[0]));
  return [first, Math.max(...lines.map((line) => line.steps.at(-1)), first + 1)];
};

// The number of the first step that is not before `step`.
function firstFrom(steps, step) {
  let [low, high] = [0, steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle + 1; else high = middle;
  }
  return low;
}

function nearest(steps, step) {
  const after = firstFrom(steps, step);
  if (after === 0) return 0;
  return after === steps.length || step - steps[after - 1] <= steps[after] - step ? after - 1 : after;
}

// The part of a line inside a view and one point beyond it on either side, so that the curve reaches both edges.
function cutTo(line, [first, last]) {
  const from = Math.max(firstFrom(line.steps, first) - 1, 0);
  const end = firstFrom(line.steps, last + 1e-9) + 1;
  return { ...line, steps: line.steps.slice(from, end), values: line.values.slice(from, end) };
}
const positive = (line) => {
  const kept = line.values.map((value, index) => (value > 0 ? index : -1)).filter((index) => index >= 0);
  return { ...line, steps: kept.map((index) => line.steps[index]), values: kept.map((index) => line.values[index]) };
};
const canBeLog = (lines) => lines.every((line) => line.values.every((value) => value > 0));

// Lowest and highest value to show: all that is smoothed or measured, and all but the wildest raw values.
function valueRange(lines, log) {
  const ends = lines.flatMap(({ values, style }) => {
    const sorted = [...values].sort((one, other) => one - other);
    const cut = style === 'faint' && sorted.length > 20 ? Math.ceil(EDGE * sorted.length) : 0;
    return [sorted[cut], sorted[sorted.length - 1 - cut]];
  });
  const low = Math.min(...ends), high = Math.max(...ends);
  if (log) {
    const area = (high / low) ** 0.08;
    return area > 1 ? [low / area, high * area] : [low / 1.1, high * 1.1];
  }
  if (low >= 0 && low < 0.4 * high) return [0, high * 1.06 || 1];
  const area = 0.08 * (high - low) || Math.abs(high) * 0.1 || 1;
  return [low - area, high + area];
}

// Round numbers from low to high, about so many.
function ticks(low, high, about) {
  const size = 10 ** Math.floor(Math.log10((high - low || 1) / about));
  const step = [1, 2, 2.5, 5, 10].map((part) => size * part).find((one) => (high - low || 1) / one <= about);
  const made = [];
  for (let number = Math.ceil(low / step - 1e-9); number <= Math.floor(high / step + 1e-9); number += 1) {
    made.push(Number((number * step).toFixed(12)));
  }
  return made;
}

// Powers of ten from low to high; with twice and five times each where there are few.
function logTicks(low, high, about) {
  const made = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const part of [1, 2, 5]) made.push(Number(`${part}e${power}`));
  }
  const inside = made.filter((tick) => tick >= low && tick <= high);
  if (inside.length < 2) return ticks(low, high, about).filter((tick) => tick > 0);
  if (inside.length <= about + 1) return inside;
  const powers = made.filter((_, index) => index % 3 === 0).filter((tick) => tick >= low && tick <= high);
  const every = Math.ceil(powers.length / about);
  return powers.length < 2 ? inside : powers.filter((_, index) => index % every === 0);
}

const powerOf = (largest) => (largest === 0 || (largest >= 1e-2 && largest < 1e5) ? 0 : Math.floor(Math.log10(largest)));
const raised = (power) => [...String(power)].map((sign) => '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'['-0123456789'.indexOf(sign)]).join('');

// ---- the plot

// Values to pixels: `low` lies at `start`, `high` at `end`. `value` is the way back.
function scale([low, high], start, end, log = false) {
  const at = log ? Math.log10 : (value) => value;
  const span = at(high) - at(low) || 1;
  const pixels = (value) => start + (end - start) * ((at(value) - at(low)) / span);
  return Object.assign(pixels, { low, high, start, end, value: (pixel) => low + ((pixel - start) / (end - start)) * span });
}

function axes(across, up, log) {
  const parts = [];
  const about = Math.max(2, Math.round((up.start - up.end) / 34));
  const marks = (log ? logTicks : ticks)(up.low, up.high, about);
  const power = log ? 0 : powerOf(marks.length ? Math.max(...marks.map(Math.abs)) : 1);
  const scaled = marks.map((mark) => mark / 10 ** power);
  const fits = (digits) => scaled.every((one) => Math.abs(one - Number(one.toFixed(digits))) < 1e-9);
  const digits = [0, 1, 2, 3, 4, 5].find(fits) ?? 6;
  marks.forEach((mark, index) => {
    const y = up(mark);
    const label = log ? (mark < 1e-3 ? mark.toExponential() : shortNumber(mark)) : scaled[index].toFixed(digits);
    parts.push(`<path class="grid" d="M${LEFT.toFixed(1)} ${y.toFixed(1)}H${across.end.toFixed(1)}"/>`);
    parts.push(`<text x="${(LEFT - 7).toFixed(1)}" y="${(y + 4).toFixed(1)}" text-anchor="end">${label}</text>`);
  });
  if (power) parts.push(`<text x="${(LEFT + 4).toFixed(1)}" y="${(TOP - 2).toFixed(1)}" class="power">×10${raised(power)}</text>`);
  for (const mark of ticks(across.low, across.high, Math.max(2, Math.round((across.end - across.start) / 80)))) {
    if (!Number.isInteger(mark)) continue;
    const x = across(mark).toFixed(1);
    parts.push(`<path class="tick" d="M${x} ${up.start.toFixed(1)}v4"/>`);
    parts.push(`<text x="${x}" y="${(up.start + 18).toFixed(1)}" text-anchor="middle">${shortNumber(mark)}</text>`);
  }
  return `${parts.join('')}<path class="axis" d="M${LEFT.toFixed(1)} ${up.start.toFixed(1)}H${across.end.toFixed(1)}"/>`;
}

function curve({ steps, values, style, css }, across, up) {
  const points = steps.map((step, index) => [across(step).toFixed(1), up(values[index]).toFixed(1)]);
  const path = `<path class="curve ${style}" style="stroke:${css}" d="M${points.map((point) => point.join(' ')).join('L')}"/>`;
  if (points.length !== 1 && (style !== 'dots' || points.length > DOTS)) return path;
  return path + points.map(([x, y]) => `<circle cx="${x}" cy="${y}" r="2.6" style="fill:${css}"/>`).join('');
}

function ring({ steps, values, css, marked }, across, up) {
  const index = marked ? steps.indexOf(marked[0]) : -1;
  if (index < 0 || marked[0] < across.low || marked[0] > across.high) return '';
  const x = across(steps[index]), y = up(values[index]);
  const [anchor, shift] = x > (across.start + across.end) / 2 ? ['end', -9] : ['start', 9];
  const below = y > TOP + 24 ? y - 9 : y + 18;
  const circle = `<circle class="ring" cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="6" style="stroke:${css}"/>`;
  const room = (anchor === 'end' ? x - across.start : across.end - x) - 9;
  if (LETTER * marked[1].length > room) return circle; // a narrow chart: the word would cross its edge
  return `${circle}<text class="word" x="${(x + shift).toFixed(1)}" y="${below.toFixed(1)}" text-anchor="${anchor}">${escaped(marked[1])}</text>`;
}

// What stands inside of the SVG, and the scales by which it was made. lines: those that are not hidden; all: every one
function plotted([width, height], lines, all, view = null, log = false) {
  const across = scale(view ?? extent(all), LEFT, width - RIGHT);
  const seen = lines.map((line) => (view ? cutTo(line, view) : line)).map((line) => (log ? positive(line) : line))
    .filter((line) => line.steps.length);
  const up = scale(seen.length ? valueRange(seen, log) : [log ? 0.1 : 0, 1], height - BOTTOM, TOP, log);
  const ordered = [...seen.filter((line) => line.style === 'faint'), ...seen.filter((line) => line.style !== 'faint')];
  const box = [LEFT - 3, TOP - 3, width - LEFT - RIGHT + 6, height - TOP - BOTTOM + 6];
  const [x, y, wide, high] = box.map(shortNumber);
  const curves = ordered.map((line) => curve(line, across, up)).join('');
  const inner = `<svg x="${x}" y="${y}" width="${wide}" height="${high}" viewBox="${x} ${y} ${wide} ${high}">${curves}</svg>`;
  return { markup: axes(across, up, log) + inner + ordered.map((line) => ring(line, across, up)).join(''), across, up };
}

// ---- reading and zoom

// The nearest point of every line to a step, those outside of the view left out.
function readAt(lines, step, [first, last]) {
  return lines.map((line) => {
    const index = nearest(line.steps, step);
    return { name: line.name, css: line.css, style: line.style, step: line.steps[index], value: line.values[index] };
  }).filter((point) => point.step >= first && point.step <= last);
}

// What is read, as one sentence. Lines that have no value at this very step name their own.
const sentence = (step, points) => [`step ${longNumber(step)}`, ...points.map(
  (point) => `${point.name} ${shortNumber(point.value)}${point.step === step ? '' : ` at step ${longNumber(point.step)}`}`,
)].join(', ');

// The step so many points after another one, among the points of all lines.
function stepAfter(lines, step, by) {
  const every = [...new Set(lines.flatMap((line) => line.steps))].sort((one, other) => one - other);
  return every[Math.min(Math.max(nearest(every, step) + by, 0), every.length - 1)];
}

// A view between two steps, in whichever order; null where it would be too short, or all there is.
function viewBetween(one, other, [first, last]) {
  const view = [Math.max(Math.min(one, other), first), Math.min(Math.max(one, other), last)];
  return view[1] - view[0] < CLOSEST || (view[0] <= first && view[1] >= last) ? null : view;
}

// The view `factor` times as close, in which a step stays where it is.
function zoomed(view, factor, around, whole) {
  const [first, last] = view ?? whole;
  const span = Math.max((last - first) / factor, Math.min(CLOSEST, whole[1] - whole[0]));
  const start = around - ((around - first) / (last - first)) * span;
  const from = Math.min(Math.max(start, whole[0]), Math.max(whole[1] - span, whole[0]));
  return from <= whole[0] && from + span >= whole[1] ? null : [from, from + span];
}

// The view moved just so far that a step lies in it.
function viewWith(view, step) {
  if (!view || (step >= view[0] && step <= view[1])) return view;
  const by = step < view[0] ? step - view[0] : step - view[1];
  return [view[0] + by, view[1] + by];
}
