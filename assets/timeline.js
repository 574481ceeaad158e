// The browser's half of workbench/ui/datasets/timeline.py: a source video on a filmstrip, with in and out points, cuts and a crop.
// Gradio runs this as a function of (element, trigger, props, server, watch). Frames count from 0; a part ends before
// its end frame.
'use strict';

const KEYS = [
  ['Space', 'play or stop; inside the part it plays in a loop'], ['arrows, Shift+arrows', 'one frame, ten frames'],
  ['I, O', 'begin or end of the part'], ['M', 'set or drop a cut here'], ['[ and ]', 'previous and next cut'],
  ['Home, End', 'first and last frame'], ['+ and -', 'zoom'],
  ['arrows on the crop, with Ctrl', 'move it, resize it (Shift: farther)'],
];
const RATIOS = { free: 0, '16:9': 16 / 9, '3:2': 3 / 2, '4:3': 4 / 3, '1:1': 1, '3:4': 3 / 4, '2:3': 2 / 3, '9:16': 9 / 16 };
const KEY_MS = 350, CLOSEST = 24; // frames that a full zoom shows

const button = (className, textContent, title) => make('button', { type: 'button', className, textContent, title });
const whole = (label, step = 1) => make('input', { type: 'number', step, min: 0, label });

// ---- the parts of the page

const video = make('video', { muted: true, playsInline: true, preload: 'auto', tabIndex: -1 });
video.disablePictureInPicture = true;
const box = make('div', { className: 'box', tabIndex: 0, role: 'group', label: 'Crop: arrows move it, Ctrl and arrows resize it' },
  ...['nw', 'n', 'ne', 'e', 'se', 's', 'sw', 'w'].map((side) => make('i', { className: `grip ${side}` })));
const stage = make('div', { className: 'stage' }, video, box);
const failed = make('p', { className: 'message', hidden: true, textContent: 'This browser cannot play the source video; the points can still be set by number.' });

const canvas = make('canvas');
const before = make('div', { className: 'outside' }), after = make('div', { className: 'outside' });
const takenParts = make('div', { className: 'layer' }), cutMarks = make('div', { className: 'layer' });
const slider = (className, label) => make('div', { className: `edge ${className}`, tabIndex: 0, role: 'slider', label });
const start = slider('start', 'Begin of the part'), end = slider('end', 'End of the part');
const head = make('div', { className: 'playhead' });
const track = make('div', { className: 'track' }, canvas, takenParts, before, after, cutMarks, head, start, end);

const play = button('play', 'Play', 'Space'), setIn = button('set-in', 'Begin here', 'I'), setOut = button('set-out', 'End here', 'O');
const addCut = button('add-cut', 'Cut here', 'M'), closer = button('closer', '+', 'Zoom in (+)'), farther = button('farther', '−', 'Zoom out (-)');
closer.setAttribute('aria-label', 'Zoom in');
farther.setAttribute('aria-label', 'Zoom out');
const now = make('span', { className: 'readout now' }), length = make('span', { className: 'readout length' });
const startNumber = whole('First frame of the part'), endNumber = whole('Last frame of the part');
const startTime = make('span', { className: 'readout' }), endTime = make('span', { className: 'readout' });
const cropping = make('input', { type: 'checkbox', className: 'cropping' });
const ratio = make('select', { className: 'ratio', label: 'Proportions of the crop' });
const sides = ['Left', 'Top', 'Width', 'Height'].map((name) => whole(`${name} of the crop`, 2));
const cropFields = make('span', { className: 'fields' }, ratio, ...sides.map((input, index) => make('label', { className: 'check' }, ['left', 'top', 'width', 'height'][index], input)));
const root = make('section', { className: 'timeline', tabIndex: -1, label: 'Timeline', hidden: true },
  stage, failed,
  make('div', { className: 'tools' }, play, now, setIn, setOut, addCut, make('span', { className: 'pager' }, farther, closer)),
  track,
  make('div', { className: 'tools' },
    make('label', { className: 'check' }, 'first frame', startNumber), startTime,
    make('label', { className: 'check' }, 'last frame', endNumber), endTime, length),
  make('div', { className: 'tools' }, make('label', { className: 'check' }, cropping, 'Crop'), cropFields),
  make('details', { className: 'keys' }, make('summary', { textContent: 'Keys' }), make('dl', {}, ...KEYS.map(
    ([key, what]) => make('div', {}, make('dt', { textContent: key }), make('dd', { textContent: what }))))));
element.append(root);

// ---- state: what the host gave, and what was changed here

let reel = { clip: '', frames: 1, fps: 1, width: 2, height: 2, times: [], taken: [] };
let part = { start: 0, end: 1 }, view = { from: 0, to: 1 }, cuts = new Map(), crop = null, frame = 0;
let strip = null, busy = false, round = false;
const timers = {};

