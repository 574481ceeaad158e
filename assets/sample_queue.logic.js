// What assets/sample_queue.js computes without the page.
'use strict';

// The line below the requests of the component's value.
function remainder(value) {
  const parts = [];
  if (value.more) parts.push(`and ${value.more} more that wait`);
  if (value.elsewhere) parts.push(`${value.elsewhere} for grids, which wait for these`);
  return parts.join('; ');
}
