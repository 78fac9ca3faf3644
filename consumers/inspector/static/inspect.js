// The right-hand side: seven panels about one moment.

import { Budget, Cost } from "./budget.js";
import { Compare } from "./compare.js";
import { Events } from "./events.js";
import { TABS } from "./keys.js";
import { html } from "./lib.js";
import { Request } from "./request.js";
import { State } from "./state.js";
import { Wake } from "./wake.js";

const PANELS = {
  events: Events, state: State, wake: Wake, budget: Budget, request: Request, compare: Compare,
  cost: Cost,
};

export function Inspect(props) {
  const { tab, setTab, moment, fresh } = props;
  const Panel = PANELS[tab];
  const press = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length];
    setTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return html`
    <aside class="inspect" aria-label="Inspect">
      <div class="tabs" role="tablist" aria-label="Panels for this moment" onKeyDown=${press}>
        ${TABS.map((name) => html`
          <button
            key=${name}
            id=${`tab-${name}`}
            role="tab"
            aria-selected=${String(name === tab)}
            aria-controls="panel"
            tabindex=${name === tab ? 0 : -1}
            onClick=${() => setTab(name)}
          >${name}</button>
        `)}
      </div>
      <div
        class=${`panel ${tab}`}
        id="panel"
        role="tabpanel"
        aria-busy=${String(!fresh)}
        aria-labelledby=${`tab-${tab}`}
      >
        ${moment === null && tab !== "events"
          ? html`<p class="none">Folding the session…</p>`
          : html`<${Panel} ...${props} />`}
      </div>
    </aside>
  `;
}
