// The live list of sessions, most recently changed first.

import { ago } from "./format.js";
import { Status } from "./icons.js";
import { html, still, useEffect, useState } from "./lib.js";


const SHOWN_MAX = 200;

export function Sessions({ list, current, go }) {
  const [query, setQuery] = useState("");
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 10_000);
    return () => clearInterval(timer);
  }, []);
  const wanted = query.trim().toLowerCase();
  const found = list.sorted().filter((row) => !wanted || text(row).includes(wanted));
  const shown = found.slice(0, SHOWN_MAX);
  const busy = found.filter((row) => row.status === "busy").length;
  const unserved = found.filter((row) => row.status === "unserved").length;
  const waiting = found.filter((row) => row.status === "asks" || row.status === "doubt").length;
  return html`
    <nav class="sessions" aria-label="Sessions">
      <div class="find">
        <label class="sr" for="find">Find a session</label>
        <input
          id="find"
          class="field"
          type="search"
          placeholder="Find a session"
          value=${query}
          onInput=${(event) => setQuery(event.target.value)}
        />
        <p class="count" role="status">
          ${found.length} sessions · ${busy} busy · ${waiting} waiting for you${
            unserved ? ` · ${unserved} unserved` : ""}
        </p>
      </div>
      ${list.error && html`<p class="bad" role="alert">${list.error.message}</p>`}
      <ul>
        ${shown.map((row) => html`
          <${Row} key=${row.session_id} row=${row} now=${now} current=${row.session_id === current} />
        `)}
      </ul>
      ${!found.length && list.loaded && html`<p class="none">${
        wanted ? "No matching sessions." : "No sessions yet. Start one with: foldlog chat"}</p>`}
      ${found.length > SHOWN_MAX && html`<p class="none">
        and ${found.length - SHOWN_MAX} more; use the search field</p>`}
    </nav>
  `;
}

const text = (row) =>
  `${row.session_id} ${row.user_id} ${row.agent} ${row.status} ${row.project_id ?? ""}`.toLowerCase();

const Row = still(({ row, now, current }) => html`
  <li>
    <a
      href=${`#/s/${encodeURIComponent(row.session_id)}`}
      aria-current=${current ? "page" : undefined}
    >
      <span class="name"><bdi>${row.session_id}</bdi></span>
      <span class="when num">${ago(row.updated_at, Math.max(now, row.updated_at))}</span>
      <span class="of">${row.agent} · <bdi>${row.user_id}</bdi> · turn ${row.turn}</span>
      <${Status} word=${row.status} />
    </a>
  </li>
`);
