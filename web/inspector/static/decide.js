// The cards for a person's decisions in the conversation: approvals, and calls in doubt.

import { post, sessionPath } from "./api.js";
import { useArguments, waitsText } from "./args.js";
import { asSentence, length, when } from "./format.js";
import { Icon } from "./icons.js";
import { html, useState } from "./lib.js";
import { Report } from "./report.js";

function useCommand(session, call) {
  const [state, setState] = useState({ busy: false, error: "" });
  const send = async (command, body) => {
    setState({ busy: true, error: "" });
    try {
      await post(`${sessionPath(session.id)}/calls/${call.call}/${command}`, body);
      await session.refresh();
      setState({ busy: false, error: "" });
    } catch (error) {
      setState({ busy: false, error: error.message });
    }
  };
  const { locked } = session;
  return [locked ? { busy: true, error: locked } : state, send];
}

/** Handles the keys of a card while the focus is on the card or inside it, except in a field. */
const pressed = (keys) => (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea")) return;
  const act = keys[event.key.toLowerCase()];
  if (!act) return;
  event.preventDefault();
  event.stopPropagation();
  act();
};

export function Decision({ session, call, past, go }) {
  return call.status === "asks"
    ? html`<${Approval} session=${session} call=${call} past=${past} go=${go} />`
    : html`<${Doubt} session=${session} call=${call} past=${past} go=${go} />`;
}

/** At a past instant, shows what a person did later. */
function Later({ session, call, go, kind }) {
  const run = session.runs.find((one) => one.key === call.call && one.kind === kind && one.end_at !== null);
  if (!run) return html`<p class="foot">It is still so now.</p>`;
  const words = {
    allow: "it was allowed", deny: "it was denied", expired: "it expired", happened: "a person said that it happened",
    did_not_happen: "a person said that it did not happen",
  }[run.outcome] ?? "the turn ended";
  return html`<p class="foot row"><${Icon} name="clock" small /> ${length(run.end_at - run.at)} later, ${words}.
    <button class="link" onClick=${() => go(session.id, run.end_offset)}>Go to that instant</button></p>`;
}

/** The button that allows a call. It waits until all arguments were on the screen. */
export function Allow({ seen, busy, onAllow, children, ...more }) {
  const look = seen.whole ? "primary" : "waits";
  return html`<button class=${`btn ${look}`} disabled=${busy || !seen.whole} onClick=${onAllow} ...${more}>
      ${seen.whole ? children : waitsText(seen)}</button>
    ${!seen.whole && html`<button class="btn quiet" onClick=${seen.next}>Show the next part</button>`}`;
}

const Lost = ({ call }) => html`<p class="bad">The arguments cannot be shown: ${call.args_error}. The call cannot be
  allowed here.</p>`;

function Approval({ session, call, past, go }) {
  const [{ busy, error }, send] = useCommand(session, call);
  const [remember, setRemember] = useState(false);
  const [args, seen] = useArguments(call.args ?? "");
  const whole = seen.whole && call.args !== null;
  const decide = (decision) => !busy && send("decide", { decision, remember, args_sha256: call.args_sha256 });
  const keys = past ? {} : { a: () => whole && decide("allow"), d: () => decide("deny") };
  return html`
    <section class="big asks" data-call=${call.call} tabindex="0"
      aria-label=${`${call.name} waits for approval`} onKeyDown=${pressed(keys)}>
      <header><${Icon} name="clock" /><h3>Allow <code>${call.name}</code>?</h3><span class="grow"></span>
        <span class="num">${call.expires_at ? `expires ${when(call.expires_at)}` : ""}</span></header>
      <div class="body">
        ${call.args === null ? html`<${Lost} call=${call} />` : args}
        ${past ? html`<${Later} session=${session} call=${call} go=${go} kind="waits_person" />` : html`
          <div class="row wrap">
            ${call.args !== null && html`<${Allow} seen=${seen} busy=${busy} onAllow=${() => decide("allow")}>
              Allow <bdi>${call.name}</bdi> <kbd>A</kbd><//>`}
            <button class="btn" disabled=${busy} onClick=${() => decide("deny")}>Deny <kbd>D</kbd></button>
            <span class="grow"></span>
            <label class="tick"><input type="checkbox" checked=${remember}
              onChange=${(event) => setRemember(event.target.checked)} />
              also later calls with exactly these arguments</label>
          </div>
          <p class="foot">It runs once, with exactly these arguments. If the agent changes them, you are asked
            again.</p>`}
        ${error && html`<p class="bad" role="alert">${error}</p>`}
      </div>
    </section>
  `;
}

/** A call in doubt. Its two answers look alike, and each asks first what the model should know. */
function Doubt({ session, call, past, go }) {
  const [{ busy, error }, send] = useCommand(session, call);
  const [args] = useArguments(call.args ?? "");
  const [outcome, setOutcome] = useState(null);
  const waits = session.lasting.find((run) => run.key === call.call && run.kind === "doubt");
  return html`
    <section class="big doubt" data-call=${call.call} tabindex="0"
      aria-label=${`It is unknown whether ${call.name} happened`}
      onKeyDown=${pressed(past ? {} : { y: () => setOutcome("happened"), n: () => setOutcome("did_not_happen") })}>
      <header><${Icon} name="doubt" /><h3>Did <code>${call.name}</code> happen?</h3><span class="grow"></span>
        <span class="num">${!past && waits ? `in doubt since ${when(waits.at)}` : ""}</span></header>
      <div class="body">
        <p>${call.why && html`<bdi>${asSentence(call.why)}</bdi> `}It may have happened. It is never run again by
          itself.</p>
        ${call.args === null ? html`<${Lost} call=${call} />` : args}
        ${past ? html`<${Later} session=${session} call=${call} go=${go} kind="doubt" />` : html`
          <div class="row wrap">
            <button class="btn" aria-pressed=${String(outcome === "happened")} disabled=${busy}
              onClick=${() => setOutcome("happened")}>It happened</button>
            <button class="btn" aria-pressed=${String(outcome === "did_not_happen")} disabled=${busy}
              onClick=${() => setOutcome("did_not_happen")}>It did not happen</button>
          </div>
          ${outcome !== null && html`<${Report} id=${`report-${call.call}`} outcome=${outcome} busy=${busy}
            onReport=${(report) => send("resolve", { outcome, report })} />`}`}
        ${error && html`<p class="bad" role="alert">${error}</p>`}
      </div>
    </section>
  `;
}
