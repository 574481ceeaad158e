// Videos on one clock, without a browser's videos.
import test from 'node:test';
import assert from 'node:assert/strict';
import { elements } from './elements.mjs';

const { Clock } = elements(['Clock']);
const loading = () => ({ readyState: 0, currentTime: 0, duration: Number.NaN, addEventListener() {}, play: () => Promise.resolve(), pause() {} });

test('a time that is chosen before a video was loaded is kept for it', () => {
  const clock = new Clock(), video = loading();
  clock.add(video);
  clock.seek(1.5);
  assert.equal(clock.time, 1.5);
  Object.assign(video, { readyState: 2, duration: 6 });
  clock.joined(video);
  assert.deepEqual([video.currentTime, clock.time], [1.5, 1.5]);
  clock.seek(9);
  assert.ok(video.currentTime < 6);
});

test('a video that comes later starts at the time of the others', () => {
  const clock = new Clock(), first = Object.assign(loading(), { readyState: 2, duration: 6 }), second = Object.assign(loading(), { readyState: 2, duration: 6 });
  clock.add(first);
  clock.seek(2);
  clock.add(second);
  assert.equal(second.currentTime, 2);
});
