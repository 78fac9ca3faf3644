// Shows two instants or two forks side by side: the answers first, then all other differences. Also
// shows the tree of forks.

import { lookPath } from "./api.js";
import { clock, number, plural, when, word } from "./format.js";
import { Icon } from "./icons.js";
import { html, useEffect, useState } from "./lib.js";
import { Markdown } from "./markdown.js";
import { useAnswer } from "./useanswer.js";

const LAST = Number.MAX_SAFE_INTEGER; // right after its newest event

export function Compare(props) {
  const { session, moment, mark, setMark, other: chosen, setOther, go, wide, setWide, picking, startPicking } = props;
  const here = moment.offset;
  const previous = session.events[Math.max(0, session.placeAt(here) - 1)]?.offset;
  useEffect(() => {
    if (mark === null && previous !== undefined) setMark(endOfTurn(session, here) ?? previous);
  }, [mark, previous]);
  const { value: family } = useAnswer(`${lookPath(session.id)}/family`);
  const own = family?.sessions.find((row) => row.session_id === session.id);
  const parent = family?.sessions.find((row) => row.session_id === own?.parent)?.session_id;
  const other = chosen ?? parent ?? ""; // a fork begins with its parent
  const isOther = other !== "";
  const [before, after] = mark === null || isOther ? [here, here] : [Math.min(mark, here), Math.max(mark, here)];
  const path = isOther
    ? `${lookPath(session.id)}/compare?before=${LAST}&after=${here}&other=${encodeURIComponent(other)}`
    : mark === null ? null : `${lookPath(session.id)}/compare?before=${before}&after=${after}`;
  const { value, error } = useAnswer(path);
  const relatives = (family?.sessions ?? []).filter((row) => row.session_id !== session.id);
  const titles = (id) => family?.sessions.find((row) => row.session_id === id)?.title || id;
  const set = (event) => {
    event.preventDefault();
    const wanted = Number(new FormData(event.target).get("mark"));
    if (Number.isInteger(wanted) && wanted >= 0) setMark(wanted);
  };
  const ends = session.events.filter((event) => event.type === "TURN_ENDED" && event.verdict === "accepted").slice(-30);
  return html`
    <div class="stack">
      <div class="with-act"><h2>${value ? headline(value, isOther) : "Two instants side by side"}</h2>
        <p class="lead">${isOther ? html`Between <bdi>${titles(other)}</bdi> as it is now, and this instant.`
          : mark === null ? "" : `Between ${nameOf(session, before)} and ${nameOf(session, after)}.`}</p>
        <button class="btn widen" onClick=${() => setWide(!wide)}>
          <${Icon} name="whole" small />${wide ? "Beside the conversation" : "Full width"}</button></div>
      <form class="row wrap" onSubmit=${set}>
        <label for="with">Compare with</label>
        <select class="field" id="with" value=${isOther ? `s ${other}` : ""} onChange=${({ target }) => {
          if (target.value.startsWith("s ")) setOther(target.value.slice(2));
          else {
            setOther("");
            if (target.value) setMark(Number(target.value));
          }
        }}>
          <option value="">an instant…</option>
          ${previous !== undefined && html`<option value=${previous}>the event before</option>`}
          ${ends.map((event) => html`<option key=${event.offset} value=${event.offset}>end of turn ${event.turn}, ${
            clock(event.at)}</option>`)}
          ${relatives.map((row) => html`<option key=${row.session_id} value=${`s ${row.session_id}`}>${
            row.session_id === own?.parent ? "parent" : "fork"}: ${titles(row.session_id)}</option>`)}
        </select>
        <button class="btn" type="button" aria-pressed=${String(picking)} title="Or Shift and a click on the timeline"
          onClick=${startPicking}>${picking ? "Click the timeline…" : "Pick on the timeline"}</button>
        ${!isOther && html`<label class="sr" for="mark">Compare with offset</label>
          <input class="field num" key=${mark} id="mark" name="mark" inputmode="numeric" pattern="[0-9]+" required
            defaultValue=${mark ?? here} />
          <button class="btn">Set</button>
          <button class="btn" type="button" onClick=${() => setMark(here)}>Mark this instant</button>
          <button class="btn" type="button" disabled=${mark === null}
            onClick=${() => { setMark(here); go(session.id, mark); }}>Swap</button>`}
      </form>
      ${error && html`<p class="bad" role="alert">${error}</p>`}
      ${value && html`<${Sides} sides=${value.sides} />
        ${value.requests && html`<${Requests} requests=${value.requests} />`}
        <${Differences} found=${value} />`}
      ${family && family.sessions.length > 1 && html`
        <${Tree} rows=${family.sessions} here=${session.id} titles=${titles} />`}
      ${family && family.searched < family.of && html`<p class="foot">Forks were looked for in the ${
        number(family.searched)} sessions that changed last, of ${number(family.of)}.</p>`}
    </div>
  `;
}

const endOfTurn = (session, here) => session.events.findLast((event) =>
  event.type === "TURN_ENDED" && event.verdict === "accepted" && event.offset < here)?.offset;

