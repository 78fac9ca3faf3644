// The exact request at the moment, rebuilt by the server's fold, and whether the claims agree.

import { lookPath } from "./api.js";
import { useAnswer } from "./budget.js";
import { number, pretty } from "./format.js";
import { html, useEffect, useMemo, useState } from "./lib.js";

const CHARS = 60_000;

export function Request({ session, moment }) {
  const asked = moment.request;
  // It changes with the call that was decided, and with the claims that came since.
  const path = asked && `${lookPath(session.id)}/request?at=${moment.offset}`;
  const { value, error } = useAnswer(path);
  if (!asked) return html`<p class="none">No request was decided by then.</p>`;
  if (error) return html`<p class="bad" role="alert">${error}</p>`;
  if (!value) return html`<p class="none">Rebuilding the request…</p>`;
  return html`<${Shown} request=${value} session=${session} />`;
}

function Shown({ request, session }) {
  const [raw, setRaw] = useState(false);
  const here = useDigest(request.body);
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(request.body);
      setSaid("copied");
    } catch {
      setSaid(`foldlog request ${session.id} ${request.step}`);
    }
  };
  return html`
    <h2>Request of step ${request.step}, decided at offset ${request.offset}</h2>
    <p class=${`agrees ${mood(request.agrees)}`} role="status">${verdict(request)}</p>
    <dl class="facts">
      <dt>bytes</dt><dd class="num">${number(request.bytes)}</dd>
      <dt>sha256</dt><dd class="sha">${request.sha256}</dd>
      ${here && html`<dt>in this page</dt>
        <dd>${here === request.sha256 ? "the same, counted here" : `NOT the same: ${here}`}</dd>`}
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
        ${raw ? "Laid out" : "As it was sent"}
      </button>
      <button onClick=${copy}>Copy</button>
      <span class="muted" role="status">${said}</span>
    </div>
    ${raw ? html`<${Long} text=${request.body} />` : html`<${Outline} body=${request.body} />`}
  `;
}

const mood = (agrees) => (agrees === null ? "" : agrees ? "good" : "bad");

function verdict({ agrees, claims }) {
  if (!claims.length) return "Decided; no model call was claimed for it by then.";
  if (agrees === null) return "Made by another builder than this one: it can't be compared.";
  return agrees
    ? "Rebuilt from the log: its sha256 is the one that its claims name."
    : "The rebuilt request is NOT the one that its claims name.";
}

/** The hash, made by the browser itself; null where it may not (a page that is not secure). */
function useDigest(text) {
  const [digest, setDigest] = useState(null);
  useEffect(() => {
    let wanted = true;
    setDigest(null);
    crypto.subtle?.digest("SHA-256", new TextEncoder().encode(text)).then((bytes) => {
      const words = [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0"));
      if (wanted) setDigest(words.join(""));
    });
    return () => { wanted = false; };
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
  const words = (Array.isArray(content) ? content : [{ text: content }])
    .map((block) => block.text ?? block.name ?? (typeof block.content === "string" ? block.content : block.type));
  return words.join(" ").slice(0, 90);
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
