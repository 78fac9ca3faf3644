// Shows why the session waits or continues at this instant: a sentence, the rows of WAKE that prove
// it, and the rows that could match next.

import { asSentence, date, length, pretty, when, word } from "./format.js";
import { Icon } from "./icons.js";
import { html, useState } from "./lib.js";
import { failureText } from "./words.js";

const IMPORTANT = ["T2w", "T7", "T", "S", "N", "C", "A", "D", "B", "R"];
const rank = (row) => IMPORTANT.findIndex((start) => row.row.startsWith(start));
const ranked = (rows) => [...rows].sort((one, other) => rank(one) - rank(other));

/** The name of the call that a row is about. The row's subject is TURN.STEP.INDEX. */
function callOf(moment, row) {
  const calls = [...moment.turn.calls, ...moment.turn.doubts];
  return calls.find((call) => `${call.turn}.${call.step}.${call.index}` === row.subject)?.name ?? "a tool";
}

/** The two sentences about the present state and what follows, from the rows that match. `past`:
    whether they are in the past tense. */
export function verdict(moment, past) {
  const [is, was] = past ? ["was", "had been"] : ["is", "was"];
  const rows = ranked(moment.wake);
  const first = rows[0];
  const others = rows.length === 2 ? "One more reason is below."
    : rows.length > 2 ? `${word(rows.length - 1)} more reasons are below.` : "";
  if (moment.status === "frozen") return ["The session is frozen", moment.waits];
  if (moment.status === "unserved") return [`No worker ${past ? "served" : "serves"} the agent ${moment.turn.agent}`,
    moment.lacks[0].toUpperCase() + moment.lacks.slice(1)];
  if (moment.asks.length) {
    return [`Waiting for a person to allow ${moment.asks[0].name}`,
      rows.length > 1 ? others
        : `Nothing else ${is} pending. The session continues as soon as a person allows or denies it.`];
  }
  if (moment.doubts.length) {
    const call = moment.doubts[0];
    return [`Nobody ${past ? "knew" : "knows"} whether ${call.name} happened`,
      `${call.why ? `${asSentence(call.why)} ` : ""}Running it again could do it twice, so a person must find out.`];
  }
  if (!first) {
    if (moment.turn.open) {
      return [`Nothing ${is} pending`, `The turn ${is} open, and no row of the WAKE table matches.`];
    }
    return [`Nothing ${is} pending`, moment.turn.number === 0 ? "The first message begins the first turn."
      : `Turn ${moment.turn.number} ${ENDED[moment.reason] ?? "ended"}. The next message begins another one.`];
  }
  const name = first.lane === "T" ? callOf(moment, first) : "";
  const step = `${moment.turn.number}.${moment.turn.step}`;
  const sentences = {
    T1: `${name} ${was} proposed, and must be decided`,
    T2: `The approval of ${name} expires without a decision`,
    T3: `${name} ${is} allowed, and waits for a worker`,
    T4: `${name} ${is} running`,
    T4w: `${name} ${is} running`,
    S1: `Model call ${step} waits for a worker`,
    S1r: `Model call ${step} is due again`,
    S1w: `Model call ${step} failed, and waits for its next attempt`,
    S2: `The model ${is} answering`,
    S2w: `The model ${is} answering`,
    S3: `The worker of model call ${step} ${was} lost, and another one may take over`,
    N1: "The model is done, so the turn is about to end",
    N3: "The next model call is about to be decided",
  };
  if (first.row === "S1w") {
    return [sentences.S1w, `${failureText(moment.turn.generation.error)}. It is tried again at ${when(first.due)}.`];
  }
  return [sentences[first.row] ?? first.says,
    others || LEADS[first.row] || (first.due ? `Checked again at ${when(first.due)}.` : "")];
}

const ENDED = { failed: "failed", over_budget: "used up its tokens", stopped: "was stopped" };

const LEADS = {
  T1: "Its arguments are checked, and whether a person must approve it.",
  T3: "A worker claims it when one is free.",
  T4: "A worker claimed it. The session continues with its result.",
  T4w: "A worker claimed it. The session continues with its result.",
  S1: "The step was decided. A worker claims it when one is free.",
  S2: "A worker claimed the call. The session continues with the answer.",
  S2w: "A worker claimed the call. The session continues with the answer.",
  N1: "No call and no message is left in this turn.",
  N3: "A worker decides what the model sees, then claims the call.",
};

