// A chart of curves by step, drawn from plain data by page, notebook and report.

const SMALLEST_DRAG = 6; // pixels; a shorter drag is a click
const OUTSIDE = 0.02; // share of a thin line's points that may lie above and below the chart

// ---- numbers

// Return about `wanted` round numbers from low to high.
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

// Return powers of ten from low to high, with steps between if there are few.
function logTicks(low, high) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const between = to - from > 3 ? [1] : to - from > 1 ? [1, 3] : [1, 2, 5];
  const found = [];
  for (let power = from; power <= to; power += 1) for (const one of between) found.push(Number((one * 10 ** power).toPrecision(3)));
  return found.filter((one) => one >= low * 0.999 && one <= high * 1.001);
}

const shortNumber = (value) => {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 0.001 || size >= 1e6) return value.toExponential(1).replace('.0e', 'e').replace('e+', 'e');
  return size >= 100 ? Math.round(value).toLocaleString('en-US') : size >= 1 ? value.toFixed(2) : value.toPrecision(3).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
};

// Return the last point of a line at or before a step, or null before the first point.
function pointAt(points, step) {
  let [low, high] = [0, points.length - 1];
  if (high < 0 || points[0][0] > step) return null;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (points[middle][0] <= step) low = middle; else high = middle - 1;
  }
  return points[low];
}

// Return the step that is `by` points after `step`, counting the points of all lines.
function stepBy(lines, step, by) {
  const steps = [...new Set(lines.flatMap(({ points }) => points.map(([at]) => at)))].sort((one, other) => one - other);
  if (!steps.length) return null;
  let index = steps.findIndex((at) => at >= step);
  if (index < 0) index = steps.length - 1;
  return steps[Math.min(steps.length - 1, Math.max(0, index + by))];
}

// Return the lowest and highest value of the chart's axis.
function heightsOf(lines, [first, last], log) {
  const values = [];
  for (const { points, style } of lines) {
    const own = points.filter(([step, value]) => step >= first && step <= last && (!log || value > 0)).map(([, value]) => value);
    if (style === 'thin' && own.length > 20) {
      own.sort((one, other) => one - other);
      values.push(own[Math.floor(OUTSIDE * own.length)], own[Math.ceil((1 - OUTSIDE) * own.length) - 1]);
    } else {
      for (const one of own) values.push(one);
    }
  }
  let low = values.reduce((least, one) => Math.min(least, one), Infinity);
  const high = values.reduce((most, one) => Math.max(most, one), -Infinity);
  if (low > high) return [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low, high];
  if (low > 0 && low < 0.5 * high) low = 0;
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  return [low === 0 ? 0 : low - room, high + room];
}

// chart: {title, note, small, lines: [{name, points: [[step, value]], tone, style, marked: [step, words], end}]}
//   until: last step of the axis, if more is to come;  log: with a logarithmic axis
// The legend shows the values at the cursor, or the newest. Arrow keys move the cursor, a drag or + and - zoom, Esc shows all.
class Chart extends WorkbenchElement {
  static properties = ['chart', 'until', 'log'];
  static listens = { pointermove: 'point', pointerdown: 'press', pointerup: 'release', pointercancel: 'cancel', pointerleave: 'leave', dblclick: 'all', keydown: 'key' };
  off = new Set();
  cursor = null;
  zoom = null;
  width = 0;

  arrived() {
    this.sizes ??= new ResizeObserver(() => {
      const width = Math.round(this.clientWidth);
      if (width && width !== this.width) { this.width = width; this.redraw(); }
    });
    this.sizes.observe(this);
  }

  left() { this.sizes.disconnect(); }
  get lines() { return this.chart.lines.filter(({ name }) => !this.off.has(name)); }

  get whole() {
    const steps = this.chart.lines.flatMap(({ points }) => (points.length ? [points[0][0], points.at(-1)[0]] : []));
    return [Math.min(0, ...steps), Math.max(this.until ?? 0, ...steps, 1)];
  }

  // The plot's geometry, with functions between steps, values and pixels.
  measure() {
    const height = this.chart.small ? 120 : 190;
    const ends = this.chart.lines.some(({ end }) => end);
    const plot = { left: 42, right: Math.max(60, this.width - (ends ? 62 : 12)), top: 6, bottom: height - 20, height };
    const [first, last] = this.zoom ?? this.whole;
    const log = this.log && this.chart.lines.some(({ points }) => points.some(([, value]) => value > 0));
    const [low, high] = heightsOf(this.lines, [first, last], log);
    const up = log ? Math.log10 : (value) => value;
    const x = (step) => plot.left + ((plot.right - plot.left) * (step - first)) / (last - first || 1);
    const y = (value) => plot.bottom - ((plot.bottom - plot.top) * (up(value) - up(low))) / (up(high) - up(low) || 1);
    const step = (pixel) => first + ((last - first) * (Math.min(Math.max(pixel, plot.left), plot.right) - plot.left)) / (plot.right - plot.left);
    return { ...plot, first, last, low, high, log, x, y, step };
  }

