// Decisions by people: calls that wait for approval, and calls in doubt.

import { post, sessionPath } from "./api.js";
import { date, pretty } from "./format.js";
import { html, useState } from "./lib.js";

export function Asks({ session, moment, past }) {
  if (!moment || (!moment.asks.length && !moment.doubts.length)) return null;
  return html`
    <section class="people" aria-label="Waiting for a person">
      ${moment.asks.map((call) => html`
        <${Approval} key=${call.call} session=${session} call=${call} past=${past} />
      `)}
      ${moment.doubts.map((call) => html`
        <${Doubt} key=${call.call} session=${session} call=${call} past=${past} />
      `)}
    </section>
  `;
}

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
  return [state, send];
}

function Approval({ session, call, past }) {
  const [{ busy, error }, send] = useCommand(session, call);
  const [remember, setRemember] = useState(false);
  const decide = (decision) =>
    send("decide", { decision, remember, args_sha256: call.args_sha256 });
  return html`
    <article class="ask" aria-label=${`${call.name} waits for approval`}>
      <p><b><bdi>${call.name}</bdi></b> waits for approval <span class="num">${call.call}</span>${" "}
        <span class="muted">until ${date(call.expires_at)}</span></p>
      <pre>${pretty(call.args)}</pre>
      ${past
        ? html`<p class="muted">This call was pending at this point. Switch to Live to answer it.</p>`
        : html`<div class="row">
            <button class="primary" disabled=${busy} onClick=${() => decide("allow")}>Allow</button>
            <button class="danger" disabled=${busy} onClick=${() => decide("deny")}>Deny</button>
            <label><input
              type="checkbox"
              checked=${remember}
              onChange=${(event) => setRemember(event.target.checked)}
            /> also later calls with exactly these arguments</label>
          </div>`}
      ${error && html`<p class="bad" role="alert">${error}</p>`}
    </article>
  `;
}

function Doubt({ session, call, past }) {
  const [{ busy, error }, send] = useCommand(session, call);
  const [report, setReport] = useState("");
  const resolve = (outcome) => send("resolve", { outcome, report });
  const id = `report-${call.call}`;
  return html`
    <article class="ask doubt" aria-label=${`It is unknown whether ${call.name} happened`}>
      <p>It is unknown whether <b><bdi>${call.name}</bdi></b> happened${" "}
        <span class="num">${call.call}</span></p>
      <pre>${pretty(call.args)}</pre>
      ${past
        ? html`<p class="muted">This call was in doubt at this point. Switch to Live to report what happened.</p>`
        : html`
          <label class="sr" for=${id}>What happened, for the model</label>
          <input
            id=${id}
            placeholder="What happened, for the model"
            value=${report}
            onInput=${(event) => setReport(event.target.value)}
          />
          <div class="row">
            <button disabled=${busy} onClick=${() => resolve("happened")}>It happened</button>
            <button disabled=${busy} onClick=${() => resolve("did_not_happen")}>
              It did not happen
            </button>
            <span class="muted">Your answer never runs the call again.</span>
          </div>`}
      ${error && html`<p class="bad" role="alert">${error}</p>`}
    </article>
  `;
}