export function Why(props) {
  const { session, moment, at, go } = props;
  const past = at !== null;
  const [head, lead] = verdict(moment, past);
  const rows = ranked(moment.wake);
  const next = rows.flatMap((row) => row.next.map((one) => ({ ...one, of: row.row })));
  return html`
    <div class="stack">
      <div><h2>${head}</h2><p class="lead">${lead}</p></div>
      ${rows.map((row) => html`<${Row} key=${`${row.row}.${row.subject}`} row=${row} />`)}
      ${next.length > 0 && html`<div><h3 class="sub">${past ? "What could happen next" : "What happens next"}</h3>
        <ul class="bare next">${next.slice(0, 8).map((one, n) => html`<li key=${n}>
          <b>${one.when}</b><${RowId} id=${one.row} /><span class="dim">${one.then}.</span></li>`)}</ul></div>`}
      ${past && html`<${Then} session=${session} moment=${moment} go=${go} />`}
      <${Instant} moment=${moment} session=${session} />
    </div>
  `;
}

const RowId = ({ id }) => html`<span class="rowid" title=${`Row ${id} of the WAKE table`}>${id}</span>`;

/** What a row demands: an event in capitals, or an action of a worker. */
function demand({ owed, role }) {
  if (owed === "wait") return "Nothing is written now.";
  if (owed === "begin") return `The worker with the role ${role} begins.`;
  if (owed === "abort") return `The worker with the role ${role} stops it.`;
  return html`The next event is <code>${owed}</code>, by a worker with the role ${role}.`;
}

const Row = ({ row }) => html`
  <article class=${`wake ${row.row === "T7" ? "doubt" : ""}`}>
    <div class="row"><b class="grow">${row.says}</b><${RowId} id=${row.row} /></div>
    <ul class="bare conds">${row.conditions.map((words) => html`<li><${Icon} name="done" />${words}</li>`)}</ul>
    <p class="foot">${demand(row)}${row.subject ? html` About <span class="mono">${row.subject}</span>.` : ""}${
      row.due ? ` Checked again at ${date(row.due)}.` : ""}</p>
  </article>
`;

/** At a past instant, shows what happened next. */
function Then({ session, moment, go }) {
  const events = session.events;
  const isSaid = (event) => event.says && event.verdict === "accepted";
  const next = events.slice(session.placeAt(moment.offset) + 1).find(isSaid);
  if (!next) return html`<p class="foot">Nothing has happened since.</p>`;
  return html`<div><h3 class="sub">What happened then</h3>
    <p>${next.says}, ${length(Math.max(0, next.at - moment.at))} later.${" "}
      <button class="link" onClick=${() => go(session.id, next.offset)}>Go to that instant</button></p></div>`;
}

function Instant({ moment, session }) {
  const [isOpen, setOpen] = useState(false);
  const { turn, state } = moment;
  const generation = turn.generation;
  const runs = [generation?.status === "running" && generation, ...turn.calls.filter((c) => c.status === "started")];
  const claims = runs.filter(Boolean).map(({ claim }) => `${claim.owner.split("/")[0]}, since ${when(claim.at)}`);
  const open = [...turn.calls, ...turn.doubts].filter((call) => call.status !== "done");
  const facts = [
    ["Turn", `${turn.number}, ${turn.open ? `open, step ${turn.step}` : "ended"}`],
    ["Pending calls", open.map((call) => `${call.name} (${call.status})`).join(", ") || "none"],
    ["Model call", generation ? `${generation.status}, attempt ${generation.attempt}${
      generation.error ? `, ${generation.error}` : ""}` : "none"],
    ["Claimed by", claims.join("; ") || "no worker"],
    ["Queued messages", turn.queue.length ? String(turn.queue.length) : "none"],
    ["Phase", state.phase || "none"],
    ["Project", state.project_id || "none"],
    ["User", state.user_id],
  ];
  return html`
    <div><h3 class="sub">At this instant</h3>
      <dl class="kv">${facts.map(([name, value]) => html`<dt>${name}</dt><dd><bdi>${value}</bdi></dd>`)}</dl></div>
    <details class="more" onToggle=${({ target }) => setOpen(target.open)}>
      <summary><${Icon} name="right" small />Ids and the whole state</summary>
      ${isOpen && html`<dl class="kv"><dt>Session</dt><dd class="mono"><bdi>${session.id}</bdi></dd>
        <dt>Position</dt><dd class="num">partition ${moment.partition}, offset ${moment.offset}</dd></dl>
      <pre class="code" tabindex="0" aria-label="Turn view">${pretty(turn)}</pre>
      <pre class="code" tabindex="0" aria-label="Session state">${pretty(state)}</pre>
      <pre class="code" tabindex="0" aria-label="Holders of the partition">${pretty(moment.holders)}</pre>
      <p class="foot">Rows as a worker with the default limits would have seen them at the time of that event, with
        the holders of the partition at that time.</p>`}</details>
  `;
}
