// Shows arguments and results as a table if they are an object, else as text or JSON.

import { brief, pretty } from "./format.js";
import { html, useState } from "./lib.js";

const CHARS = 12_000; // of a text that are shown at first
const ROWS = 40;

/** A plain text. A long text is cut until the user asks for all of it. */
export function Text({ text }) {
  const [all, setAll] = useState(false);
  const long = text.length > CHARS && !all;
  return html`${long ? text.slice(0, CHARS) : text}${long && html`
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

/** An object as a table of its fields; any other value as text. */
export function Values({ value, label }) {
  const [all, setAll] = useState(false);
  if (value === undefined || value === null || value === "") return null;
  if (!isObject(value)) {
    const text = textOf(value) ?? pretty(value);
    return html`<pre class="code" tabindex="0" aria-label=${label}><${Text} text=${text} /></pre>`;
  }
  const rows = Object.entries(value);
  if (!rows.length) return html`<p class="faint" aria-label=${label}>no arguments</p>`;
  const shown = all ? rows : rows.slice(0, ROWS);
  return html`
    <table class="args" aria-label=${label}><tbody>
      ${shown.map(([name, inner]) => html`<tr key=${name}><th scope="row"><bdi>${name}</bdi></th>
        <td><bdi><${Text} text=${flat(inner)} /></bdi></td></tr>`)}
    </tbody></table>
    ${rows.length > ROWS && !all && html`<button class="link" onClick=${() => setAll(true)}>
      Show all ${rows.length} fields</button>`}
  `;
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
  if (!isObject(value)) return typeof value === "string" ? brief(value, 80) : "";
  return brief(Object.values(value).filter((one) => one === null || typeof one !== "object").join(", "), 80);
}
