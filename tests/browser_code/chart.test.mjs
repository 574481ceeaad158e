// Axes have round numbers; a legend reads the value at a step; a spike of a thin line does not flatten the others.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elements } from './elements.mjs';

const { ticks, logTicks, pointAt, stepBy, heightsOf, shortNumber } = elements(['ticks', 'logTicks', 'pointAt', 'stepBy', 'heightsOf', 'shortNumber']);

test('axes have round numbers', () => {
  assert.deepEqual(ticks(0, 600, 4), [0, 200, 400, 600]);
  assert.deepEqual(ticks(0.11, 0.34, 3), [0.2, 0.3]);
  assert.deepEqual(logTicks(0.01, 10), [0.01, 0.03, 0.1, 0.3, 1, 3, 10]);
  assert.deepEqual([0, 0.1, 0.35, 250, 1e-5, 2e6].map(shortNumber), ['0', '0.1', '0.35', '250', '1e-5', '2e6']);
});

test('a value is read at the last point before the cursor', () => {
  const points = [[10, 1], [20, 2], [40, 3]];
  assert.equal(pointAt(points, 5), null);
  assert.deepEqual([10, 25, 99].map((step) => pointAt(points, step)[1]), [1, 2, 3]);
  assert.equal(stepBy([{ points }], 20, 1), 40);
  assert.equal(stepBy([{ points }], 20, -Infinity), 10);
});

test('a spike of one step leaves the height to the other lines', () => {
  const each = Array.from({ length: 100 }, (_, step) => [step, step === 50 ? 1000 : 0.5]);
  const [low, high] = heightsOf([{ points: each, style: 'thin' }, { points: [[0, 1], [99, 0.4]], style: 'line' }], [0, 99], false);
  assert.ok(low === 0 && high < 1.2);
});
