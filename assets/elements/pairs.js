// A clip beside a clip: what lies beside it in two halves that play together, and slots for what is missing.

const PARTNERS = [['control', 'Control clip', 'Its motion or outline: the model learns to follow it.'], ['reference', 'Reference', 'What it shall look like: a video or a picture.'],
  ['mask', 'Mask', 'White is inside: the part that is learned, or filled in.'], ['last_frame', 'Last frame', 'The picture that it ends with.']];

// Upload a file and put it beside a clip.
async function attachFile(dataset, clip, kind, file) {
  toast(`Uploading ${file.name}`);
  const paths = await attempt(() => page.transport.upload([file]));
  return paths && changeDataset('clips/attach', { name: dataset, clip, kind, file: paths[0] }, (made) => `${capital(made.title)}: ${made.state}.`);
}

// "SAM 2.1 Tiny, Apache-2.0, downloads 0.16 GB": a model, as `clips/list-trackers` lists it, where one chooses it.
const modelWords = ({ title, license, at_hand: here, download_gb: size }) => [title, license, here ? '' : `downloads ${size} GB`].filter(Boolean).join(', ');
const MODEL_WANTED = 'A folder on the server with a model as transformers saves it, or OWNER/NAME of one on the Hub';

// What can be made as a kind, as items of a menu: a maker that needs a model once for each known one, and with another one.
//   makers: as `clips/list-makers` lists them
const makerItems = (makers, kind) => makers.filter(({ kinds }) => kinds[0] === kind).flatMap(({ id, title, models }) => (models.length
  ? [...models.map((one) => [`Make: ${title} · ${modelWords(one)}`, 'make', `${id} ${kind} ${one.id}`]), [`Make: ${title} · another model…`, 'another', `${id} ${kind}`]]
  : [[`Make: ${title}`, 'make', `${id} ${kind}`]]));

// clip: as `clips/view` answers it
class Pairs extends WorkbenchElement {
  static properties = ['datasetName', 'clip'];

  needs() {
    const { clip, datasetName: name } = this;
    return clip ? { partners: ['clips/companions', { name, clips: [clip.id] }, 'once'], makers: ['clips/list-makers', {}, 'once'], making: ['datasets/job', { id: `${name}/make` }] } : {};
  }

  changed(name) {
    if (name !== 'clip' || !this.partners) return;
    const now = JSON.stringify([this.clip.id, this.clip.beside]);
    if (now !== this.before) { this.before = now; this.reread('partners'); }
  }

  born() {
    this.addEventListener('dragover', (event) => { if (event.target.closest('[data-kind]')) event.preventDefault(); });
    this.addEventListener('drop', (event) => {
      const { kind } = event.target.closest('[data-kind]')?.dataset ?? {};
      const [file] = event.dataTransfer?.files ?? [];
      if (!kind || !file) return;
      event.preventDefault();
      event.stopPropagation();
      attachFile(this.datasetName, this.clip.id, kind, file);
    });
  }

  view() {
    const { clip, partners, making } = this;
    if (this.refused.partners) return refusal(this.refused.partners);
    if (!partners) return skeleton('height:120px');
    const of = new Map(partners.map((one) => [one.kind, one]));
    const mask = address('dataset', this.datasetName, 'clip', clip.id, 'mask');
    return html`<section class="section"><header><h2>Beside the clip</h2><span class="minor faint">A pair is a clip beside a clip. Drop a file on an empty half.</span></header>${making?.activity || (making && making.state !== 'finished') ? html`<wb-task data-id="making" .task=${making} .datasetName=${this.datasetName}></wb-task>` : ''}<div class="partners">${PARTNERS.map(([kind, title, does]) => this.pair(kind, title, does, of.get(kind), mask))}</div></section>`;
  }

  pair(kind, title, does, partner, mask) {
    const { clip } = this, clock = `pair ${clip.id} ${kind}`;
    const size = { width: clip.width, height: clip.height, clock };
    const makers = makerItems(this.makers ?? [], kind);
    const brush = kind === 'mask' && clip.cuttable ? linkTo(partner ? 'Edit mask' : 'Paint a mask', mask, { kind: 'small', name: 'brush' }) : '';
    return html`<article class="partner" data-id="pair-${kind}" data-kind="${kind}"><div class="halves">${video(clip.file, clip.name, size)}${partner ? video(partner.file, `${title} of ${clip.name}`, { ...size, width: partner.width, height: partner.height })
      : html`<button type="button" class="dropzone" data-do="choose" data-value="${kind}">${icon('upload')}<span class="minor">Drop its ${title.toLowerCase()}</span></button>`}<span class="joined ${!partner && 'faint'}">${icon('link', partner ? 'linked' : 'not linked')}</span></div>
      <div class="row minor"><b>${title}</b><span class="spacer"></span>${partner ? state(partner.fits ? 'good' : 'bad', partner.state) : state('idle', 'None')}</div>${partner ? '' : html`<p class="fine faint">${does}</p>`}
      <div class="row">${brush}${partner ? button('Remove', 'detach', { kind: 'small quiet', value: kind }) : ''}${makers.length && !clip.image ? menu(makers, `Make a ${title.toLowerCase()}`) : ''}</div></article>`;
  }

  choose(target) { chooseFiles((files) => attachFile(this.datasetName, this.clip.id, target.dataset.value, files[0]), { accept: 'video/*,image/*', multiple: false }); }

  detach(target) {
    const [kind, title] = PARTNERS.find(([one]) => one === target.dataset.value);
    return changeDataset('clips/detach', { name: this.datasetName, kind, clips: [this.clip.id] }, () => `${title} removed.`);
  }

  make(target) {
    const [maker, kind, model = ''] = target.dataset.value.split(' ');
    return this.begin(maker, kind, model);
  }

  async another(target) {
    const [maker, kind] = target.dataset.value.split(' ');
    const model = await ask('Another model', MODEL_WANTED, { does: 'Make' });
    return model && this.begin(maker, kind, model);
  }

  begin(maker, kind, model) {
    return this.act('clips/make', { name: this.datasetName, clips: [this.clip.id], maker, kind, model, again: true }, { said: `Being made: ${this.makers.find(({ id }) => id === maker).title.toLowerCase()}.` });
  }
}
define('wb-pairs', Pairs);
