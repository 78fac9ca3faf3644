// The head of a session: its title, its state, and the instant that the page shows. Also the
// notices, which say why the page cannot show the present or the session cannot continue.

import { post, sessionPath } from "./api.js";
import { ago, asSentence, brief, clock, partsOf, plural, usd, when } from "./format.js";
import { Icon, Status } from "./icons.js";
import { html, useEffect, useState } from "./lib.js";
import { link } from "./router.js";

/** The given title, else the first sentence of a person, else the session's id. */
export function titleOf(session, given = "") {
  if (given) return given;
  const first = session.lines.find((line) => line.kind === "message");
  const text = first ? partsOf(first).filter((part) => part.kind === "text").map((part) => part.text).join(" ") : "";
  const [sentence] = /^.*?[.!?](?=\s|$)|^.+/s.exec(text.trim()) ?? [session.id];
  return brief(sentence, 90).replace(/[.:,]$/, "") || session.id;
}

function useNow(ms) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), ms);
    return () => clearInterval(timer);
  }, [ms]);
  return now;
}

export function Header({ session, at, go, moment, fresh, about, title, parent, commands }) {
  const [notice, setNotice] = useState("");
  const now = useNow(10_000);
  useEffect(() => setNotice(""), [at, session]);
  const past = at !== null;
  const say = (work) => async () => setNotice(await work().catch((problem) => problem.message) ?? "");
  const copy = say(async () => {
    // A link always names an instant. At the present, this is the newest event.
    const offset = past ? at : session.events.at(-1)?.offset;
    const copied = new URL(location.href);
    copied.hash = link(session.id, offset ?? null);
    await navigator.clipboard.writeText(copied.href).catch(() => {
      throw new Error("Copying failed. Copy the link from the address bar.");
    });
    return "Link copied.";
  });
  const fork = say(async () => {
    const offset = past ? at : session.events.at(-1).offset;
    go((await post(`${sessionPath(session.id)}/fork`, { at: offset })).session_id);
  });
  const stop = say(async () => {
    const body = { turn: moment.turn.number, seen_phase: moment.state.phase, reason: "the page" };
    await post(`${sessionPath(session.id)}/cancel`, body);
    await session.refresh();
  });
  Object.assign(commands.current, { copy, fork: about.can.fork ? fork : undefined });
  const opened = session.events[0]?.at;
  return html`
    <header class=${past ? "top then" : "top"}>
      <a class="btn icon quiet back" href="#/" aria-label="All sessions"><${Icon} name="left" /></a>
      ${past && moment && html`<div class="when num"><b>${clock(moment.at)}</b>${ago(moment.at, now)} ago</div>`}
      <div class="grow">
        <div class="row">
          <h1 class="cut" title=${session.id}><bdi>${title}</bdi></h1>
          ${moment && html`<${Status} of=${moment} pill />`}
        </div>
        <p class="meta cut">
          ${moment?.origin && html`<${Forked} session=${session} origin=${moment.origin} parent=${parent} /> · `}
          ${past ? html`The past${moment ? `: ${when(moment.at)}` : ""}. Nothing here can change.`
            : moment && html`${moment.turn.agent} · <bdi>${moment.state.user_id}</bdi> · ${
              plural(moment.turn.number, "turn")} · ${
              usd(moment.cost.usd, moment.cost.unpriced)}${opened ? ` · opened ${ago(opened, now)} ago` : ""}`}
          <span class="sr">, session ${session.id}</span>
        </p>
      </div>
      <span class="notice dim" role="status">${notice}</span>
      <span class="sr" role="status">${past && fresh && moment && session.events.length >= (session.count || 1)
        ? `Right after offset ${at}, ${moment.event.type}` : ""}</span>
      ${session.waiting && html`<button class="btn" title="Go to what waits for you (G)"
        onClick=${() => commands.current.waiting()}><${Icon} name="inbox" small /><span>Go to what waits</span>
        <kbd>G</kbd></button>`}
      ${!past && moment?.turn.open && !about.readOnly && html`<button class="btn" onClick=${stop}>
        <${Icon} name="stop" small /><span>Stop turn</span></button>`}
      <button class="btn" onClick=${copy}><${Icon} name="link" small /><span>Copy link</span></button>
      ${about.can.fork && html`<button class="btn" disabled=${!session.events.length} onClick=${fork}>
        <${Icon} name="fork" small /><span>Fork here</span></button>`}
      ${past && html`<button class="btn primary" onClick=${() => go(session.id)}>Back to now <kbd>L</kbd></button>`}
    </header>
  `;
}

/** Where a fork comes from. Its first event follows the lines that it has from its parent. */
function Forked({ session, origin, parent }) {
  const opening = session.events[session.placeAt(origin.opened)];
  const last = session.lines[(opening?.lines ?? 0) - 1];
  const place = `${encodeURIComponent(origin.session_id)}@${origin.offset}`;
  return html`Forked from <a class="link" href=${`#/s/${place}`}><bdi>${parent}</bdi></a>${
    last ? ` at ${clock(last.at)}` : ""}, offset ${origin.offset}`;
}

/** Says what is wrong, what is kept, and what to do, for as long as the problem lasts. */
export function Notices({ session, at, go, moment }) {
  const now = useNow(1000);
  const lost = session.lost?.offset === at ? session.lost.error : null;
  const error = lost ?? (session.error?.code === "unreachable" ? null : session.error);
  const isGone = session.state === "waiting" && session.since !== null;
  return html`
    ${isGone && html`<div class="gone" role="alert">
      <${Icon} name="wire" />
      <p class="grow"><b>No answer from the gateway since ${clock(session.since)}.</b>${" "}
        You see the session as it was then. ${session.retryAt > now
          ? `Trying again in ${Math.ceil((session.retryAt - now) / 1000)} s.` : "Trying now."}</p>
      <button class="btn" onClick=${() => session.retry()}>Try now</button>
    </div>`}
    ${error && html`<div class="gone fail">
      <${Icon} name="fail" />
      <p class="grow" role="alert">${asSentence(error.message)}</p>
      ${at !== null && html`<button class="btn" onClick=${() => go(session.id)}>Back to now</button>`}
      ${session.unknown && html`<a class="btn" href="#/sessions">All sessions</a>`}
    </div>`}
    ${moment?.status === "unserved" && html`<div class="gone fail" role="status">
      <${Icon} name="fail" />
      <p class="grow">
        <b>No worker ${at === null ? "serves" : "served"} the agent <bdi>${moment.turn.agent}</bdi>.</b>${" "}
        The message is kept, and answered as soon as one starts:${" "}
        <code>foldlog worker --agent FILE</code></p>
    </div>`}
  `;
}
