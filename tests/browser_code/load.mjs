// The functions of an assets/NAME.logic.js, which is served as plain script without exports.
import { readFileSync } from 'node:fs';

export function load(name, ...functions) {
  const code = readFileSync(new URL(`../../assets/${name}.logic.js`, import.meta.url), 'utf8');
  return new Function(`${code}\nreturn { ${functions.join(', ')} };`)();
}
