// Shows the exact request of the newest step: first readable blocks, then the bytes and their hash.

import { lookPath } from "./api.js";
import { Values, valueOf } from "./args.js";
import { brief, number, pretty, size } from "./format.js";
import { Icon } from "./icons.js";
import { html, useEffect, useMemo, useState } from "./lib.js";
import { Markdown } from "./markdown.js";
import { fillOf, Stack, StackKey } from "./stack.js";
import { useAnswer } from "./useanswer.js";

const CHARS = 60_000;

export function Request({ session, moment }) {
  const decided = moment.request;
  // The response changes with the decided model call, and with later claims for it.
  const path = decided && `${lookPath(session.id)}/request?at=${moment.offset}`;
  const { value, error } = useAnswer(path);
  if (!decided) return html`<h2>No request yet</h2><p class="lead">No request was decided up to this point.</p>`;
  if (error) return html`<p class="bad" role="alert">${error}</p>`;
  if (!value) return html`<p class="none">Building the request again from the log…</p>`;
  return html`<${Shown} request=${value} session=${session} />`;
}

function Shown({ request, session }) {
  const [raw, setRaw] = useState(false);
  const [notice, setNotice] = useState("");
  const blocks = useMemo(() => blocksOf(request), [request.body, request.previous?.same_messages]);
  const fill = useMemo(() => fillOf(blocks), [blocks]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(request.body);
      setNotice("copied");
    } catch {
      setNotice(`foldlog request ${session.id} ${request.step}`);
    }
  };
  const { usage } = request;
  const hits = usage?.cached ? `, ${number(usage.cached)} of them from the cache` : "";
  const tokens = usage ? `${number(usage.read)} tokens${hits}` : `About ${number(request.estimated)} tokens`;
  return html`
    <div class="stack">
      <div><h2>What the model saw in step ${request.step}</h2>
        <p class="lead num">${tokens}. Sent to <bdi>${request.model}</bdi>.</p></div>
      <div><${Stack} parts=${fill} label="What fills the request" /><${StackKey} parts=${fill} /></div>
      <div>
        <div class="row">
          <span class="seg" role="group" aria-label="Form">
            <button aria-pressed=${String(!raw)} onClick=${() => setRaw(false)}>Readable</button>
            <button aria-pressed=${String(raw)} onClick=${() => setRaw(true)}>As sent</button>
          </span>
          <span class="grow"></span>
          <span class="faint" role="status">${notice}</span>
          <button class="btn" onClick=${copy}><${Icon} name="copy" small />Copy</button>
        </div>
        ${raw ? html`<${Long} text=${request.body} />` : html`<${Blocks} blocks=${blocks} request=${request} />`}
      </div>
      <${Proof} request=${request} />
    </div>
  `;
}

/** The request as blocks: {name, gist, value, bytes, part, same}. */
function blocksOf(request) {
  const { system = [], tools = [], messages = [], ...others } = JSON.parse(request.body);
  const same = request.previous?.same_messages ?? 0;
  const block = (name, part, value, gist, isSame) =>
    ({ name, part, value, gist, same: isSame, bytes: JSON.stringify(value).length });
  const found = [];
  const isSame = request.previous !== null;
  found.push(block("system", "system", system, textOf(system), isSame));
  found.push(block("tool list", "tools", tools, tools.map((tool) => tool.name).join(", ") || "none", isSame));
  for (const [n, message] of messages.entries()) {
    const blocks = Array.isArray(message.content) ? message.content : [{ type: "text", text: String(message.content) }];
    const isResult = blocks.some((one) => one?.type === "tool_result");
    const part = message.role === "assistant" ? "model" : isResult ? "results" : "people";
    const name = { model: "model", results: "result", people: "person" }[part];
    found.push(block(name, part, blocks, textOf(blocks), n < same));
  }
  found.push(block("settings", "settings", others, Object.entries(others).map(([name, value]) =>
    `${name} ${typeof value === "object" ? "…" : value}`).join(", "), isSame));
  return found;
}

function textOf(blocks) {
  const inner = ({ content, type }) =>
    (typeof content === "string" ? content : Array.isArray(content) ? textOf(content) : type);
  const all = Array.isArray(blocks) ? blocks : [{ text: blocks }];
  const texts = all.map((block) => block?.text ?? block?.name ?? inner(block ?? {}));
  return brief(texts.filter((text) => typeof text === "string").join(" "), 90);
}

/** The blocks in order. Messages that were in the step before too are collapsed, since a cache
    can serve them. */