  view() {
    const { chart, cursor } = this;
    if (!chart) return html``;
    if (!this.width) this.width = Math.round(this.clientWidth);
    const at = cursor ?? Math.max(...this.lines.flatMap(({ points }) => (points.length ? [points.at(-1)[0]] : [])), 0);
    const shown = this.width ? (this.scale = this.measure()) : null;
    return html`<div class="legend fine"><span>step <b>${Math.round(at).toLocaleString('en-US')}</b></span>${chart.lines.map((line) => {
      const found = pointAt(line.points, at);
      return html`<button type="button" data-do="toggle" data-value="${line.name}" aria-pressed="${String(!this.off.has(line.name))}" title="Show or hide ${line.name}"><i class="${
        line.tone} ${line.style}"></i>${line.name} <b>${found ? loss(found[1]) : '-'}</b></button>`;
    })}${this.zoom && button('Show all', 'all', { kind: 'quiet small' })}</div>
      <div class="plot" tabindex="0" role="application" aria-roledescription="chart" aria-label="${chart.title}, steps ${Math.round(shown?.first ?? 0)} to ${
  Math.round(shown?.last ?? 0)}. Arrow keys read the values, plus and minus zoom.">${shown && this.drawn(shown)}</div>`;
  }

  drawn(shown) {
    const { left, right, top, bottom, height, x, y, first, last, low, high, log } = shown;
    const across = ticks(first, last, Math.max(2, Math.min(5, (right - left) / 80)));
    const up = log ? logTicks(low, high) : ticks(low, high, this.chart.small ? 2 : 4);
    const clip = `clip-${(this.number ??= Chart.made += 1)}`;
    const { cursor, drag } = this;
    return html`<svg viewBox="0 0 ${this.width} ${height}" width="${this.width}" height="${height}" aria-hidden="true"><defs><clipPath id="${clip}"><rect x="${left - 4}" y="0" width="${
      right - left + 11}" height="${bottom + 2}"/></clipPath></defs>${up.map((value) => html`<path class="grid" d="M${left} ${y(value).toFixed(1)}H${right}"/><text x="${
  left - 6}" y="${(y(value) + 4).toFixed(1)}" text-anchor="end">${shortNumber(value)}</text>`)}${across.map((step) => html`<text x="${x(step).toFixed(1)}" y="${
  height - 4}" text-anchor="middle">${step >= 1e5 ? `${step / 1000}k` : step.toLocaleString('en-US')}</text>`)}<g clip-path="url(#${clip})">${
  this.lines.map((line) => this.curve(line, shown))}</g>${this.ends(shown).map(({ end, at }) => html`<text x="${right + 8}" y="${(at + 4).toFixed(1)}">${end}</text>`)}${drag && Math.abs(drag.to - drag.from) >= SMALLEST_DRAG ? html`<rect class="range" x="${
  Math.min(drag.from, drag.to)}" y="${top}" width="${Math.abs(drag.to - drag.from)}" height="${bottom - top}"/>` : ''}${cursor !== null && cursor >= first && cursor <= last
  ? html`<g class="cursor"><path d="M${x(cursor).toFixed(1)} ${top}V${bottom}"/><path class="head" d="M${(x(cursor) - 5).toFixed(1)} 0h10l-5 6z"/>${
    this.lines.map(({ points, tone }) => {
      const found = pointAt(points, cursor);
      return found && (!log || found[1] > 0) ? html`<circle class="${tone}" cx="${x(found[0]).toFixed(1)}" cy="${y(found[1]).toFixed(1)}" r="3.5"/>` : '';
    })}</g>` : ''}</svg>`;
  }

  // Labels at the ends of lines, spaced apart.
  ends({ y, log }) {
    const found = this.lines.filter(({ points, end }) => end && points.length && (!log || points.at(-1)[1] > 0))
      .map(({ points, end }) => ({ end, at: y(points.at(-1)[1]) })).sort((one, other) => one.at - other.at);
    for (let index = 1; index < found.length; index += 1) found[index].at = Math.max(found[index].at, found[index - 1].at + 12);
    return found;
  }

  curve({ points, tone, style, marked }, { x, y, log, first, last }) {
    const kept = log ? points.filter(([, value]) => value > 0) : points;
    const path = kept.map(([step, value]) => `${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('L');
    const seen = kept.filter(([step]) => step >= first && step <= last);
    const dots = style === 'dots' && seen.length <= 60 ? seen : kept.length === 1 ? kept : [];
    const best = marked && pointAt(kept, marked[0]);
    return html`<path class="line ${tone} ${style}" d="${path && `M${path}`}"/>${dots.map(([step, value]) => html`<circle class="${tone}" cx="${
      x(step).toFixed(1)}" cy="${y(value).toFixed(1)}" r="2.5"/>`)}${best ? html`<circle class="marked" cx="${x(best[0]).toFixed(1)}" cy="${
  y(best[1]).toFixed(1)}" r="6"><title>${marked[1]}</title></circle>` : ''}`;
  }

  // ---- legend

  toggle(target) {
    const name = target.dataset.value;
    if (!this.off.delete(name)) this.off.add(name);
  }

  all() { this.zoom = null; this.redraw(); }

  // ---- pointer

  pixel(event) { return event.clientX - this.querySelector('.plot').getBoundingClientRect().left; }

  point(event) {
    if (!this.scale || !(this.drag || event.target.closest('.plot'))) return;
    if (this.drag) this.drag.to = Math.min(Math.max(this.pixel(event), this.scale.left), this.scale.right);
    this.cursor = stepBy(this.lines, this.scale.step(this.pixel(event)), 0);
    this.redraw();
  }

  press(event) {
    if (!this.scale || event.button !== 0 || !event.target.closest('.plot')) return;
    const from = this.pixel(event);
    this.drag = { from, to: from };
    this.setPointerCapture(event.pointerId);
  }

  cancel() { this.drag = null; this.redraw(); }
  leave() { if (!this.drag) { this.cursor = null; this.redraw(); } }

  release() {
    if (!this.drag) return;
    const { from, to } = this.drag;
    this.drag = null;
    if (Math.abs(to - from) >= SMALLEST_DRAG) {
      const [first, last] = [this.scale.step(Math.min(from, to)), this.scale.step(Math.max(from, to))];
      if (last - first >= 1) this.zoom = [first, last];
    }
    this.redraw();
  }

  // ---- keys

  key(event) {
    if (!event.target.matches('.plot') || event.ctrlKey || event.metaKey || event.altKey || !this.scale) return;
    const { first, last } = this.scale;
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const factor = { '+': 0.5, '=': 0.5, '-': 2 }[event.key];
    if (!by && !factor && event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation();
    if (by) {
      this.cursor = this.cursor === null && Math.abs(by) === 1 ? stepBy(this.lines, by < 0 ? last : first, 0) : stepBy(this.lines, this.cursor ?? first, by * (event.shiftKey ? 10 : 1));
      if (this.zoom && (this.cursor < first || this.cursor > last)) {
        const half = (last - first) / 2;
        this.zoom = [this.cursor - half, this.cursor + half];
      }
      say(`step ${this.cursor}: ${this.lines.map(({ name, points }) => `${name} ${loss(pointAt(points, this.cursor)?.[1])}`).join(', ')}`);
    } else if (factor) {
      const [least, most] = this.whole;
      const half = Math.max(1, ((last - first) / 2) * factor);
      const middle = this.cursor ?? (first + last) / 2;
      this.zoom = 2 * half >= most - least ? null : [Math.max(least, middle - half), Math.min(most, middle + half)];
    } else {
      this.zoom = null;
      this.cursor = null;
    }
    this.redraw();
  }
}
Chart.made = 0;
define('wb-chart', Chart);

