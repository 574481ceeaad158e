/* global player -- ui/sample/comparison.py puts the player of grids in front */
// The browser's half of workbench/ui/sample/comparison.py: the player of grids (assets/grid.js, as `player`), for samples.
// Gradio runs this as a function of (element, trigger, props, server, watch). Nothing is marked or voted on here, so the
// player gets no server, as in an exported page.
'use strict';

const close = make('button', { type: 'button', className: 'close-comparison', textContent: 'Close the comparison' });
const place = make('div');
const whole = make('section', { hidden: true, label: 'Samples side by side' }, close, place);
element.replaceChildren(whole);
const given = { value: { grid: '' } };
let tell = () => {};
player(place, () => {}, given, null, (_, show) => { tell = show; });

function show(value) {
  given.value = value;
  whole.hidden = !value.grid;
  tell();
}
close.addEventListener('click', () => {
  show({ grid: '' });
  document.querySelector('#sample-history .side-by-side')?.focus();
});
function update() {
  show(props.value ?? { grid: '' });
  if (whole.hidden) return;
  whole.scrollIntoView({ block: 'start' });
  place.querySelector('.play')?.focus({ preventScroll: true });
}
watch('value', update);
