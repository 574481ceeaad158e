// The browser's half of workbench/ui/train/notifications.py: a desktop notification when a run ends or fails.
// Gradio runs this as a function of (element, trigger, props, server, watch).
'use strict';

const LOOK_MS = 10000;
const STORED = 'workbench-notifications';
const BLOCKED = 'This browser blocks notifications of this page: allow them in its settings for this site.';
const UNANSWERED = 'Nothing is sent before this browser was answered that it may show notifications: switch it on again.';
const MISSING = 'This browser shows notifications of https pages and of localhost only.';
const box = make('input', { type: 'checkbox', id: 'notify-me' });
const problem = make('p', { className: 'problem', role: 'status', hidden: true });
element.replaceChildren(make('div', { className: 'notifications' },
  make('label', { title: 'A desktop notification when a run ends or fails while this page is in the background' }, box, 'Notify me of ended runs'), problem));
let known = null; // name -> how it stood at the last look; nothing is told of what was over before the first one
let timer = 0;

function tell(one) {
  const made = new window.Notification(one.title, { body: one.text, tag: `${one.name} ${one.mark}` });
  made.onclick = () => {
    window.focus();
    trigger('open', { name: one.name });
    made.close();
  };
}

async function look() {
  const found = await server.run_ends({});
  if (!found?.runs || !box.checked) return;
  if (known && document.visibilityState === 'hidden') {
    for (const one of found.runs) if (one.over && known.get(one.name) !== one.mark) tell(one);
  }
  known = new Map(found.runs.map((one) => [one.name, one.mark]));
}

function show(text) {
  set(problem, text);
  problem.hidden = !text;
}

async function follow(on, ask = true) {
  clearInterval(timer);
  known = null;
  let allowed = on && (window.Notification ? window.Notification.permission : 'missing');
  if (allowed === 'default' && ask) allowed = await window.Notification.requestPermission();
  box.checked = allowed === 'granted';
  show({ denied: BLOCKED, default: UNANSWERED, missing: MISSING }[allowed] ?? '');
  if (box.checked) localStorage.setItem(STORED, 'on');
  else localStorage.removeItem(STORED);
  if (!box.checked) return;
  look();
  timer = setInterval(look, LOOK_MS);
}

box.addEventListener('change', () => follow(box.checked));
if (localStorage.getItem(STORED)) follow(true, false); // what was taken back meanwhile is said; only a person's click asks
