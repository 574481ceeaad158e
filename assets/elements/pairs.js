// Pairs: a clip and its partner in two halves that play together, with slots for missing partners. A clip's page shows all of its
// partners; the dataset's tab shows one role for every clip, or a row per clip with all roles.

const PARTNERS = [['control', 'Control clip', 'The motion or outline that the model learns to follow.'], ['reference', 'Reference', 'What it should look like: a video or a picture.'],
  ['mask', 'Mask', 'White marks the part to learn or fill in.'], ['last_frame', 'Last frame', 'The picture to end with.']];
const partnerTitle = (kind) => PARTNERS.find(([one]) => one === kind)[1];
const PAIRS_SHOWN = 24; // per page

// Upload a file as a clip's partner.
async function attachFile(dataset, clip, kind, file) {
  toast(`Uploading ${file.name}`);
  const paths = await attempt(() => page.transport.upload([file]));
  return paths && changeDataset('clips/attach', { name: dataset, clip, kind, file: paths[0] }, (made) => `${capital(made.title)}: ${made.state}.`);
}

// "SAM 2.1 Tiny, Apache-2.0, downloads 0.16 GB": a model of `clips/list-trackers` in a list of choices.
const modelWords = ({ title, license, at_hand: here, download_gb: size }) => [title, license, here ? '' : `downloads ${size} GB`].filter(Boolean).join(', ');
const MODEL_WANTED = 'A folder on the server with a model saved by transformers, or OWNER/NAME of one on the Hub';

// Ways to make a partner: [title, 'MAKER' or 'MAKER MODEL', description], one per known model and '?' for another model. A title with
// an ellipsis asks for more.
//   makers: from `clips/list-makers`
const ways = (makers) => makers.flatMap(({ id, title, does, models, numbers }) => (models.length
  ? [...models.map((one) => [`${title} · ${modelWords(one)}`, `${id} ${one.id}`, does]), [`${title} · another model…`, `${id} ?`, does]] : [[numbers.length ? `${title}…` : title, id, does]]));

// The partners of one clip.
class Pairs extends WorkbenchElement {
  static properties = ['datasetName', 'clipId'];
  static listens = { dragover: 'drag', drop: 'dropOn' };
  get wanted() { return { role: 'every', clips: [this.clipId] }; }
  needs() { return { list: ['clips/pairs', { name: this.datasetName, ...this.wanted }], makers: ['clips/list-makers', {}, 'once'], ...(this.clipId ? { making: ['datasets/job', { id: `${this.datasetName}/make` }] } : {}) }; }

  drag(event) { if (event.target.closest('[data-kind]')) event.preventDefault(); }

  dropOn(event) {
    const { kind, clip } = event.target.closest('[data-kind]')?.dataset ?? {};
    const [file] = event.dataTransfer?.files ?? [];
    if (!kind || !file) return;
    event.preventDefault();
    event.stopPropagation();
    attachFile(this.datasetName, clip, kind, file);
  }

  view() {
    const [pair] = this.list?.pairs ?? [];
    if (!pair || this.refused.list) return pending(this.refused.list, 'height:120px');
    return html`<section class="section"><header><h2>Linked files</h2><span class="minor faint">A pair is two clips side by side. Drop a file on an empty half.</span></header>${this.making?.activity || (this.making && this.making.state !== 'finished') ? html`<wb-task data-id="making" .task=${this.making} .datasetName=${this.datasetName}></wb-task>` : ''}<div class="partners">${PARTNERS.map(([kind, title, does]) => this.pair(pair, kind, title, does))}</div></section>`;
  }

  // The clip in one half and its partner in the other.
  pair({ clip, partners }, kind, title, does = '') {
    const partner = partners[kind], clock = `pair ${clip.id} ${kind}`;
    return html`<article class="partner" data-id="pair-${clip.id}-${kind}" data-kind="${kind}" data-clip="${clip.id}"><div class="halves">${video(clip.file, clip.name, { width: clip.width, height: clip.height, clock })}${this.half(clip, kind, partner, clock)}<span
      class="joined ${!partner && 'faint'}">${icon('link', partner ? 'linked' : 'not linked')}</span></div>
      <b class="minor one-line" title="${title}">${does ? title : html`<a href="${address('dataset', this.datasetName, 'clip', clip.id)}">${title}</a>`}</b>${partner || !does ? '' : html`<p class="fine faint">${does}</p>`}<div class="row tight"><span class="about">${this.state(kind, partner, !does)}</span>${this.actions(clip, kind, partner)}</div></article>`;
  }

