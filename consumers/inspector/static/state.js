// The session's state, its open calls, and the partition's holders: the folds' own views.

import { date, pretty } from "./format.js";
import { html } from "./lib.js";

const FIELDS = [
  "session_id", "user_id", "project_id", "phase", "pending_tool", "cancel_token",
  "last_message_id", "updated_at",
];

export function State({ moment }) {
  const { state, turn, holders } = moment;
  const generation = turn.generation;
  return html`
    <section>
      <h2>State</h2>
      <dl class="facts">
        ${FIELDS.map((name) => html`<dt>${name}</dt><dd><bdi>${shown(name, state[name])}</bdi></dd>`)}
      </dl>
    </section>
    <section>
      <h2>Turn ${turn.number}, ${turn.open ? "open" : "ended"}, step ${turn.step}</h2>
      <dl class="facts">
        <dt>closing</dt><dd>${turn.closing ? `${turn.closing.reason} since ${date(turn.closing.since)}` : "no"}</dd>
        <dt>model call</dt>
        <dd>${generation ? `${generation.status}, attempt ${generation.attempt} ${generation.error}` : "none"}</dd>
        ${generation?.claim && html`<dt>claimed by</dt>
          <dd>${generation.claim.owner} at offset ${generation.claim.offset}</dd>`}
        <dt>queued messages</dt>
        <dd>${turn.queue.map((message) => `${message.message_id} (${message.when_busy})`).join(", ") || "none"}</dd>
        <dt>pending refusals</dt><dd>${turn.refusals.length}</dd>
      </dl>
      ${[...turn.calls, ...turn.doubts].map((call) => html`
        <p class="call">
          <span class="num">${call.turn}.${call.step}.${call.index}</span> <b><bdi>${call.name}</bdi></b>
          ${" "}${call.status}${call.outcome && `, ${call.outcome}`}, ${call.effect}, attempt ${call.attempt}
          ${call.claim ? `, claimed by ${call.claim.owner}` : ""}
        </p>
      `)}
    </section>
    <section>
      <h2>Partition ${moment.partition}</h2>
      <details><summary>Holders</summary><pre tabindex="0">${pretty(holders)}</pre></details>
      <details><summary>Full turn view</summary><pre tabindex="0">${pretty(turn)}</pre></details>
    </section>
  `;
}

function shown(name, value) {
  if (value === null || value === undefined || value === "") return "–";
  if (name === "updated_at") return value ? date(value) : "–";
  if (typeof value === "object") return `${value.name} (${value.call}), attempt ${value.attempt}, ${value.open} open`;
  return String(value);
}
