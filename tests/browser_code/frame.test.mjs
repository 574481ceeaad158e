// Templates escape what they are given; numbers and times read as people write them; the palette finds by few letters.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elements } from './elements.mjs';

const { html, each, fuzzy, duration, bytes, count, loss, parts } = elements(['html', 'each', 'fuzzy', 'duration', 'bytes', 'count', 'loss', 'parts']);

test('what is put into a template is text, whatever it holds', () => {
  assert.equal(html`<b title="${'"><script>'}">${'<i>&'}</b>`.text, '<b title="&quot;&gt;&lt;script&gt;">&lt;i&gt;&amp;</b>');
  assert.equal(html`${html`<b>${1}</b>`}${[html`<i></i>`, null, false, 0]}`.text, '<b>1</b><i></i>0');
});

test('a text that looks like a property of a template stays a text', () => {
  assert.equal(html`<b title="${' .innerHTML='}${'<img>'}">${' ?hidden='}${true}</b>`.text, '<b title=" .innerHTML=&lt;img&gt;"> ?hidden=true</b>');
});

test('properties and switches', () => {
  assert.match(html`<wb-chart .lines=${[1]}></wb-chart>`.text, /^<wb-chart data-held\d+="lines"><\/wb-chart>$/);
  assert.equal(html`<input ?checked=${true} ?disabled=${false}>`.text, '<input checked>');
  assert.equal(html`${each([], () => 'x', 'none')}`.text, 'none');
});

test('durations and sizes', () => {
  assert.deepEqual([0, 0.4, 59, 90, 2040, 6120, 7200, 97200].map(duration), ['0 s', '1 s', '59 s', '2 min', '34 min', '1 h 42 min', '2 h', '1 day 3 h']);
  assert.deepEqual([999, 48_200_000, 212e9].map(bytes), ['999 bytes', '48.2 MB', '212 GB']);
  assert.deepEqual([count(1, 'clip'), count(1234, 'clip')], ['1 clip', '1,234 clips']);
  assert.deepEqual([0.577123, 1.5, 0.00012345, null].map(loss), ['0.5771', '1.500', '0.00012', '-']);
});

test('the palette prefers a piece at the beginning of a word', () => {
  const scores = ['New run', 'Go to Train', 'unrelated network'].map((text) => fuzzy(text, 'n')?.score);
  assert.ok(scores[0] > scores[1]);
  assert.ok(fuzzy('Resume metro-1', 'rm1').score > 0);
  assert.equal(fuzzy('Home', 'xyz'), null);
});

test('an address holds any name', () => {
  assert.deepEqual(parts('#/train/hiker%202/log'), ['train', 'hiker 2', 'log']);
  assert.deepEqual(parts(''), []);
});
