// LoRAs with their scales, sizes and lengths as a form offers them, what is chosen of a page of samples.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elements } from './elements.mjs';

const { lorasScale, withScale, blockFactors, blocksText, blockGroups, sizeOptions, lengthOptions, sceneLines, withLast, pageRange, choosing } = elements([
  'lorasScale', 'withScale', 'blockFactors', 'blocksText', 'blockGroups', 'sizeOptions', 'lengthOptions', 'sceneLines', 'withLast', 'pageRange', 'choosing']);

test('a LoRA is a name with a scale, which is left out where it is 1', () => {
  assert.deepEqual(lorasScale('runs/ring=0.8'), ['runs/ring', 0.8, '']);
  assert.deepEqual(lorasScale('runs/ring@200'), ['runs/ring@200', 1, '']);
  assert.deepEqual(lorasScale('/loras/a=b.safetensors'), ['/loras/a=b.safetensors', 1, '']);
  assert.deepEqual(lorasScale('/loras/a=b.safetensors=-1.5'), ['/loras/a=b.safetensors', -1.5, '']);
  assert.deepEqual(lorasScale('runs/ring=0.8[0-9:0.5, rest:0]'), ['runs/ring', 0.8, '[0-9:0.5, rest:0]']);
  assert.deepEqual(lorasScale('/loras/a[1]=2'), ['/loras/a[1]', 2, '']);
  assert.deepEqual([withScale('ring', 1), withScale('ring', 0.4)], ['ring', 'ring=0.4']);
});

test('factors of blocks are read, changed and written as ranges', () => {
  const factors = blockFactors('[0-2:0.5, 7:0,rest:0]');
  assert.deepEqual(factors, { 0: 0.5, 1: 0.5, 2: 0.5, 7: 0, rest: 0 });
  assert.equal(blocksText({ ...factors, 1: 1, 8: 0 }), '[0:0.5,2:0.5,7-8:0,rest:0]');
  assert.equal(blocksText({ 3: 1, rest: 1 }), '');
  const found = [...Array(30).keys()].map((block) => ({ block, share: 1 / 32 }));
  const groups = blockGroups([...found, { block: null, share: 2 / 32 }]);
  assert.deepEqual(groups.map(({ blocks }) => blocks.length), [4, 4, 4, 4, 4, 4, 4, 2, 1]);
  assert.deepEqual([groups[7].title, groups[8].blocks], ['Blocks 28–29', ['rest']]);
});

test("the model's own size comes first; one that is set is listed, whatever it is", () => {
  const sizes = [[720, 480], [480, 720]];
  assert.deepEqual(sizeOptions(sizes, null, null), { options: [['', '720×480'], ['480x720', '480×720']], chosen: '' });
  assert.deepEqual(sizeOptions(sizes, 480, 720).options.length, 2);
  assert.deepEqual(sizeOptions(sizes, 256, null), { options: [['', '720×480'], ['480x720', '480×720'], ['256x480', '256×480']], chosen: '256x480' });
});

test('numbers of frames say how long they last', () => {
  assert.deepEqual(lengthOptions([9, 17], 17, 8, null), [['', '17 · 2.1 s'], [9, '9 · 1.1 s']]);
  assert.deepEqual(lengthOptions([9], 9, 8, 12).at(-1), [12, '12 · 1.5 s']);
});

test('a scene has its own last frame, beside its length and its keyframes', () => {
  const story = 'a door opens@@17 keep 5\n\na hall@@key=/a/b.png=8 last=/a/c d.png';
  assert.deepEqual(sceneLines(story).map(({ text, last }) => [text, last]), [['a door opens', ''], ['a hall', '/a/c d.png']]);
  assert.equal(withLast(story, 0, '/x.png'), 'a door opens@@17 keep 5 last=/x.png\na hall@@key=/a/b.png=8 last=/a/c d.png');
  assert.equal(withLast(story, 1, ''), 'a door opens@@17 keep 5\na hall@@key=/a/b.png=8');
  assert.equal(withLast('a@@last=/x.png', 0, ''), 'a');
  assert.equal(withLast('a@@last=/x.png', 0, '/y.png'), 'a@@last=/y.png');
});

test('a page of samples, and those between two that are chosen with Shift', () => {
  assert.equal(pageRange({ page: 1, size: 24, matching: 1000, samples: Array(24).fill(0) }), '25 to 48 of 1,000');
  assert.equal(pageRange({ page: 0, size: 24, matching: 0, samples: [] }), '');
  assert.deepEqual([...choosing(new Set(['a']), ['a', 'b', 'c', 'd'], 'd', true, 'b')], ['a', 'b', 'c', 'd']);
  assert.deepEqual([...choosing(new Set(['a', 'b']), ['a', 'b'], 'a', false, null)], ['b']);
});
