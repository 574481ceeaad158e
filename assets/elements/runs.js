// Runs: their table with the queue, groups and the bin, alone or beside a run; and notifications of ended runs.

const MOST_ROWS = 200; // before "Show all"; the search covers all
const WIDE = window.matchMedia('(min-width: 1680px)'); // the list stands beside a run
const ORDERS = [['newest', 'Newest first'], ['active', 'Last active first'], ['name', 'By name'], ['dataset', 'By dataset'], ['state', 'By state']];
const STATE_ICONS = {
  finished: ['good', 'good'], failed: ['bad', 'bad'], died: ['bad', 'bad'], paused: ['going', 'pause'], stopped: ['idle', 'stop'], stopping: ['going', 'stop'], starting: ['going', 'wait'], new: ['idle', 'wait'],
};
const ordinal = (number) => (number === 1 ? 'next' : `${number}${['th', 'st', 'nd', 'rd'][number % 100 > 10 && number % 100 < 14 ? 0 : number % 10] ?? 'th'}`);
const isWaiting = (run) => run.headline === 'waiting';
const isRunning = (run) => ['running', 'starting', 'stopping'].includes(run.headline);

// A sparkline.
function spark(values) {
  if (values.length < 2) return html``;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const path = values.map((value, index) => `${((index / (values.length - 1)) * 82 + 1).toFixed(1)} ${(18 - ((value - low) / (high - low || 1)) * 16).toFixed(1)}`).join('L');
  return html`<svg class="spark" viewBox="0 0 84 20" aria-hidden="true"><path d="M${path}"/></svg>`;
}

// Arrange runs in rows: active runs, then the queue, then the others. A group takes the place of its first member.
function arranged(runs) {
  const rank = (run) => (isWaiting(run) ? 1 : isRunning(run) || run.headline === 'paused' ? 0 : 2);
  const sorted = runs.map((run, index) => [run, index]).sort(([one, at], [other, there]) => rank(one) - rank(other)
    || (rank(one) === 1 ? one.position - other.position : at - there)).map(([run]) => run);
  const rows = [];
  const seen = new Set();
  for (const run of sorted) {
    const members = run.group ? sorted.filter(({ group }) => group === run.group) : [];
    if (members.length < 2) rows.push({ run });
    else if (!seen.has(run.group)) {
      seen.add(run.group);
      rows.push({ group: run.group, members });
      for (const member of members) rows.push({ run: member, inside: run.group });
    }
  }
  return rows;
}

const countsOf = (runs) => {
  const number = (test) => runs.filter(test).length;
  const [running, waiting, failed] = [number((run) => isRunning(run)), number(isWaiting), number((run) => ['failed', 'died'].includes(run.headline))];
  return [count(runs.length, 'run'), running && `${running} running`, waiting && `${waiting} waiting`, failed && `${failed} failed`].filter(Boolean).join(', ');
};

// The address that compares runs.
const compareAddress = (names) => address('compare', 'curves', [...names].join(','));

// ---- the table

//   runs: from runs/list;  current: name of the run beside it;  choose: show checkboxes;  chosen: Set of chosen names
class RunTable extends WorkbenchElement {
  static properties = ['runs', 'current', 'chosen', 'choose'];
  static listens = { dragstart: 'lift', dragover: 'drag', dragleave: 'dragOut', dragend: 'letGo', drop: 'dropOn', keydown: 'key' };
  folded = new Set();

  view() {
    const rows = arranged(this.runs ?? []).filter(({ inside }) => !this.folded.has(inside));
    const current = rows.findIndex(({ run }) => run && run.name === this.current);
    const shown = this.every ? rows : rows.slice(0, Math.max(MOST_ROWS, current + 1));
    return html`<div class="table-frame"><table class="table runs-table"><caption class="unseen">Runs</caption><thead><tr><th scope="col"><span class="unseen">State</span></th><th scope="col">Run</th>
      <th scope="col" class="wide">What differs</th><th scope="col">Loss</th><th scope="col" class="right">Held-out</th><th scope="col" class="wide">Verdict</th><th scope="col" class="right when">When</th></tr></thead>
      <tbody>${shown.map((row) => (row.run ? this.row(row.run, row.inside) : this.group(row)))}</tbody></table></div>${
      rows.length > shown.length ? html`<div class="row fine faint">The first ${shown.length} of ${rows.length.toLocaleString('en-US')} are shown. ${button('Show all', 'all', { kind: 'small' })}</div>` : ''}`;
  }

  // Beside a run, the list scrolls to it once.
  updated() {
    const row = WIDE.matches && this.inSight !== this.current && this.querySelector('tr.on');
    if (!row) return;
    this.inSight = this.current;
    row.scrollIntoView({ block: 'nearest' });
  }

