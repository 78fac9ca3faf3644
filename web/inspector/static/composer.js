// Sends messages. A refusal is shown with its reason. The text is kept, even when the page is
// reloaded.

import { post, sessionPath } from "./api.js";
import { Icon } from "./icons.js";
import { html, useLayoutEffect, useRef, useState } from "./lib.js";

const WHEN_BUSY = [
  ["queue", "answer it after this turn"],
  ["steer", "add it to this turn"],
  ["interrupt", "interrupt this turn"],
];

export function Composer({ session, at, moment, about, commands }) {
  const draft = `foldlog.draft.${session.id}`;
  const [text, setText] = useState(() => sessionStorage.getItem(draft) ?? "");
  const [whenBusy, setWhenBusy] = useState("queue");
  const [error, setError] = useState("");
  const [sending, setSending] = useState(false);
  const sent = useRef({ text: "", id: "" });
  const field = useRef(null);
  const busy = Boolean(moment?.turn.open);
  const hasEnded = moment?.status === "terminated";
  useLayoutEffect(() => {
    if (!field.current) return;
    field.current.style.height = "auto";
    field.current.style.height = `${Math.min(160, Math.max(36, field.current.scrollHeight))}px`;
  }, [text, at]);
  if (session.unknown) return null;
  if (at !== null) {
    return html`<div class="say"><div class="compose then-say">
      <p class="grow">This is the past, so nothing can be said here.${
        about.can.fork && " A fork continues from this instant."}</p>
      ${about.can.fork && html`<button class="btn" onClick=${() => commands.current.fork?.()}>
        <${Icon} name="fork" small />Fork here</button>`}
    </div></div>`;
  }
  if (about.readOnly) {
    return html`<div class="say"><div class="compose then-say"><p class="grow">${about.readOnly}</p></div></div>`;
  }
  const write = (words) => {
    setText(words);
    if (words) sessionStorage.setItem(draft, words);
    else sessionStorage.removeItem(draft);
  };
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
      write("");
      sent.current = { text: "", id: "" };
    } catch (problem) {
      setError(problem.message);
    }
    setSending(false);
    session.refresh();
  };
  const press = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    if (event.key === "Escape") event.target.blur();
  };
  const asks = moment?.asks.length > 0;
  const hint = hasEnded ? "This session has ended."
    : `Write to ${moment?.turn.agent ?? "the agent"}.${asks ? " It is read after this call is decided." : ""}`;
  return html`
    <form class="say" onSubmit=${send} aria-label="Send a message">
      ${error && html`<p class="bad" role="alert">${error} Your text is kept.</p>`}
      <div class="compose">
        <label class="sr" for="message">Message</label>
        <textarea id="message" ref=${field} rows="1" placeholder=${hint} disabled=${hasEnded} value=${text}
          onInput=${(event) => write(event.target.value)} onKeyDown=${press}></textarea>
        ${busy && html`<label><span class="sr">While a turn runs</span>
          <select class="field" value=${whenBusy} onChange=${(event) => setWhenBusy(event.target.value)}>
            ${WHEN_BUSY.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
          </select></label>`}
        <button class="btn primary icon" aria-label="Send" title="Send (Enter)"
          disabled=${hasEnded || sending || !text.trim()}><${Icon} name="send" /></button>
      </div>
    </form>
  `;
}

function hex(bytes) {
  const random = crypto.getRandomValues(new Uint8Array(bytes));
  return [...random].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
