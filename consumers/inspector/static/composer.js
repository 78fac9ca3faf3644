// Saying something, and stopping what runs. A refusal is shown with its reason, and nothing is lost.

import { post, sessionPath } from "./api.js";
import { html, useRef, useState } from "./lib.js";

const WHEN_BUSY = [
  ["queue", "wait for its end"],
  ["steer", "join it"],
  ["interrupt", "interrupt it"],
];

export function Composer({ session, moment }) {
  const [text, setText] = useState("");
  const [whenBusy, setWhenBusy] = useState("queue");
  const [error, setError] = useState("");
  const [sending, setSending] = useState(false);
  const sent = useRef({ text: "", id: "" });
  const busy = Boolean(moment?.turn.open);
  const gone = moment?.status === "terminated";

  const say = async (event) => {
    event?.preventDefault();
    if (!text.trim() || sending) return;
    // The same words tried again carry the same id: they are said once, whatever was lost.
    if (sent.current.text !== text) sent.current = { text, id: `page-${hex(12)}` };
    setSending(true);
    setError("");
    try {
      const body = { text, when_busy: whenBusy, message_id: sent.current.id };
      await post(`${sessionPath(session.id)}/messages`, body);
      setText("");
      sent.current = { text: "", id: "" };
    } catch (problem) {
      setError(problem.message);
    }
    setSending(false);
    session.refresh();
  };
  const stop = async () => {
    setError("");
    try {
      const body = { turn: moment.turn.number, seen_phase: moment.state.phase, reason: "the page" };
      await post(`${sessionPath(session.id)}/cancel`, body);
    } catch (problem) {
      setError(problem.message);
    }
    session.refresh();
  };
  const press = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) say(event);
  };
  return html`
    <form class="composer" onSubmit=${say} aria-label="Say something">
      ${error && html`<p class="bad" role="alert">${error}</p>`}
      <label class="sr" for="say">Message</label>
      <textarea
        id="say"
        rows="2"
        placeholder=${gone ? "This session was ended." : "Say something. Enter sends, Shift Enter breaks the line"}
        disabled=${gone}
        value=${text}
        onInput=${(event) => setText(event.target.value)}
        onKeyDown=${press}
      ></textarea>
      <div class="row">
        <label class=${busy ? "busy" : "busy idle"}>while it works
          <select value=${whenBusy} onChange=${(event) => setWhenBusy(event.target.value)}>
            ${WHEN_BUSY.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
          </select>
        </label>
        <button type="button" class="danger" disabled=${!busy} onClick=${stop}>Stop</button>
        <button class="primary" disabled=${gone || sending || !text.trim()}>Send</button>
      </div>
    </form>
  `;
}

function hex(bytes) {
  const random = crypto.getRandomValues(new Uint8Array(bytes));
  return [...random].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
