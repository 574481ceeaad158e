import assert from 'node:assert/strict';
import test from 'node:test';
import { load } from './load.mjs';

const { sweepText, sweepParts, quoted, listedValues, settingOf, valueText } = load('sweep', 'sweepText', 'sweepParts', 'quoted', 'listedValues', 'settingOf', 'valueText');

test('a setting and its values become a text and come back', () => {
  assert.equal(sweepText('rank', ' 8, 16 '), 'rank=8, 16');
  assert.deepEqual(sweepParts('targets="to_q,to_k",attention'), { name: 'targets', values: '"to_q,to_k",attention' });
  assert.deepEqual(sweepParts('rank'), { name: 'rank', values: '' });
  const values = ['plain', 'with, comma', 'with "quotes"', ' led'];
  assert.deepEqual(listedValues(values.map(quoted).join(', ')), values);
});

test('a setting is found by its label or its key', () => {
  const settings = [{ name: 'learning_rate', title: 'Learning rate' }, { name: 'rank', title: 'Rank' }];
  assert.equal(settingOf(settings, ' learning RATE ').name, 'learning_rate');
  assert.equal(settingOf(settings, 'learning-rate').name, 'learning_rate');
  assert.equal(settingOf(settings, 'rnak'), null);
});

test('a value is said as people say it', () => {
  assert.deepEqual([null, '', [], true, false, 4, ['a', 'b']].map(valueText), ['none', 'none', 'none', 'on', 'off', '4', 'a / b']);
});
