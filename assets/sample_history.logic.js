// What assets/sample_history.js computes without the page.
'use strict';

// The pager of {page, size, matching, samples}.
function pager(found) {
  const first = found.page * found.size;
  return {
    text: found.matching ? `${first + 1} to ${first + found.samples.length} of ${found.matching}` : '',
    newer: found.page > 0,
    older: first + found.size < found.matching,
    needed: found.matching > found.size,
  };
}

// Days as a date field writes them ("2026-11-23", "" for none) as the seconds at which the first begins and the last ends.
function between(from, to) {
  const midnight = (day) => { const [year, month, date] = day.split('-').map(Number); return new Date(year, month - 1, date); };
  const bounds = {};
  if (from) bounds.since = midnight(from) / 1000;
  if (to) { const end = midnight(to); end.setDate(end.getDate() + 1); bounds.until = end / 1000; }
  return bounds;
}

// Which card has the focus next: `ids` of all, the one it leaves, a key, and how many stand in a row.
function neighbour(ids, from, key, columns) {
  const at = ids.indexOf(from);
  const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - columns, ArrowDown: at + columns, Home: 0, End: ids.length - 1 };
  return key in steps ? ids[steps[key]] ?? from : null;
}

// The chosen ids after `id` is switched, with all between it and the last one switched (`anchor`) for Shift.
function choosing(chosen, ids, id, on, anchor) {
  const after = new Set(chosen);
  const [first, last] = anchor && ids.includes(anchor) ? [ids.indexOf(anchor), ids.indexOf(id)].sort((a, b) => a - b) : [ids.indexOf(id), ids.indexOf(id)];
  for (const one of ids.slice(first, last + 1)) after[on ? 'add' : 'delete'](one);
  return after;
}
