// Elements with embedded data: an exported grid or report is one file that needs no server. The data are in
// <script type="application/json" id="wb-data">, each file as base64 in <script type="text/plain" id="its name">.

class DataInside {
  // answers: answers of operations by their call, such as '["runs/show",{"name":"cats"}]'
  constructor(answers = {}) {
    this.answers = answers;
    this.addresses = new Map();
  }

  async call(operation, values = {}) {
    const key = JSON.stringify([operation, values]);
    if (key in this.answers) return this.answers[key];
    throw new Problem('This exported file cannot show more or change anything. Open the workbench instead.');
  }

  watch(operation, values, got, failed) {
    this.call(operation, values).then(got, failed);
    return () => {};
  }

  async file(name) {
    if (!this.addresses.has(name)) {
      const bytes = Uint8Array.from(atob(document.getElementById(name).textContent), (letter) => letter.charCodeAt(0));
      this.addresses.set(name, URL.createObjectURL(new Blob([bytes], { type: name.endsWith('.png') ? 'image/png' : 'video/mp4' })));
    }
    return this.addresses.get(name);
  }
}

// Show the file's data: {element, properties, answers}.
function showExported(root) {
  const { element, properties, answers } = JSON.parse(document.getElementById('wb-data').textContent);
  page.transport = new DataInside(answers);
  const shown = document.createElement(element);
  Object.assign(shown, properties);
  const spoken = Object.assign(document.createElement('div'), { id: 'wb-say', className: 'unseen', ariaLive: 'polite' });
  root.append(shown, spoken);
  document.addEventListener('keydown', (event) => {
    if (!isTyped(event) && (shown.press?.(event.key) || playKey(root.querySelector('wb-scrubber'), event))) event.preventDefault();
  });
}
