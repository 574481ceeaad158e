// What assets/find_settings.js computes without the page: which settings match a search.
'use strict';

// Names of the settings whose text has every word; texts: name -> lower-case text.
function matchingSettings(texts, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return Object.keys(texts).filter((name) => words.every((word) => texts[name].includes(word)));
}

// The result of a search. shown: how many of `matching` have an effect now.
function searchResult(search, matching, shown, all) {
  if (!matching) return `No setting is called “${search.trim()}”.`;
  const left = matching - shown;
  const without = left ? `, and ${left} more that ${left === 1 ? 'has' : 'have'} no effect with the others as they are` : '';
  return `${shown} of ${all} settings${without}`;
}
