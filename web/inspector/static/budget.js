// Shows how full the context window was at each step, with both budgets, and the cost by turn,
// model, step and tool.

import { lookPath } from "./api.js";
import { length, number, usd } from "./format.js";
import { html, useState } from "./lib.js";
import { Stack, StackKey } from "./stack.js";
import { useAnswer } from "./useanswer.js";

export function Budget({ session, moment, go }) {
  const { budget } = moment;
  const { value, error } = useAnswer(`${lookPath(session.id)}/fills?at=${moment.offset}`);
  const steps = value?.steps ?? [];
  const newest = steps.at(-1);
  const share = Math.round((100 * budget.planned) / Math.max(1, budget.hard));
  const most = Math.max(1, ...steps.map((step) => step.tokens), budget.planned);
  const scale = most > 0.5 * budget.soft ? Math.max(budget.hard, most) : Math.max(most, 1);
  const marks = scale >= budget.soft
    ? [{ at: (100 * budget.soft) / scale, kind: "soft" }, { at: (100 * budget.hard) / scale, kind: "hard" }] : [];
  return html`
    <div class="stack">
      <div><h2>The window is ${share < 1 ? "less than 1" : share} % full</h2>
        <p class="lead num">The next request has about ${number(budget.planned)} of ${number(budget.hard)} tokens.
          ${" "}A summary is made at ${number(budget.soft)}.</p></div>
      ${error && html`<p class="bad" role="alert">${error}</p>`}
      ${newest && html`<div><h3 class="sub">What fills the request of step ${newest.step}</h3>
        <${Stack} parts=${newest.parts} label=${`Request of step ${newest.step}`} />
        <${StackKey} parts=${newest.parts} /></div>`}
      ${steps.length > 0 && html`<div>
        <h3 class="sub">Tokens per model call${value.earlier ? `, the newest ${steps.length}` : ""}</h3>
        <div class="bars">${steps.map((step) => html`
          <button key=${step.offset} class="bar-row" onClick=${() => go(session.id, step.offset)}
            aria-label=${`Step ${step.step}: about ${number(step.tokens)} tokens. Go to that instant`}>
            <span class="dim num">${step.step}</span>
            <${Stack} parts=${step.parts} label=${`Step ${step.step}`} width=${(100 * step.tokens) / scale}
              marks=${marks} />
            <span class="num">${number(step.tokens)}</span></button>`)}</div>
        <p class="foot">${marks.length ? "The lines are the soft and the hard budget."
          : `The bars are far below both budgets: ${number(budget.soft)} and ${number(budget.hard)} tokens.`
        }</p></div>`}
      <div><h3 class="sub">Left out of the request</h3>
        <p class="dim">${leftOut(budget)}</p></div>
      <dl class="kv num"><dt>Fixed prefix</dt><dd>${number(budget.prefix)}</dd>
        <dt>Counted last step</dt><dd>${number(budget.last_step)}</dd>
        <dt>Strategy</dt><dd>${budget.strategy}</dd>
        <dt>Summary ready</dt><dd>${budget.candidate ? "yes" : "no"}</dd></dl>
    </div>
  `;
}

function leftOut({ left_out, fragments, shown_short, large_results }) {
  const parts = [];
  if (left_out) parts.push(`${number(left_out)} of ${number(fragments)} parts of the conversation`);
  if (shown_short) parts.push(`the full text of ${number(shown_short)} of ${number(large_results)} large results`);
  return parts.length ? `${parts.join(", and ")}.` : "Nothing: the model sees the whole conversation.";
}

const BY = ["turn", "step", "model", "tool"];

