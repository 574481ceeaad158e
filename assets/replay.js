// The browser's half of workbench/demo_space/replays.py: the moment of a run that a slider points at.
// Gradio runs this as a function of (element, ...), and a saved page in the same way. Times count from the run's start.
'use strict';

const section = element.querySelector('.replay');
if (section && !section.dataset.ready) {
  section.dataset.ready = '1';
  const run = JSON.parse(section.dataset.replay);
  const slider = section.querySelector('input'), play = section.querySelector('.play');
  const output = section.querySelector('output'), chart = section.querySelector('.curve');
  const videos = section.querySelector('.videos');
  const W = 640, H = 240, LEFT = 54, RIGHT = 12, TOP = 10, BOTTOM = 26;
  const LENGTH_MS = 30000; // of a replay from end to end
  const small = run.size[0] <= 128;

  const words = (seconds) => seconds < 60 ? `${Math.round(seconds)} s` : seconds < 3600
    ? `${Math.floor(seconds / 60)} min ${String(Math.round(seconds % 60)).padStart(2, '0')} s`
    : `${Math.floor(seconds / 3600)} h ${String(Math.floor(seconds / 60) % 60).padStart(2, '0')} min`;
  const svg = (tag, values, text) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(values)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return made;
  };

  // ---- the chart: whole and faint, and up to the moment in colour

  const values = run.points.flatMap((point) => [point[3], point[4]]).filter((value) => value !== null);
  const low = Math.min(...values), high = Math.max(...values), last = Math.max(run.steps, 1);
  const x = (step) => LEFT + (W - LEFT - RIGHT) * step / last;
  const y = (value) => TOP + (H - TOP - BOTTOM) * (1 - (value - low) / ((high - low) || 1));
  const line = (index) => run.points.filter((point) => point[index] !== null)
    .map((point, i) => `${i ? 'L' : 'M'}${x(point[1]).toFixed(1)} ${y(point[index]).toFixed(1)}`).join('');
  const picture = svg('svg', { viewBox: `0 0 ${W} ${H}`, role: 'img' });
  for (const share of [0, 0.5, 1]) {
    const value = low + share * (high - low);
    picture.append(svg('path', { class: 'grid', d: `M${LEFT} ${y(value)}H${W - RIGHT}` }),
      svg('text', { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' }, value.toPrecision(3)),
      svg('text', { x: x(share * last), y: H - 8, 'text-anchor': share ? share === 1 ? 'end' : 'middle' : 'start' },
        share === 1 ? `step ${Math.round(last)}` : String(Math.round(share * last))));
  }
  const clip = `replay-${Math.random().toString(36).slice(2)}`;
  const shown = svg('rect', { x: 0, y: 0, height: H, width: 0 });
  const cut = svg('clipPath', { id: clip });
  cut.append(shown);
  picture.append(cut);
  const layers = [['trained', 3], ['held', 4]];
  for (const [name, index] of layers) picture.append(svg('path', { class: `${name} faint`, d: line(index) }));
  const upTo = svg('g', { 'clip-path': `url(#${clip})` });
  for (const [name, index] of layers) upTo.append(svg('path', { class: name, d: line(index) }));
  for (const point of run.points) {
    if (point[4] !== null) upTo.append(svg('circle', { class: 'held', cx: x(point[1]), cy: y(point[4]), r: 2.4 }));
  }
  const now = svg('path', { class: 'now', d: '' });
  picture.append(upTo, now);
  const legend = document.createElement('figcaption');
  legend.innerHTML = '<span class="trained">loss, mean of the last steps</span><span class="held">held-out clips</span>';
  chart.append(legend, picture);

  // ---- the previews: a column a prompt, the first one beside that of the moment

  const tiles = run.prompts.map((prompt, number) => {
    const figure = document.createElement('figure'), pair = document.createElement('div');
    const caption = document.createElement('figcaption'), step = document.createElement('small');
    const make = () => Object.assign(document.createElement('video'), {
      muted: true, loop: true, autoplay: true, playsInline: true, className: small ? 'pixelated' : '',
    });
    const before = make(), after = make();
    before.setAttribute('aria-label', `${prompt}, before training`);
    after.setAttribute('aria-label', `${prompt}, at that moment`);
    caption.textContent = prompt;
    pair.append(before, after);
    figure.append(pair, step, caption);
    videos.append(figure);
    const mine = run.previews.filter((one) => one[2] === number);
    if (mine.length) before.src = mine[0][3];
    return { mine, after, step };
  });

  // ---- the moment

  const show = (seconds) => {
    let point = run.points[0], loss = null, held = null;
    for (const one of run.points) {
      if (one[0] > seconds) break;
      point = one;
      if (one[3] !== null) loss = one[3];
      if (one[4] !== null) held = one[4];
    }
    const left = x(point[1]);
    shown.setAttribute('width', left + 3);
    now.setAttribute('d', `M${left} ${TOP}V${H - BOTTOM}`);
    for (const { mine, after, step } of tiles) {
      const seen = mine.filter((one) => one[0] <= seconds).pop() || mine[0];
      if (seen && after.getAttribute('src') !== seen[3]) after.src = seen[3];
      step.textContent = seen ? `before · step ${seen[1]}` : '';
    }
    output.textContent = `${words(seconds)} after it began · step ${point[1]} of ${run.steps}`
      + (loss === null ? '' : ` · loss ${loss.toFixed(4)}`) + (held === null ? '' : ` · held out ${held.toFixed(4)}`);
  };
  const moment = () => run.seconds * slider.value / 1000;

  let started = 0, from = 0, frame = 0;
  const stop = () => { cancelAnimationFrame(frame); frame = 0; play.textContent = 'Play'; };
  const step = (time) => {
    if (!section.isConnected) return stop();
    slider.value = from + 1000 * (time - started) / LENGTH_MS;
    show(moment());
    if (slider.value >= 1000) stop(); else frame = requestAnimationFrame(step);
  };
  play.addEventListener('click', () => {
    if (frame) return stop();
    from = slider.value >= 1000 ? 0 : Number(slider.value);
    started = performance.now();
    play.textContent = 'Pause';
    frame = requestAnimationFrame(step);
  });
  slider.addEventListener('input', () => { stop(); show(moment()); });
  show(0);
}
