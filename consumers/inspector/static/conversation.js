// The conversation: lines in order, the streaming output, pending approvals; all of it plain text.

import { clock, partsOf, pretty } from "./format.js";
import { Composer } from "./composer.js";
import { html, still, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";
import { Asks } from "./people.js";

const SHOWN = 150; // items drawn at first; earlier ones on request
const CHARS = 12_000; // of one text, until the user asks for all of it

const OF_CALLS = new Set(["call", "asks", "approval", "result", "doubt", "resolved"]);

/** Groups lines into the items that are drawn: all lines of one call are one item. */
export function itemsOf(lines) {
  const items = [];
  const calls = new Map();
  for (const [place, line] of lines.entries()) {
    if (!OF_CALLS.has(line.kind) || !line.call) {
      items.push({ key: `line ${place}`, kind: line.kind, line });
      continue;
    }
    let item = calls.get(line.call);
    if (!item) {
      item = { key: `call ${line.call}`, kind: "tool", line, lines: [] };
      calls.set(line.call, item);
      items.push(item);
    }
    item.lines.push(line);
  }
  return items;
}

export function Conversation({ session, at, moment }) {
  const past = at !== null;
  const { lines } = session;
  const count = past ? Math.min(moment?.lines ?? 0, lines.length) : lines.length;
  const open = past ? moment?.open : session.open;
  const items = useMemo(() => itemsOf(lines.slice(0, count)), [lines, count]);
  const [more, setMore] = useState(0);
  const shown = items.slice(-(SHOWN + more));
  const hidden = items.length - shown.length;
  const scroller = useRef(null);
  const follows = useRef(true);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (follows.current) box.scrollTop = box.scrollHeight;
  });
  const scrolled = ({ target }) => {
    follows.current = target.scrollHeight - target.scrollTop - target.clientHeight < 40;
  };
  return html`
    <div class="lines" ref=${scroller} onScroll=${scrolled} tabindex="0" role="log"
      aria-label="Conversation" aria-live="off">
      ${hidden > 0 && html`
        <button class="earlier" onClick=${() => setMore(more + SHOWN)}>
          Show earlier: ${hidden} more
        </button>
      `}
      ${!items.length && !open && html`<p class="none">${session.loaded ? "No messages yet." : " "}</p>`}
      ${shown.map((item) => html`<${Item} key=${item.key} item=${item} count=${item.lines?.length} />`)}
      ${open && html`<${Streaming} open=${open} past=${past} />`}
    </div>
    <${Asks} session=${session} moment=${moment} past=${past} />
    ${!past && html`<${Composer} session=${session} moment=${moment} />`}
  `;
}

const Item = still(({ item }) => {
  switch (item.kind) {
    case "message":
      return html`<${Message} who="user" line=${item.line} label=${item.line.name} />`;
    case "answer":
    case "partial":
      return html`<${Message}
        who="assistant"
        line=${item.line}
        label=${item.kind === "partial" ? `stopped: ${item.line.name}` : ""}
      />`;
    case "tool":
      return html`<${Tool} item=${item} />`;
    default:
      return html`<${Note} line=${item.line} />`;
  }
});

function Message({ who, line, label }) {
  const parts = partsOf(line);
  if (!parts.length) return null;
  return html`
    <article class=${`message ${who}`} aria-label=${`${who}, offset ${line.offset}`}>
      ${parts.map((part, n) => html`<${Part} key=${n} part=${part} />`)}
      <footer>
        ${label && html`<bdi>${label}</bdi>`}
        <span class="num">${line.turn}.${line.step}</span>
        <time class="num">${clock(line.at)}</time>
      </footer>
    </article>
  `;
}

function Part({ part }) {
  switch (part.kind) {
    case "thinking":
      return html`<details class="thinking">
        <summary>Thinking</summary><${Text} text=${part.text} />
      </details>`;
    case "json":
      return html`<pre><${Text} text=${part.text} bare /></pre>`;
    case "attachment":
      return html`<p class="attached">${part.text}</p>`;
    default:
      return html`<${Text} text=${part.text} />`;
  }
}

