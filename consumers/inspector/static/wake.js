// The rows of the WAKE table that matched at the moment, and why: what was owed, by whom.

import { date } from "./format.js";
import { html } from "./lib.js";

export function Wake({ moment }) {
  return html`
    <h2>Owed right after offset ${moment.offset}</h2>
    ${!moment.wake.length && html`<p class="none">Nothing. The session was: ${moment.status}.</p>`}
    <ul class="wake">
      ${moment.wake.map((row) => html`
        <li key=${`${row.row}.${row.subject}`}>
          <b class="num">${row.row}</b>
          <span class="owed">${row.owed}</span>
          <span class="num">${row.subject}</span>
          <span class="muted">${row.role}, lane ${row.lane}</span>
          <p>${row.why}</p>
          ${row.due ? html`<p class="muted">looked at again at ${date(row.due)}</p>` : null}
        </li>
      `)}
    </ul>
    <p class="muted">As a worker would read it at the time of that event, by the default limits. A
      claim of another is judged as of who held the partition then.</p>
  `;
}
