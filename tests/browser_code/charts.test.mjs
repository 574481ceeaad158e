import assert from 'node:assert/strict';
import test from 'node:test';
import { load } from './load.mjs';

const { shortNumber, longNumber, nearest, cutTo, canBeLog, ticks, logTicks, plotted, readAt, sentence, stepAfter, viewBetween, zoomed, viewWith } = load(
  'charts', 'shortNumber', 'longNumber', 'nearest', 'cutTo', 'canBeLog', 'ticks', 'logTicks', 'plotted', 'readAt', 'sentence', 'stepAfter',
  'viewBetween', 'zoomed', 'viewWith');
const line = (name, steps, values, more = {}) => ({ name, css: '#123', style: 'line', steps, values, marked: null, ...more });
const LOSS = line('loss', [0, 10, 20, 30, 40], [8, 4, 2, 1, 0.5]);
const HELD = line('held-out clips', [0, 20, 40], [9, 3, 2], { style: 'dots' });
const WHOLE = [0, 40];
const pathOf = (markup, name) => markup.match(new RegExp(`class="curve ${name}"[^>]* d="M([^"]+)"`))[1].split('L').map((pair) => pair.split(' ').map(Number));

test('numbers are short on an axis and whole where steps are read', () => {
  assert.deepEqual([25000, 450, 0.041283, 1e-5, 12345.6, -0.25].map(shortNumber), ['25k', '450', '0.04128', '1e-5', '1.235e4', '-0.25']);
  assert.equal(longNumber(25000), '25,000');
});

test('the nearest point of a line is found, also before its first and after its last', () => {
  assert.deepEqual([-5, 4, 6, 15, 99].map((step) => nearest(LOSS.steps, step)), [0, 0, 1, 1, 4]);
});

test('what is read is the nearest point of every line, with its own step', () => {
  const points = readAt([LOSS, HELD], 10, WHOLE);
  assert.deepEqual(points.map(({ name, step, value }) => [name, step, value]), [['loss', 10, 4], ['held-out clips', 0, 9]]);
  assert.equal(sentence(10, points), 'step 10, loss 4, held-out clips 9 at step 0');
  assert.deepEqual(readAt([LOSS, HELD], 10, [5, 15]).map(({ name }) => name), ['loss']);
});

test('the arrow keys go from point to point of all lines and stop at the ends', () => {
  assert.equal(stepAfter([LOSS, HELD], 10, 1), 20);
  assert.equal(stepAfter([LOSS, line('other', [15], [1])], 10, 1), 15);
  assert.equal(stepAfter([LOSS], 10, -99), 0);
  assert.equal(stepAfter([LOSS], 10, Infinity), 40);
});

test('a zoom keeps its middle, stays inside and ends at two steps', () => {
  assert.deepEqual(zoomed(null, 2, 20, WHOLE), [10, 30]);
  assert.deepEqual(zoomed([10, 30], 2, 10, WHOLE), [10, 20]);
  assert.equal(zoomed([10, 30], 0.5, 20, WHOLE), null);
  assert.deepEqual(zoomed([0, 10], 0.5, 0, WHOLE), [0, 20]);
  assert.deepEqual(zoomed([10, 12], 2, 11, WHOLE), [10, 12]);
  assert.deepEqual(viewWith([10, 20], 25), [15, 25]);
  assert.deepEqual(viewWith([10, 20], 12), [10, 20]);
  assert.equal(viewWith(null, 12), null);
});

test('a dragged range is ordered and cut; all of it or hardly any is no zoom', () => {
  assert.deepEqual(viewBetween(30, 10, WHOLE), [10, 30]);
  assert.deepEqual(viewBetween(-9, 20, WHOLE), [0, 20]);
  assert.equal(viewBetween(-9, 99, WHOLE), null);
  assert.equal(viewBetween(10, 11, WHOLE), null);
});

test('the value axis follows the view, and the curve reaches its edges', () => {
  const all = plotted([400, 200], [LOSS], [LOSS]);
  const part = plotted([400, 200], [LOSS], [LOSS], [25, 40]);
  assert.equal(all.up.low, 0);
  assert.ok(all.up.high > 8 && part.up.high < 2.2);
  assert.deepEqual(cutTo(LOSS, [25, 40]).steps, [20, 30, 40]);
  assert.ok(pathOf(part.markup, 'line')[0][0] < 44);
});

test('on a log axis equal ratios are equal distances, for positive values alone', () => {
  assert.equal(canBeLog([LOSS, HELD]), true);
  assert.equal(canBeLog([line('change', [0, 1], [0, 1])]), false);
  const heights = pathOf(plotted([400, 200], [LOSS], [LOSS], null, true).markup, 'line').map(([, y]) => y);
  const gaps = heights.slice(1).map((y, index) => y - heights[index]);
  for (const gap of gaps) assert.ok(Math.abs(gap - gaps[0]) < 0.2, gaps);
});

test('log ticks are powers of ten, with twice and five times each where there are few', () => {
  assert.deepEqual(logTicks(0.09, 12, 5), [0.1, 1, 10]);
  assert.deepEqual(logTicks(0.9, 6, 5), [1, 2, 5]);
  assert.deepEqual(logTicks(0.21, 0.4, 5), [0.25, 0.3, 0.35, 0.4]);
  assert.ok(logTicks(1e-9, 1, 4).length <= 4);
});

test('ticks are round', () => {
  assert.deepEqual(ticks(0, 450, 5), [0, 100, 200, 300, 400]);
  assert.deepEqual(ticks(0.183, 0.411, 5), [0.2, 0.25, 0.3, 0.35, 0.4]);
});

test('a chart without a visible line has its axes', () => {
  const { markup } = plotted([400, 200], [], [LOSS]);
  assert.ok(markup.includes('class="axis"') && !markup.includes('class="curve'));
});

test('what a person wrote is text', () => {
  const { markup } = plotted([400, 200], [line('loss', [0, 1], [1, 2], { marked: [1, '<b>"best"</b>'] })], [LOSS]);
  assert.ok(markup.includes('&lt;b&gt;&quot;best&quot;&lt;/b&gt;') && !markup.includes('<b>'));
});

test('a word that has no room beside its point is left out, the ring stays', () => {
  const marked = line('held-out', [0, 1], [1, 2], { marked: [1, 'best checkpoint, step 1'] });
  assert.ok(plotted([400, 200], [marked], [marked]).markup.includes('class="word"'));
  const { markup } = plotted([180, 150], [marked], [marked]);
  assert.ok(markup.includes('class="ring"') && !markup.includes('class="word"'));
});
