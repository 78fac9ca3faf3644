// Shows characters that a person cannot see. The rules are those of client/visible.py; a test
// compares the two for every character.

import { html } from "./lib.js";

const BLANKS_MAX = 32;
const LINE_ENDS_MAX = 4;
const SAME_MAX = 8;

const HIDDEN = new RegExp("[\\p{C}\\p{Z}\\p{Default_Ignorable_Code_Point}\\u2800\\u2d7f\\ufffc\\u{1107f}\\u{13441}"
  + "\\u{13442}\\u{16fe4}\\u{1d159}]", "u");
const HAS_A_GLYPH = /[\p{Cn}\p{Co}]/u;
const NEVER_HAS = /[\u2065\ufff0-\ufff8\u{e0000}-\u{e0fff}]/u;

const EMOJI = "[\\xa9\\xae\\u203c\\u2049\\u2122\\u2139\\u2190-\\u21ff\\u2300-\\u23ff\\u2460-\\u24ff\\u25a0-\\u27bf"
  + "\\u2900-\\u297f\\u2b00-\\u2bff\\u3030\\u303d\\u3297\\u3299\\u{1f000}-\\u{1faff}]"
  + "[\\ufe0e\\ufe0f]?[\\u{1f3fb}-\\u{1f3ff}]?";
const JOINS = "[\\u0620-\\u06dc\\u06de-\\u06ff\\u0710-\\u088f\\u0892-\\u08e1\\u08e3-\\u0d7f\\u1000-\\u109f"
  + "\\u1780-\\u17b3\\u17b6-\\u17d3]";
const SPACES = "[ \\t\\n\\xa0\\u202f\\u3000]";
const NEEDED = [
  "\\u{1f3f4}\\u{e0067}\\u{e0062}(?:\\u{e0065}\\u{e006e}\\u{e0067}|\\u{e0073}\\u{e0063}\\u{e0074}"
    + "|\\u{e0077}\\u{e006c}\\u{e0073})\\u{e007f}",
  `${EMOJI}(?:\\u200d${EMOJI})*`,
  "\\ufe0f\\u20e3",
  `(?<=${JOINS})[\\u200c\\u200d](?=${JOINS})`,
  `(?<!${SPACES})[\\xa0\\u202f\\u3000](?!${SPACES})`,
].join("|");

const ORDINARY = new RegExp(`(?<needed>${NEEDED})|[^\\t\\n -~]`, "gu");
const SAME = `(?<same>[^\\t\\n -~])\\k<same>{${SAME_MAX},}|[^\\t\\n -~]`;
const LINE_ENDS = `(?:[\\t ]*\\n){${LINE_ENDS_MAX + 1},}`;
const VALUE = new RegExp(`(?<blanks>[\\t\\n ]{${BLANKS_MAX + 1},}|${LINE_ENDS})|${SAME}`, "gu");
const JSON_TEXT = new RegExp(
  `(?<pair>\\\\["\\\\/bfru])|(?<blanks>(?:[\\t\\n ]|\\\\[nt]){${BLANKS_MAX + 1},}|${LINE_ENDS})|${SAME}`, "gu");
const STRING = /"(?:[^"\\]|\\.)*"/gs;
const COUNT = "\u27e8"; // begins a count; therefore arguments show it escaped
const NAMES = { " ": "␠", "\t": "␉", "\n": "␊", "\\t": "␉", "\\n": "␊" };

export const isHidden = (char) => char !== " " && HIDDEN.test(char);

/** Ordinary text with hidden characters escaped, except those that emoji and scripts need. */
export function clean(text) {
  return text.replaceAll("\r\n", "\n").replace(ORDINARY, (char, ...more) => {
    if (more.at(-1).needed || !isHidden(char)) return char;
    if (HAS_A_GLYPH.test(char) && !NEVER_HAS.test(char)) return char;
    if (/\p{Cs}/u.test(char)) return "\ufffd";
    return char.codePointAt(0) < 256 ? `\\x${hex(char, 2)}` : escape(char);
  });
}

/** The pieces of a text that a person approves, as [text, whether foldlog wrote it]: everything
    hidden is escaped, long runs of blanks are counted. */
export const exact = (value) => pieces(value, VALUE);

/** The same for JSON text. */
export const exactJson = (text) => pieces(text.replace(STRING, respelled), JSON_TEXT);

/** The pieces as elements; what foldlog wrote is marked, so that no content can pose as it. */
export function Exact({ pieces: shown }) {
  return shown.map(([text, isMark], n) => (isMark ? html`<span class="hid" key=${n}>${text}</span>` : text));
}

const hex = (char, digits) => char.codePointAt(0).toString(16).padStart(digits, "0");
const escape = (char) => (char.codePointAt(0) < 0x10000 ? `\\u${hex(char, 4)}` : `\\u{${hex(char, 1)}}`);

function pieces(text, rules) {
  const found = [];
  let upto = 0;
  for (const match of text.matchAll(rules)) {
    const shown = markOf(match);
    if (shown === null) continue;
    if (match.index > upto) found.push([text.slice(upto, match.index), false]);
    found.push([shown, true]);
    upto = match.index + match[0].length;
  }
  if (upto < text.length) found.push([text.slice(upto), false]);
  return found;
}

/** What is shown instead of a match; null if the match can be seen. */
function markOf({ 0: text, groups }) {
  if (groups.pair) return null;
  if (groups.blanks) {
    const counts = new Map();
    for (const [one] of text.matchAll(/\\?./gs)) counts.set(NAMES[one], (counts.get(NAMES[one]) ?? 0) + 1);
    return `${COUNT}${[...counts].map(([name, count]) => `${name}×${count}`).join(" ")}⟩`;
  }
  const [char] = text;
  if (!isHidden(char) && char !== COUNT) return null;
  return text === char ? escape(char) : `${COUNT}${escape(char)}×${text.length / char.length}⟩`;
}

function respelled(text) {
  try {
    const strict = text.replace(/\\.|[\0-\x1f]/gs, (one) => (one.length > 1 ? one : `\\u${hex(one, 4)}`));
    return JSON.stringify(JSON.parse(strict));
  } catch {
    return text;
  }
}
