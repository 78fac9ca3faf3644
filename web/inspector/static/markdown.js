// Turns Markdown into elements of a few kinds: paragraphs, headings, lists, tables, quotes, code,
// bold, italics. Text always stays text: no link is active, no image is fetched, and nothing
// becomes markup.

import { html, still } from "./lib.js";
import { clean } from "./visible.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const ITEM = /^( *)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/;
const CELLS = /^ *\|?(?: *:?-+:? *\|)+ *:?-*:? *\|? *$/;
const NESTED_MAX = 6;

/** The blocks of a text, as {kind, ...}. Never fails: any text that is no other block is a
    paragraph. */
export function blocksOf(text, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const found = [];
  let words = [];
  const flush = () => {
    if (words.length) found.push({ kind: "p", text: words.join("\n") });
    words = [];
  };
  for (let n = 0; n < lines.length; n += 1) {
    const line = lines[n];
    const fence = FENCE.exec(line);
    if (fence) {
      flush();
      const end = closing(lines, n + 1, fence[1]);
      found.push({ kind: "code", language: fence[2], text: lines.slice(n + 1, end).join("\n") });
      n = end;
    } else if (!line.trim()) flush();
    else if (RULE.test(line) && !words.length) found.push({ kind: "hr" });
    else if (HEADING.test(line)) {
      flush();
      const [, marks, words_] = HEADING.exec(line);
      found.push({ kind: "h", level: marks.length, text: words_ });
    } else if (line.includes("|") && CELLS.test(lines[n + 1] ?? "") && lines[n + 1].includes("-") && !words.length) {
      const end = until(lines, n + 2, (one) => !one.includes("|") || !one.trim());
      found.push({ kind: "table", head: cells(line), rows: lines.slice(n + 2, end).map(cells) });
      n = end - 1;
    } else if (/^ {0,3}>/.test(line) && depth < NESTED_MAX) {
      flush();
      const end = until(lines, n + 1, (one) => !/^ {0,3}>/.test(one));
      const inner = lines.slice(n, end).map((one) => one.replace(/^ {0,3}> ?/, "")).join("\n");
      found.push({ kind: "quote", blocks: blocksOf(inner, depth + 1) });
      n = end - 1;
    } else if (ITEM.test(line) && depth < NESTED_MAX && (!words.length || !ITEM.exec(line)[2])) {
      flush();
      const [list, end] = listAt(lines, n, depth);
      found.push(list);
      n = end - 1;
    } else words.push(line);
  }
  flush();
  return found;
}

function closing(lines, from, fence) {
  const isEnd = (one) => one.trimStart().startsWith(fence) && /^ *[`~]+ *$/.test(one);
  return until(lines, from, isEnd);
}

function until(lines, from, isEnd) {
  let n = from;
  while (n < lines.length && !isEnd(lines[n])) n += 1;
  return n;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

/** The list that begins at a line, and the number of the line after the list. A more indented
    line belongs to the item before it. */
function listAt(lines, from, depth) {
  const [, { length: indent }, number] = ITEM.exec(lines[from]);
  const items = [];
  let n = from;
  for (; n < lines.length; n += 1) {
    const [, spaces, ordinal, words] = ITEM.exec(lines[n]) ?? [];
    const deep = /^ */.exec(lines[n])[0].length;
    if (words !== undefined && spaces.length <= indent + 1 && (ordinal === undefined) === (number === undefined)) {
      if (spaces.length < indent) break;
      items.push([words]);
    } else if (deep > indent && lines[n].trim()) items.at(-1).push(lines[n].slice(indent + 2));
    else if (!lines[n].trim() && isPart(lines[n + 1] ?? "", indent, number)) items.at(-1).push("");
    else break;
  }
  const blocks = items.map((item) => blocksOf(item.join("\n"), depth + 1));
  return [{ kind: "list", start: number === undefined ? null : Number(number), items: blocks }, n];
}

function isPart(line, indent, number) {
  const item = ITEM.exec(line);
  if (item) return item[1].length >= indent && (item[2] === undefined) === (number === undefined);
  return line.trim() !== "" && /^ */.exec(line)[0].length > indent;
}

// Code comes first, because nothing inside code is a mark. A mark touches the words that it marks.
const INLINE = new RegExp([
  "(`+)([^`]|[^`][\\s\\S]*?[^`])\\1(?!`)",
  "(\\*\\*|__)(?=\\S)([\\s\\S]*?\\S)\\3(?![*_]?\\w)",
  "(?<![\\w*])\\*(?=[^\\s*])([^*\\n]*[^\\s*])\\*(?![\\w*])",
  "(?<!\\w)_(?=[^\\s_])([^_\\n]*[^\\s_])_(?!\\w)",
  "~~(?=\\S)([^~\\n]*\\S)~~",
].join("|"), "g");

/** A text with code, bold and italics as elements; everything else is unchanged. */
export function inline(text, depth = 0) {
  if (depth > 4 || text.length > 20_000) return text;
  const found = [];
  let done = 0;
  for (const match of text.matchAll(INLINE)) {
    const [all, , code, , bold, star, score, struck] = match;
    if (match.index > done) found.push(text.slice(done, match.index));
    done = match.index + all.length;
    if (code !== undefined) found.push(html`<code>${code}</code>`);
    else if (bold !== undefined) found.push(html`<b>${inline(bold, depth + 1)}</b>`);
    else if (struck !== undefined) found.push(html`<s>${inline(struck, depth + 1)}</s>`);
    else found.push(html`<em>${inline(star ?? score, depth + 1)}</em>`);
  }
  if (done < text.length) found.push(text.slice(done));
  return found.length === 1 ? found[0] : found;
}

function draw(block, n) {
  switch (block.kind) {
    case "code":
      return html`<pre key=${n} class="code" tabindex="0" aria-label=${`Code ${block.language}`}>${block.text}</pre>`;
    case "h":
      return html`<p key=${n} role="heading" aria-level=${Math.min(6, block.level + 2)} class=${`h h${block.level}`}>${
        inline(block.text)}</p>`;
    case "hr":
      return html`<hr key=${n} />`;
    case "quote":
      return html`<blockquote key=${n}>${block.blocks.map(draw)}</blockquote>`;
    case "list": {
      const items = block.items.map((blocks, place) => html`<li key=${place}>${
        blocks.length === 1 && blocks[0].kind === "p" ? inline(blocks[0].text) : blocks.map(draw)}</li>`);
      if (block.start === null) return html`<ul key=${n}>${items}</ul>`;
      return html`<ol key=${n} start=${block.start}>${items}</ol>`;
    }
    case "table":
      return html`<div key=${n} class="scrolls" tabindex="0"><table>
        <thead><tr>${block.head.map((cell) => html`<th scope="col">${inline(cell)}</th>`)}</tr></thead>
        <tbody>${block.rows.map((row) => html`<tr>${block.head.map((_, place) => html`<td>${
          inline(row[place] ?? "")}</td>`)}</tr>`)}</tbody>
      </table></div>`;
    default:
      return html`<p key=${n}>${inline(block.text)}</p>`;
  }
}

/** A text of a person or a model as elements. */
export const Markdown = still(({ text }) => html`<div class="md text" dir="auto">${
  blocksOf(clean(text)).map(draw)}</div>`);
