// What assets/sweep.js computes without the page: SETTING=VALUE,VALUE texts, as `workbench train --sweep` takes them.
'use strict';

const sweepText = (name, values) => `${name}=${values.trim()}`;

// "rank=8, 16" -> {name: "rank", values: "8, 16"}
function sweepParts(text) {
  const at = text.indexOf('=');
  return at < 0 ? { name: text, values: '' } : { name: text.slice(0, at), values: text.slice(at + 1) };
}

// A value as a comma may stand in it: in double quotes, those in it doubled.
const quoted = (value) => (/[",]|^\s|\s$/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

// The values of a text, without their quotes.
function listedValues(text) {
  return [...text.matchAll(/\s*(?:"((?:[^"]|"")*)"|([^,]*))(?:,|$)/g)]
    .map(([, inside, plain]) => (inside === undefined ? plain.trim() : inside.replaceAll('""', '"'))).filter(Boolean);
}

// The setting of a label or a key, as a person types it.
function settingOf(settings, text) {
  const wanted = text.trim().toLowerCase();
  return settings.find((one) => one.title.toLowerCase() === wanted || one.name === wanted.replaceAll('-', '_')) ?? null;
}

// What a field holds, as a person would say it.
function valueText(value) {
  if (value === null || value === undefined || value === '' || (Array.isArray(value) && !value.length)) return 'none';
  if (typeof value === 'boolean') return value ? 'on' : 'off';
  return Array.isArray(value) ? value.join(' / ') : String(value);
}
