// Compares two offsets of the session: their views, and the common beginning of their requests.

import { lookPath } from "./api.js";
import { useAnswer } from "./budget.js";
import { number } from "./format.js";
import { html, useEffect } from "./lib.js";

export function Compare({ session, moment, mark, setMark, go }) {
  const here = moment.offset;
  const previous = session.events[Math.max(0, session.placeAt(here) - 1)]?.offset;
  useEffect(() => {
    if (mark === null && previous !== undefined) setMark(previous);
  }, [mark, previous]);
  const [before, after] = mark === null ? [here, here] : [Math.min(mark, here), Math.max(mark, here)];
  const path = mark === null
    ? null
    : `${lookPath(session.id)}/compare?before=${before}&after=${after}`;
  const { value, error } = useAnswer(path);
  const set = (event) => {
    event.preventDefault();
    const wanted = Number(new FormData(event.target).get("mark"));
    if (Number.isInteger(wanted) && wanted >= 0) setMark(wanted);
  };
  return html`
    <h2>Compare offset ${before} with ${after}</h2>
    <form class="row" onSubmit=${set}>
      <label for="mark">Compare with offset</label>
      <input key=${mark} id="mark" name="mark" class="num" inputmode="numeric" pattern="[0-9]+"
        required defaultValue=${mark ?? here} />
      <button>Set</button>
      <button type="button" onClick=${() => setMark(here)}>Use this offset</button>
      <button type="button" disabled=${mark === null}
        onClick=${() => { setMark(here); go(session.id, mark); }}>Swap</button>
    </form>
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    ${value && html`<${Found} found=${value} />`}
  `;
}

function Found({ found }) {
  const { differences, requests } = found;
  return html`
    <p class="muted">${counted(found.events, "event")} apart;${" "}
      ${counted(differences.length, "difference")} in the views.</p>
    ${requests && html`<${Requests} requests=${requests} />`}
    <ul class="differences">
      ${differences.map((found, n) => html`
        <li key=${n} class=${found.kind}>
          <code class="path"><bdi>${found.path}</bdi></code> <span class="muted">${found.kind}</span>
          ${found.before && html`<pre class="before" aria-label="Before">${found.before}</pre>`}
          ${found.after && html`<pre class="after" aria-label="After">${found.after}</pre>`}
        </li>
      `)}
    </ul>
  `;
}

const counted = (count, name) => `${number(count)} ${name}${count === 1 ? "" : "s"}`;

function Requests({ requests }) {
  const [one, other] = requests.sha256;
  const [, size] = requests.bytes;
  if (one === other) return html`<p>Both offsets have the same request, of step ${requests.steps[0]}.</p>`;
  return html`
    <details>
      <summary>The requests of ${requests.steps.join(" and ")} share their first
        ${number(requests.same_bytes)} of ${number(size)} bytes</summary>
      <pre class="before" aria-label="Before">${requests.then[0]}</pre>
      <pre class="after" aria-label="After">${requests.then[1]}</pre>
    </details>
  `;
}
