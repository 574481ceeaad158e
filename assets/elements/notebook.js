// The elements in a notebook, within an iframe of its widget, which provides the address, the drafts and the kernel's answers.

const PART = 2_000_000; // bytes of a file in one message

// Operations over the widget's messages. host: from notebook_host.js
class NotebookTransport {
  constructor(host) {
    this.host = host;
    this.last = 0;
    this.asked = new Map(); // number -> {done, failed, parts} of a pending call
    this.watched = new Map(); // key -> watchers
    this.known = new Map(); // key -> newest answer; the kernel may send one before it is requested
    this.files = new Map(); // path -> {url, version}
  }

  ask(message, buffers = []) {
    this.last += 1;
    const number = this.last;
    return new Promise((done, failed) => {
      this.asked.set(number, { done, failed, parts: [] });
      this.host.send({ ...message, number }, buffers);
    });
  }

  heard({ key, number, text, more }, buffers = []) {
    if (key) {
      this.known.set(key, text);
      for (const one of this.watched.get(key) ?? []) this.tell(one, text);
      return;
    }
    const one = this.asked.get(number);
    if (!one) return;
    one.parts.push(...buffers);
    if (more) return;
    this.asked.delete(number);
    const { value, problem, problems } = JSON.parse(text);
    if (problem === undefined) one.done({ value, parts: one.parts });
    else one.failed(new Problem(problem, problems));
  }

  tell({ got, failed }, text) {
    const { value, problem } = JSON.parse(text);
    if (problem === undefined) got(value);
    else failed(new Problem(problem));
  }

  async call(operation, values = {}) { return (await this.ask({ call: operation, values })).value; }

  watch(operation, values, got, failed) {
    const key = JSON.stringify([operation, values]);
    const one = { got, failed };
    if (!this.watched.has(key)) {
      this.watched.set(key, new Set());
      this.host.send({ watch: key });
    }
    this.watched.get(key).add(one);
    if (this.known.has(key)) queueMicrotask(() => { if (this.watched.get(key)?.has(one)) this.tell(one, this.known.get(key)); });
    return () => {
      const others = this.watched.get(key);
      others?.delete(one);
      if (others?.size) return;
      this.watched.delete(key);
      this.known.delete(key);
      this.host.send({ unwatch: key });
    };
  }

  // Return a URL of a file, which is sent again only if it has changed.
  async file(path) {
    const before = this.files.get(path);
    const { value, parts: pieces } = await this.ask({ file: path, version: before?.version ?? '' });
    if (value.version === before?.version) return before.url;
    if (before) URL.revokeObjectURL(before.url);
    const url = URL.createObjectURL(new Blob(pieces, { type: value.type }));
    this.files.set(path, { url, version: value.version });
    return url;
  }

  async upload(files, progressed = () => {}) {
    const total = files.reduce((sum, { size }) => sum + size, 0);
    const paths = [];
    let sent = 0;
    for (const file of files) {
      let path = '';
      for (let at = 0; at === 0 || at < file.size; at += PART) {
        const piece = await file.slice(at, at + PART).arrayBuffer();
        path = (await this.ask({ upload: file.name, path }, [piece])).value;
        progressed(total ? (sent += piece.byteLength) / total : 1);
      }
      paths.push(path);
    }
    return paths;
  }
}

// The form of a settings class, for `workbench.notebook.form`.
class FormView extends FillingElement {
  static properties = ['path', 'filling'];

  changed(name) {
    super.changed(name);
    if (name === 'path' && this.path?.[0] && this.filling?.form !== this.path[0]) {
      this.filling = new Filling(this.path[0], { where: `form ${this.path[0]}` });
      this.filling.load();
    }
  }

  view() { return html`<h1 tabindex="-1" class="unseen">Settings</h1>${this.filling && otherProblems(this.filling, this.filling.settings.map(({ name }) => name))}<wb-settings .filling=${this.filling}></wb-settings>`; }
}
define('wb-form-view', FormView);

PLACES.settings = { title: 'Settings', name: 'settings', key: '', element: () => 'wb-form-view' };

// The app without its rail: one object and the places that it links to.
class NotebookApp extends App {
  ours = new Set(['class']);
  needs() { return {}; }

  view() {
    this.className = `workbench ${this.dropping ? 'dropping' : ''}`;
    return html`${this.place()}${this.around()}`;
  }
}
define('wb-notebook', NotebookApp);

window.workbench = (host) => {
  const transport = new NotebookTransport(host);
  page.transport = transport;
  // Keep drafts in the model, where the kernel reads them: those of forms by form, others by address.
  drafts.read = (address, form = address) => host.draft(form) ?? {};
  drafts.keep = (address, values, form = address) => host.keep(form, values);
  drafts.forget = (address, form = address) => host.keep(form, null);
  window.location.hash = host.address();
  const app = document.createElement('wb-notebook');
  document.body.replaceChildren(app);
  new ResizeObserver(() => host.grown(Math.ceil(app.getBoundingClientRect().height))).observe(app);
  window.addEventListener('hashchange', () => { if (window.location.hash !== host.address()) host.moved(window.location.hash); });
  return {
    heard: (message, buffers) => transport.heard(message, buffers),
    go: (address) => { if (window.location.hash !== address) window.location.hash = address; },
    // The kernel has changed a form, so make the element that shows it again.
    drafted: () => { app.open?.remove(); app.rest = undefined; app.redraw(); },
    theme: (dark) => {
      document.documentElement.classList.toggle('dark', dark);
      document.documentElement.classList.toggle('light', !dark);
    },
  };
};
