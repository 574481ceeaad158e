import assert from 'node:assert/strict';
import test from 'node:test';
import { load } from './load.mjs';

const { remainder } = load('sample_queue', 'remainder');
const { pager } = load('sample_history', 'pager');

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
