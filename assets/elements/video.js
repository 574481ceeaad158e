// Videos that play together: those with the same clock show the same frame and are paused and scrubbed as one.

const TINY = 64; // widest video of the tiny models, which are shown small and smoothed
const DRIFT = 0.08; // seconds that two videos of a clock may be apart
const BACKWARD = 1 / 16; // seconds per step when playing backward
const calm = window.matchMedia('(prefers-reduced-motion: reduce)');

// At most one video is heard, the one whose speaker was pressed last. Whether any should be is remembered: then the first
// video of a page is heard.
const listening = {
  wanted: preferences.read('sound', false),
  heard: null, // a video element
  pressed: false, // whether a person chose just that one

  hear(video, pressed = false) {
    if (this.heard) this.heard.muted = true;
    Object.assign(this, { heard: video, pressed });
    if (video) { video.muted = false; video.play().catch(() => {}); }
    for (const one of WorkbenchVideo.loaded) one.redraw();
  },

  choose(video) {
    this.wanted = this.heard !== video;
    preferences.keep('sound', this.wanted);
    this.hear(this.wanted ? video : null, this.wanted);
  },
};

// Whether a video that has begun to play has a sound. Each browser says it in its own way.
const hasSound = (video) => Boolean(video.mozHasAudio || video.webkitAudioDecodedByteCount || video.audioTracks?.length);

class Clock {
  static all = new Map();

  // Return the clock with a name, which is made on first use.
  static named(name) {
    if (!Clock.all.has(name)) Clock.all.set(name, new Clock());
    return Clock.all.get(name);
  }

  videos = new Set();
  known = new WeakSet(); // videos that already have its event listeners
  listeners = new Set();
  playing = !calm.matches;
  speed = 1;
  bounces = false; // play forward and backward in turn
  wish = null; // the time to start at, chosen before a video was loaded
  // The one that is heard, if any: setting its time would be heard, too.
  get leader() { return (this.videos.has(listening.heard) && listening.heard.readyState >= 2 && listening.heard) || this.first; }
  get first() { return [...this.videos].find((one) => one.readyState >= 2) ?? [...this.videos][0]; }
  get duration() { return this.leader?.duration || 0; }
  get time() { return this.wish ?? this.leader?.currentTime ?? 0; }

  add(video) {
    if (this.videos.has(video)) return;
    this.videos.add(video);
    video.playbackRate = this.speed;
    video.loop = !this.bounces;
    if (!this.known.has(video)) {
      this.known.add(video);
      video.addEventListener('loadeddata', () => { if (this.videos.has(video)) this.joined(video); });
      video.addEventListener('timeupdate', () => { if (video === this.leader) this.keepTogether(); });
      video.addEventListener('ended', () => { if (video === this.leader && this.playing) this.goBack(); });
    }
    if (video.readyState >= 2) this.joined(video);
  }

  remove(video) { this.videos.delete(video); }

  // Start a new video at the time of the others.
  joined(video) {
    const { leader, wish } = this;
    this.wish = null;
    if (wish !== null) this.seek(wish);
    else if (leader && leader !== video) video.currentTime = leader.currentTime;
    if (this.playing) video.play().catch(() => {});
    this.told();
  }

  keepTogether() {
    const { time, duration } = this;
    for (const one of this.videos) {
      const apart = Math.abs(one.currentTime - time);
      if (one !== this.leader && one.readyState >= 2 && Math.min(apart, Math.abs(duration - apart)) > DRIFT) one.currentTime = time;
    }
    this.told();
  }

  play(on) {
    clearInterval(this.back);
    this.playing = on;
    for (const one of this.videos) { if (on) one.play().catch(() => {}); else one.pause(); }
    if (!on) this.seek(this.time);
    this.told();
  }

  seek(time) {
    this.wish = this.duration ? null : time;
    for (const one of this.videos) one.currentTime = Math.min(Math.max(0, time), Math.max(0, (one.duration || 0) - 0.001));
    this.told();
  }

  setSpeed(speed) {
    this.speed = speed;
    for (const one of this.videos) one.playbackRate = speed;
  }