function Blocks({ blocks, request }) {
  const [all, setAll] = useState(false);
  const messages = blocks.filter((block) => !["system", "tools", "settings"].includes(block.part));
  const old = messages.filter((block) => block.same);
  const fresh = messages.filter((block) => !block.same);
  const shown = all || old.length < 3 ? old : [];
  const rest = blocks.filter((block) => block.part === "settings");
  return html`
    ${blocks.filter((block) => ["system", "tools"].includes(block.part))
      .map((block) => html`<${Block} block=${block} />`)}
    ${old.length >= 3 && html`<button class="blk pleat" aria-expanded=${String(all)} onClick=${() => setAll(!all)}>
      <i class="glyph pleat"></i><span>${old.length} messages, as in step ${request.previous.step}</span>
      <span class="faint">${all ? "hide" : "show"}</span></button>`}
    ${shown.map((block) => html`<${Block} block=${block} />`)}
    ${request.previous && html`<p class="cacheline num">New since step ${request.previous.step}. The first ${
      number(request.previous.same_bytes)} of ${number(request.bytes)} bytes are the same: a cache can serve them.</p>`}
    ${fresh.map((block) => html`<${Block} block=${block} />`)}
    ${rest.map((block) => html`<${Block} block=${block} />`)}
  `;
}

function Block({ block }) {
  const [open, setOpen] = useState(false);
  return html`
    <details class="blk" onToggle=${({ target }) => setOpen(target.open)}>
      <summary><${Icon} name="right" small /><span class=${`dim p-${block.part}`}>${block.name}</span>
        <span class="cut"><bdi>${block.gist}</bdi></span><span class="faint num">${size(block.bytes)}</span></summary>
      ${open && html`<div class="in"><${Readable} block=${block} /></div>`}
    </details>
  `;
}

function Readable({ block }) {
  if (block.part === "settings") return html`<${Values} value=${block.value} label="Settings" />`;
  if (block.part === "tools") {
    return block.value.map((tool) => html`<div key=${tool.name}><p><code>${tool.name}</code>${" "}
      <span class="dim">${tool.description}</span></p><${Long} text=${pretty(tool.input_schema)} /></div>`);
  }
  const blocks = Array.isArray(block.value) ? block.value : [{ type: "text", text: String(block.value) }];
  return blocks.map((one, n) => html`<div key=${n}>${content(one)}</div>`);
}

function content(one) {
  switch (one?.type) {
    case "text":
      return html`<${Markdown} text=${String(one.text)} />`;
    case "tool_use":
      return html`<p>calls <code>${one.name}</code></p><${Values} value=${one.input} label="Arguments" />`;
    case "tool_result":
      return html`<${Values} value=${valueOf(one.content)} label="Result" />`;
    case "thinking":
      return html`<p class="dim text plain">${one.thinking}</p>`;
    default:
      return html`<${Long} text=${pretty(one)} />`;
  }
}

/** Says whether the request that was sent matches the log, with the hashes on demand. */
function Proof({ request }) {
  const here = useDigest(request.body);
  const { agrees, claims } = request;
  const words = !claims.length ? "Decided; no model call has been claimed for it up to this point."
    : agrees === null ? "Built by another version of the builder, so it cannot be compared."
    : agrees ? "Rebuilt from the log, the same to the byte as what was sent."
    : "The rebuilt request is NOT what was sent.";
  return html`
    <details class="more proof"><summary role="status"><${Icon} name=${agrees === false ? "fail" : "done"} small />
      <span class=${agrees === false ? "bad" : ""}>${words}</span></summary>
      <dl class="kv"><dt>Bytes</dt><dd class="num">${number(request.bytes)}</dd>
        <dt>SHA-256</dt><dd class="sha mono">${request.sha256}</dd>
        ${here && html`<dt>Hash in this page</dt>
          <dd>${here === request.sha256 ? "the same" : `DIFFERENT: ${here}`}</dd>`}
        <dt>Decided</dt><dd class="num">at offset ${request.offset}</dd>
        ${claims.map((claim) => html`<dt>Attempt ${claim.attempt}</dt>
          <dd>${claim.owner}, offset ${claim.offset}, ${claim.builder}: ${
            claim.agrees === null ? "another builder" : claim.agrees ? "agrees" : "differs"}</dd>`)}</dl></details>
  `;
}

/** The SHA-256, computed by the browser; null if the browser cannot compute it because the page
    is not in a secure context. */
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

function Long({ text }) {
  const [all, setAll] = useState(false);
  const cut = text.length > CHARS && !all;
  return html`
    <pre class="code body" tabindex="0">${cut ? text.slice(0, CHARS) : text}</pre>
    ${cut && html`<button class="link" onClick=${() => setAll(true)}>
      Show all ${number(text.length)} characters</button>`}
  `;
}
