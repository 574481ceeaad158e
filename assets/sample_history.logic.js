// What assets/sample_history.js computes without the page: the pager of {page, size, matching, samples}.
'use strict';

function pager(found) {
  const first = found.page * found.size;
  return {
    text: found.matching ? `${first + 1} to ${first + found.samples.length} of ${found.matching}` : '',
    newer: found.page > 0,
    older: first + found.size < found.matching,
    needed: found.matching > found.size,
  };
}
