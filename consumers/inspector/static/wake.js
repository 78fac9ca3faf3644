// The rows of the WAKE table that matched at the moment, with their reasons: the pending work.

import { date } from "./format.js";
import { html } from "./lib.js";

export function Wake({ moment }) {
  return html`
    <h2>Pending work right after offset ${moment.offset}</h2>
    ${!moment.wake.length && html`<p class="none">None. Status of the session: ${moment.status}.</p>`}
    <ul class="wake">
      ${moment.wake.map((row) => html`
        <li key=${`${row.row}.${row.subject}`}>
          <b class="num">${row.row}</b>
          <span class="owed">${row.owed}</span>
          <span class="num">${row.subject}</span>
          <span class="muted">${row.role}, lane ${row.lane}</span>
          <p>${row.why}</p>
          ${row.due ? html`<p class="muted">checked again at ${date(row.due)}</p>` : null}
        </li>
      `)}
    </ul>
    <p class="muted">As a worker with the default limits would have seen it at the time of that event, with the
    holders of the partition at that time.</p>
  `;
}