  half(clip, kind, partner, clock) {
    const title = partnerTitle(kind);
    return partner ? video(partner.file, `${title} of ${clip.name}`, { clock, width: partner.width || clip.width, height: partner.height || clip.height })
      : dropSlot('choose', `Drop its ${title.toLowerCase()}`, { value: `${clip.id} ${kind}`, label: `Drop its ${title.toLowerCase()}: ${clip.name}`, style: `aspect-ratio:${clip.width}/${clip.height}` });
  }

  // named: name a missing partner. It is a warning if other clips have one
  state(kind, partner, named = true) {
    const words = named ? `No ${partnerTitle(kind).toLowerCase()}` : 'None';
    if (!partner) return named && this.list?.has[kind] ? state('warn', words) : html`<span class="minor faint">${words}</span>`;
    return state(partner.fits ? partner.finding ? 'warn' : 'good' : 'bad', withTimes(partner.state));
  }

  // Buttons for a half: its fix first, rare actions in a menu.
  actions(clip, kind, partner, few = false) {
    const title = partnerTitle(kind);
    const [fix, ...fixes] = Object.entries(partner?.fixes ?? {}).filter(([how]) => !['remove', 'tag'].includes(how));
    const makers = clip.image ? [] : (this.makers ?? []).filter(({ kinds }) => kinds[0] === kind);
    const brush = partner ? 'Edit mask' : 'Paint a mask';
    const paint = kind === 'mask' && !clip.image ? linkTo(few ? '' : brush, address('dataset', this.datasetName, 'clip', clip.id, 'mask'), { kind: few ? 'small square' : 'small', name: 'brush', label: few ? `${brush}: ${clip.name}` : '' }) : '';
    const rare = [...fixes.map(([how, label]) => [label, 'fixIt', `${clip.id} ${partner.finding} ${how}`]), partner && few && ['Remove', 'detach', `${clip.id} ${kind}`], ...ways(makers).map(([words, way]) => [`Make: ${words}`, 'make', `${clip.id} ${kind} ${way}`])].filter(Boolean);
    return html`${partner && !partner.fits && !fix ? button('Find a fix', 'check', { kind: 'small', title: 'Check the dataset for possible fixes' }) : ''}${fix ? button(fix[1], 'fixIt', { kind: 'small', value: `${clip.id} ${partner.finding} ${fix[0]}` }) : ''}${paint}${partner && !few ? button('Remove', 'detach', { kind: 'small quiet', value: `${clip.id} ${kind}` }) : ''}${
      rare.length ? menu(rare, `${title} of ${clip.name}: more`) : ''}`;
  }

  choose(target) {
    const [clip, kind] = target.dataset.value.split(' ');
    chooseFiles((files) => attachFile(this.datasetName, clip, kind, files[0]), { accept: 'video/*,image/*', multiple: false });
  }

  detach(target) {
    const [clip, kind] = target.dataset.value.split(' ');
    return changeDataset('clips/detach', { name: this.datasetName, kind, clips: [clip] }, () => `${partnerTitle(kind)} removed.`);
  }

  fixIt(target) {
    const [clip, kind, how] = target.dataset.value.split(' ');
    return changeDataset('datasets/fix', { name: this.datasetName, kind, how, clips: [clip] }, (task) => task.sentence || 'The fix is running.');
  }

  check() { return this.act('datasets/check', { name: this.datasetName }, { said: 'Checking the dataset.' }); }

  make(target) {
    const [clip, kind, ...way] = target.dataset.value.split(' ');
    return this.makeFor(way, { kind, clips: [clip], again: true });
  }

  async makeFor([maker, known = ''], values) {
    const { title, numbers } = this.makers.find(({ id }) => id === maker);
    const fields = [...(known === '?' ? [['model', MODEL_WANTED]] : []), ...numbers.map(({ setting, title: label, start: value, low, high }) => [setting, label, { value, low, high }])];
    const asked = fields.length ? await askFor(title, fields, 'Make') : {};
    return asked && this.act('clips/make', { name: this.datasetName, maker, model: known, ...values, ...asked }, { said: `Making: ${title.toLowerCase()}.` });
  }
}
define('wb-pairs', Pairs);

