// What assets/timeline.js computes without the page: crops [left, top, width, height] of even numbers inside a picture
// {width, height}, and which tile of the filmstrip shows a moment.
'use strict';

const SMALLEST = 16; // pixels of a crop
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const even = (value) => 2 * Math.floor(value / 2);

// The crop nearest to a rectangle, of a ratio of width to height unless that is 0. `side` says which edges were moved
// ("n", "se" ...); the others stay where they are.
function fittedCrop(picture, ratio, [left, top, width, height], side = 'se') {
  const [right, bottom] = [left + width, top + height];
  const widest = side.includes('w') ? right : picture.width - left;
  const highest = side.includes('n') ? bottom : picture.height - top;
  let wide = Math.min(width, widest);
  let high = Math.min(height, highest);
  if (ratio) {
    if (side === 'n' || side === 's') wide = high * ratio;
    wide = Math.min(wide, widest, highest * ratio);
    high = wide / ratio;
  }
  wide = clamp(even(wide + 0.5), Math.min(SMALLEST, even(picture.width)), even(picture.width));
  high = clamp(even(high + 0.5), Math.min(SMALLEST, even(picture.height)), even(picture.height));
  const x = clamp(even((side.includes('w') ? right - wide : left) + 1), 0, even(picture.width - wide));
  const y = clamp(even((side.includes('n') ? bottom - high : top) + 1), 0, even(picture.height - high));
  return [x, y, wide, high];
}

const movedCrop = (picture, [left, top, width, height], dx, dy) => [
  clamp(2 * Math.round((left + dx) / 2), 0, even(picture.width - width)),
  clamp(2 * Math.round((top + dy) / 2), 0, even(picture.height - height)), width, height];

// A crop of which a grip on `side` was dragged.
function resizedCrop(picture, ratio, [left, top, width, height], side, dx, dy) {
  const west = side.includes('w') ? clamp(dx, -left, width - SMALLEST) : 0;
  const north = side.includes('n') ? clamp(dy, -top, height - SMALLEST) : 0;
  const wide = Math.max(SMALLEST, width - west + (side.includes('e') ? dx : 0));
  const high = Math.max(SMALLEST, height - north + (side.includes('s') ? dy : 0));
  return fittedCrop(picture, ratio, [left + west, top + north, wide, high], side);
}

// The number of the time nearest to a moment.
const nearestTime = (times, moment) => times.reduce(
  (best, time, number) => (Math.abs(time - moment) < Math.abs(times[best] - moment) ? number : best), 0);