  group({ group, members }) {
    const open = !this.folded.has(group);
    const best = members.find((run) => run.best);
    return html`<tr class="group" data-id="group-${group}"><td><button type="button" class="button quiet small square ${open || 'shut'}" data-do="fold" data-value="${group}" aria-expanded="${String(open)}"
      aria-label="Group ${group}">${icon('fold')}</button></td><td class="named group-name"><b title="${group}">${group}</b> <span class="faint">${count(members.length, 'run')}</span></td><td class="wide"></td><td></td>
      <td class="right faint">${best ? `best ${best.held_out.at(-1).toFixed(3)}` : ''}</td><td class="wide"><a class="link" href="${compareAddress(members.slice(0, 8).map(({ name }) => name))}">Compare ${
      members.length > 8 ? 'the first 8' : members.length === 2 ? 'both' : `all ${members.length}`}</a></td><td class="when"></td></tr>`;
  }

  row(run, inside) {
    const waits = isWaiting(run);
    const held = run.held_out.at(-1) ?? null;
    const to = address('train', run.name);
    return html`<tr data-id="run-${run.name}" data-name="${run.name}" class="${run.name === this.current && 'on'} ${inside && 'inside'} ${!isRunning(run) && 'ended'}" ${
      new Markup(waits ? 'draggable="true"' : '')}><td>${this.choose ? html`<input type="checkbox" value="${run.name}" data-change="pick" ?checked=${this.chosen.has(run.name)} aria-label="Choose ${run.name}">`
      : this.mark(run)}</td><td class="named"><a href="${to}" title="${run.name}" ${new Markup(run.name === this.current ? 'aria-current="page"' : '')}><b>${run.name}</b></a><span class="below fine faint one-line" title="${
      run.differs}">${run.differs}</span></td><td class="wide faint">${oneLine(run.differs)}</td><td>${waits ? '' : spark(run.spark)}</td><td class="right">${held === null ? html`<span class="faint">-</span>` : html`<span
      class="${isRunning(run) && 'live'}">${held.toFixed(3)}</span>`}${run.best && html` <span class="good" title="Best of its group">${icon('star', 'best')}</span>`}</td><td class="wide">${this.verdict(run)}</td><td class="right faint when">${
      ago(run.ended_at ?? run.started_at ?? run.created_at)}</td></tr>`;
  }

  mark(run) {
    if (run.headline === 'running') return html`<span class="going" title="${percent(run.share ?? 0)}">${ring(run.share)}<span class="unseen">Running</span></span>`;
    if (isWaiting(run)) {
      return html`<button type="button" class="button quiet small square" data-grip="${run.name}" aria-label="Move ${run.name}: Alt and arrow up or down" title="Drag, or Alt and arrows">${icon('grip')}</button>`;
    }
    const [tone, name] = STATE_ICONS[run.headline] ?? ['idle', 'wait'];
    return html`<span class="${tone}">${icon(name, run.headline)}</span>`;
  }

  verdict(run) {
    if (isWaiting(run)) return html`<span class="faint">${ordinal(run.position)}</span>`;
    if (run.headline === 'running') {
      return html`<span class="live">${run.share === null ? run.activity : `${percent(run.share)}${run.seconds_left ? `, ${duration(run.seconds_left)} left` : ''}`}</span>`;
    }
    if (run.claim && !['paused', 'starting', 'stopping'].includes(run.headline)) return state(run.tone === 'plain' ? 'idle' : run.tone, run.claim);
    return html`<span class="faint">${run.headline}${run.headline === 'paused' && run.share !== null ? ` at ${percent(run.share)}` : ''}</span>`;
  }

  all() { this.every = true; }

  fold(target) {
    const { value } = target.dataset;
    if (!this.folded.delete(value)) this.folded.add(value);
  }

  pick(target) {
    if (target.checked) this.chosen.add(target.value); else this.chosen.delete(target.value);
    this.dispatchEvent(new CustomEvent('picked', { bubbles: true }));
  }

  // ---- reordering the queue, by dragging or with Alt and an arrow key

  get waiting() { return this.runs.filter(isWaiting).sort((one, other) => one.position - other.position); }

  async move(name, position) {
    const run = this.runs.find((one) => one.name === name);
    const last = this.waiting.length;
    const to = Math.min(last, Math.max(1, position));
    if (!run || to === run.position) return;
    const before = run.position;
    const moved = await this.act('runs/move', { name, position: to }, { said: `${name} is ${ordinal(to)} in the queue.`, undo: () => this.act('runs/move', { name, position: before }) });
    if (moved) say(`${name} is ${ordinal(to)} in the queue`);
  }

  rowOf(event) { return event.target.closest?.('tr[draggable=true]'); }

  markDrop(row) {
    for (const one of this.querySelectorAll('.drop-here')) one.classList.remove('drop-here');
    row?.classList.add('drop-here');
  }

