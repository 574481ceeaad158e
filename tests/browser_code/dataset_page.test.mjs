// Pages of clips keep what was just written, parts and crops stay within the source video, datasets are found by any word.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elements } from './elements.mjs';

const { withSaved, boundedPart, draggedCrop, foundDatasets, datasetFacts, titleOf, toneOf, exampleFacts } = elements([
  'withSaved', 'boundedPart', 'draggedCrop', 'foundDatasets', 'datasetFacts', 'titleOf', 'toneOf', 'exampleFacts']);

const clips = (...ids) => ids.map((id) => ({ id }));

test('a clip whose caption was just saved stays where it stood, although the filter no longer finds it', () => {
  const found = withSaved(clips('a', 'b', 'c'), clips('a', 'c', 'd'), new Set(['b']));
  assert.deepEqual(found.map(({ id }) => id), ['a', 'b', 'c', 'd']);
  assert.deepEqual(withSaved(clips('a', 'b'), clips('c'), new Set()), clips('c'));
  assert.deepEqual(withSaved(clips('a'), [], new Set(['a'])), clips('a'));
});

test('a part has at least one frame and lies within its source video', () => {
  assert.deepEqual(boundedPart({ start: -3, end: 99 }, 49), { start: 0, end: 49 });
  assert.deepEqual(boundedPart({ start: 30, end: 10 }, 49), { start: 30, end: 31 });
  assert.deepEqual(boundedPart({ start: 60, end: 70 }, 49), { start: 48, end: 49 });
});

test('a corner of a crop is dragged in even pixels, never over the opposite one or out of the picture', () => {
  assert.deepEqual(draggedCrop([0, 0, 160, 120], 'se', 101.2, 59.9, 160, 120), [0, 0, 102, 60]);
  assert.deepEqual(draggedCrop([0, 0, 160, 120], 'nw', 500, -20, 160, 120), [144, 0, 16, 120]);
  assert.deepEqual(draggedCrop([40, 40, 80, 40], 'ne', 999, 999, 161, 121), [40, 64, 120, 16]);
});

test('datasets are found by every word of name, trigger, group or notes', () => {
  const list = [{ name: 'cats', title: 'Cats', trigger_word: 'ohwx', group: 'pets', own_notes: '' }, { name: 'hiker', title: 'Hiker', trigger_word: '', group: '', own_notes: 'with a cat' }];
  assert.deepEqual(foundDatasets(list, 'cat').map(({ name }) => name), ['cats', 'hiker']);
  assert.deepEqual(foundDatasets(list, 'PETS ohwx').map(({ name }) => name), ['cats']);
});

test('a dataset, an import and a recorded run in a line', () => {
  assert.equal(datasetFacts({ summary: { clips: 1, seconds: 94, missing_captions: 0 } }), '1 clip · 2 min · ready');
  assert.equal(datasetFacts({ summary: { clips: 24, seconds: 27, missing_captions: 4 } }), '24 clips · 27 s · 4 without a caption');
  const titles = [['cats phone.tar.gz'], ['cat.mp4'], ['cat_01.mp4', 'cat_02.mp4', 'cat_02.txt']].map((names) => titleOf(names.map((name) => ({ name }))));
  assert.deepEqual(titles, ['cats phone', 'cat', 'cat']);
  assert.match(titleOf([{ name: '01_red.mp4' }, { name: '02_blue.mp4' }]), /^Clips of \w+ \d+$/);
  assert.deepEqual([toneOf('refused'), toneOf('taken'), toneOf('anything')], ['bad', 'good', 'idle']);
  assert.equal(exampleFacts({ clips: 24, model: 'Tiny', seconds: 381.3, device: 'CPU, 2 cores' }), '24 clips, Tiny, 6 min on 2 cores.');
});
