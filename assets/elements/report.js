// The report of a run as one file, with the data at the time of writing (workbench/runs/report.py).

// report: {now, head, sections: [{title, parts}], made}. A part is a table, a list, text or code
class RunReport extends WorkbenchElement {
  static properties = ['report'];

  view() {
    const { now, sections, made } = this.report;
    return html`${this.head()}<wb-run-overview .now=${now} .runs=${[]}></wb-run-overview>${sections.map(({ title, parts: list }) => {
      const all = list.map((part) => this.shown(part)).filter(Boolean);
      return all.length ? html`<section class="section" aria-label="${title}"><h2>${title}</h2>${all}</section>` : '';
    })}<footer class="fine faint">${made}</footer>`;
  }

  head() {
    const { name, state: word, tone, doing, what, notes, failure, verdict, facts } = this.report.head;
    return html`<header class="section"><div class="head run-title"><h1 tabindex="-1" class="one-line" title="${name}">${name}</h1>${state(tone === 'plain' ? 'idle' : tone, capital(word), { pill: true })}${
      doing && doing !== word ? html`<span class="minor faint one-line">${doing}</span>` : ''}</div><p class="faint">${what}</p>${notes.map((one) => html`<p class="minor ${one.tone}">${one.text}</p>`)}${
      failure ? this.said('bad', failure.cause, failure.sentences, html`<details><summary class="link">The log's last lines</summary><pre class="log" tabindex="0">${failure.log}</pre></details>`) : ''}${
      verdict ? this.said(verdict.tone, verdict.claim, [verdict.evidence]) : ''}<dl class="figures">${facts.map((one) => html`<div><dt>${one.label}</dt><dd class="${one.tone}">${one.text}</dd></div>`)}</dl></header>`;
  }

  said(tone, claim, sentences, more = '') {
    const shown = tone === 'plain' ? 'idle' : tone;
    return html`<div class="verdict"><span class="${shown}">${icon(TONE_ICONS[shown])}</span><div class="text"><b class="${shown === 'bad' && 'bad'}">${claim}</b>${
      sentences.filter(Boolean).map((text) => html`<p class="faint">${text}</p>`)}${more}</div></div>`;
  }

  shown({ title, folded, heads, rows, list, text, code }) {
    if (!(rows?.length || list?.length || text || code)) return '';
    const shown = rows ? html`<div class="table-frame" tabindex="0"><table class="table">${heads.length ? html`<thead><tr>${heads.map((head) => html`<th scope="col">${capital(head)}</th>`)}</tr></thead>` : ''}<tbody>${
      rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`
      : list ? html`<ul class="sentences">${list.map((one) => html`<li>${one}</li>`)}</ul>` : text ? html`<p class="minor">${text}</p>` : html`<pre class="log" tabindex="0">${code}</pre>`;
    if (folded) return html`<details class="section"><summary class="link">${title}</summary>${shown}</details>`;
    return html`${title && html`<h3>${title}</h3>`}${shown}`;
  }
}
define('wb-report', RunReport);