const EVENTS = {
  span: () => trigger('span', { clip: reel.clip, start_frame: part.start, end_frame: part.end }),
  cuts: () => trigger('cuts', { clip: reel.clip, cuts: [...cuts].filter(([, on]) => on).map(([at]) => at).sort((a, b) => a - b) }),
  crop: () => trigger('crop', { clip: reel.clip, crop }),
};
function send(name) {
  clearTimeout(timers[name]);
  delete timers[name];
  EVENTS[name]();
}
function sendSoon(name) {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(() => send(name), KEY_MS);
}

// ---- rendering

const seconds = (at) => `${(at / reel.fps).toFixed(2)} s`;
const position = (at) => (100 * (at - view.from)) / (view.to - view.from);

function spread(node, from, to) {
  const [left, right] = [clamp(position(from), 0, 100), clamp(position(to), 0, 100)];
  Object.assign(node.style, { left: `${left}%`, width: `${Math.max(0, right - left)}%` });
}

function point(node, at) {
  node.style.left = `${position(at)}%`;
  node.hidden = at < view.from || at > view.to;
}

function paint() {
  spread(before, view.from, part.start);
  spread(after, part.end, view.to);
  point(start, part.start);
  point(end, part.end);
  point(head, frame + 0.5);
  for (const node of [...takenParts.children, ...cutMarks.children]) node.position();
  for (const [node, value, text] of [[start, part.start, part.start], [end, part.end - 1, part.end - 1]]) {
    Object.entries({ valuemin: 0, valuemax: reel.frames - 1, valuenow: value, valuetext: `frame ${text}, ${seconds(text)}` })
      .forEach(([name, text]) => node.setAttribute(`aria-${name}`, text));
  }
  if (document.activeElement !== startNumber) startNumber.value = part.start;
  if (document.activeElement !== endNumber) endNumber.value = part.end - 1;
  startTime.textContent = seconds(part.start);
  endTime.textContent = seconds(part.end);
  length.textContent = `${part.end - part.start} frames, ${seconds(part.end - part.start)}`;
  now.textContent = `${seconds(frame)}, frame ${frame}`;
  addCut.textContent = cuts.get(frame) ? 'Drop this cut' : 'Cut here';
}

function renderStrip() {
  const [width, height] = [track.clientWidth, track.clientHeight];
  const sharp = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: width * sharp, height: height * sharp });
  const tiles = reel.times.length;
  if (!strip?.naturalWidth || !tiles || !width) return;
  const tile = strip.naturalWidth / tiles;
  const slots = Math.max(1, Math.round(width / (height * (tile / strip.naturalHeight))));
  const context = canvas.getContext('2d');
  for (let slot = 0; slot < slots; slot += 1) { // in each slot the tile nearest in time
    const wanted = (view.from + ((slot + 0.5) / slots) * (view.to - view.from)) / reel.fps;
    const nearest = nearestTime(reel.times, wanted);
    const [left, step] = [(slot * canvas.width) / slots, canvas.width / slots];
    context.drawImage(strip, nearest * tile, 0, tile, strip.naturalHeight, left, 0, step, canvas.height);
  }
}

function marks() {
  takenParts.replaceChildren(...(reel.taken ?? []).map(([from, to]) => {
    const node = make('div', { className: 'taken', title: `already a clip: ${seconds(from)} to ${seconds(to)}` });
    node.position = () => spread(node, from, to);
    return node;
  }));
  cutMarks.replaceChildren(...[...cuts].map(([at, on]) => {
    const node = make('button', {
      type: 'button', className: on ? 'cut' : 'cut off', tabIndex: -1, label: `Cut at frame ${at}`,
      title: `cut at ${seconds(at)} (frame ${at}): click to ${on ? 'drop it' : 'set it again'}`,
    });
    node.setAttribute('aria-pressed', on);
    node.position = () => point(node, at);
    node.addEventListener('pointerdown', (event) => event.stopPropagation());
    node.addEventListener('click', () => { cuts.set(at, !on); marks(); send('cuts'); });
    return node;
  }));
  paint();
}

// ---- the playhead and its video

let wanted = null;
function seek(at) {
  frame = clamp(Math.round(at), 0, reel.frames - 1);
  if (frame < view.from || frame >= view.to) look(frame - (view.to - view.from) / 2, view.to - view.from);
  wanted = (frame + 0.5) / reel.fps; // the middle of the frame, so that rounding cannot show its neighbour
  if (!video.seeking) { video.currentTime = wanted; wanted = null; }
  paint();
}
video.addEventListener('seeked', () => { // dragging asks faster than a decoder can seek: only the newest counts
  if (wanted !== null) { video.currentTime = wanted; wanted = null; }
});
video.addEventListener('error', () => { failed.hidden = !video.getAttribute('src'); });
video.addEventListener('loadeddata', () => { failed.hidden = true; });