// Several charts with titles, one below another. Preferences remember logarithmic axes by title.
//   charts: see `Chart`;  until: last step of the axes
class Charts extends WorkbenchElement {
  static properties = ['charts', 'until'];

  view() {
    const log = preferences.read('log axes', []);
    const [large, small] = [this.charts?.filter((one) => !one.small) ?? [], this.charts?.filter((one) => one.small) ?? []];
    const one = (chart) => html`<section class="section" data-id="${chart.title}" aria-label="${chart.title}"><header><h2>${chart.title}</h2>${
      chart.note && html`<span class="fine faint">${chart.note}</span>`}<span class="spacer"></span>${
      button('log', 'switch', { kind: 'quiet small', value: chart.title, pressed: log.includes(chart.title), title: 'Logarithmic axis' })}</header><wb-chart .chart=${chart} .until=${
      this.until} .log=${log.includes(chart.title)}></wb-chart></section>`;
    return html`${small.length ? html`<div class="tiles" data-id="small" style="--tile:260px">${small.map(one)}</div>` : ''}${large.map(one)}`;
  }

  switch(target) {
    const log = preferences.read('log axes', []);
    const { value } = target.dataset;
    preferences.keep('log axes', log.includes(value) ? log.filter((title) => title !== value) : [...log, value]);
  }
}
define('wb-charts', Charts);
