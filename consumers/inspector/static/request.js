// The exact request at the moment, rebuilt by the gateway's fold, and whether the claims agree.

import { lookPath } from "./api.js";
import { useAnswer } from "./budget.js";
import { number, pretty } from "./format.js";
import { html, useEffect, useMemo, useState } from "./lib.js";

const CHARS = 60_000;

export function Request({ session, moment }) {
  const decided = moment.request;
  // Changes with the decided call, and with later claims for it.
  const path = decided && `${lookPath(session.id)}/request?at=${moment.offset}`;
  const { value, error } = useAnswer(path);
  if (!decided) return html`<p class="none">No request was decided up to this point.</p>`;
  if (error) return html`<p class="bad" role="alert">${error}</p>`;
  if (!value) return html`<p class="none">Rebuilding the request…</p>`;
  return html`<${Shown} request=${value} session=${session} />`;
}

function Shown({ request, session }) {
  const [raw, setRaw] = useState(false);
  const here = useDigest(request.body);
  const [notice, setNotice] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(request.body);
      setNotice("copied");
    } catch {
      setNotice(`foldlog request ${session.id} ${request.step}`);
    }
  };
  return html`
    <h2>Request of step ${request.step}, decided at offset ${request.offset}</h2>
    <p class=${`agrees ${mood(request.agrees)}`} role="status">${verdict(request)}</p>
    <dl class="facts">
      <dt>bytes</dt><dd class="num">${number(request.bytes)}</dd>
      <dt>sha256</dt><dd class="sha">${request.sha256}</dd>
      ${here && html`<dt>hash in this page</dt>
        <dd>${here === request.sha256 ? "the same" : `DIFFERENT: ${here}`}</dd>`}
    </dl>
    ${request.claims.map((claim) => html`
      <p class="claim" key=${claim.attempt}>
        attempt ${claim.attempt} at offset <span class="num">${claim.offset}</span>, ${claim.owner},
        ${" "}${claim.builder}: <b class=${mood(claim.agrees)}>${
          claim.agrees === null ? "another builder" : claim.agrees ? "agrees" : "differs"}</b>
      </p>
    `)}
    <div class="row">
      <button aria-pressed=${String(raw)} onClick=${() => setRaw(!raw)}>
        ${raw ? "Show by parts" : "Show as sent"}
      </button>
      <button onClick=${copy}>Copy</button>
      <span class="muted" role="status">${notice}</span>
    </div>
    ${raw ? html`<${Long} text=${request.body} />` : html`<${Outline} body=${request.body} />`}
  `;
}

const mood = (agrees) => (agrees === null ? "" : agrees ? "good" : "bad");

function verdict({ agrees, claims }) {
  if (!claims.length) return "Decided; no model call has been claimed for it up to this point.";
  if (agrees === null) return "Built by another version of the builder, so it cannot be compared.";
  return agrees
    ? "Rebuilt from the log: its SHA-256 matches its claims."
    : "The rebuilt request does NOT match its claims.";
}

/** The hash, computed by the browser; null where it cannot (the page is not in a secure context). */
function useDigest(text) {
  const [digest, setDigest] = useState(null);
  useEffect(() => {
    let isCurrent = true;
    setDigest(null);
    crypto.subtle?.digest("SHA-256", new TextEncoder().encode(text)).then((bytes) => {
      const hex = [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0"));
      if (isCurrent) setDigest(hex.join(""));
    });
    return () => { isCurrent = false; };
  }, [text]);
  return digest;
}

function Outline({ body }) {
  const { system = [], tools = [], messages = [], ...others } = useMemo(() => JSON.parse(body), [body]);
  return html`
    <pre tabindex="0" aria-label="Parameters">${pretty(others)}</pre>
    <${Part} name=${`system, ${system.length} blocks`} value=${system} />
    <${Part} name=${`tools: ${tools.map((tool) => tool.name).join(", ") || "none"}`} value=${tools} />
    ${messages.map((message, n) => html`
      <${Part} key=${n} name=${`${n + 1} ${message.role}: ${start(message)}`} value=${message.content} />
    `)}
  `;
}

function start({ content }) {
  const texts = (Array.isArray(content) ? content : [{ text: content }])
    .map((block) => block.text ?? block.name ?? (typeof block.content === "string" ? block.content : block.type));
  return texts.join(" ").slice(0, 90);
}

function Part({ name, value }) {
  const [open, setOpen] = useState(false);
  return html`
    <details onToggle=${({ target }) => setOpen(target.open)}>
      <summary><bdi>${name}</bdi></summary>
      ${open && html`<${Long} text=${pretty(value)} />`}
    </details>
  `;
}

function Long({ text }) {
  const [all, setAll] = useState(false);
  const cut = text.length > CHARS && !all;
  return html`
    <pre class="body" tabindex="0">${cut ? text.slice(0, CHARS) : text}</pre>
    ${cut && html`<button onClick=${() => setAll(true)}>Show all ${number(text.length)} characters</button>`}
  `;
}
