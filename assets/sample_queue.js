// The browser's half of workbench/ui/sample/queue_strip.py: cards of the requests under way, changed in place.
// Gradio runs this as a function of (element, trigger, props, server, watch).
'use strict';

const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const button = (text, what, id, extra = {}) => {
  const made = make('button', { type: 'button', textContent: text, ...extra });
  made.addEventListener('click', () => { made.disabled = true; trigger('asked', { do: what, id }); setTimeout(() => { made.disabled = false; }, 3000); });
  return made;
};

const note = make('p', { className: 'wait-note', hidden: true });
const list = make('ul', { className: 'requests' });
const more = make('p', { className: 'hint', hidden: true });
const all = button('Cancel all', 'all', '', { id: 'cancel-all-samples' });
const failed = make('ul', { className: 'failures' });
const head = make('div', { className: 'tools', hidden: true }, make('b', { textContent: 'Under way' }), all);
element.replaceChildren(make('div', { className: 'sample-queue' }, note, head, list, more, failed));

function cardOf(id) {
  const picture = make('img', { className: 'rough', alt: 'How the video looks so far, roughly', hidden: true });
  const prompt = make('p', { className: 'said' });
  const about = make('p', { className: 'hint' });
  const share = make('i');
  const bar = make('div', { className: 'bar going' }, share);
  const words = make('p', { className: 'words' });
  const cancel = button('Cancel', 'cancel', id, { className: 'cancel' });
  bar.setAttribute('role', 'progressbar');
  const item = make('li', {}, picture, make('div', { className: 'told' }, prompt, about, bar, words, cancel));
  item.dataset.id = id;
  let wanted = '';
  item.update = (card) => {
    item.dataset.state = card.state;
    set(prompt, card.prompt);
    set(about, card.about);
    set(words, card.words);
    bar.hidden = card.state === 'waiting';
    bar.classList.toggle('unknown', card.share === null);
    share.style.width = card.share === null ? '' : `${100 * card.share}%`;
    if (card.share !== null) bar.setAttribute('aria-valuenow', Math.round(100 * card.share));
    if (card.picture && card.picture !== wanted) { // shown once it is there, so that nothing flickers
      wanted = card.picture;
      const next = new Image();
      next.addEventListener('load', () => {
        picture.src = next.src;
        picture.hidden = false;
        picture.classList.toggle('pixelated', next.naturalWidth <= 128);
      });
      next.src = card.picture;
    }
  };
  return item;
}

function failureOf(one) {
  const buttons = [button('Take it off', 'dismiss', one.id)];
  if (one.force) buttons.unshift(button('Use what fits of it', 'force', one.id));
  if (one.again) buttons.unshift(button('Try again', 'again', one.id, { className: 'again' }));
  const item = make('li', { className: 'failure' }, make('b', { textContent: 'No video' }),
    make('p', { className: 'said', textContent: one.prompt }), make('p', { className: 'why', textContent: one.message }),
    make('div', { className: 'tools' }, ...buttons));
  item.dataset.id = one.id;
  return item;
}

function patch(parent, wanted, create) {
  const there = new Map([...parent.children].map((item) => [item.dataset.id, item]));
  wanted.forEach((one, place) => {
    const item = there.get(one.id) ?? create(one);
    there.delete(one.id);
    if (parent.children[place] !== item) parent.insertBefore(item, parent.children[place] ?? null);
    item.update?.(one);
  });
  for (const item of there.values()) item.remove();
}

function follow() {
  const value = props.value ?? {};
  const cards = value.cards ?? [];
  set(note, value.note ?? '');
  note.hidden = !value.note;
  patch(list, cards, (card) => cardOf(card.id));
  patch(failed, value.failed ?? [], failureOf);
  head.hidden = !cards.length;
  all.hidden = cards.length + (value.more ?? 0) < 2;
  const said = [value.more ? `and ${value.more} more that wait` : '', value.elsewhere ? `${value.elsewhere} for grids, which wait for these` : ''];
  set(more, said.filter(Boolean).join('; '));
  more.hidden = !more.textContent;
}
watch('value', follow);
follow();