  lift(event) {
    const row = this.rowOf(event);
    if (!row) return;
    this.dragged = row.dataset.name;
    event.dataTransfer.effectAllowed = 'move';
    event.dataTransfer.setData('text/plain', this.dragged);
  }

  drag(event) {
    const row = this.rowOf(event);
    if (!this.dragged || !row) return;
    event.preventDefault();
    this.markDrop(row);
  }

  dragOut(event) { if (!this.contains(event.relatedTarget)) this.markDrop(null); }
  letGo() { this.dragged = null; this.markDrop(null); }

  dropOn(event) {
    const row = this.rowOf(event);
    const { dragged } = this;
    this.letGo();
    if (!dragged || !row) return;
    event.preventDefault();
    event.stopPropagation();
    this.move(dragged, this.runs.find(({ name }) => name === row.dataset.name)?.position ?? 1);
  }

  key(event) {
    const { grip } = event.target.dataset;
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!grip || !by || !event.altKey) return;
    event.preventDefault();
    this.move(grip, this.runs.find(({ name }) => name === grip).position + by);
  }
}
define('wb-run-table', RunTable);

// ---- the page

class Runs extends WorkbenchElement {
  static properties = ['path'];
  static listens = { picked: 'redraw' };
  typed = '';
  chosen = new Set();
  get order() { return preferences.read('order of runs', 'newest'); }

  needs() {
    return { runs: ['runs/list', { sort: this.order }], ...(this.bin ? { removed: ['runs/bin', {}] } : {}) };
  }

  // Runs that contain every typed word.
  get found() {
    return (this.runs ?? []).filter((run) => hasWords([run.name, run.headline, run.group, run.dataset, run.model, run.own_notes, run.differs, run.claim].join('\n'), this.typed));
  }

  view() {
    const { runs, found } = this;
    const name = 'Train';
    if (!runs) return html`<div class="head"><h1 tabindex="-1">${name}</h1></div>${this.refused.runs ? refusal(this.refused.runs) : skeleton('height:220px')}`;
    const head = html`<div class="head"><h1 tabindex="-1">${name}</h1><span class="faint minor one-line">${runs.length ? countsOf(runs) : ''}</span><div class="actions">${runs.length ? html`<input class="input" type="search" placeholder="Find runs"
      aria-label="Find runs" style="width:170px" value="${this.typed}" data-input="find">` : ''}${linkTo('New run', address('train', 'new'), { kind: runs.length ? 'primary' : '', name: 'plus' })}${this.more()}</div></div>`;
    if (!runs.length) {
      return html`${head}${empty('Runs appear here with their progress, a verdict and their previews.', linkTo('Start a run', address('train', 'new'), { kind: 'primary' }), linkTo('Train the demo first', '#/'))}${this.binPart()}`;
    }
    return html`${head}${found.length ? html`<wb-run-table .runs=${found} .chosen=${this.chosen} .choose=${this.choosing}></wb-run-table>` : empty('No runs match.', button('Show all', 'clear'))}${this.bar()}
      ${shortcuts(['J K', 'next, previous run'], runs.some(isWaiting) && ['Alt ↑ ↓', 'move a waiting run, or drag it'])}${this.binPart()}`;
  }

  more() {
    return html`<details class="menu"><summary class="button square" aria-label="More" title="More">${icon('more')}</summary><div>${button('Choose several', 'choose', { kind: 'quiet', name: 'list' })}${
      button('Removed runs', 'openBin', { kind: 'quiet', name: 'bin' })}<wb-notification-switch></wb-notification-switch><label class="field" style="padding:8px 12px"><span>Order</span>${
      select(ORDERS, this.order, 'data-change="sort" aria-label="Order"')}</label></div></details>`;
  }

  // Actions for the chosen runs.
  bar() {
    if (!this.choosing) return '';
    const { size } = this.chosen;
    return html`<div class="floating" role="group" aria-label="Chosen runs"><b>${size} chosen</b>${button('Compare', 'compare', { off: size < 2 || size > 8, title: size > 8 ? 'At most 8 can be compared' : '' })}${
      button('Group', 'group', { off: !size })}${button('Move to the bin', 'toBin', { off: !size, name: 'bin' })}${button('Done', 'choose')}</div>`;
  }

  binPart() {
    if (!this.bin) return '';
    return html`<section class="section" aria-label="Removed runs"><header><h2>Removed runs</h2><span class="spacer"></span>${button('Close', 'openBin', { kind: 'quiet small' })}</header>${
      this.removed?.length ? html`<ul>${this.removed.map(({ name }) => html`<li class="row bin-row" data-id="removed-${name}">${oneLine(name)}<span class="spacer"></span>${button('Restore', 'restore', { kind: 'small', value: name })}</li>`)}</ul>`
        : html`<p class="faint">No removed runs.</p>`}</section>`;
  }

