import assert from 'node:assert/strict';
import test from 'node:test';
import { load } from './load.mjs';

const { fittedCrop, movedCrop, resizedCrop, nearestTime } = load('timeline', 'fittedCrop', 'movedCrop', 'resizedCrop', 'nearestTime');
const PICTURE = { width: 320, height: 180 };
const SIDES = ['nw', 'n', 'ne', 'e', 'se', 's', 'sw', 'w'];

function legal([left, top, width, height]) {
  for (const value of [left, top, width, height]) assert.equal(value % 2, 0);
  assert.ok(left >= 0 && top >= 0 && left + width <= PICTURE.width && top + height <= PICTURE.height);
  assert.ok(width >= 16 && height >= 16);
}

test('a crop has even numbers and stays inside the picture', () => {
  assert.deepEqual(fittedCrop(PICTURE, 0, [11, 21, 101, 51]), [12, 22, 100, 50]);
  assert.deepEqual(fittedCrop(PICTURE, 0, [300, 0, 100, 180]), [300, 0, 20, 180]);
  legal(fittedCrop(PICTURE, 0, [-5, -5, 999, 999]));
});

test('a ratio is kept, whichever edge was moved', () => {
  for (const side of SIDES) {
    const crop = fittedCrop(PICTURE, 16 / 9, [40, 20, 160, 150], side);
    legal(crop);
    assert.ok(Math.abs(crop[2] / crop[3] - 16 / 9) < 0.05, `${side}: ${crop}`);
  }
});

test('a moved crop keeps its size and stops at the edges', () => {
  assert.deepEqual(movedCrop(PICTURE, [10, 10, 100, 50], 5, -3), [16, 8, 100, 50]);
  assert.deepEqual(movedCrop(PICTURE, [10, 10, 100, 50], 999, 999), [220, 130, 100, 50]);
  assert.deepEqual(movedCrop(PICTURE, [10, 10, 100, 50], -999, -999), [0, 0, 100, 50]);
});

test('a grip moves its own edges alone', () => {
  assert.deepEqual(resizedCrop(PICTURE, 0, [40, 40, 100, 60], 'e', 20, 99), [40, 40, 120, 60]);
  assert.deepEqual(resizedCrop(PICTURE, 0, [40, 40, 100, 60], 'n', 99, -20), [40, 20, 100, 80]);
  assert.deepEqual(resizedCrop(PICTURE, 0, [40, 40, 100, 60], 'nw', -10, -10), [30, 30, 110, 70]);
});

test('no grip makes a crop that is too small or outside', () => {
  for (const side of SIDES) {
    for (const by of [-999, 999]) legal(resizedCrop(PICTURE, 0, [40, 40, 100, 60], side, by, by));
  }
});

test('a slot of the filmstrip shows the tile nearest in time', () => {
  assert.equal(nearestTime([0, 1, 2], 1.4), 1);
  assert.equal(nearestTime([0, 1, 2], 9), 2);
  assert.equal(nearestTime([0], 5), 0);
});