  bounce(on) {
    this.bounces = on;
    for (const one of this.videos) one.loop = !on;
    this.play(this.playing);
  }

  // Browsers cannot play backward, so step back frame by frame, then play forward again.
  goBack() {
    clearInterval(this.back);
    this.back = setInterval(() => {
      const before = this.time - BACKWARD;
      this.seek(before);
      if (before <= 0) this.play(true);
    }, (1000 * BACKWARD) / this.speed);
  }

  told() { for (const one of this.listeners) one(); }
}

// Load videos that come into view, and pause those far out of view.
const inSight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) target.seen(isIntersecting);
}, { rootMargin: '200px' });

// Browsers limit how many videos can play. Beyond this number, those out of view are unloaded.
const MOST_LOADED = 48;

// A looping video, with a speaker if it has a sound, or a picture.
//   file: path on the server;  label: text for screen readers;  tag: text in its corner
//   clock: name of its clock, "" to play alone;  still: second at which to stand still
//   width, height: size of its frames, to reserve space while it loads;  controls: show the browser's controls
//   version: changes when the file changes
class WorkbenchVideo extends WorkbenchElement {
  static properties = ['file', 'label', 'tag', 'clock', 'still', 'width', 'height', 'controls', 'version'];
  static loaded = new Set();
  ours = new Set(['style', 'class']); // attributes that templates leave alone

  view() {
    const { width, height, tag } = this;
    this.style.aspectRatio = width && height ? `${width} / ${height}` : '';
    this.classList.toggle('tiny', Boolean(width && width <= TINY));
    if (!this.source) return html`${tag && html`<span class="tag">${tag}</span>`}`;
    return html`${this.pictured ? html`<img src="${this.source}" alt="${this.label}">` : html`<video src="${this.source}" muted ?loop=${!this.clock || !Clock.named(this.clock).bounces} playsinline
      disablepictureinpicture preload="auto" aria-label="${this.label}" ?controls=${this.controls}></video>`}${
      tag && html`<span class="tag">${tag}</span>`}${this.speaker}`;
  }

  get pictured() { return /\.(png|jpe?g|webp|gif)$/i.test(this.file); }
  get linked() { return Boolean(this.closest('a, button')); } // no place for another button
  get heard() { return Boolean(this.video) && listening.heard === this.video; }
  get speaker() {
    return this.audible && !this.controls && !this.linked ? button('', 'hear', { kind: 'small square speaker', name: this.heard ? 'loud' : 'muted', label: this.heard ? 'Mute' : 'Play the sound', pressed: this.heard }) : '';
  }

  hear() { listening.choose(this.video); }

  // Show the speaker once the video is known to have a sound.
  listen() {
    if (this.audible || !this.video || !hasSound(this.video)) return;
    this.audible = true;
    const first = [...document.querySelectorAll('wb-video')].find((one) => !one.pictured && !one.linked);
    // Browsers pause a video that is heard before a person has done anything on the page.
    if (listening.wanted && !listening.pressed && first === this && navigator.userActivation?.hasBeenActive) listening.hear(this.video);
    this.redraw();
  }

  arrived() { inSight.observe(this); }

  left() {
    inSight.unobserve(this);
    WorkbenchVideo.loaded.delete(this);
    if (this.video && this.clock) Clock.named(this.clock).remove(this.video);
    this.silence();
    this.video = null;
  }

  silence() {
    if (this.heard) listening.hear(null);
    this.audible = false;
  }

  changed(name) {
    if (name === 'file') { this.source = ''; if (this.visible) this.load(); }
    if (name === 'version' && this.source) this.load();
  }

  seen(visible) {
    this.visible = visible;
    if (visible && !this.source) this.load();
    if (this.video && this.clock && !visible) {
      Clock.named(this.clock).remove(this.video);
      this.video.pause();
      if (WorkbenchVideo.loaded.size > MOST_LOADED) { this.source = ''; this.redraw(); }
    } else if (this.video && this.clock) {
      Clock.named(this.clock).add(this.video);
    }
    if (this.video && !this.clock && this.still === undefined) {
      if (visible && !calm.matches) this.video.play().catch(() => {}); else this.video.pause();
    }
  }