  commands() {
    return [{ title: 'Choose several runs', icon: 'list', run: () => this.choose() }, { title: 'Removed runs', icon: 'bin', run: () => this.openBin() }];
  }

  press(key) {
    const by = { j: 1, k: -1 }[key];
    if (!by) return key === 'Escape' && this.choosing ? (this.choose(), true) : false;
    const links = [...this.querySelectorAll('.runs-table .named a')];
    const at = links.indexOf(document.activeElement);
    links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
    return true;
  }

  find(target) { this.typed = target.value; }
  clear() { this.typed = ''; }
  sort(target) { preferences.keep('order of runs', target.value); }
  choose() { this.choosing = !this.choosing; this.chosen.clear(); }
  openBin() { this.bin = !this.bin; }
  compare() { window.location.hash = compareAddress(this.chosen); }

  async group() {
    const known = [...new Set(this.runs.map(({ group }) => group).filter(Boolean))];
    const label = await ask('Group', `Group for ${count(this.chosen.size, 'run')}, empty for none`, { value: this.runs.find(({ name }) => this.chosen.has(name))?.group ?? '', list: known, does: 'Set group' });
    if (label === null) return;
    const before = this.runs.filter(({ name }) => this.chosen.has(name)).map(({ name, group }) => [name, group]);
    for (const [name] of before) if (!await this.act('runs/group', { name, label })) return;
    toast(label ? `${count(before.length, 'run')} in ${label}.` : `${count(before.length, 'run')} without a group.`, async () => {
      for (const [name, old] of before) await this.act('runs/group', { name, label: old });
    });
    this.choose();
  }

  async toBin() {
    const names = [...this.chosen];
    const moved = await this.act('runs/remove', { names }, { said: `${count(names.length, 'run')} moved to the bin.`, undo: () => restoreRuns(this, names) });
    if (moved) this.choose();
  }

  async restore(target) {
    const name = target.dataset.value;
    await this.act('runs/restore', { name }, { said: (run) => `${run.name} restored.` });
  }
}
define('wb-runs', Runs);

// Restore runs that were just moved to the bin.
async function restoreRuns(element, names) {
  for (const name of names) await element.act('runs/restore', { name });
}

// ---- browser notifications of ended runs while the page is in the background

const NOTIFY = 'notify of ended runs';
const UNTOLD = {
  denied: 'This browser blocks notifications from this page. Allow them in its settings for this site.',
  default: 'This browser has not allowed notifications yet. Switch them on again.',
  missing: 'This browser shows notifications only for https pages and localhost.',
};

// Always in the frame. It watches for ended runs and shows nothing itself.
class Notifications extends WorkbenchElement {
  needs() { return preferences.read(NOTIFY, false) ? { ended: ['progress/endings', {}] } : {}; }
  arrived() { document.addEventListener('workbench-notify', this.changedSwitch ??= () => { this.known = null; this.follow(); }); }
  left() { document.removeEventListener('workbench-notify', this.changedSwitch); }

  updated() {
    if (!this.ended) return;
    const { known } = this;
    this.known = new Map(this.ended.map((one) => [one.name, one.mark]));
    // Runs that had ended before the first look are not reported.
    if (!known || document.visibilityState !== 'hidden') return;
    for (const one of this.ended.filter(({ name, ended, mark }) => ended && known.get(name) !== mark)) {
      const made = new window.Notification(one.title, { body: one.body, tag: `${one.name} ${one.mark}` });
      made.onclick = () => { window.focus(); goTo('train', one.name); made.close(); };
    }
  }
}
define('wb-notifications', Notifications);

class NotificationSwitch extends WorkbenchElement {
  get allowed() { return window.Notification ? window.Notification.permission : 'missing'; }

  view() {
    const on = preferences.read(NOTIFY, false);
    return html`<label class="check" style="padding:8px 12px" title="A desktop notification when a run ends or fails while this page is in the background"><input type="checkbox" data-change="turn" ?checked=${
      on}><span>Notify me when runs end</span></label>${on && this.allowed !== 'granted' ? html`<p class="fine warn" role="status" style="padding:0 12px 8px;max-width:260px">${UNTOLD[this.allowed]}</p>` : ''}${
      this.problem ? html`<p class="fine warn" role="status" style="padding:0 12px 8px;max-width:260px">${this.problem}</p>` : ''}`;
  }

  async turn(target) {
    const wanted = target.checked;
    if (wanted && this.allowed === 'default') await window.Notification.requestPermission();
    this.problem = wanted && this.allowed !== 'granted' ? UNTOLD[this.allowed] : '';
    const on = wanted && this.allowed === 'granted';
    preferences.keep(NOTIFY, on);
    target.checked = on;
    document.dispatchEvent(new CustomEvent('workbench-notify'));
  }
}
define('wb-notification-switch', NotificationSwitch);
