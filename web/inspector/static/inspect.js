// The pane: six parts about one instant.

import { Budget, Cost } from "./budget.js";
import { Compare } from "./compare.js";
import { Events } from "./events.js";
import { TABS } from "./keys.js";
import { html, still } from "./lib.js";
import { Request } from "./request.js";
import { verdict, Why } from "./why.js";

const PARTS = { why: Why, request: Request, events: Events, budget: Budget, cost: Cost, compare: Compare };

/** `count`, `total`, `unknown`: those of the session, whose changes redraw the pane too. */
export const Inspect = still((props) => {
  const { tab, setTab, moment, fresh, at, sheet, setSheet, count, total, unknown } = props;
  const Part = PARTS[tab];
  const press = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length];
    setTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return html`
    <aside class=${sheet ? "pane up" : "pane"} aria-label="This instant">
      <button class="handle" aria-expanded=${String(sheet)} aria-controls="panel" onClick=${() => setSheet(!sheet)}>
        <i aria-hidden="true"></i><span class="cut">${moment ? verdict(moment, at !== null)[0] : "This instant"}</span>
        ${moment?.wake[0] && html`<span class="rowid">${moment.wake[0].row}</span>`}
      </button>
      <div class="tabs" role="tablist" aria-label="Parts about this instant" onKeyDown=${press}>
        ${TABS.map((name) => html`
          <button
            key=${name}
            id=${`tab-${name}`}
            role="tab"
            aria-selected=${String(name === tab)}
            aria-controls="panel"
            tabindex=${name === tab ? 0 : -1}
            onClick=${() => setTab(name)}
          >${name[0].toUpperCase()}${name.slice(1)}</button>
        `)}
      </div>
      <div class=${`panel ${tab}`} id="panel" role="tabpanel" tabindex="-1" aria-busy=${String(!fresh)}
        aria-labelledby=${`tab-${tab}`}>
        ${moment === null && tab !== "events"
          ? html`<p class="none">${unknown
            ? "There is nothing to show."
            : html`Reading the session from the log${total ? `: ${count} of ${total} events` : ""}…`}</p>`
          : html`<${Part} ...${props} />`}
      </div>
    </aside>
  `;
});