/** A plain text; a long one is cut until the user asks for all of it. */
export function Text({ text, bare }) {
  const [all, setAll] = useState(false);
  const long = text.length > CHARS && !all;
  const shown = long ? text.slice(0, CHARS) : text;
  return html`
    ${bare ? shown : html`<p class="text" dir="auto">${shown}</p>`}
    ${long && html`<button class="quiet" onClick=${() => setAll(true)}>
      Show all ${text.length} characters
    </button>`}
  `;
}

function Tool({ item }) {
  const [first] = item.lines;
  const request = item.lines.find((line) => line.kind === "call" || line.kind === "asks");
  const result = item.lines.findLast((line) => line.kind === "result" || line.kind === "resolved");
  const state = stateOf(item.lines);
  const others = item.lines.filter((line) => line !== request && line !== result)
    .map(labelOf).filter((label, n, all) => label !== all[n - 1]); // a doubt has two lines
  const args = request ? partsOf(request).map((part) => pretty(part.text)).join("\n") : "";
  const output = result ? partsOf(result).map((part) => part.text).join("\n") : "";
  return html`
    <article class=${`tool ${state.mood}`} aria-label=${`Tool ${first.name}, ${state.word}`}>
      <header>
        <b><bdi>${first.name}</bdi></b>
        <span class="num">${item.lines[0].call}</span>
        <span class=${`mood ${state.mood}`}>${state.word}</span>
      </header>
      ${args && html`<pre class="args" aria-label="Arguments"><${Text} text=${args} bare /></pre>`}
      ${others.map((label) => html`<p class="step">${label}</p>`)}
      ${output && html`<pre class="result" aria-label="Result"><${Text} text=${output} bare /></pre>`}
    </article>
  `;
}

function stateOf(lines) {
  const last = lines.at(-1);
  const outcome = last.text.split(";")[0];
  switch (last.kind) {
    case "asks":
      return { word: "waits for approval", mood: "waits" };
    case "call":
      return { word: "called", mood: "runs" };
    case "approval":
      return { word: last.text, mood: last.text === "allow" ? "runs" : "bad" };
    case "doubt":
      return { word: "outcome unknown", mood: "waits" };
    case "resolved":
      return { word: `reported by a person: ${last.text.replaceAll("_", " ")}`, mood: "done" };
    default:
      return { word: outcome.replaceAll("_", " "), mood: outcome === "ok" ? "done" : "bad" };
  }
}

const labelOf = (line) => [line.kind, line.text.replaceAll("_", " ")].filter(Boolean).join(": ");

function Note({ line }) {
  const text = {
    ended: `turn ${line.turn} ended: ${line.name.replaceAll("_", " ")}${line.text && ` (${line.text})`}`,
    attempt: `${line.name}: ${line.text}`,
    phase: `phase: ${line.name}`,
    project: `project: ${line.name}`,
    terminated: `terminated ${line.text}`,
  }[line.kind] ?? `${line.kind} ${line.name} ${line.text}`;
  return html`<p class=${`note ${line.kind}`}><bdi>${text}</bdi></p>`;
}

/** The open attempt's output so far. Its box appears with the first token and only grows. */
function Streaming({ open, past }) {
  return html`
    <article class="message assistant streaming" aria-label="The model's output" aria-busy=${!past}>
      ${open.parts.map((part, n) => {
        const key = `${part.block}.${part.kind}.${n}`;
        if (part.kind === "thinking") {
          return html`<details class="thinking" key=${key}>
            <summary>Thinking: ${part.text.length} characters</summary>
            <p class="text" dir="auto">${part.text}</p>
          </details>`;
        }
        if (part.kind === "tool_name") return html`<p class="step" key=${key}>calls <b>${part.text}</b></p>`;
        if (part.kind === "tool_input") return html`<pre key=${key}>${part.text}</pre>`;
        return html`<p class="text" dir="auto" key=${key}>${part.text}</p>`;
      })}
      <footer>
        <span class="num">${open.turn}.${open.step}, attempt ${open.attempt}</span>
        <span class="caret">${past ? "until here" : "streaming"}</span>
      </footer>
    </article>
  `;
}
