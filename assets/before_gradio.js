/* global OPEN_TAB, LAST_RUN, CURVES -- ui/before_gradio.py puts them in front */
// Before Gradio starts: in the page's head, after its configuration, which is made less work here.
'use strict';

const { components = [], dependencies = [] } = window.gradio_config ?? {};
const propsOf = (id) => components.find(({ props }) => props.elem_id === id)?.props;

// Gradio looks through all listeners for each component, half a million times for this page, and each look at an observed
// object costs. Svelte observes plain objects alone, and the listeners never change: as objects of a class they are read
// as they are.
class Listener {}
for (const one of dependencies) Object.setPrototypeOf(one, Listener.prototype);

// The tab of before is opened at once, not the first one and then that one.
let open = new URL(location.href).searchParams.get('tab');
try { open ??= localStorage.getItem(OPEN_TAB); } catch { /* the browser keeps nothing */ }
const tabs = propsOf('main-tabs');
if (tabs && propsOf(`tab-${open}`)) tabs.selected = open;

// The curves of a run come while the browser builds the page, which takes it longer, and are there with the first that is
// painted (ui/train/curves.py). Gradio itself asks for what is in a tab once the tab is there.
let run = null;
try { run = localStorage.getItem(LAST_RUN); } catch { /* they come with the tab */ }
const details = propsOf('run-details');
if (CURVES && details && open === 'train' && run !== null) {
  details.visible = true;
  window.workbenchCurves = fetch(`${CURVES}?run=${encodeURIComponent(run)}`)
    .then((answer) => (answer.ok ? answer.text() : ''))
    .catch(() => '');
}
