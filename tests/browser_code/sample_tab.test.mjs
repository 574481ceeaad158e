import assert from 'node:assert/strict';
import test from 'node:test';
import { load } from './load.mjs';

const { remainder } = load('sample_queue', 'remainder');
const { pager, between, neighbour, choosing } = load('sample_history', 'pager', 'between', 'neighbour', 'choosing');

test('the line below the queue counts what is not shown', () => {
  assert.equal(remainder({ more: 0, elsewhere: 0 }), '');
  assert.equal(remainder({ more: 2, elsewhere: 0 }), 'and 2 more that wait');
  assert.equal(remainder({ more: 2, elsewhere: 3 }), 'and 2 more that wait; 3 for grids, which wait for these');
});

test('the pager knows the first, a middle and the last page', () => {
  const page = (number, samples) => pager({ page: number, size: 12, matching: 30, samples: Array(samples) });
  assert.deepEqual(page(0, 12), { text: '1 to 12 of 30', newer: false, older: true, needed: true });
  assert.deepEqual(page(1, 12), { text: '13 to 24 of 30', newer: true, older: true, needed: true });
  assert.deepEqual(page(2, 6), { text: '25 to 30 of 30', newer: true, older: false, needed: true });
});

test('there is no pager where one page is enough', () => {
  assert.deepEqual(pager({ page: 0, size: 12, matching: 0, samples: [] }), { text: '', newer: false, older: false, needed: false });
});

test('two days are the seconds from the first midnight to the end of the last', () => {
  assert.deepEqual(between('', ''), {});
  const { since, until } = between('2026-11-22', '2026-11-22');
  assert.equal(since, new Date(2026, 10, 22) / 1000);
  assert.equal(until, new Date(2026, 10, 23) / 1000);
});

test('arrow keys go through rows and columns and stay inside', () => {
  const ids = ['a', 'b', 'c', 'd', 'e'];
  const go = (from, key) => neighbour(ids, from, key, 2);
  assert.deepEqual([go('a', 'ArrowRight'), go('b', 'ArrowDown'), go('d', 'ArrowUp'), go('c', 'Home'), go('a', 'End')], ['b', 'd', 'b', 'a', 'e']);
  assert.deepEqual([go('a', 'ArrowLeft'), go('e', 'ArrowDown'), go('a', 'x')], ['a', 'e', null]);
});

test('samples are chosen one by one, or all up to the last one', () => {
  const ids = ['a', 'b', 'c', 'd'];
  assert.deepEqual([...choosing(new Set(['x']), ids, 'b', true, '')], ['x', 'b']);
  assert.deepEqual([...choosing(new Set(), ids, 'a', true, 'c')], ['a', 'b', 'c']);
  assert.deepEqual([...choosing(new Set(ids), ids, 'd', false, 'c')], ['a', 'b']);
  assert.deepEqual([...choosing(new Set(), ids, 'd', true, 'gone')], ['d']);
});