// The partners of all clips of a dataset. partnerRole: from the address; "" for the role that the dataset has
class PairsTab extends Pairs {
  static properties = ['datasetName', 'partnerRole'];
  only = 'all';
  first = 0;
  get wanted() { return { role: this.partnerRole ?? '', only: this.only, first: this.first, most: PAIRS_SHOWN }; }
  changed(name) { if (name === 'partnerRole') this.first = 0; }

  view() {
    if (this.refused.list) return refusal(this.refused.list);
    const list = this.list ?? this.seen;
    if (!list) return html`${skeleton('height:60px')}${skeleton('height:200px')}`;
    this.seen = list;
    const every = list.role === 'every';
    const title = every ? 'partner' : partnerTitle(list.role).toLowerCase();
    const roles = [['every', 'Everything'], ...PARTNERS.map(([kind, name]) => [kind, `${name}${list.has[kind] ? ` (${list.has[kind].toLocaleString('en-US')})` : ''}`])];
    const filters = [['all', `All clips (${list.all.toLocaleString('en-US')})`], ['lacking', `Without a ${title} (${list.lacking.toLocaleString('en-US')})`], ['unfit', `Mismatched (${list.unfit.toLocaleString('en-US')})`]];
    return html`<div class="row tools"><p class="minor faint">A pair is two clips side by side: the model learns from the second one. Drop a file on an empty half, paint a mask, or generate the files from the clips.</p>
      ${select(roles, list.role, 'data-change="play" aria-label="Role" style="width:auto"')}${select(filters, this.only, 'data-change="filter" aria-label="Show" style="width:auto"')}<span class="spacer"></span>${every ? '' : this.forAll(list, title)}</div>
      ${list.pairs.length ? every ? html`<div class="pair-rows">${list.pairs.map((pair) => this.line(pair))}</div>` : html`<div class="partners">${list.pairs.map((pair) => this.pair(pair, list.role, pair.clip.name))}</div>`
    : html`<div class="empty"><p>${this.only === 'unfit' ? 'All linked files match their clips.' : this.only === 'lacking' ? `Every clip has its ${title}.` : 'There are no clips yet.'}</p></div>`}
      ${pager({ first: list.first, found: list.found, size: PAIRS_SHOWN, what: 'clip' })}`;
  }

  // Make partners for all clips that lack one.
  forAll({ lacking, role, has }, title) {
    const makers = (this.makers ?? []).filter(({ kinds }) => kinds.includes(role));
    return html`${lacking && makers.length ? html`<details class="menu"><summary class="button">Make for ${count(lacking, 'clip')}${icon('fold')}</summary><div>${ways(makers).map(([words, way, does]) => button(words, 'makeAll', { kind: 'quiet', value: way, title: does }))}</div></details>` : ''}${
      has[role] ? menu([[`Remove ${count(has[role], title)}`, 'detachAll', role, 'bin', 'danger'], ...ways(makers).map(([words, way]) => [`Make again: ${words}`, 'remakeAll', way])], `All clips: ${title}`) : ''}`;
  }

  // A row with a clip and all its partners.
  line(pair) {
    const { clip, partners } = pair, clock = `pair ${clip.id}`;
    return html`<article class="pair-row" data-id="pairs-${clip.id}"><figure><a href="${address('dataset', this.datasetName, 'clip', clip.id)}" aria-label="Open ${clip.name}">${video(clip.file, clip.name, { width: clip.width, height: clip.height, clock })}</a><figcaption>${oneLine(clip.name, 'b')}</figcaption></figure>${
      PARTNERS.map(([kind, title]) => html`<figure data-kind="${kind}" data-clip="${clip.id}">${this.half(clip, kind, partners[kind], clock)}<figcaption><span class="row tight"><b class="one-line">${title}</b><span class="spacer"></span>${this.actions(clip, kind, partners[kind], true)}</span>${this.state(kind, partners[kind], false)}</figcaption></figure>`)}</article>`;
  }

  play(target) { goTo('dataset', this.datasetName, 'pairs', target.value); }
  filter(target) { this.only = target.value; this.first = 0; }
  page(target) { turnPage(this, target); }
  makeAll(target) { return this.makeFor(target.dataset.value.split(' '), { kind: this.list.role }); }
  remakeAll(target) { return this.makeFor(target.dataset.value.split(' '), { kind: this.list.role, again: true }); }
  detachAll(target) { return changeDataset('clips/detach', { name: this.datasetName, kind: target.dataset.value }, ({ changed }) => `${count(changed, partnerTitle(target.dataset.value).toLowerCase())} removed.`); }
}
define('wb-pairs-tab', PairsTab);