function nameOf(session, offset) {
  const place = session.placeAt(offset);
  const event = session.events[place];
  if (!event) return `offset ${offset}`;
  if (place === session.events.length - 1) return "now";
  return event.type === "TURN_ENDED" ? `the end of turn ${event.turn}` : `event ${place + 1} (${clock(event.at)})`;
}

const ROWS = [
  ["Turn", (side) => `${side.turn}, ${side.open ? `open, step ${side.step}` : "ended"}`],
  ["Pending call", (side) => side.pending.join(", ") || "none"],
  ["Owed", (side) => side.owed.join("; ") || "nothing"],
  ["Messages", (side) => number(side.messages)],
  ["Results of calls", (side) => number(side.calls)],
  ["Tokens of the window", (side) => number(side.tokens)],
  ["Tokens read so far", (side) => number(side.reads)],
];

function headline({ sides: [one, other], events }, isOther) {
  const changed = ROWS.filter(([, of]) => of(one) !== of(other)).length + (one.answer !== other.answer ? 1 : 0);
  if (!changed) return isOther ? "Both are the same so far" : "Nothing in this comparison changed";
  const things = `${word(changed)} thing${changed === 1 ? "" : "s"}`;
  if (isOther) return `${things} differ${changed === 1 ? "s" : ""}`;
  return `${things} changed, in ${plural(events, "event")}`;
}

function Sides({ sides: [one, other] }) {
  return html`
    <div class="answers">${[one, other].map((side, n) => html`<figure key=${n}>
      <figcaption class="sub num">${n ? "Later" : "Earlier"}: ${when(side.at)}</figcaption>
      <div class="well">${side.answer
        ? html`<${Markdown} text=${side.answer} />` : html`<span class="dim">no answer yet</span>`}</div>
      </figure>`)}</div>
    <table class="diff">
      <thead><tr><td></td><th scope="col">${clock(one.at)}</th><th scope="col">${clock(other.at)}</th></tr></thead>
      <tbody>${ROWS.map(([name, of]) => html`<tr key=${name} class=${of(one) === of(other) ? "" : "changed"}>
        <th scope="row">${name}</th><td>${of(one)}</td><td>${of(other)}</td></tr>`)}</tbody></table>
  `;
}

function Requests({ requests }) {
  const [one, other] = requests.sha256;
  const [, size] = requests.bytes;
  const share = Math.round((100 * requests.same_bytes) / Math.max(1, size));
  if (one === other) return html`<p>Both have the same request, of step ${requests.steps[0]}.</p>`;
  return html`
    <div><h3 class="sub">Their requests, of steps ${requests.steps.join(" and ")}</h3>
      <div class="track" role="img" aria-label=${`${share} % are the same`}>
        <div class="fill" style=${{ width: `${share}%` }}><i class="p-results" style=${{ width: "100%" }}></i></div>
      </div>
      <p class="dim">The first ${number(requests.same_bytes)} of ${number(size)} bytes are the same: ${share} %. That is
        what a cache can keep.</p>
      <details class="more"><summary><${Icon} name="right" small />Where they part</summary>
        <div class="sides"><pre class="code before" aria-label="Before">${requests.then[0]}</pre>
        <pre class="code after" aria-label="After">${requests.then[1]}</pre></div></details></div>
  `;
}

function Differences({ found }) {
  const [open, setOpen] = useState(false);
  return html`
    <details class="more differences" open=${open} onToggle=${({ target }) => setOpen(target.open)}>
      <summary><${Icon} name="right" small />${plural(found.differences.length, "difference")} in the views</summary>
      ${open && html`<ul class="bare">${found.differences.map((one, n) => html`<li key=${n} class=${one.kind}>
        <code class="path"><bdi>${one.path}</bdi></code> <span class="faint">${one.kind}</span>
        <div class="sides">${one.before && html`<pre class="code before" aria-label="Before">${one.before}</pre>`}
        ${one.after && html`<pre class="code after" aria-label="After">${one.after}</pre>`}</div></li>`)}</ul>`}
    </details>
  `;
}

/** The forks of a family, each below its parent. */
function Tree({ rows, here, titles }) {
  const children = (parent) => rows.filter((row) => row.parent === parent);
  const known = new Set(rows.map((row) => row.session_id));
  const roots = rows.filter((row) => row.parent === null || !known.has(row.parent));
  const draw = (row) => html`<li key=${row.session_id}>
    <a href=${`#/s/${encodeURIComponent(row.session_id)}`} aria-current=${row.session_id === here ? "page" : undefined}>
      <${Icon} name="fork" small /><bdi class="cut">${titles(row.session_id)}</bdi>
      <span class="faint num">${plural(row.turns, "turn")}</span></a>
    ${row.parent !== null && known.has(row.parent) && html`<a class="faint num"
      href=${`#/s/${encodeURIComponent(row.parent)}@${row.offset}`}>forked at offset ${row.offset}</a>`}
    ${children(row.session_id).length > 0 && html`<ul class="bare">${children(row.session_id).map(draw)}</ul>`}
  </li>`;
  return html`<nav aria-label="Forks"><h3 class="sub">Forks</h3><ul class="bare tree">${roots.map(draw)}</ul></nav>`;
}
