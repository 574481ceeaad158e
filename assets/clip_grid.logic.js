// What assets/clip_grid.js computes without the page: numbers and facts as texts.
'use strict';

const formatted = (number) => number.toLocaleString('en');
const counted = (number, one, many) => `${formatted(number)} ${number === 1 ? one : many}`;

// "1–48 of 96 clips, 3 without a caption", of an answer of the server with `names` on this page.
function rangeText({ page, matching, all, missing }, size, names) {
  if (!matching) return '';
  const first = page * size;
  let rest = '';
  if (all > matching) rest = ` (${formatted(all)} in all)`;
  else if (missing) rest = `, ${formatted(missing)} without a caption`;
  return `${formatted(first + 1)}–${formatted(first + names)} of ${counted(matching, 'clip', 'clips')}${rest}`;
}

function clipFacts({ frames, seconds, width, height }) {
  return `${frames === 1 ? 'image' : `${seconds.toFixed(1)} s`}, ${width}×${height}`;
}
