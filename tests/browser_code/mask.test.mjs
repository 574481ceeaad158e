// The mask of a clip: how a painted picture is sent, and how unsure frames are named.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elements } from './elements.mjs';

const { runsOf, unsureWords, besideWords, ways } = elements(['runsOf', 'unsureWords', 'besideWords', 'ways']);
const picture = (...opacities) => opacities.flatMap((opacity) => [1, 2, 3, opacity]);

test('a painted picture is sent as runs outside, inside, outside', () => {
  assert.deepEqual(runsOf(picture(0, 0, 255, 255, 200, 0)), [2, 3, 1]);
  assert.deepEqual(runsOf(picture(255, 0)), [0, 1, 1]);
  assert.deepEqual(runsOf(picture(0, 0, 100)), [3]);
});

test('unsure frames are named by their first and last, from 1', () => {
  assert.equal(unsureWords([1, 0.9, 0.8], 0.7), '');
  assert.equal(unsureWords([1, 0.2, 0.8], 0.7), 'Frame 2 is unsure');
  assert.equal(unsureWords([1, 0.2, 0.3, 0.9], 0.7), 'Frames 2 to 3 are unsure');
  assert.equal(unsureWords([0.1, 1, 0.2, 1, 0.1], 0.7), 'Frames 1 and 3 and 1 other part are unsure');
});

test('a maker that needs a model is offered with each known one, its license and what it downloads, and with another one', () => {
  const depth = { id: 'depth', title: 'Depth', does: 'Nearness', models: [{ id: 'some/depth', title: 'Some depth', license: 'MIT', download_gb: 0.1, at_hand: false }], numbers: [] };
  const makers = [{ id: 'edges', title: 'Edges', does: 'Outlines', models: [], numbers: [{ setting: 'amount' }] }, { id: 'gray', title: 'Gray', does: 'No colors', models: [], numbers: [] }, depth];
  assert.deepEqual(ways(makers), [['Edges…', 'edges', 'Outlines'], ['Gray', 'gray', 'No colors'],
    ['Depth · Some depth, MIT, downloads 0.1 GB', 'depth some/depth', 'Nearness'], ['Depth · another model…', 'depth ?', 'Nearness']]);
  depth.models[0].at_hand = true;
  assert.equal(ways(makers)[2][0], 'Depth · Some depth, MIT');
});

test('a card says what lies beside its clip', () => {
  assert.equal(besideWords({ beside: { control: 'x', mask: 'y' } }), 'With a control clip, a mask');
  assert.equal(besideWords({ beside: {} }), '');
});
