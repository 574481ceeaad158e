// What assets/lora_library.js computes without the page: which LoRAs match, in which order.
'use strict';

const SORTS = {
  new: ['Newest first', (a, b) => b.created - a.created],
  name: ['By name', (a, b) => a.title.localeCompare(b.title)],
  rank: ['Highest rank first', (a, b) => b.rank - a.rank],
  steps: ['Most steps first', (a, b) => b.steps - a.steps],
  size: ['Largest first', (a, b) => b.bytes - a.bytes],
};

// Whether a LoRA matches {text, base, checkpoints}; a chosen checkpoint is shown in any case.
function matches(lora, query, chosen) {
  if (lora.run && !query.checkpoints && !chosen.has(lora.name)) return false;
  if (query.base && lora.base !== query.base) return false;
  const words = query.text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const text = [lora.title, lora.name, lora.trigger, lora.base, ...lora.flags].join(' ').toLowerCase();
  return words.every((word) => text.includes(word));
}

function countText(matching, chosen) {
  if (chosen) return `${chosen} chosen`;
  return matching === 1 ? '1 LoRA' : `${matching} LoRAs`;
}

function sameChoice(names, chosen) {
  return (names ?? []).length === chosen.size && (names ?? []).every((name) => chosen.has(name));
}

// The chosen names that still exist and that the page still has chosen.
function keptChoice(loras, wanted) {
  const known = new Set(loras.map((lora) => lora.name));
  return new Set([...wanted ?? []].filter((name) => known.has(name)));
}
