import assert from 'node:assert/strict';
import test from 'node:test';
import { load } from './load.mjs';

const { rangeText, clipFacts } = load('clip_grid', 'rangeText', 'clipFacts');
const { matchingSettings, searchResult } = load('find_settings', 'matchingSettings', 'searchResult');

test('the range says how many clips there are, and what is missing', () => {
  const answer = { page: 1, matching: 96, all: 96, missing: 0 };
  assert.equal(rangeText(answer, 48, 48), '49–96 of 96 clips');
  assert.equal(rangeText({ ...answer, missing: 1200 }, 48, 48), '49–96 of 96 clips, 1,200 without a caption');
  assert.equal(rangeText({ page: 0, matching: 1, all: 96, missing: 3 }, 48, 1), '1–1 of 1 clip (96 in all)');
  assert.equal(rangeText({ page: 0, matching: 0, all: 96, missing: 3 }, 48, 0), '');
});

test('an image has no length', () => {
  assert.equal(clipFacts({ frames: 49, seconds: 6.125, width: 720, height: 480 }), '6.1 s, 720×480');
  assert.equal(clipFacts({ frames: 1, seconds: 0.1, width: 720, height: 480 }), 'image, 720×480');
});

test('a setting matches when its text has every word', () => {
  const texts = { rank: 'rank the lora\'s rank', save_every: 'save_every steps between checkpoints' };
  assert.deepEqual(matchingSettings(texts, 'STEPS save'), ['save_every']);
  assert.deepEqual(matchingSettings(texts, ' '), ['rank', 'save_every']);
  assert.deepEqual(matchingSettings(texts, 'flip'), []);
});

test('a search says what it found, and what has no effect now', () => {
  assert.equal(searchResult(' flip ', 0, 0, 9), 'No setting is called “flip”.');
  assert.equal(searchResult('save', 2, 2, 9), '2 of 9 settings');
  assert.equal(searchResult('save', 3, 2, 9), '2 of 9 settings, and 1 more that has no effect with the others as they are');
});
