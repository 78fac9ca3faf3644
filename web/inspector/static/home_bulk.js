// Actions on several sessions at once: stop their turns, export them. Each action first asks for
// confirmation with the number of sessions.

import { get, post, sessionPath } from "./api.js";
import { number, plural } from "./format.js";
import { titleOf } from "./home_words.js";
import { Icon } from "./icons.js";
import { html, useEffect, useRef, useState } from "./lib.js";

const AT_ONCE = 4;
const NAMED = 5;
const REASON = "stopped on the inspector's home page";

const isRunning = (row) => row.turn_at !== null;

/** Calls `act` for each row, a few at a time. Returns [row, error] for each failed row. */
export async function each(rows, act, onDone) {
  const left = [...rows];
  const failed = [];
  let done = 0;
  const worker = async () => {
    for (let row = left.shift(); row !== undefined; row = left.shift()) {
      try {
        await act(row);
      } catch (error) {
        failed.push([row, error.message]);
      }
      done += 1;
      onDone(done);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return failed;
}

export function Bulk({ rows, clear, model }) {
  const [asked, setAsked] = useState(null);
  const [result, setResult] = useState("");
  const running = rows.filter(isRunning);
  useEffect(() => {
    if (rows.length) setResult("");
  }, [rows.length]);
  if (!rows.length) return html`<p class="dim result" role="status">${result}</p>`;
  const finish = (text) => {
    setAsked(null);
    setResult(text);
    clear();
    model.nudge();
  };
  return html`
    <div class="bulk" role="region" aria-label="Selected sessions">
      <b class="num" role="status">${plural(rows.length, "session")} selected</b>
      <button class="btn" disabled=${!running.length} onClick=${() => setAsked("stop")}>
        <${Icon} name="stop" small />Stop ${plural(running.length, "turn")}</button>
      <button class="btn" onClick=${() => setAsked("export")}>
        <${Icon} name="copy" small />Export ${plural(rows.length, "session")}</button>
      <button class="btn quiet" onClick=${clear}>Clear selection</button>
    </div>
    ${asked === "stop" && html`<${Stop} rows=${running} others=${rows.length - running.length} finish=${finish}
      close=${() => setAsked(null)} />`}
    ${asked === "export" && html`<${Export} rows=${rows} finish=${finish} close=${() => setAsked(null)} />`}
  `;
}

function Dialog({ label, close, children }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} class="first-asked" aria-label=${label} onClose=${close}>
    <h2>${label}</h2>${children}</dialog>`;
}

const Names = ({ rows }) => html`<ul class="names">
  ${rows.slice(0, NAMED).map((row) => html`<li class="cut"><bdi>${titleOf(row)}</bdi></li>`)}
  ${rows.length > NAMED && html`<li class="faint">and ${number(rows.length - NAMED)} more</li>`}
</ul>`;

function useEach(rows, act, said, finish) {
  const [done, setDone] = useState(null);
  const [failed, setFailed] = useState([]);
  const run = async () => {
    setDone(0);
    const problems = await each(rows, act, setDone);
    const text = said(rows.length - problems.length);
    if (!problems.length) finish(text);
    else setFailed(problems);
  };
  return { done, failed, run };
}

const Progress = ({ done, of }) => html`<p class="reading" role="status">
  <progress max=${of} value=${done}></progress><span class="num">${number(done)} of ${number(of)}</span></p>`;

const Failed = ({ failed, of }) => html`<div role="alert" class="bad">
  <p>${plural(failed.length, "session")} of ${number(of)} failed:</p>
  <ul class="names">${failed.slice(0, NAMED).map(([row, why]) => html`
    <li><bdi>${titleOf(row)}</bdi>: ${why}</li>`)}</ul>
</div>`;

function Stop({ rows, others, finish, close }) {
  const stop = (row) =>
    post(`${sessionPath(row.id)}/cancel`, { turn: row.turns, seen_phase: row.phase, reason: REASON });
  const said = (number) => `${plural(number, "turn")} stopped.`;
  const { done, failed, run } = useEach(rows, stop, said, finish);
  const label = `Stop ${plural(rows.length, "running turn")}?`;
  return html`<${Dialog} label=${label} close=${close}>
    <${Names} rows=${rows} />
    <p class="dim">What was written so far is kept, and ${
      rows.length === 1 ? "the session" : "the sessions"} can be continued.
      ${others > 0 && ` ${plural(others, "selected session")} ${others === 1 ? "runs" : "run"} nothing and ${
        others === 1 ? "is" : "are"} left alone.`}</p>
    ${done !== null && !failed.length && html`<${Progress} done=${done} of=${rows.length} />`}
    ${failed.length > 0 && html`<${Failed} failed=${failed} of=${rows.length} />`}
    <div class="acts">
      <button class="btn" disabled=${done !== null} onClick=${run}>Stop ${plural(rows.length, "turn")}</button>
      <button class="btn quiet" autofocus onClick=${close}>${
        failed.length ? "Close" : rows.length === 1 ? "Let it run" : "Let them run"}</button>
    </div>
  <//>`;
}

function Export({ rows, finish, close }) {
  const lines = useRef(new Map());
  const fetch = async (row) => {
    const { lines: transcript } = await get(`${sessionPath(row.id)}/transcript`);
    const { id, user, agent, title, status, reason, turns, usd, tokens, started_at, updated_at } = row;
    const facts = {
      session_id: id, user_id: user, agent, title, status, reason, turns, usd, tokens, started_at, updated_at,
    };
    lines.current.set(id, JSON.stringify({ ...facts, lines: transcript }));
  };
  const said = (number) => {
    const found = rows.map((row) => lines.current.get(row.id)).filter((line) => line !== undefined);
    download(`foldlog-${plural(number, "session").replace(" ", "-")}.jsonl`, `${found.join("\n")}\n`);
    return `${plural(number, "session")} exported.`;
  };
  const { done, failed, run } = useEach(rows, fetch, said, finish);
  const label = `Export ${plural(rows.length, "session")}?`;
  return html`<${Dialog} label=${label} close=${close}>
    <${Names} rows=${rows} />
    <p class="dim">One file of JSON lines: each session with its messages, calls, results and cost. It is made in
      this browser. For a whole session with every event, use <code>foldlog export</code>.</p>
    ${done !== null && !failed.length && html`<${Progress} done=${done} of=${rows.length} />`}
    ${failed.length > 0 && html`<${Failed} failed=${failed} of=${rows.length} />`}
    <div class="acts">
      <button class="btn primary" disabled=${done !== null} onClick=${run}>
        Export ${plural(rows.length, "session")}</button>
      <button class="btn quiet" onClick=${close}>Close</button>
    </div>
  <//>`;
}

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
