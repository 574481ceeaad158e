// Before Gradio starts (in the page's head, after its configuration): which tab opens. Gradio builds the tab that its
// configuration names. A person mostly comes back to another one, which it then built after the first, and in vain.
// workbench/ui/app.py runs this as a function of (props): the tabs that may open, and the key of the browser's memory.
'use strict';

const address = new URL(location.href);
const wanted = address.searchParams.get('tab');
if (props.tabs.includes(wanted)) { // once: a reload comes back to where a person went since
  localStorage.setItem(props.key, wanted);
  address.searchParams.delete('tab');
  window.history.replaceState(window.history.state, '', address);
}
const kept = localStorage.getItem(props.key);
window.workbenchFirstTab = props.tabs.includes(kept) ? kept : props.tabs[0];
const tabs = window.gradio_config?.components.find((one) => one.props.elem_id === 'main-tabs');
if (tabs) tabs.props.selected = window.workbenchFirstTab;
