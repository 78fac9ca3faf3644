// Shows arguments and results as a tree of tables if they are an object or a list of rows, else as
// text or JSON.

import { brief, number, plural, pretty } from "./format.js";
import { Icon } from "./icons.js";
import { html, useMemo, useRef, useState } from "./lib.js";
import { useSeen } from "./seen.js";
import { clean, Exact, exact, exactJson } from "./visible.js";

const CHARS = 12_000; // of a text that are shown at first
const ROWS = 40;
const COLUMNS = 8; // of a table of rows
const DEPTH = 8; // of the tree; deeper values are JSON

/** A plain text. A long text is cut until the user asks for all of it. `show`: how it is shown. */
export function Text({ text, show = clean }) {
  const [all, setAll] = useState(false);
  const long = text.length > CHARS && !all;
  return html`${show(long ? text.slice(0, CHARS) : text)}${long && html`
    <button class="link" onClick=${() => setAll(true)}>Show all ${text.length} characters</button>`}`;
}

/** The value of a content: the parsed JSON, or the text if it is not JSON. */
export function valueOf(content) {
  if (typeof content !== "string") return content;
  try {
    return JSON.parse(content);
  } catch {
    return content;
  }
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

const exactly = (text) => html`<${Exact} pieces=${exact(text)} />`;

/** An object as a table of its fields, a list of like objects as a table of rows; any other value as
    text. Arguments are shown exactly. */
export function Values({ value, label }) {
  const show = label === "Arguments" ? exactly : clean;
  if (value === undefined || value === null || value === "") return null;
  const text = textOf(value);
  if (text !== null || !(isObject(value) || value.some?.((one) => one && typeof one === "object"))) {
    return html`<pre class="code" tabindex="0" aria-label=${label}>
      <${Text} text=${text ?? pretty(value)} show=${show} /></pre>`;
  }
  if (isObject(value) && !Object.keys(value).length) return html`<p class="faint" aria-label=${label}>no arguments</p>`;
  return html`<${Fields} value=${value} label=${label} show=${show} depth=${0} />`;
}

/** The fields of an object or the items of a list, one row each. */
function Fields({ value, label, show, depth }) {
  const [all, setAll] = useState(false);
  const columns = columnsOf(value);
  const rows = Object.entries(value);
  const shown = all ? rows : rows.slice(0, ROWS);
  return html`
    <div class="scrolls"><table class=${columns ? "tbl rows" : "args"} aria-label=${label}>
      ${columns && html`<thead><tr>${columns.map((name) => html`
        <th scope="col"><bdi>${show(name)}</bdi></th>`)}</tr></thead>`}
      <tbody>${shown.map(([name, inner]) => html`<tr key=${name}>${columns
        ? columns.map((column) => html`<td><bdi>${column in inner && show(flat(inner[column]))}</bdi></td>`)
        : html`<th scope="row"><bdi>${show(name)}</bdi></th>
          <td><${Inner} value=${inner} show=${show} depth=${depth + 1} /></td>`}</tr>`)}</tbody>
    </table></div>
    ${rows.length > ROWS && !all && html`<button class="link" onClick=${() => setAll(true)}>
      Show all ${plural(rows.length, Array.isArray(value) ? "row" : "field")}</button>`}
  `;
}

/** A value inside another one: a text, or a branch of the tree that can be closed. */
function Inner({ value, show, depth }) {
  if (isFlat(value) || depth > DEPTH) return html`<bdi><${Text} text=${flat(value)} show=${show} /></bdi>`;
  const size = Object.keys(value).length;
  return html`<details class="branch" open=${depth < 3}>
    <summary><${Icon} name="right" small />${plural(size, Array.isArray(value) ? "item" : "field")}</summary>
    <${Fields} value=${value} show=${show} depth=${depth} /></details>`;
}

/** The columns of a list of objects whose values are short; null for any other value. */
function columnsOf(value) {
  if (!Array.isArray(value) || value.length < 2 || !value.every(isObject)) return null;
  const columns = [...new Set(value.flatMap((row) => Object.keys(row)))];
  const short = value.every((row) => Object.values(row).every((one) => flat(one).length <= 60));
  return columns.length && columns.length <= COLUMNS && short ? columns : null;
}

/** The arguments of a call about which a person decides, as [what to draw, what was seen of it]: all
    of them, with nothing hidden. See seen.js. */
export function useArguments(text) {
  const box = useRef(null);
  const seen = useSeen(box, text);
  const [open, setOpen] = useState(false);
  const drawn = useMemo(() => html`<${All} text=${text} />`, [text]);
  const well = html`
    <div class=${`well exact ${open ? "open" : ""}`} tabindex="0" role="group" aria-label="Arguments">
      <div ref=${box}>${drawn}</div>
    </div>
    ${(open || !seen.whole) && html`<button class="link" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>
      ${open ? "Show less" : `Show all ${number(text.length)} characters at once`}</button>`}`;
  return [well, seen];
}

/** Why a call cannot be allowed yet, in the place of the button's text. */
export const waitsText = ({ share }) => `Allow once all of it was shown (${Math.floor(100 * share)} %)`;

/** A table of the arguments, or their JSON if a table would differ from it: for example, if a
    name occurs twice, or a number has more digits than JavaScript keeps. */
function All({ text }) {
  const fields = fieldsOf(text);
  if (fields === null) return html`<pre class="args-json"><bdi><${Exact} pieces=${exactJson(text)} /></bdi></pre>`;
  if (!fields.length) return html`<p class="faint">No arguments</p>`;
  return html`<table class="args"><tbody>${fields.map(([name, value]) => html`<tr key=${name}>
    <th scope="row"><bdi><${Exact} pieces=${exact(name)} /></bdi></th>
    <td><bdi><${Exact} pieces=${typeof value === "string" ? exact(value) : exactJson(textOfField(value))} /></bdi></td>
  </tr>`)}</tbody></table>`;
}

const textOfField = (value) => (isFlat(value) ? JSON.stringify(value) : pretty(value));
const JSON_TOKENS = /"(?:[^"\\]|\\.)*"|\s+/gs;

/** The fields of an object, or null if the text is something else or says more than its fields. */
function fieldsOf(text) {
  try {
    const value = JSON.parse(text);
    const plain = text.replace(JSON_TOKENS, (one) => (one[0] === '"' ? JSON.stringify(JSON.parse(one)) : ""));
    return isObject(value) && JSON.stringify(value) === plain ? Object.entries(value) : null;
  } catch {
    return null;
  }
}

/** The text of a string, or of content blocks that are all text; null for anything else. */
function textOf(value) {
  if (typeof value === "string") return value;
  if (!Array.isArray(value) || !value.length) return null;
  const texts = value.map((block) => (block?.type === "text" ? block.text : null));
  return texts.every((text) => typeof text === "string") ? texts.join("") : null;
}

const flat = (value) => (typeof value === "string" ? value : isFlat(value) ? JSON.stringify(value) : pretty(value));
const isFlat = (value) => !value || typeof value !== "object" || JSON.stringify(value).length <= 60;

/** The first values of the arguments, on the line of a call. */
export function gist(value) {
  if (!isObject(value)) return typeof value === "string" ? clean(brief(value, 80)) : "";
  return clean(brief(Object.values(value).filter((one) => one === null || typeof one !== "object").join(", "), 80));
}
