// Edits a message or a result, and runs again in a fork. The page of the fork then begins with the
// comparison with its parent.

import { post, sessionPath } from "./api.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { link } from "./router.js";

let compared = null;

/** Whether the page of this session begins with the comparison. */
export const beginsCompared = (id) => id === compared;

/** `edit`: what is edited, as fields of the request; `text`: its present text; `failed`: whether the
    result is an error, undefined for a message. */
export function Rerun({ session, edit, text, failed }) {
  const [open, setOpen] = useState(false);
  return html`
    <button class="link at" onClick=${() => setOpen(true)}>Edit and run again</button>
    ${open && html`<${Edit} session=${session} edit=${edit} text=${text} failed=${failed}
      close=${() => setOpen(false)} />`}
  `;
}

function Edit({ session, edit, text: before, failed, close }) {
  const dialog = useRef(null);
  const [text, setText] = useState(before);
  const [isError, setIsError] = useState(Boolean(failed));
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  useEffect(() => dialog.current.showModal(), []);
  const isResult = failed !== undefined;
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      const body = { ...edit, text, ...(isResult && { error: isError }) };
      compared = (await post(`${sessionPath(session)}/rerun`, body)).session_id;
      location.hash = link(compared);
    } catch (error) {
      setProblem(error.message);
      setBusy(false);
    }
  };
  const label = `Edit ${isResult ? "the result" : "the message"} and run again`;
  return html`
    <dialog ref=${dialog} aria-label=${label} onClose=${close}>
      <form class="stack" onSubmit=${run}>
        <h2>${label}</h2>
        <p class="dim">${isResult
          ? "The model gets this text instead, in a fork. No tool runs again."
          : "The edited message is sent in a fork."} This session does not change.</p>
        <textarea class="field" rows="10" cols="80" aria-label=${isResult ? "Result" : "Message"} value=${text}
          onInput=${(event) => setText(event.target.value)}></textarea>
        ${isResult && html`<label class="row"><input type="checkbox" checked=${isError}
          onChange=${(event) => setIsError(event.target.checked)} />The call failed</label>`}
        ${problem && html`<p class="bad" role="alert">${problem} Your text is kept.</p>`}
        <div class="row">
          <button class="btn primary" disabled=${busy || (!isResult && !text.trim())}>Run again</button>
          <button class="btn" type="button" onClick=${close}>Close</button>
        </div>
      </form>
    </dialog>
  `;
}
