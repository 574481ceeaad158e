// The videos of a comparison on one clock: as a grid, as a wipe, as a blind vote, or by checkpoint.
// Each element gets the grid from `grids/show`. Without `edits` (samples side by side, a report) cells cannot be marked.

const GRID_CLOCK = 'cmp';
const MOST_PAIRS = 30; // in a blind vote
const nameOfColumn = (column) => capital(column.name || column.labels.filter(Boolean).join(', '));

const shapeOf = (grid) => (grid.width / grid.height).toFixed(3);
const tinyOf = (grid) => (grid.width > TINY ? '' : 'small'); // a class: tiny videos are shown small, without a frame around them

// Why a cell has no video.
const whyMissing = (cell) => cell?.message || { waiting: 'waiting', generating: 'loading the model', failed: 'failed' }[cell?.state] || 'not generated';

const cellVideo = (grid, row, column, more = {}) => {
  const cell = grid.cells[row]?.[column];
  return cell?.url ? video(cell.url, `${nameOfColumn(grid.columns[column])}: ${grid.rows[row].prompt}`, { clock: GRID_CLOCK, width: grid.width, height: grid.height, ...more })
    : html`<div class="coming" style="aspect-ratio:${grid.width}/${grid.height}"><p class="fine faint">${whyMissing(cell)}</p></div>`;
};

// ---- pure logic: groups of columns, pairs for votes ----

// If columns differ in two things, group them by the second, to step along the first. The base model is in all groups.
function columnGroups(columns) {
  const rest = (column) => column.labels.slice(1).filter(Boolean).join(', ');
  const names = [...new Set(columns.filter(({ base }) => !base).map(rest))];
  return (names.length ? names : ['']).map((name) => ({
    name, columns: columns.map((column, index) => ({ column, index })).filter(({ column }) => (column.base && !rest(column)) || rest(column) === name).map(({ index }) => index),
  }));
}

// A hash of a text, for an order that looks random and stays the same.
function hashOf(text) {
  let found = 2166136261;
  for (const letter of text) found = Math.imul(found ^ letter.codePointAt(0), 16777619) >>> 0;
  return found;
}

// Pairs of videos in the same row without a vote, in random-looking order and sides: {row, left, right}.
function pairsToVote(grid) {
  const voted = new Set(grid.votes.map((keys) => [...keys].sort().join()));
  const found = [];
  grid.cells.forEach((cells, row) => cells.forEach((one, left) => cells.slice(left + 1).forEach((other, more) => {
    if (!one.url || !other.url || one.rejected || other.rejected || voted.has([one.key, other.key].sort().join())) return;
    const mark = hashOf(`${grid.grid} ${row} ${one.key} ${other.key}`);
    const [first, second] = mark % 2 ? [left, left + 1 + more] : [left + 1 + more, left];
    found.push({ row, left: first, right: second, mark });
  })));
  return found.sort((one, other) => one.mark - other.mark).slice(0, MOST_PAIRS);
}

// ---- the grid ----

class GridPlayer extends WorkbenchElement {
  static properties = ['grid', 'edits', 'measured', 'difference'];
  static listens = { keydown: 'key', focusin: 'reach' };
  at = [0, 0];
  size = preferences.read('compare size', null); // width of a column in pixels; null: columns share the window

