// Shows what waits for a person: approvals, calls in doubt, failed turns, each with buttons for the
// answers. Allow waits until every argument was on the screen; the answer is bound to the arguments
// shown.

import { post, sessionPath } from "./api.js";
import { useArguments } from "./args.js";
import { Allow } from "./decide.js";
import { asSentence, clock, number } from "./format.js";
import { errorText, failureOf, since, titleOf, until } from "./home_words.js";
import { Icon } from "./icons.js";
import { html, useState } from "./lib.js";
import { Report } from "./report.js";
import { rights } from "./rights.js";
import { waitsFor } from "./session_list.js";

const CARDS = 60;

/** Everything that waits, as [row, call or null]: approvals, then doubts, then failures, each
    oldest first. */
export function inbox(list, aside) {
  const found = [];
  for (const row of list) {
    if (!waitsFor(row, aside)) continue;
    for (const call of row.waits) found.push({ row, call, order: call.asks ? 0 : 1 });
    if (!row.waits.length) found.push({ row, call: null, order: 2 });
  }
  return found.sort((a, b) => a.order - b.order || a.row.waits_since - b.row.waits_since);
}

/** The first cards; the others on request, because a thousand cards would make the page slow. */
export function Inbox({ items, now, model, aside, caller, first = CARDS }) {
  const [more, setMore] = useState(0);
  const shown = items.slice(0, first + more);
  const left = items.length - shown.length;
  return html`<section class="inbox" aria-label="Waiting for you">
    <h2 class="sr">Waiting for you</h2>
    ${shown.map(({ row, call }) => html`
      <${Item} key=${`${row.id} ${call?.call ?? ""}`} ...${{ row, call, now, model, aside, caller }} />
    `)}
  </section>
  ${left > 0 && html`<p class="rest">${first < CARDS
    ? html`<a class="link" href="#/waiting">${number(left)} more waiting for you</a>`
    : html`<button class="btn" onClick=${() => setMore(more + CARDS)}>Show more: ${number(left)} left</button>`}</p>`}`;
}

function Item({ row, call, now, model, aside, caller }) {
  const [state, setState] = useState({ busy: false, error: "", done: "" });
  /** Sends a command, and shows `done` until the gateway's list has the result. */
  const send = async (path, body, done) => {
    setState({ busy: true, error: "", done: "" });
    try {
      await post(`${sessionPath(row.id)}/${path}`, body);
      setState({ busy: true, error: "", done });
    } catch (error) {
      setState({ busy: false, error: error.message, done: "" });
    }
    model.nudge();
  };
  const may = rights(caller, row.user);
  const why = call === null ? may.write : may.decide;
  const props = { row, call, now, send, busy: state.busy || why !== "", aside };
  const Kind = call === null ? Failure : call.asks ? Approval : Doubt;
  return html`<article class="card wants" tabindex="0" aria-label=${`${nameOf(call, row)} in ${titleOf(row)}`}
    onKeyDown=${press}>
    <${Kind} ...${props} />
    ${state.done && html`<p class="reported" role="status"><${Icon} name="done" small />${state.done}</p>`}
    ${state.error && html`<p class="bad" role="alert">${state.error}</p>`}
    ${may.write && html`<p class="faint">${why || may.write}</p>`}
  </article>`;
}

const nameOf = (call, row) =>
  (call === null ? failureOf(row.failure) : call.asks ? `Allow ${call.name}?` : `Did ${call.name} happen?`);

/** The keys A and D press the buttons of the card that has the focus. */
function press(event) {
  const own = event.target instanceof Element && event.target.closest("input, textarea");
  if (own || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.toLowerCase();
  const button = event.currentTarget.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!button || button.disabled) return;
  event.preventDefault();
  event.stopPropagation();
  button.click();
}

