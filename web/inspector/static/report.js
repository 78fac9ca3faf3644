// The form for a person's report on a call in doubt, on the home page and in the conversation.

import { html, useLayoutEffect, useRef, useState } from "./lib.js";

/** By outcome: the label of the field and the name of the button. */
const WORDS = {
  happened: ["What happened? The model gets this as the result.", "Report that it happened"],
  did_not_happen: ["What should the model know? (optional)", "Report that it did not happen"],
};
const CHARS_MAX = 4000;
const MISSING = "Nothing was reported yet. Write what happened: the model gets it as the result.";

/** Calls `onReport` with the text. That a call happened needs a report, which the gateway demands too. */
export function Report({ id, outcome, busy, onReport }) {
  const [report, setReport] = useState("");
  const [error, setError] = useState("");
  const field = useRef(null);
  useLayoutEffect(() => {
    setError("");
    field.current.focus();
  }, [outcome]);
  const submit = (event) => {
    event.preventDefault();
    if (outcome === "happened" && !report.trim()) {
      setError(MISSING);
      field.current.focus();
    } else {
      onReport(report);
    }
  };
  const [label, button] = WORDS[outcome];
  return html`<form class="report" noValidate onSubmit=${submit}>
    <label class="dim">${label}
      <input class="field" value=${report} maxlength=${CHARS_MAX} ref=${field}
        aria-required=${String(outcome === "happened")} aria-invalid=${String(error !== "")}
        aria-describedby=${error ? id : null}
        onInput=${(event) => { setReport(event.target.value); setError(""); }} /></label>
    <div class="row wrap"><button class="btn" disabled=${busy}>${button}</button>
      <span class="faint">Nothing is run again.</span></div>
    ${error && html`<p class="bad" role="alert" id=${id}>${error}</p>`}
  </form>`;
}