  view() {
    const { grid } = this;
    if (!grid) return html``;
    this.classList.toggle('measured', Boolean(this.measured));
    this.classList.toggle('difference', Boolean(this.difference));
    const many = grid.columns.length;
    return html`<div class="grid-frame"><div class="comparison ${grid.width <= TINY && 'small'} ${this.size && 'sized'}" role="grid" aria-label="${grid.title}" style="--cols:${many};--least:${many > 8 ? 180 : many > 4 ? 150 : 120}px;--size:${this.size ?? 0}px"><div role="row">${
      grid.columns.map((column, index) => this.head(column, index))}</div>${
      grid.rows.map(({ prompt, label }, row) => html`<div role="row" data-id="row-${row}"><p class="prompt-of one-line" role="rowheader" title="${prompt}"><span>${prompt}${label && html` <span class="faint">${label}</span>`}${
        grid.preserved?.includes(prompt) ? html` <span class="faint">should not change</span>` : ''}</span></p>${grid.cells[row].map((cell, column) => this.cell(cell, row, column))}</div>`)}</div></div>
      <div class="row">${shortcuts(['Space', 'play'], [', .', 'frame'], ['W', 'wipe'], this.edits && ['S', 'star'], this.edits && ['X', 'reject'], this.edits && ['B', 'best'])}<span class="spacer"></span>${this.size ? button('Fit to the window', 'fit', { kind: 'quiet small' }) : ''}<label class="row tight fine faint size">Size<input
      type="range" min="100" max="520" step="20" value="${this.size ?? 240}" data-input="resize"></label></div>${this.large && this.largeDialog()}`;
  }

  head(column, index) {
    const { grid } = this;
    const [first, ...rest] = column.labels;
    const best = grid.best.column === column.name && grid.best.column !== undefined;
    const marks = [column.stars && `${column.stars} ★`, column.votes && `won ${column.won} of ${column.votes}`].filter(Boolean).join(' · ');
    return html`<div class="column-head" role="columnheader" data-id="head-${index}"><b class="one-line" title="${nameOfColumn(column)}">${capital(first)}</b><span class="fine faint one-line" title="${column.votes ? column.confidence : ''}">${
      [rest.filter(Boolean).join(', '), marks].filter(Boolean).join(' · ')}</span>${best ? state('good', 'best') : this.edits && column.checkpoint ? button('Best', 'best', {
      kind: 'quiet small', value: index, label: `Make ${nameOfColumn(column)} the best checkpoint of the run` }) : ''}</div>`;
  }

  cell(cell, row, column) {
    const { grid } = this;
    const here = this.at[0] === row && this.at[1] === column, name = nameOfColumn(grid.columns[column]), { reference } = grid.columns[column];
    const overlaid = this.difference && reference !== column && grid.cells[row][reference]?.url;
    return html`<div class="cell ${cell.rejected && 'rejected'}" data-id="${row}-${column}" data-row="${row}" data-column="${column}" tabindex="${here ? 0 : -1}" role="gridcell" data-do="open"
      ${new Markup(cell.url ? `aria-label="${escaped(`${name}: ${grid.rows[row].prompt}${cell.starred ? ', starred' : ''}${cell.rejected ? ', rejected' : ''}`)}"` : '')}>${cell.url ? html`${cellVideo(grid, row, column)}${
      overlaid ? cellVideo(grid, row, reference) : ''}${this.edits && button('', 'star', { kind: 'square small mark', name: 'star', pressed: cell.starred, label: `Star: ${name}` })}${this.measurements(cell)}`
      : this.doing(cell, name, grid.rows[row].prompt)}</div>`;
  }

  measurements(cell) {
    const lines = cell.measurements ?? [];
    return (lines.length || cell.outdated) && html`<dl class="measurements">${cell.outdated && html`<dt class="warn">older LoRA file</dt><dd></dd>`}${lines.map((one) => html`<dt>${one.title}</dt><dd
      class="${one.warn && 'warn'}" title="${one.words}">${one.value || one.words}</dd>`)}</dl>`;
  }

  // The state of a video that is not generated yet.
  doing(cell, name, prompt) {
    const again = this.edits && ['missing', 'failed'].includes(cell.state);
    return html`<div class="coming" style="aspect-ratio:${this.grid.width}/${this.grid.height}">${cell.preview ? video(cell.preview.split('?')[0], 'Being generated', { version: cell.step }) : ''}<p
      class="fine ${cell.state === 'failed' ? 'bad' : cell.state === 'generating' ? 'going' : 'faint'}"><span class="unseen">${name}: ${prompt}, </span>${cell.total ? `step ${cell.step} of ${cell.total}` : whyMissing(cell)}</p>${cell.total ? progress(cell.step / cell.total, 'This video') : ''}${
      again ? button(cell.state === 'failed' ? 'Try again' : 'Generate', 'generate', { kind: 'small', value: cell.key }) : ''}</div>`;
  }

