import assert from 'node:assert/strict';
import test from 'node:test';
import { load } from './load.mjs';

const { SORTS, matches, countText, keptChoice, sameChoice } = load('lora_library', 'SORTS', 'matches', 'countText', 'keptChoice', 'sameChoice');
const LORA = { name: 'runs/ring', title: 'ring', run: '', base: 'tiny', trigger: 'zwx', flags: ['starred'], created: 2, rank: 4, steps: 30, bytes: 9 };
const ALL = { text: '', base: '', checkpoints: false };
const NONE = new Set();

test('a LoRA matches when it has every word, in whatever case', () => {
  assert.ok(matches(LORA, { ...ALL, text: ' RING zwx ' }, NONE));
  assert.ok(matches(LORA, { ...ALL, text: 'starred' }, NONE));
  assert.ok(!matches(LORA, { ...ALL, text: 'ring dot' }, NONE));
});

test('another base model is left out', () => {
  assert.ok(matches(LORA, { ...ALL, base: 'tiny' }, NONE));
  assert.ok(!matches(LORA, { ...ALL, base: 'other' }, NONE));
});

test('checkpoints are shown on request, and when they are chosen', () => {
  const checkpoint = { ...LORA, name: 'runs/ring@10', run: 'ring' };
  assert.ok(!matches(checkpoint, ALL, NONE));
  assert.ok(matches(checkpoint, { ...ALL, checkpoints: true }, NONE));
  assert.ok(matches(checkpoint, ALL, new Set(['runs/ring@10'])));
});

test('every order puts the larger first, names the smaller', () => {
  const other = { ...LORA, title: 'dot', created: 1, rank: 2, steps: 10, bytes: 3 };
  for (const order of ['new', 'rank', 'steps', 'size']) assert.deepEqual([other, LORA].sort(SORTS[order][1]), [LORA, other]);
  assert.deepEqual([LORA, other].sort(SORTS.name[1]), [other, LORA]);
});

test('the count says what is chosen, else what matches', () => {
  assert.equal(countText(7, 2), '2 chosen');
  assert.equal(countText(1, 0), '1 LoRA');
  assert.equal(countText(0, 0), '0 LoRAs');
});

test('what is gone is no longer chosen', () => {
  assert.deepEqual([...keptChoice([LORA], ['runs/ring', 'runs/gone'])], ['runs/ring']);
  assert.deepEqual([...keptChoice([LORA], undefined)], []);
});

test('an answer that names what is ticked is the one that was waited for', () => {
  assert.ok(sameChoice(['b', 'a'], new Set(['a', 'b'])));
  assert.ok(!sameChoice(['a'], new Set(['a', 'b'])));
  assert.ok(sameChoice(undefined, NONE));
});
