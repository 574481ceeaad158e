// Blind votes pair what nobody has voted on, with sides that look like chance and stay the same; checkpoints are walked along by group.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elements } from './elements.mjs';

const { pairsToVote, columnGroups, MOST_PAIRS } = elements(['pairsToVote', 'columnGroups', 'MOST_PAIRS']);
const cell = (key, more = {}) => ({ key, url: `${key}.mp4`, rejected: false, ...more });
const grid = (cells, votes = []) => ({ grid: 'hiker', votes, cells });

test('pairs stand in one row, have videos, are not rejected, and come once', () => {
  const made = grid([[cell('a'), cell('b'), cell('c', { rejected: true })], [cell('d'), cell('e', { url: undefined }), cell('f')]], [['b', 'a']]);
  const pairs = pairsToVote(made);
  assert.equal(pairs.length, 1);
  assert.deepEqual([pairs[0].row, [pairs[0].left, pairs[0].right].sort()], [1, [0, 2]]);
});

test('the order is the same at each look, the sides are mixed, and there are not too many', () => {
  const made = grid([...Array(20).keys()].map((row) => [...Array(10).keys()].map((column) => cell(`${row}-${column}`))));
  const pairs = pairsToVote(made);
  assert.equal(pairs.length, MOST_PAIRS);
  assert.deepEqual(pairsToVote(made), pairs);
  const swapped = pairs.filter(({ left, right }) => left > right).length;
  assert.ok(swapped > 5 && swapped < 25, `${swapped} of ${pairs.length} are swapped`);
});

test('checkpoints at two scales are two groups, each with the base model', () => {
  const columns = [['base model', ''], ['step 100', 'scale 0.5'], ['step 100', 'scale 1'], ['step 200', 'scale 0.5'], ['step 200', 'scale 1']]
    .map((labels, index) => ({ labels, base: !index }));
  assert.deepEqual(columnGroups(columns), [{ name: 'scale 0.5', columns: [0, 1, 3] }, { name: 'scale 1', columns: [0, 2, 4] }]);
  assert.deepEqual(columnGroups([{ labels: ['all'], base: true }]), [{ name: '', columns: [0] }]);
});
