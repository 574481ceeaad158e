// The mask of a clip: how a painted picture is sent, and how unsure frames are named.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elements } from './elements.mjs';

const { runsOf, unsureWords, besideWords, makerItems } = elements(['runsOf', 'unsureWords', 'besideWords', 'makerItems']);
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
  const depth = { id: 'depth', title: 'Depth', kinds: ['control'], models: [{ id: 'some/depth', title: 'Some depth', license: 'MIT', download_gb: 0.1, at_hand: false }] };
  const makers = [{ id: 'edges', title: 'Edges', kinds: ['control'], models: [] }, depth, { id: 'box', title: 'Box', kinds: ['mask'], models: [] }];
  assert.deepEqual(makerItems(makers, 'control'), [['Make: Edges', 'make', 'edges control'],
    ['Make: Depth · Some depth, MIT, downloads 0.1 GB', 'make', 'depth control some/depth'], ['Make: Depth · another model…', 'another', 'depth control']]);
  depth.models[0].at_hand = true;
  assert.equal(makerItems(makers, 'control')[1][0], 'Make: Depth · Some depth, MIT');
});

test('a card says what lies beside its clip', () => {
  assert.equal(besideWords({ beside: { control: 'x', mask: 'y' } }), 'With a control clip, a mask');
  assert.equal(besideWords({ beside: {} }), '');
});