  resize(target) { this.size = Number(target.value); preferences.keep('compare size', this.size); }
  fit() { this.size = null; preferences.keep('compare size', null); }

  // ---- one video large

  largeDialog() {
    const { grid, large: [row, column] } = this;
    const cell = grid.cells[row][column], { details } = this;
    const beside = html`${button('', 'previous', { kind: 'square small', name: 'left', label: 'Previous column' })}${button('', 'next', { kind: 'square small', name: 'right', label: 'Next column' })}`;
    return sheet('large-video', nameOfColumn(grid.columns[column]), html`${twoLines(grid.rows[row].prompt)}<div class="${tinyOf(grid)}" style="--shape:${shapeOf(grid)}">${cellVideo(grid, row, column)}</div><wb-scrubber .clock=${GRID_CLOCK} .frames=${grid.frames}></wb-scrubber>
      <div class="row">${button('Download', 'download', { kind: 'small', name: 'download' })}${this.edits && html`${button('Download as GIF', 'gif', { kind: 'small' })}${linkTo('Use these settings', address('sample', 'cell', grid.grid, cell.key), {
        kind: 'small' })}${button('Star', 'star', { kind: 'small', name: 'star', pressed: cell.starred })}${button('Reject', 'reject', { kind: 'small', name: 'close', pressed: cell.rejected })}`}</div>
      <dl class="key-values">${(cell.measurements ?? []).map((one) => html`<dt title="${grid.help[one.name] ?? ''}">${one.title}</dt><dd class="${one.warn && 'warn'}"><b>${one.value}</b> ${one.words}</dd><dd
        class="fine faint">${grid.help[one.name] ?? ''}</dd>`)}${(cell.details ?? details ?? []).map(([title, value]) => html`<dt>${title}</dt><dd>${value}</dd><dd></dd>`)}</dl>`, { more: beside });
  }

  updated() {
    this.modal(() => { this.large = null; this.focusCell(...this.at); }, true);
  }

  open(target) {
    const row = Number(target.dataset.row), column = Number(target.dataset.column);
    if (this.grid.cells[row][column].url) this.show(row, column);
  }

  async show(row, column) {
    this.large = this.at = [row, column];
    this.details = null;
    this.redraw();
    const { key, details } = this.grid.cells[row][column];
    if (details || !this.edits) return;
    const found = await page.transport.call('grids/details', { name: this.grid.grid, key }).catch(() => ({ details: [] }));
    if (this.large?.[0] === row && this.large[1] === column) { this.details = found.details; this.redraw(); }
  }

  previous() { this.beside(-1); }
  next() { this.beside(1); }

  beside(by) {
    const [row, column] = this.large, there = this.grid.cells[row].map((cell, index) => (cell.url ? index : -1)).filter((index) => index >= 0);
    this.show(row, there[(there.indexOf(column) + by + there.length) % there.length]);
  }

  async download() {
    const [row, column] = this.large;
    await saveFile(this.grid.cells[row][column].url, `${this.grid.grid}-${row + 1}-${column + 1}.mp4`.replaceAll(/[^\w.-]+/g, '-'));
  }

  async gif() {
    const [row, column] = this.large;
    const made = await this.act('grids/export', { name: this.grid.grid, row: row + 1, column: column + 1, format: 'gif' });
    if (made) await saveFile(made.file);
  }

  // ---- marks

  placeOf(target) {
    const cell = target?.closest?.('.cell');
    return cell ? [Number(cell.dataset.row), Number(cell.dataset.column)] : this.large ?? this.at;
  }

