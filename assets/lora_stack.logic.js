// What assets/lora_stack.js computes without the page: NAME=SCALE texts, and the groups of the picker.
'use strict';

// "ring=0.8" -> {name: "ring", scale: 0.8}; the scale is 1 where there is none.
function parseLora(text) {
  const at = text.lastIndexOf('=');
  const scale = at > 0 ? Number(text.slice(at + 1)) : NaN;
  if (!Number.isFinite(scale) || !text.slice(at + 1).trim()) return { name: text, scale: 1 };
  return { name: text.slice(0, at), scale };
}

const formatLora = ({ name, scale }) => (scale === 1 ? name : `${name}=${scale}`);

// The choice {name, title, group} of a LoRA; a run may be named without "runs/".
const choiceOf = (choices, name) => choices.find((one) => one.name === name || one.name === `runs/${name}`);

// Choices by group, in the order of their first members.
function grouped(choices) {
  const groups = new Map();
  for (const one of choices) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  return groups;
}
