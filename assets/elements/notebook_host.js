// The widget of a notebook: the elements in an iframe, which separates their styles, keys and addresses from the notebook's.
// anywidget calls `render`, and the kernel answers through the widget's messages (workbench/notebook/widget.py). `PAGE`, the frame's
// document, is defined before this text. Address and drafts go to the kernel as messages, too: `save_changes` may hold a change back
// until an earlier one is confirmed, and a cell that runs meanwhile would miss what was typed.

// Whether the background of a node is dark, in any program that shows the notebook.
function standsOnDark(node) {
  for (let one = node; one; one = one.parentElement ?? one.getRootNode().host) {
    const [red, green, blue, alpha = 1] = getComputedStyle(one).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    if (alpha > 0.5) return 0.3 * red + 0.6 * green + 0.1 * blue < 128;
  }
  return false;
}

const views = new Set(); // of this browser tab; others may show the same model

function render({ model, el }) {
  const view = crypto.getRandomValues(new Uint32Array(2)).join('-');
  views.add(view);
  const frame = Object.assign(document.createElement('iframe'), { title: model.get('label'), srcdoc: PAGE });
  frame.style.cssText = 'display:block;width:100%;height:240px;border:0;border-radius:6px';
  let inside = null;
  let typing = false;
  const keep = (name, value) => { model.set(name, value); model.send({ state: { [name]: value }, view }); };
  const host = {
    address: () => model.get('address'),
    moved: (address) => keep('address', address),
    draft: (name) => model.get('drafts')[name],
    keep: (name, values) => {
      const { [name]: _, ...others } = model.get('drafts');
      typing = true;
      keep('drafts', values ? { ...others, [name]: JSON.parse(JSON.stringify(values)) } : others);
      typing = false;
    },
    send: (message, buffers) => model.send({ ...message, view }, undefined, buffers),
    grown: (height) => { frame.style.height = `${Math.min(height, model.get('height'))}px`; },
  };
  const heard = (message, buffers) => {
    if (message.asked) model.send({ asked: message.asked, view });
    else if (message.state) {
      if (!views.has(message.by)) for (const [name, value] of Object.entries(message.state)) model.set(name, value);
    } else if (!message.view || message.view === view) inside?.heard(message, buffers);
  };
  const moved = () => inside?.go(model.get('address'));
  const drafts = () => { if (!typing) inside?.drafted(); };
  const themed = () => inside?.theme(standsOnDark(el));
  model.on('msg:custom', heard);
  model.on('change:address', moved);
  model.on('change:drafts', drafts);
  const observer = new MutationObserver(themed);
  for (const node of [document.documentElement, document.body]) observer.observe(node, { attributes: true });
  // A frame that is moved in the notebook loads again. The model keeps its address and drafts.
  frame.addEventListener('load', () => { inside = frame.contentWindow.workbench(host); themed(); });
  el.append(frame);
  return () => {
    observer.disconnect();
    model.off('msg:custom', heard);
    model.off('change:address', moved);
    model.off('change:drafts', drafts);
    views.delete(view);
    model.send({ view, gone: true });
  };
}