  async load() {
    const { file, version } = this;
    if (!file) return;
    const source = await page.transport.file(file);
    if (file !== this.file) return;
    this.source = version === undefined || !/^(https?:|[./])/.test(source) ? source : `${source}?${version}`;
    this.redraw();
  }

  updated() {
    const video = this.querySelector(':scope > video');
    if (video === this.video) return;
    if (this.video && this.clock) Clock.named(this.clock).remove(this.video);
    this.silence();
    this.video = video;
    WorkbenchVideo.loaded[video ? 'add' : 'delete'](this);
    if (!video) return;
    video.muted = true;
    video.addEventListener('loadeddata', () => this.classList.add('ready'));
    for (const event of ['loadeddata', 'timeupdate']) video.addEventListener(event, () => { if (video === this.video) this.listen(); });
    if (this.still !== undefined && this.still !== null) {
      video.addEventListener('loadedmetadata', () => { video.currentTime = this.still; });
    } else if (this.clock) {
      Clock.named(this.clock).add(video);
    } else if (!calm.matches) {
      video.play().catch(() => {});
    }
  }
}
define('wb-video', WorkbenchVideo);

// video(path, label, {clock, tag, still, width, height, controls, version})
const video = (file, label, more = {}) => html`<wb-video .file=${file} .label=${label} .clock=${more.clock ?? ''} .tag=${more.tag ?? ''}
  .still=${more.still} .width=${more.width} .height=${more.height} .controls=${more.controls ?? false} .version=${more.version}></wb-video>`;

// Controls to play, pause and scrub all videos of a clock.
//   clock: its name;  frames: of each video, if known;  speeds: show a choice of speeds
class WorkbenchScrubber extends WorkbenchElement {
  static properties = ['clock', 'frames', 'speeds'];

  arrived() {
    this.of = Clock.named(this.clock);
    this.told = () => this.redraw();
    this.of.listeners.add(this.told);
  }

  left() { this.of.listeners.delete(this.told); }
  get count() { return this.frames || Math.max(1, Math.round(16 * this.of.duration)); }
  get frame() { return Math.min(this.count, 1 + Math.floor((this.of.time / (this.of.duration || 1)) * this.count + 0.001)); }

  view() {
    const { of, count: all } = this;
    return html`${button('', 'toggle', { kind: 'quiet small square', name: of.playing ? 'pause' : 'play', label: of.playing ? 'Pause' : 'Play' })}
      <input type="range" min="1" max="${all}" value="${this.frame}" data-input="scrub" aria-label="Frame">
      <span class="fine faint">frame ${this.frame} of ${all}</span>
      ${this.speeds && select([[1, '1×'], [0.5, '½×'], [0.25, '¼×']], of.speed, 'data-change="rate" aria-label="Speed"')}${this.speeds && button('', 'pingPong', { kind: 'quiet small square', name: 'bounce', label: 'Forward and backward in turn', pressed: of.bounces })}`;
  }

  toggle() { this.of.play(!this.of.playing); }

  scrub(target) {
    if (this.of.playing) this.of.play(false);
    this.of.seek(((Number(target.value) - 0.5) / this.count) * this.of.duration);
  }

  // Step by frames, for the keys , and .
  step(by) {
    if (this.of.playing) this.of.play(false);
    this.of.seek(((this.frame - 0.5 + by) / this.count) * this.of.duration);
  }

  rate(target) { this.of.setSpeed(Number(target.value)); }
  pingPong() { this.of.bounce(!this.of.bounces); }
}
define('wb-scrubber', WorkbenchScrubber);

// ---- keys

// Whether a key belongs to a field or to the browser.
const isTyped = ({ target, ctrlKey, metaKey, altKey }) => ctrlKey || metaKey || altKey || Boolean(
  target.matches?.('input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, [contenteditable]'));

// Handle space (play, pause) and , and . (step a frame). Returns whether it did.
function playKey(scrubber, { key, target }) {
  if (!scrubber || !((key === ' ' && target.matches('body, h1, main')) || key === ',' || key === '.')) return false;
  if (key === ' ') scrubber.toggle(); else scrubber.step(key === ',' ? -1 : 1);
  return true;
}
