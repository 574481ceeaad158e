// The browser's half of workbench/ui/sample/queue_strip.py: rows of the waiting and active requests, changed in place.
// Gradio runs this as a function of (element, trigger, props, server, watch).
'use strict';

const button = (text, what, id, extra = {}) => {
  const made = make('button', { type: 'button', textContent: text, ...extra });
  made.addEventListener('click', () => {
    made.disabled = true;
    setTimeout(() => { made.disabled = false; }, 3000);
    trigger('action', { do: what, id });
  });
  return made;
};

const note = make('p', { className: 'wait-note', hidden: true });
const list = make('ul', { className: 'requests' });
oneTabStop(list, 'button');
const more = make('p', { className: 'hint', hidden: true });
const all = button('Cancel all', 'all', '', { id: 'cancel-all-samples' });
const failed = make('ul', { className: 'failures' });
const head = make('div', { className: 'tools', hidden: true }, make('b', { textContent: 'Queue' }), all);
element.replaceChildren(make('div', { className: 'sample-queue' }, note, head, list, more, failed));

function rowOf(id) {
  let picture = make('img', { className: 'preview', alt: 'Latent preview', hidden: true });
  const prompt = make('p', { className: 'prompt' });
  const about = make('p', { className: 'hint' });
  const share = make('i');
  const bar = make('div', { className: 'bar going' }, share);
  const state = make('span');
  const words = make('span');
  const status = make('p', { className: 'status' }, state, ' ', words);
  const cancel = button('Cancel', 'cancel', id, { className: 'cancel' });
  bar.setAttribute('role', 'progressbar');
  bar.setAttribute('aria-label', 'done');
  const item = make('li', {}, picture, make('div', { className: 'text' }, prompt, about, bar, status, cancel));
  item.dataset.id = id;
  let wanted = '';
  item.update = (request) => {
    item.dataset.state = request.state;
    set(prompt, request.title);
    set(about, request.subtitle);
    badge(state, request);
    set(words, [request.status === request.state ? '' : request.status, request.message].filter(Boolean).join(' · '));
    bar.hidden = request.state === 'waiting';
    bar.classList.toggle('unknown', request.share === null);
    share.style.width = request.share === null ? '' : `${100 * request.share}%`;
    if (request.share !== null) bar.setAttribute('aria-valuenow', Math.round(100 * request.share));
    if (request.picture && request.picture !== wanted) { // shown once it is loaded, so that nothing flickers
      wanted = request.picture;
      const next = make('img', { className: 'preview', alt: 'Latent preview' });
      next.addEventListener('load', () => { // the loaded element itself: its file may be gone by now
        if (next.src !== new URL(wanted, document.baseURI).href) return; // a newer one is on its way
        next.classList.toggle('pixelated', next.naturalWidth <= 128);
        picture.replaceWith(next);
        picture = next;
      });
      next.src = request.picture;
    }
  };
  return item;
}

function failureOf(one) {
  const buttons = [button('Dismiss', 'dismiss', one.id)];
  if (one.can_force) buttons.unshift(button('Use what fits', 'force', one.id));
  if (one.can_retry) buttons.unshift(button('Try again', 'again', one.id, { className: 'again' }));
  const item = make('li', { className: 'failure' }, make('b', { textContent: 'No video' }),
    make('p', { className: 'prompt', textContent: one.title }), make('p', { className: 'why', textContent: one.message }),
    make('div', { className: 'tools' }, ...buttons));
  item.dataset.id = one.id;
  return item;
}

function update() {
  const value = props.value ?? {};
  const requests = value.requests ?? [];
  set(note, value.note ?? '');
  note.hidden = !value.note;
  patch(list, requests, (request) => rowOf(request.id));
  patch(failed, value.failed ?? [], failureOf);
  head.hidden = !requests.length;
  all.hidden = requests.length + (value.more ?? 0) < 2;
  set(more, remainder(value));
  more.hidden = !more.textContent;
}
watch('value', update);
update();
