// The page's transport: operations over HTTP and one event stream per tab. Its addresses are relative to the page, so it works
// behind a proxy's prefix and within a frame.

const RETRY = [1000, 8000]; // milliseconds between retries while the server is away: first, longest
// A hidden tab closes its stream after UNSEEN_MS, then opens it every BETWEEN_LOOKS_MS for LOOK_MS.
const UNSEEN_MS = 60_000;
const BETWEEN_LOOKS_MS = 30_000;
const LOOK_MS = 5000;

class HttpTransport {
  constructor(root = '.') {
    this.root = root;
    this.watched = new Map(); // operation and values -> {number, asked, watchers, data}; data: the newest answer
    this.last = 0;
    this.lost = null; // {since, wait} while the server is away
    this.kept = []; // functions that repeat the calls that wait for it
    document.addEventListener('visibilitychange', () => this.rest());
  }

  // Browsers allow six connections per server for all tabs together, so a tab that is hidden for a while closes its stream. It
  // still looks now and then, to update the window's title and notice runs that ended.
  rest() {
    clearTimeout(this.sleep);
    clearInterval(this.looks);
    if (!document.hidden) {
      if (this.resting) { this.resting = false; this.connect(); }
      return;
    }
    this.sleep = setTimeout(() => {
      this.resting = true;
      this.stream?.close();
      this.looks = setInterval(() => {
        this.connect();
        setTimeout(() => { if (this.resting) this.stream?.close(); }, LOOK_MS);
      }, BETWEEN_LOOKS_MS);
    }, UNSEEN_MS);
  }

  post(operation, values) {
    return fetch(`${this.root}/api/v1/call/${operation}`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(values), credentials: 'same-origin',
    });
  }

  async call(operation, values = {}) {
    for (;;) {
      let response;
      try {
        response = await this.post(operation, values);
      } catch {
        // Keep the call, and repeat it when the server is back.
        await new Promise((again) => { this.kept.push(again); this.away(); });
        continue;
      }
      if (response.status === 401) { window.location.reload(); await new Promise(() => {}); }
      const answer = await response.json().catch(() => null);
      if (response.ok) return answer;
      throw new Problem(answer?.error ?? `The server responded with ${response.status}: see the terminal where it was started.`, answer?.problems);
    }
  }

  // ---- one stream for everything watched

  // Who watches the same shares one answer: elements ask early for what those within them will show.
  watch(operation, values, got, failed) {
    const key = JSON.stringify([operation, values]);
    if (!this.watched.has(key)) {
      this.last += 1;
      this.watched.set(key, { number: this.last, asked: [operation, values], watchers: new Set(), data: '' });
      this.reconnect();
    }
    const one = this.watched.get(key);
    const watcher = { got, failed };
    one.watchers.add(watcher);
    if (one.data) queueMicrotask(() => { if (one.watchers.has(watcher)) this.tell(watcher, one.data); });
    return () => {
      if (!one.watchers.delete(watcher) || one.watchers.size) return;
      this.watched.delete(key);
      this.reconnect();
    };
  }

  tell({ got, failed }, data) {
    const { value, problem } = JSON.parse(data);
    if (problem) failed(new Problem(problem));
    else got(value);
  }

  reconnect() {
    if (this.waiting) return;
    this.waiting = true;
    queueMicrotask(() => { this.waiting = false; this.connect(); });
  }

  connect() {
    this.stream?.close();
    this.stream = null;
    if (!this.watched.size) return;
    const asked = [...this.watched.values()].map(({ number, asked: call }) => [number, ...call]);
    const stream = new EventSource(`${this.root}/api/v1/watch?what=${encodeURIComponent(JSON.stringify(asked))}`);
    this.stream = stream;
    stream.onmessage = ({ data }) => {
      if (stream !== this.stream) return;
      this.back();
      const number = Number(/\d+/.exec(data)[0]);
      const one = [...this.watched.values()].find((each) => each.number === number);
      if (!one || one.data === data) return; // a new stream repeats what is known
      one.data = data;
      for (const watcher of [...one.watchers]) this.tell(watcher, data);
    };
    stream.onerror = () => {
      if (stream !== this.stream) return;
      stream.close();
      this.away();
    };
  }

  // ---- while the server is away

  away() {
    if (this.timer) { this.told(); return; }
    this.lost ??= { since: new Date(), wait: RETRY[0] };
    this.told();
    this.timer = setTimeout(() => this.retry(), this.lost.wait);
  }

  retry() {
    clearTimeout(this.timer);
    this.timer = null;
    this.post('overview/overview', {}).then((response) => {
      if (response.status === 401) window.location.reload();
      else this.back(true);
    }, () => {
      this.lost.wait = Math.min(2 * this.lost.wait, RETRY[1]);
      this.away();
    });
  }

  back(connect = false) {
    if (!this.lost) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.lost = null;
    const kept = this.kept;
    this.kept = [];
    for (const again of kept) again();
    this.told(kept.length);
    if (connect) this.connect();
  }

  // sent: number of kept calls that were just repeated
  told(sent = 0) {
    document.dispatchEvent(new CustomEvent('workbench-server', { detail: { lost: this.lost, kept: this.kept.length, sent } }));
  }

  // ---- files

  async file(path) {
    return `${this.root}/gradio_api/file=${path.split('/').map(encodeURIComponent).join('/')}`;
  }

  // Upload files and return their paths on the server, in order. progressed(share): reports progress
  upload(files, progressed = () => {}) {
    const form = new FormData();
    for (const file of files) form.append('files', file, file.name);
    return new Promise((done, failed) => {
      const request = new XMLHttpRequest();
      request.open('POST', `${this.root}/gradio_api/upload`);
      request.upload.onprogress = ({ loaded, total }) => progressed(total ? loaded / total : 0);
      request.onload = () => {
        if (request.status === 200) done(JSON.parse(request.responseText));
        else failed(new Problem(request.responseText.slice(0, 300) || `The upload was refused (${request.status}).`));
      };
      request.onerror = () => failed(new Problem('The upload failed because the server is away. Drop the files again when it is back.'));
      request.send(form);
    });
  }
}
