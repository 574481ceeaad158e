// What the elements define, for tests of their logic: `elements(['fuzzy', 'duration'])` returns them. The files are one text, as
// in the browser, over the little of a browser that they need to be read; what draws is tested in a real one (tests/browser).
import { readFileSync } from 'node:fs';

const FOLDER = new URL('../../assets/elements/', import.meta.url);

export function elements(names) {
  const files = readFileSync(new URL('order.txt', FOLDER), 'utf8').split(/\s+/).filter((name) => name && name !== 'start');
  const text = files.map((name) => readFileSync(new URL(`${name}.js`, FOLDER), 'utf8')).join('\n');
  const nothing = { observe() {}, unobserve() {}, disconnect() {} };
  const given = {
    HTMLElement: class {}, customElements: { define() {}, get() {} }, IntersectionObserver: function IntersectionObserver() { return nothing; },
    ResizeObserver: function ResizeObserver() { return nothing; }, window: { matchMedia: () => ({ matches: false }), addEventListener() {}, location: { hash: '' } },
    document: { addEventListener() {}, dispatchEvent() {} }, localStorage: { getItem: () => null }, sessionStorage: { getItem: () => null },
  };
  return new Function(...Object.keys(given), `'use strict';\n${text}\nreturn {${names.join(', ')}};`)(...Object.values(given));
}
