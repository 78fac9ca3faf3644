// Sends messages and stops the running turn. A refusal is shown with its reason; the text is kept.

import { post, sessionPath } from "./api.js";
import { html, useRef, useState } from "./lib.js";

const WHEN_BUSY = [
  ["queue", "queue the message"],
  ["steer", "add it to the turn"],
  ["interrupt", "interrupt the turn"],
];

export function Composer({ session, moment }) {
  const [text, setText] = useState("");
  const [whenBusy, setWhenBusy] = useState("queue");
  const [error, setError] = useState("");
  const [sending, setSending] = useState(false);
  const sent = useRef({ text: "", id: "" });
  const busy = Boolean(moment?.turn.open);
  const hasEnded = moment?.status === "terminated";

  const send = async (event) => {
    event?.preventDefault();
    if (!text.trim() || sending) return;
    // A retry of the same text has the same id, so a lost response never sends it twice.
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
  const press = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  };
  return html`
    <form class="composer" onSubmit=${send} aria-label="Send a message">
      ${error && html`<p class="bad" role="alert">${error}</p>`}
      <label class="sr" for="message">Message</label>
      <textarea
        id="message"
        rows="2"
        placeholder=${hasEnded ? "This session has ended." : "Message. Enter sends, Shift Enter starts a new line"}
        disabled=${hasEnded}
        value=${text}
        onInput=${(event) => setText(event.target.value)}
        onKeyDown=${press}
      ></textarea>
      <div class="row">
        <label class=${busy ? "busy" : "busy idle"}>while a turn runs
          <select value=${whenBusy} onChange=${(event) => setWhenBusy(event.target.value)}>
            ${WHEN_BUSY.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
          </select>
        </label>
        <button class="primary" disabled=${hasEnded || sending || !text.trim()}>Send</button>
      </div>
    </form>
  `;
}

function hex(bytes) {
  const random = crypto.getRandomValues(new Uint8Array(bytes));
  return [...random].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