  async star(target) { await this.mark('star', 'starred', ...this.placeOf(target)); }
  async reject(target) { await this.mark('reject', 'rejected', ...this.placeOf(target)); }

  async mark(verb, name, row, column) {
    const cell = this.grid.cells[row][column];
    await this.act(`grids/${verb}`, { name: this.grid.grid, row: row + 1, column: column + 1, off: cell[name] });
  }

  async best(target) { await this.choose(Number(target.dataset.value)); }

  async choose(column) {
    const { best, columns, grid } = this.grid, before = columns.findIndex(({ name }) => name === best.column);
    await this.act('grids/best', { name: grid, column: column + 1 }, {
      said: (one) => capital(one.message), undo: before < 0 ? null : () => page.transport.call('grids/best', { name: grid, column: before + 1 }),
    });
  }

  async generate(target) { await this.act('grids/generate', { name: this.grid.grid, keys: [target.dataset.value] }); }

  // ---- keys

  reach({ target }) { if (target.closest('.cell')) this.at = this.placeOf(target); }
  focusCell(row, column) { this.at = [row, column]; this.draw(); this.querySelector(`[data-id="${row}-${column}"]`)?.focus(); }

  key(event) {
    const cell = event.target.closest('.cell');
    if (!cell || event.target !== cell || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = Number(cell.dataset.row), column = Number(cell.dataset.column);
    const go = (rows, columns) => this.focusCell(Math.min(Math.max(0, row + rows), this.grid.rows.length - 1), Math.min(Math.max(0, column + columns), this.grid.columns.length - 1));
    const actions = {
      ArrowUp: () => go(-1, 0), ArrowDown: () => go(1, 0), ArrowLeft: () => go(0, -1), ArrowRight: () => go(0, 1), Enter: () => this.open(cell),
      ...(this.edits ? { s: () => this.star(cell), x: () => this.reject(cell), b: () => this.grid.columns[column].checkpoint && this.choose(column) } : {}),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }
}
define('wb-grid', GridPlayer);

// A choice of a row of a grid.
const rowChoice = (grid, row) => select(grid.rows.map(({ prompt, label }, index) => [index, [prompt, label].filter(Boolean).join(', ')]), row, 'aria-label="Prompt" name="row" data-change="choose"');

// A grid in a mode. more: properties of the grid's element
const gridIn = (mode, grid, name, { edits = false, measured = false, difference = false } = {}) => {
  if (mode === 'wipe') return html`<wb-wipe data-id="wipe" .grid=${grid} .chosen=${drafts.read(`wipe ${name}`)}></wb-wipe>`;
  if (mode === 'vote' && edits) return html`<wb-vote data-id="vote" .grid=${grid}></wb-vote>`;
  if (mode === 'film') return html`<wb-film data-id="film" .grid=${grid}></wb-film>`;
  return html`<wb-grid data-id="grid" .grid=${grid} .edits=${edits} .measured=${measured} .difference=${difference}></wb-grid>`;
};

// ---- the wipe between two videos ----

// chosen: {row, left, right}, kept by the parent element, which the event wb-chosen updates
class GridWipe extends WorkbenchElement {
  static properties = ['grid', 'chosen'];
  share = 50;

  view() {
    const { grid } = this;
    const last = grid.columns.length - 1;
    const { row = 0, left = grid.columns[last].reference, right = last } = this.chosen ?? {};
    const columns = grid.columns.map((column, index) => [index, nameOfColumn(column)]);
    return html`<div class="row">${rowChoice(grid, row)}${
      select(columns, left, 'aria-label="Left" name="left" data-change="choose"')}<span class="faint">against</span>${select(columns, right, 'aria-label="Right" name="right" data-change="choose"')}</div>
      <div class="wipe ${tinyOf(grid)}" style="--shape:${shapeOf(grid)};--x:${this.share}%">${cellVideo(grid, row, left)}${cellVideo(grid, row, right)}<span class="name left">${nameOfColumn(grid.columns[left])}</span><span
      class="name right">${nameOfColumn(grid.columns[right])}</span><span class="line"></span><input type="range" min="0" max="100" step="0.5" value="${this.share}" data-input="move" aria-label="Boundary between the two videos"></div>`;
  }

  choose(target) {
    const last = this.grid.columns.length - 1;
    const detail = { row: 0, left: this.grid.columns[last].reference, right: last, ...this.chosen, [target.name]: Number(target.value) };
    this.dispatchEvent(new CustomEvent('wb-chosen', { detail, bubbles: true }));
  }

  move(target) { this.share = Number(target.value); }
}
define('wb-wipe', GridWipe);

// ---- the blind vote ----

class GridVote extends WorkbenchElement {
  static properties = ['grid'];
  done = 0;

  view() {
    const { grid } = this;
    if (this.of !== grid.grid) Object.assign(this, { of: grid.grid, pairs: null, done: 0 });
    if (!this.pairs?.length) this.pairs = pairsToVote(grid);
    const pair = this.pairs[this.done];
    if (!pair || this.over) return this.result();
    const { row, left, right } = pair;
    return html`<div class="section vote ${tinyOf(grid)}" style="--shape:${shapeOf(grid)}"><p>Which one is closer to “${grid.rows[row].prompt}”? <span class="faint">Pair ${this.done + 1} of ${this.pairs.length}. Names appear at the end.</span></p>
      <div class="pair">${[['A', left, '←'], ['B', right, '→']].map(([name, column, key]) => html`<div class="section">${video(grid.cells[row][column].url, name, { clock: GRID_CLOCK, width: grid.width, height: grid.height })}${
        button(html`${name} is better <kbd>${key}</kbd>`, 'decide', { kind: 'large', value: name })}</div>`)}</div>
      <div class="row">${button(html`No difference <kbd>↓</kbd>`, 'decide', { value: '' })}<span class="spacer"></span>${this.done ? button('Show the result', 'end', { kind: 'quiet' }) : ''}<div style="width:160px">${
        progress(this.done / this.pairs.length, 'Pairs')}</div></div></div>`;
  }

  result() {
    const { grid } = this;
    const ranked = grid.columns.filter(({ votes }) => votes).sort((one, other) => other.won / other.votes - one.won / one.votes);
    const left = pairsToVote(grid).length;
    return html`<div class="section vote"><h2>${ranked.length ? 'Result' : 'Nothing to vote on'}</h2>${ranked.length ? html`<div class="table-frame"><table class="table"><thead><tr><th>Column</th><th class="right">Won</th><th class="right">Votes</th><th>
      Confidence</th></tr></thead><tbody>${ranked.map((one) => html`<tr><td><b>${nameOfColumn(one)}</b></td><td class="right">${one.won}</td><td class="right">${one.votes}</td><td>${one.confidence}</td></tr>`)}</tbody></table></div>`
      : html`<p class="faint">A vote needs two videos in one row.</p>`}<div class="row">${left ? button(`Vote on ${count(left, 'more pair')}`, 'more') : ''}</div></div>`;
  }

  async decide(target) { await this.vote(target.dataset.value); }

  // better: "A", "B", or "" for neither
  async vote(better) {
    const pair = this.pairs[this.done];
    if (!pair || this.over || this.voting) return;
    this.voting = true;
    const [won, lost] = better === 'B' ? [pair.right, pair.left] : [pair.left, pair.right];
    const noted = await this.act('grids/vote', { name: this.grid.grid, row: pair.row + 1, better: won + 1, other: lost + 1, tie: !better });
    this.voting = false;
    if (!noted) return;
    this.done += 1;
    say(this.done < this.pairs.length ? `Pair ${this.done + 1} of ${this.pairs.length}` : 'You have voted on every pair.');
    this.redraw();
  }

  end() { this.over = true; }
  more() { Object.assign(this, { over: false, pairs: null, done: 0 }); }

  press(key) {
    const better = { ArrowLeft: 'A', ArrowRight: 'B', ArrowDown: '' }[key];
    if (better === undefined || !this.pairs?.[this.done] || this.over) return false;
    this.vote(better);
    return true;
  }
}
define('wb-vote', GridVote);

// ---- one checkpoint after another ----

class GridFilm extends WorkbenchElement {
  static properties = ['grid'];
  row = 0;
  group = 0;

  view() {
    const { grid } = this;
    const groups = columnGroups(grid.columns), columns = groups[Math.min(this.group, groups.length - 1)].columns, row = Math.min(this.row, grid.rows.length - 1);
    const last = columns.length - 1;
    this.at = Math.min(this.at ?? last, last);
    const now = columns[this.at];
    return html`<div class="section film-view ${tinyOf(grid)}" style="--shape:${shapeOf(grid)}">${grid.rows.length > 1 || groups.length > 1 ? html`<div class="row">${grid.rows.length > 1 ? rowChoice(grid, row) : ''}${groups.length > 1 ? select(groups.map(({ name }, index) => [index, name]), this.group,
      'aria-label="Which columns" name="group" data-change="choose"') : ''}</div>` : ''}
      <div class="film-stack">${columns.map((column, index) => html`<div data-id="large-${column}" class="${index === this.at && 'on'}" ?hidden=${columns.length > 16 && index !== this.at}>${
        cellVideo(grid, row, column)}</div>`)}</div>
      <div class="row tight"><b class="film-name">${nameOfColumn(grid.columns[now])}</b><input type="range" min="0" max="${last}" value="${this.at}" data-input="move" aria-label="Checkpoint" aria-valuetext="${
        nameOfColumn(grid.columns[now])}"></div>
      <div class="filmstrip">${columns.map((column, index) => html`<button type="button" data-id="strip-${column}" data-do="jump" data-value="${index}" aria-pressed="${index === this.at}" aria-label="${
        nameOfColumn(grid.columns[column])}${grid.cells[row][column].url ? '' : `, ${whyMissing(grid.cells[row][column])}`}">${cellVideo(grid, row, column)}</button>`)}</div>
      <p class="fine faint">One frame per column. Drag to see when the effect appears.</p></div>`;
  }

  choose(target) { this[target.name] = Number(target.value); }
  move(target) { this.at = Number(target.value); }
  jump(target) { this.at = Number(target.dataset.value); }
}
define('wb-film', GridFilm);

// ---- read-only ----

// A grid in its read-only modes, as an exported page or inside a recorded run.
class ExportedGrid extends WorkbenchElement {
  static properties = ['grid', 'inside'];
  static listens = { 'wb-chosen': 'keepWipe' };
  mode = 'grid';

  view() {
    const { grid, mode } = this;
    const name = this.inside ? html`<h2>${grid.title}</h2>` : html`<h1 tabindex="-1" class="one-line" title="${grid.title}">${grid.title}</h1>`;
    return html`<div class="head">${name}<span class="minor faint one-line">${[grid.progress.text, ...grid.fixed].join(' · ')}</span></div>
      <div class="bar" role="toolbar" aria-label="Compare">${segments('mode', [['grid', 'Grid'], ['wipe', 'Wipe'], ['film', 'Epochs']], mode, 'turn', 'Mode')}
      <wb-scrubber .clock=${GRID_CLOCK} .frames=${grid.frames} .speeds=${true}></wb-scrubber></div>
      ${gridIn(mode, grid, grid.grid)}`;
  }

  keepWipe({ detail }) { drafts.keep(`wipe ${this.grid.grid}`, detail); this.redraw(); }
  turn(target) { this.mode = target.value; }

  press(key) {
    if (key !== 'w') return false;
    this.mode = this.mode === 'wipe' ? 'grid' : 'wipe';
    this.redraw();
    return true;
  }
}
define('wb-exported-grid', ExportedGrid);
