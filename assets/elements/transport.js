// The page's transport: operations over HTTP, and one stream of events a tab, over addresses relative to the page's own, so that
// it works below any prefix of a proxy and within a frame.

// Ask again after so many milliseconds when the server is away, at first and at most.
const RETRY = [1000, 8000];
// Of a tab that nobody sees: how long it keeps its stream, how often it looks, and for how long.
const UNSEEN_MS = 60_000;
const BETWEEN_LOOKS_MS = 30_000;
const LOOK_MS = 5000;

class HttpTransport {
  constructor(root = '.') {
    this.root = root;
    this.watched = new Map(); // number -> {operation, values, got, failed}
    this.last = 0;
    this.lost = null; // since when the server is away
    this.kept = []; // calls that wait for it
    document.addEventListener('visibilitychange', () => this.rest());
  }

  // A browser keeps six connections to a server at most, for all its tabs: a tab that nobody has seen for a while gives its
  // own back, and looks in now and then for the window's title and for runs that have ended.
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

  async call(operation, values = {}) {
    for (;;) {
      let response;
      try {
        response = await fetch(`${this.root}/api/v1/call/${operation}`, {
          method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(values), credentials: 'same-origin',
        });
      } catch {
        // The server is away. What a person asked for is kept and done when it is back.
        await new Promise((again) => { this.keep(operation, again); });
        continue;
      }
      if (response.status === 401) { window.location.reload(); await new Promise(() => {}); }
      const answer = await response.json().catch(() => null);
      if (response.ok) return answer;
      throw new Problem(answer?.error ?? `The server responded with ${response.status}: see the terminal where it was started.`, answer?.problems);
    }
  }

  keep(operation, again) {
    this.kept.push({ operation, again });
    this.away();
  }

  // ---- one stream for all that is watched

  watch(operation, values, got, failed) {
    this.last += 1;
    const number = this.last;
    this.watched.set(number, { operation, values, got, failed });
    this.reconnect();
    return () => { if (this.watched.delete(number)) this.reconnect(); };
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
    const asked = [...this.watched].map(([number, { operation, values }]) => [number, operation, values]);
    const stream = new EventSource(`${this.root}/api/v1/watch?what=${encodeURIComponent(JSON.stringify(asked))}`);
    this.stream = stream;
    stream.onmessage = ({ data }) => {
      if (stream !== this.stream) return;
      this.back();
      const { number, value, problem } = JSON.parse(data);
      const one = this.watched.get(number);
      if (problem) one?.failed(new Problem(problem));
      else one?.got(value);
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

  // Ask whether it is back; at once when a person says so.
  retry() {
    clearTimeout(this.timer);
    this.timer = null;
    fetch(`${this.root}/api/v1/call/overview/overview`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}', credentials: 'same-origin',
    }).then((response) => {
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
    for (const { again } of kept) again();
    this.told(kept.length);
    if (connect) this.connect();
  }

  // sent: how many kept calls have just been sent
  told(sent = 0) {
    document.dispatchEvent(new CustomEvent('workbench-server', { detail: { lost: this.lost, kept: this.kept.length, sent } }));
  }

  // ---- files

  async file(path) {
    return `${this.root}/gradio_api/file=${path.split('/').map(encodeURIComponent).join('/')}`;
  }

  // Send files; progressed(share) tells how far. Returns their paths on the server, in order.
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
      request.onerror = () => failed(new Problem('The upload was cut off: the server is away. Drop the files again when it is back.'));
      request.send(form);
    });
  }
}
