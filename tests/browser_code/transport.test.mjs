// One event stream a tab: who watches the same shares one answer, and a new stream repeats nothing.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as soon } from 'node:timers/promises';
import { elements } from './elements.mjs';

const streams = [];
globalThis.EventSource = class {
  constructor(url) {
    this.asked = JSON.parse(decodeURIComponent(url.split('what=')[1]));
    streams.push(this);
  }

  say(...found) { for (const one of found) this.onmessage({ data: JSON.stringify(one) }); }
  close() { this.closed = true; }
};
const { HttpTransport } = elements(['HttpTransport']);

test('an element that asks later for what is watched already has the answer at once, without another stream', async () => {
  const transport = new HttpTransport();
  const got = { page: [], tab: [], list: [] };
  const problems = [];
  transport.watch('progress/curves', { name: 'cats' }, (value) => got.page.push(value), () => {});
  await soon();
  const [first] = streams;
  assert.deepEqual(first.asked, [[1, 'progress/curves', { name: 'cats' }]]);
  first.say({ number: 1, value: { note: 'old' } });
  const stop = transport.watch('progress/curves', { name: 'cats' }, (value) => got.tab.push(value), (problem) => problems.push(problem.message));
  await soon();
  assert.equal(streams.length, 1);
  assert.deepEqual(got, { page: [{ note: 'old' }], tab: [{ note: 'old' }], list: [] });
  assert.notEqual(got.page[0], got.tab[0]); // whoever changes its copy changes no other's

  transport.watch('runs/list', {}, (value) => got.list.push(value), () => {});
  await soon();
  const second = streams[1];
  assert.ok(first.closed);
  second.say({ number: 1, value: { note: 'old' } }, { number: 2, value: [] }, { number: 1, value: { note: 'new' } });
  assert.deepEqual(got.tab, [{ note: 'old' }, { note: 'new' }]);
  assert.deepEqual(got.page, got.tab);
  assert.deepEqual(got.list, [[]]);

  second.say({ number: 1, problem: 'the run is gone' });
  assert.deepEqual(problems, ['The run is gone']);
  stop();
  second.say({ number: 1, value: { note: 'back' } });
  assert.equal(got.tab.length, 2);
  assert.equal(got.page.at(-1).note, 'back');
});
