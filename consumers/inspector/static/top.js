// The header of a session: its facts, what it waits for, and the offset shown.

import { post, sessionPath } from "./api.js";
import { usd } from "./format.js";
import { Status } from "./icons.js";
import { html, useEffect, useState } from "./lib.js";

/** What a session waits for, worded for a user of this page. */
function waitsFor(moment) {
  if (!moment) return " ";
  if (moment.asks.length) return "Waiting for you: a call below needs approval.";
  if (moment.doubts.length) return "Waiting for you: report below what happened to the call in doubt.";
  return moment.waits || "Idle: waiting for a message.";
}

export function Header({ session, at, go, moment }) {
  const cost = moment ? usd(moment.cost.usd, moment.cost.unpriced) : "";
  return html`
    <header class="top">
      ${session && html`
        <h1 title=${session.id}><bdi>${session.id}</bdi></h1>
        <span class="facts">
          ${moment && html`<${Status} word=${moment.status} pill />`}
          ${moment && html`<span>${moment.turn.agent}</span>`}
          ${moment && html`<span>turn ${moment.turn.number}</span>`}
          ${moment && html`<span class="num">cost ${cost}</span>`}
          ${at === null && html`<${Connection} session=${session} />`}
        </span>
      `}
    </header>
  `;
}

function Connection({ session }) {
  const labels = { live: "live", waiting: "connecting", refused: "not allowed" };
  return html`<span class=${`wire ${session.state}`} role="status">${labels[session.state]}</span>`;
}

/** One line that is always present, so that nothing moves when it changes. */
export function Banner({ session, at, go, moment, fresh, about }) {
  const [notice, setNotice] = useState("");
  useEffect(() => setNotice(""), [at, session]);
  const error = session.error ?? (session.lost?.offset === at ? session.lost.error : null);
  if (error) {
    return html`<div class="banner bad">
      <span class="words" role="alert">${error.message}</span>
      ${at !== null && html`<button onClick=${() => go(session.id)}>Live</button>`}
    </div>`;
  }
  if (at === null) {
    return html`<div class="banner"><span class="words">${waitsFor(moment)}</span></div>`;
  }
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      setNotice("link copied");
    } catch {
      setNotice("copying failed: copy the link from the address bar");
    }
  };
  const fork = async () => {
    try {
      const fork = await post(`${sessionPath(session.id)}/fork`, { at });
      go(fork.session_id);
    } catch (problem) {
      setNotice(problem.message);
    }
  };
  return html`
    <div class="banner past">
      <span class="words" role="status">
        Right after offset ${at}${fresh ? `, ${moment.event.type}` : ""}. ${notice}
      </span>
      ${about.can.fork && html`<button onClick=${fork}>Fork here</button>`}
      <button onClick=${copy}>Copy link</button>
      <button class="primary" onClick=${() => go(session.id)}>Live</button>
    </div>
  `;
}
