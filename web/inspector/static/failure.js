// Shows failed attempts and failed turns in one line, with details on demand.

import { post, sessionPath } from "./api.js";
import { clock, partsOf } from "./format.js";
import { Icon } from "./icons.js";
import { html, useState } from "./lib.js";
import { attemptsText, failureText, times } from "./words.js";

/** The failed and lost attempts of a model call, in one line. */
export function Folded({ lines, runs }) {
  const [open, setOpen] = useState(false);
  return html`
    <details class="tool lost" onToggle=${({ target }) => setOpen(target.open)}>
      <summary><span class="bad"><${Icon} name="cross" small /></span>
        <span class="grow cut dim">${attemptsText(lines, runs)}</span>
        <span class="chev"><${Icon} name="right" small /></span></summary>
      ${open && html`<div class="in"><${Attempts} lines=${lines} /></div>`}
    </details>
  `;
}

const Attempts = ({ lines }) => html`
  <table class="args"><tbody>${lines.map((line) => html`<tr key=${line.offset}>
    <th scope="row" class="num">${clock(line.at)}</th><td><bdi>${line.text}</bdi></td></tr>`)}</tbody></table>`;

/** A turn that failed: why, after how many tries, and what a person can do now. */
export function Failure({ line, session, at, go, about, moment, isLast, lines }) {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const attempts = lines.filter((one) => one.kind === "attempt" && one.turn === line.turn && one.offset < line.offset);
  const failed = attempts.filter((one) => one.name === "failed");
  const said = lines.find((one) => one.kind === "message" && one.turn === line.turn);
  const why = failed.length ? failureText(failed.at(-1).code) : `Turn ${line.turn} failed`;
  const parts = said ? partsOf(said) : [];
  const text = parts.map((part) => part.text).join("");
  const isText = parts.every((part) => part.kind === "text"); // files cannot be sent again from here
  const canRetry = isText && at === null && isLast && text && !about.readOnly
    && moment && !moment.turn.open && moment.status !== "terminated";
  const run = (work) => async () => {
    setBusy(true);
    setError("");
    await work().catch((problem) => setError(problem.message));
    setBusy(false);
  };
  const again = run(async () => {
    const body = { text, when_busy: "queue", message_id: `again-${line.turn}-${line.offset}` };
    await post(`${sessionPath(session.id)}/messages`, body);
    await session.refresh();
  });
  const before = said ? session.events[session.placeAt(said.offset) - 1]?.offset : undefined;
  const fork = run(async () => go((await post(`${sessionPath(session.id)}/fork`, { at: before })).session_id));
  return html`
    <section class="big fail" aria-label=${`Turn ${line.turn} failed`}>
      <header><${Icon} name="fail" /><h3>${why}${failed.length > 1 ? `, ${times(failed.length)}` : ""}</h3>
        <span class="grow"></span><span class="num">turn ${line.turn} ended ${clock(line.at)}</span></header>
      <div class="body">
        <div class="row wrap">
          ${canRetry && html`<button class="btn primary" disabled=${busy} onClick=${again}>Try again</button>`}
          ${about.can.fork && before !== undefined && html`<button class="btn" disabled=${busy} onClick=${fork}>
            <${Icon} name="fork" small />Fork before this turn</button>`}
          ${canRetry && html`<span class="faint">Try again sends the same words as turn ${line.turn + 1}.</span>`}
        </div>
        ${attempts.length > 0 && html`<details class="more"><summary><${Icon} name="right" small />
          ${attempts.length === 1 ? "The attempt" : `The ${attempts.length} attempts`}</summary>
          <${Attempts} lines=${attempts} /></details>`}
        ${line.text && html`<p class="foot">${line.text}</p>`}
        ${error && html`<p class="bad" role="alert">${error}</p>`}
      </div>
    </section>
  `;
}
