// How full the context window was, and the cost: numbers from the folds, drawn over the model
// calls.

import { get, lookPath } from "./api.js";
import { Chart } from "./chart.js";
import { number, usd } from "./format.js";
import { html, useEffect, useState } from "./lib.js";

/** The response of a path, fetched again when it changes; the previous one stays until then. */
export function useAnswer(path, again = null) {
  const [answer, setAnswer] = useState({ value: null, error: "" });
  useEffect(() => {
    if (path === null) return undefined;
    const stop = new AbortController();
    get(path, stop.signal).then(
      (value) => setAnswer({ value, error: "" }),
      (error) => {
        if (error.name !== "AbortError") setAnswer({ value: null, error: error.message });
      },
    );
    return () => stop.abort();
  }, [path, again]);
  return answer;
}

const useSeries = (session, moment) =>
  useAnswer(`${lookPath(session.id)}/series`, moment.count).value;

export function Budget({ session, moment, go }) {
  const { budget } = moment;
  const series = useSeries(session, moment);
  const column = (name) => series.rows.map((row) => row[series.fields.indexOf(name)]);
  return html`
    <h2>Context budget</h2>
    <${Bar} budget=${budget} />
    <dl class="facts">
      <dt>next request, estimated</dt><dd class="num">${number(budget.planned)}</dd>
      <dt>static prefix</dt><dd class="num">${number(budget.prefix)}</dd>
      <dt>last request, estimated</dt><dd class="num">${number(budget.last_request)}</dd>
      <dt>last step, counted by the provider</dt><dd class="num">${number(budget.last_step)}</dd>
      <dt>soft budget</dt><dd class="num">${number(budget.soft)}</dd>
      <dt>hard cap</dt><dd class="num">${number(budget.hard)}</dd>
      <dt>strategy</dt><dd>${budget.strategy}</dd>
      <dt>parts of the conversation</dt>
      <dd class="num">${number(budget.fragments)}, ${number(budget.left_out)} left out</dd>
      <dt>large results in short form</dt>
      <dd class="num">${budget.shown_short} of ${budget.large_results}</dd>
      <dt>summary ready</dt><dd>${budget.candidate ? "yes" : "no"}</dd>
    </dl>
    <h2>Tokens per model call</h2>
    ${series && series.rows.length > 0 && html`<${Chart}
      label="Tokens per model call, over offsets"
      x=${column("offset")}
      lines=${[
        ["estimated", "--mark-model", column("estimated")],
        ["counted", "--mark-tool", column("counted")],
        ["soft budget", "--mark-person", column("soft")],
      ]}
      here=${moment.offset}
      choose=${(offset) => go(session.id, offset)}
    />`}
  `;
}

function Bar({ budget }) {
  const full = Math.max(budget.hard, budget.planned, 1);
  const part = (tokens) => `${Math.min(100, (100 * tokens) / full)}%`;
  const label = `${number(budget.planned)} of ${number(budget.hard)} tokens, soft budget ${number(budget.soft)}`;
  return html`
    <div class="bar" role="img" aria-label=${label}>
      <i class=${budget.planned > budget.soft ? "used over" : "used"}
        style=${{ width: part(budget.planned) }}></i>
      <i class="prefix" style=${{ width: part(budget.prefix) }}></i>
      <i class="soft" style=${{ left: part(budget.soft) }}></i>
    </div>
    <p class="muted num">${label}</p>
  `;
}

export function Cost({ session, moment, go }) {
  const series = useSeries(session, moment);
  const { value: ledger, error } = useAnswer(`${lookPath(session.id)}/cost?at=${moment.offset}`);
  const column = (name) => series.rows.map((row) => row[series.fields.indexOf(name)]);
  const known = series && column("usd").some((value) => value !== null);
  return html`
    <h2>Cost until offset ${moment.offset}: ${usd(moment.cost.usd, moment.cost.unpriced)}</h2>
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    ${known && html`<${Chart}
      label="Cost in USD so far, over offsets"
      x=${column("offset")}
      lines=${[["USD", "--mark-model", column("usd")]]}
      here=${moment.offset}
      choose=${(offset) => go(session.id, offset)}
    />`}
    ${ledger && html`
      <div class="wide" tabindex="0">
        <table>
          <thead><tr>
            ${["turn", "attempts", "input", "cache read", "output", "cost"].map((name) =>
              html`<th scope="col">${name}</th>`)}
          </tr></thead>
          <tbody>
            ${ledger.turns.slice(-200).map((row) => html`<tr>
              <th scope="row">${row.turn ?? "background"}</th>
              <${Tokens} row=${row} />
            </tr>`)}
            <tr class="total"><th scope="row">all</th><${Tokens} row=${ledger.total} /></tr>
          </tbody>
        </table>
      </div>
      ${ledger.caching.saved !== null && html`<p>${saving(ledger.caching)}</p>`}
      <p class="muted">Tokens as counted by the provider; prices as of ${ledger.prices}.
        ${ledger.unpriced_models.length > 0 && html` No known price for
          <bdi>${ledger.unpriced_models.join(", ") || "an unnamed model"}</bdi>.`}</p>
    `}
  `;
}

/** The effect of prompt caching on the cost of the input, as a sentence. */
function saving({ saved, input_usd, input_uncached_usd }) {
  const share = `${Math.round(100 * Math.abs(saved))} %`;
  const costs = `${usd(input_usd)} instead of ${usd(input_uncached_usd)}`;
  return `Prompt caching ${saved < 0 ? "added" : "saved"} ${share} of the input cost: ${costs}.`;
}

const Tokens = ({ row }) => html`
  <td>${number(row.attempts)}</td>
  <td>${number(row.input_tokens + row.cache_write_5m_tokens + row.cache_write_1h_tokens)}</td>
  <td>${number(row.cache_read_tokens)}</td>
  <td>${number(row.output_tokens)}</td>
  <td>${usd(row.usd, row.unpriced)}</td>
`;
