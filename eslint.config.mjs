// Rules for the browser code in assets/elements.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import js from '@eslint/js';

const ASSETS = new URL('assets/', import.meta.url);
const DEFINITION = /^(?:async )?(?:function\*?|const|let|class) (\w+)/gm;
const readonly = (names) => Object.fromEntries(names.map((name) => [name, 'readonly']));
const defined = (file) => (existsSync(new URL(file, ASSETS))
  ? [...readFileSync(new URL(file, ASSETS), 'utf8').matchAll(DEFINITION)].map((match) => match[1]) : []);

const BROWSER = readonly([
  'window', 'document', 'navigator', 'location', 'localStorage', 'getComputedStyle', 'console', 'URL', 'CSS', 'Image', 'Event',
  'CustomEvent', 'KeyboardEvent', 'Element', 'HTMLElement', 'Node', 'MutationObserver', 'ResizeObserver', 'IntersectionObserver',
  'setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'requestAnimationFrame', 'cancelAnimationFrame', 'fetch', 'performance',
]);
const MORE = readonly([
  'atob', 'customElements', 'sessionStorage', 'queueMicrotask', 'EventSource', 'XMLHttpRequest', 'FormData', 'File', 'Blob', 'Notification', 'structuredClone',
]);
const ELEMENTS = readFileSync(new URL('elements/order.txt', ASSETS), 'utf8').split(/\s+/).filter(Boolean);
const languageOptions = (globals) => ({ ecmaVersion: 2024, sourceType: 'script', globals });
const definesForOthers = { 'no-unused-vars': ['error', { vars: 'local' }] };

export default [
  { files: ['assets/elements/*.js', 'tests/browser_code/*.mjs', '*.mjs'], ...js.configs.recommended },
  // The elements are one text in the order of order.txt: whatever an earlier file defines is known in a later one.
  ...ELEMENTS.map((name, index) => ({
    files: [`assets/elements/${name}.js`],
    languageOptions: languageOptions({ ...BROWSER, ...MORE, ...readonly(ELEMENTS.slice(0, index).flatMap((one) => defined(`elements/${one}.js`))) }),
    rules: { eqeqeq: 'error', 'no-var': 'error', 'prefer-const': 'error', 'no-eval': 'error', ...definesForOthers },
  })),
  // Within a notebook's frame, which has all others but the page's start, and around it.
  {
    files: ['assets/elements/notebook.js'],
    languageOptions: languageOptions({ ...BROWSER, ...MORE, ...readonly(ELEMENTS.flatMap((one) => defined(`elements/${one}.js`))) }),
    rules: { eqeqeq: 'error', 'no-var': 'error', 'prefer-const': 'error', 'no-eval': 'error' },
  },
  {
    files: ['assets/elements/notebook_host.js'],
    languageOptions: languageOptions({ ...BROWSER, ...readonly(['crypto', 'Uint32Array', 'PAGE']) }),
    rules: { 'no-unused-vars': ['error', { vars: 'local', varsIgnorePattern: '^_' }] },
  },
  {
    files: ['tests/browser_code/*.mjs', '*.mjs'],
    languageOptions: { ecmaVersion: 2024, sourceType: 'module', globals: readonly(['URL', 'console']) },
  },
];