export function Cost({ session, moment, go }) {
  const { value: ledger, error } = useAnswer(`${lookPath(session.id)}/cost?at=${moment.offset}`);
  const [by, setBy] = useState("turn");
  return html`
    <div class="stack">
      <div><h2>${usd(moment.cost.usd, moment.cost.unpriced)} so far</h2>
        <p class="lead">${ledger ? saving(ledger) : " "}</p></div>
      ${error && html`<p class="bad" role="alert">${error}</p>`}
      ${ledger && html`
        <span class="seg" role="group" aria-label="By">${BY.map((name) => html`
          <button key=${name} aria-pressed=${String(by === name)} onClick=${() => setBy(name)}>By ${name}</button>`)
        }</span>
        <div class="wide" tabindex="0">${by === "tool" ? html`<${Tools} rows=${ledger.tools} />`
          : html`<${Table} by=${by} ledger=${ledger} go=${go} session=${session} />`}</div>
        <p class="foot">Tokens as counted by the provider; prices as of ${ledger.prices}. The bill may differ.
          ${ledger.unpriced_models.length > 0 && html` No known price for
            <bdi>${ledger.unpriced_models.join(", ") || "an unnamed model"}</bdi>.`}</p>`}
    </div>
  `;
}

/** The effect of prompt caching on the cost of the input, as a sentence. */
function saving({ caching, total }) {
  const read = total.input_tokens + total.cache_read_tokens + total.cache_write_5m_tokens + total.cache_write_1h_tokens;
  const hit = read ? Math.round((100 * total.cache_read_tokens) / read) : 0;
  const words = `${hit} % of what was read came from the cache.`;
  if (caching.saved === null) return words;
  const share = `${Math.round(100 * Math.abs(caching.saved))} %`;
  const costs = `${usd(caching.input_usd)} instead of ${usd(caching.input_uncached_usd)}`;
  return `${words} Prompt caching ${caching.saved < 0 ? "added" : "saved"} ${share} of the input cost: ${costs}.`;
}

function rowsBy(by, ledger) {
  const turnOf = (row) => (row.turn === null ? "background" : `turn ${row.turn}`);
  const placeOf = (row) => `${row.turn}.${row.step}${row.attempt > 1 ? `, attempt ${row.attempt}` : ""}`;
  if (by === "turn") return ledger.turns.map((row) => ({ ...row, name: turnOf(row) }));
  if (by === "model") return ledger.models.map((row) => ({ ...row, name: row.model || "unknown" }));
  return ledger.spent.map((row) => ({
    ...row, unpriced: row.usd === null ? 1 : 0, attempts: 1,
    name: row.kind === "background" ? row.work : placeOf(row),
    note: row.outcome === "complete" ? "" : row.outcome,
  }));
}

function Table({ by, ledger, go, session }) {
  const rows = rowsBy(by, ledger).slice(-200);
  const heads = [by, "read", "cached", "written", "cost"];
  return html`
    <table class="tbl">
      <thead><tr>${heads.map((name) => html`
        <th scope="col">${name[0].toUpperCase()}${name.slice(1)}</th>`)}</tr></thead>
      <tbody>${rows.map((row, n) => html`<tr key=${n}>
        <th scope="row">${row.offset
          ? html`<button class="link" onClick=${() => go(session.id, row.offset)}>${row.name}</button>`
          : html`<bdi>${row.name}</bdi>`}${row.note ? html` <span class="bad">${row.note}</span>` : ""}</th>
        <${Tokens} row=${row} /></tr>`)}</tbody>
      <tfoot><tr><th scope="row">all ${ledger.total.attempts}</th><${Tokens} row=${ledger.total} /></tr></tfoot>
    </table>
  `;
}

const Tokens = ({ row }) => html`
  <td>${number(row.input_tokens + row.cache_write_5m_tokens + row.cache_write_1h_tokens + row.cache_read_tokens)}</td>
  <td>${number(row.cache_read_tokens)}</td><td>${number(row.output_tokens)}</td><td>${usd(row.usd, row.unpriced)}</td>
`;

/** The tools with the tokens of their results. Tools have no price, but every later request
    reads their results. */
const Tools = ({ rows }) => html`
  <table class="tbl"><thead><tr><th scope="col">Tool</th><th scope="col">Calls</th><th scope="col">Time</th>
    <th scope="col">Tokens of results</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.tool}><th scope="row"><code>${row.tool}</code></th>
      <td>${number(row.calls)}</td><td>${length(row.ms)}</td><td>${number(row.tokens)}</td></tr>`)}</tbody></table>
  ${!rows.length && html`<p class="none">No call of a tool had ended.</p>`}
`;
