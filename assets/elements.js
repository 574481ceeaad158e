// What the browser's halves of the page's components share; stands before each of them (workbench/ui/core/render.py, script).
'use strict';

// An element with properties and children; `role` and `label` (for people who cannot see it) are attributes.
const make = (tag, properties = {}, ...children) => {
  const { role, label, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  if (role) made.setAttribute('role', role);
  if (label) made.setAttribute('aria-label', label);
  made.append(...children);
  return made;
};