function Head({ row, look, icon, label, now, question, expires = 0, why = "" }) {
  return html`
    <div class="head">
      <span class=${`st ${look}`}><${Icon} name=${icon} />${label}</span>
      <span class="faint num">${since(row.waits_since, now)}${
        expires > now ? `, until ${until(expires, now)}` : ""}</span>
    </div>
    <div class="words">
      <h3>${question}</h3>
      <a class="why cut" href=${`#/s/${encodeURIComponent(row.id)}`}><bdi>${titleOf(row)}</bdi></a>
      ${why && html`<p class="faint"><bdi>${asSentence(why)}</bdi></p>`}
    </div>
  `;
}

const Open = ({ row }) => html`<a class="btn quiet" href=${`#/s/${encodeURIComponent(row.id)}`}
  aria-label=${`Open ${titleOf(row)}`}>Open</a>`;

function Approval({ row, call, now, send, busy }) {
  const [args, seen] = useArguments(call.args ?? "");
  const decide = (decision, done) =>
    send(`calls/${call.call}/decide`, { decision, args_sha256: call.args_sha256 }, done);
  return html`
    <${Head} row=${row} look="asks" icon="clock" label="Approval" now=${now} expires=${call.expires_at}
      question=${html`Allow <code><bdi>${call.name}</bdi></code>?`} />
    ${call.args === null
      ? html`<div class="well faint">The arguments are too long for this page. Open the session to read them and
          to decide.</div>`
      : args}
    <div class="acts">
      ${call.args !== null && html`
        <${Allow} seen=${seen} busy=${busy} data-key="a" onAllow=${() => decide("allow", "Allowed. It continues.")}>
          Allow <bdi>${call.name}</bdi><//>
        <button class="btn" data-key="d" disabled=${busy}
          onClick=${() => decide("deny", "Denied. The model receives the refusal.")}>Deny</button>`}
      <span class="grow"></span>
      <${Open} row=${row} />
    </div>
  `;
}

const OUTCOMES = { happened: "It happened", did_not_happen: "It did not" };

function Doubt({ row, call, now, send, busy }) {
  const [args] = useArguments(call.args ?? "");
  const [outcome, setOutcome] = useState(null);
  const answer = (report) =>
    send(`calls/${call.call}/resolve`, { outcome, report }, "Reported. The call is never run again by this.");
  return html`
    <${Head} row=${row} look="doubt" icon="doubt" label="In doubt" now=${now} why=${call.why}
      question=${html`Did <code><bdi>${call.name}</bdi></code> happen?`} />
    ${call.args === null
      ? html`<div class="well faint">The arguments are too long for this page. Open the session to read them.</div>`
      : args}
    <div class="acts">
      ${Object.entries(OUTCOMES).map(([value, label]) => html`
        <button class="btn" key=${value} disabled=${busy} aria-pressed=${String(outcome === value)}
          onClick=${() => setOutcome(outcome === value ? null : value)}>${label}</button>`)}
      <span class="grow"></span>
      <${Open} row=${row} />
    </div>
    ${outcome !== null && html`<${Report} id=${`report-${row.id}-${call.call}`} outcome=${outcome} busy=${busy}
      onReport=${answer} />`}
  `;
}

const AGAIN = "Please try again.";

function Failure({ row, now, send, busy, aside }) {
  const { failure } = row;
  const facts = [
    ["Turn", `${failure.turn}, step ${failure.step}`],
    ["Error", errorText(failure) || failure.limit || failure.reason],
    failure.tries > 0 ? ["Tries", `${failure.tries}, the last at ${clock(failure.at)}`] : ["At", clock(failure.at)],
    ["Kept", "The question, and all results so far"],
  ];
  return html`
    <${Head} row=${row} look="fail" icon="fail" label="Failed" now=${now} question=${failureOf(failure)} />
    <div class="well"><table class="args plain"><tbody>${facts.map(([name, value]) => html`<tr>
      <th scope="row">${name}</th><td><bdi>${value}</bdi></td></tr>`)}</tbody></table></div>
    <div class="acts">
      <button class="btn" data-key="a" disabled=${busy} title=${`Sends “${AGAIN}” as a new message`}
        onClick=${() => send("messages", { text: AGAIN }, "Asked. A new turn begins.")}>Try again</button>
      <button class="btn quiet" data-key="d" title="Out of this list, in this browser"
        onClick=${() => aside.add(row)}>Set aside</button>
      <span class="grow"></span>
      <${Open} row=${row} />
    </div>
  `;
}
