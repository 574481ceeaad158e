// What a repair of a LoRA found: effect and drift before and after, and the map of what each block changes.

// found: the repair of a job on LoRAs
class Repair extends WorkbenchElement {
  static properties = ['found'];

  view() {
    const { found } = this;
    const [before] = found.singles;
    const most = Math.max(before.drift, found.after.drift, 1e-9);
    const source = lorasScale(found.source)[0];
    return html`<div class="repair-bars">${this.bars('Effect on its own prompts', [['Before', before.effect], ['Repaired', found.after.effect]], Math.max(1, found.after.effect))}${
      this.bars('Drift of other prompts', [['Before', before.drift], ['One strength', found.beside], ['Repaired', found.after.drift]], most)}</div>
      ${found.lora && html`<div class="row">${linkTo('Sample both', address('compare', 'new', source, found.lora), { kind: 'small' })}</div>`}
      ${this.map(found)}
      <p class="fine faint">Measured on ${count(found.prompts.length, 'own prompt')} and ${count(found.others.length, 'other prompt')} that the repair has not seen. The map shows the LoRA before the repair.</p>`;
  }

  bars(title, rows, most) {
    return html`<section aria-label="${title}"><h3>${title}</h3><ul>${rows.map(([label, value]) => html`<li class="${label === 'Repaired' && 'new'}"><span class="faint">${label}</span><span class="meter"><i style="width:${
      Math.max(0, (100 * value) / most).toFixed(1)}%"></i></span><span class="right">${percent(value)}</span></li>`)}</ul></section>`;
  }

  map({ levels, rows }) {
    const kinds = [['effect', 'Effect'], ['drift', 'Drift']];
    const most = Object.fromEntries(kinds.map(([kind]) => [kind, Math.max(1e-9, ...rows.flatMap((row) => row[kind]))]));
    const cell = (kind, title, row, value, at) => html`<td class="${kind === 'drift' && at === 0 && 'apart'}" style="--heat:${((50 * Math.max(0, value)) / most[kind]).toFixed(0)}%" title="${row.title}, noise level ${levels[at]}: ${title.toLowerCase()} ${(100 * value).toFixed(1)}%">${percent(value)}</td>`;
    return html`<div class="table-frame"><table class="table heat"><caption class="faint fine">What each block changes, by noise level</caption>
      <thead><tr><td></td>${kinds.map(([, title]) => html`<th scope="colgroup" colspan="${levels.length}">${title}</th>`)}</tr><tr><td></td>${
      kinds.map(() => levels.map((level) => html`<th scope="col">${level}</th>`))}</tr></thead>
      <tbody>${rows.map((row) => html`<tr><th scope="row">${capital(row.title)}</th>${kinds.map(([kind, title]) => row[kind].map((value, at) => cell(kind, title, row, value, at)))}</tr>`)}</tbody></table></div>`;
  }
}
define('wb-repair', Repair);