function playing() {
  if (video.paused || !root.isConnected) return;
  frame = clamp(Math.floor(video.currentTime * reel.fps + 0.01), 0, reel.frames - 1);
  if (round && frame >= part.end) seek(part.start);
  else if (frame >= view.to) look(frame, view.to - view.from);
  paint();
  requestAnimationFrame(playing);
}
function toggle() {
  if (!video.paused) return video.pause();
  if (frame === part.end - 1 || frame >= reel.frames - 1) seek(part.start);
  round = frame >= part.start && frame < part.end;
  video.play().catch(() => {}); // stopped before it began, or cannot be played: `failed` says so
}
video.addEventListener('play', () => { play.textContent = 'Stop'; requestAnimationFrame(playing); });
video.addEventListener('pause', () => { play.textContent = 'Play'; });
video.addEventListener('ended', () => { if (round) { seek(part.start); video.play().catch(() => {}); } });

function look(from, span) {
  const size = clamp(span, Math.min(CLOSEST, reel.frames), reel.frames);
  const left = clamp(from, 0, reel.frames - size);
  view = { from: left, to: left + size };
  renderStrip();
  paint();
}
const zoom = (factor) => { const span = (view.to - view.from) * factor; look(frame - span / 2, span); };

// ---- the part

function setStart(at) { part.start = clamp(Math.round(at), 0, part.end - 1); paint(); }
function setEnd(at) { part.end = clamp(Math.round(at), part.start + 1, reel.frames); paint(); }

function drag(node, moved, released, begun = () => {}) {
  node.addEventListener('pointerdown', (event) => {
    if (event.button) return;
    event.stopPropagation();
    node.setPointerCapture(event.pointerId);
    busy = true;
    begun(event);
    const move = (one) => moved(one, event);
    const up = () => {
      busy = false;
      node.removeEventListener('pointermove', move);
      node.removeEventListener('lostpointercapture', up);
      released();
    };
    node.addEventListener('pointermove', move);
    node.addEventListener('lostpointercapture', up);
  });
}
function frameAt(event) {
  const edge = track.getBoundingClientRect();
  return view.from + ((event.clientX - edge.left) / edge.width) * (view.to - view.from);
}
drag(track, (event) => seek(Math.floor(frameAt(event))), () => {}, (event) => { video.pause(); seek(Math.floor(frameAt(event))); });
drag(start, (event) => { setStart(frameAt(event)); seek(part.start); }, () => send('span'), () => video.pause());
drag(end, (event) => { setEnd(frameAt(event)); seek(part.end - 1); }, () => send('span'), () => video.pause());

function stepped(event) {
  const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
  return step && !event.altKey ? step * (event.shiftKey ? 10 : 1) : 0;
}
for (const [node, move] of [[start, (by) => { setStart(part.start + by); seek(part.start); }], [end, (by) => { setEnd(part.end + by); seek(part.end - 1); }]]) {
  node.addEventListener('keydown', (event) => {
    const by = stepped(event) || { Home: -reel.frames, End: reel.frames }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    move(by);
    sendSoon('span');
  });
}
startNumber.addEventListener('change', () => { setStart(Number(startNumber.value)); startNumber.value = part.start; seek(part.start); send('span'); });
endNumber.addEventListener('change', () => { setEnd(Number(endNumber.value) + 1); endNumber.value = part.end - 1; seek(part.end - 1); send('span'); });

const ACTIONS = {
  ' ': toggle,
  i: () => { if (frame >= part.end) part.end = reel.frames; setStart(frame); send('span'); },
  o: () => { if (frame < part.start) part.start = 0; setEnd(frame + 1); send('span'); },
  m: () => { if (!frame) return; cuts.set(frame, !cuts.get(frame)); marks(); send('cuts'); },
  '[': () => seek(Math.max(0, ...[...cuts.keys()].filter((at) => at < frame))),
  ']': () => seek(Math.min(reel.frames - 1, ...[...cuts.keys()].filter((at) => at > frame))),
  Home: () => seek(0), End: () => seek(reel.frames - 1),
  '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2),
};
root.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches('input, select, summary')) return;
  const by = stepped(event);
  const action = by ? () => { video.pause(); seek(frame + by); } : ACTIONS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action || (event.key === ' ' && event.target.matches('button'))) return;
  event.preventDefault();
  action();
});
play.addEventListener('click', toggle);
video.addEventListener('click', toggle);
setIn.addEventListener('click', ACTIONS.i);
setOut.addEventListener('click', ACTIONS.o);
addCut.addEventListener('click', ACTIONS.m);
closer.addEventListener('click', ACTIONS['+']);
farther.addEventListener('click', ACTIONS['-']);

// ---- the crop: even numbers, inside the picture

const shape = () => Number(ratio.value);

function showCrop() {
  cropping.checked = Boolean(crop);
  box.hidden = cropFields.hidden = !crop;
  if (!crop) return;
  const [left, top, width, height] = crop;
  Object.assign(box.style, {
    left: `${(100 * left) / reel.width}%`, top: `${(100 * top) / reel.height}%`,
    width: `${(100 * width) / reel.width}%`, height: `${(100 * height) / reel.height}%`,
  });
  sides.forEach((input, number) => { if (document.activeElement !== input) input.value = crop[number]; });
}

let held = null;
function dragCrop(node, change) {
  drag(node, (event, first) => {
    const scale = reel.width / stage.clientWidth;
    crop = change(held, (event.clientX - first.clientX) * scale, (event.clientY - first.clientY) * scale);
    showCrop();
  }, () => send('crop'), () => { held = [...crop]; box.focus({ preventScroll: true }); });
}
dragCrop(box, (from, dx, dy) => movedCrop(reel, from, dx, dy));
for (const grip of box.children) dragCrop(grip, (from, dx, dy) => resizedCrop(reel, shape(), from, grip.className.split(' ')[1], dx, dy));
box.addEventListener('keydown', (event) => {
  const step = { ArrowLeft: [-2, 0], ArrowRight: [2, 0], ArrowUp: [0, -2], ArrowDown: [0, 2] }[event.key];
  if (!step || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  const [dx, dy] = step.map((one) => one * (event.shiftKey ? 10 : 1));
  crop = event.ctrlKey || event.metaKey ? resizedCrop(reel, shape(), crop, dx ? 'e' : 's', dx, dy) : movedCrop(reel, crop, dx, dy);
  showCrop();
  sendSoon('crop');
});
cropping.addEventListener('change', () => {
  const [wide, high] = [reel.width * 0.8, reel.height * 0.8];
  crop = cropping.checked ? fittedCrop(reel, shape(), [reel.width * 0.1, reel.height * 0.1, wide, high]) : null;
  if (crop) crop = movedCrop(reel, crop, (reel.width - crop[2]) / 2 - crop[0], (reel.height - crop[3]) / 2 - crop[1]);
  showCrop();
  send('crop');
});
ratio.addEventListener('change', () => {
  if (!shape()) return;
  const [left, top, width, height] = crop;
  const wanted = fittedCrop(reel, shape(), [0, 0, width, height]);
  crop = movedCrop(reel, wanted, left + (width - wanted[2]) / 2, top + (height - wanted[3]) / 2);
  showCrop();
  send('crop');
});
sides.forEach((input, number) => input.addEventListener('change', () => {
  const typed = [...crop];
  typed[number] = Number(input.value) || 0;
  crop = number < 2 ? movedCrop(reel, typed, 0, 0) : fittedCrop(reel, shape(), typed, shape() ? (number === 2 ? 'e' : 's') : 'se');
  sides.forEach((one, at) => { one.value = crop[at]; });
  showCrop();
  send('crop');
}));

// ---- the value from the host

function update() {
  const value = props.value ?? { clip: '' };
  if (busy) return setTimeout(update, 200); // never pull something out of a person's hand
  for (const name of Object.keys(timers)) if (value.clip === reel.clip) return setTimeout(update, KEY_MS); else send(name);
  const same = value.clip === reel.clip && value.video === reel.video;
  root.hidden = !value.clip;
  if (!value.clip) {
    reel = { ...reel, clip: '', video: '' };
    video.removeAttribute('src');
    return video.load();
  }
  reel = { ...value };
  part = { start: reel.start_frame, end: reel.end_frame };
  cuts = new Map(reel.cuts.map((at) => [at, true]));
  crop = reel.crop && [...reel.crop];
  stage.style.aspectRatio = `${reel.width} / ${reel.height}`;
  stage.style.setProperty('--shape', reel.width / reel.height);
  video.classList.toggle('pixelated', reel.pixelated);
  for (const input of [startNumber, endNumber]) input.max = reel.frames - 1;
  if (!same) {
    const ratios = [...Object.entries(RATIOS), [`as it is (${reel.width}×${reel.height})`, reel.width / reel.height]];
    ratio.replaceChildren(...ratios.map(([text, value]) => make('option', { value, textContent: text })));
    ratio.value = 0;
    failed.hidden = true;
    video.src = reel.video;
    frame = part.start;
    view = { from: 0, to: reel.frames };
    video.addEventListener('loadedmetadata', () => seek(frame), { once: true });
  }
  if (strip?.getAttribute('src') !== reel.strip) {
    strip = make('img');
    strip.addEventListener('load', renderStrip);
    strip.src = reel.strip;
  }
  frame = clamp(frame, 0, reel.frames - 1);
  renderStrip();
  showCrop();
  marks();
}

new ResizeObserver(renderStrip).observe(track);
watch('value', update);
update();
