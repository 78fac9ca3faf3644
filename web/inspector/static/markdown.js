// Draws Markdown as elements of a few kinds: paragraphs, headings, lists, tables, quotes, code,
// bold, italics. Text always stays text: no link is active, no image is fetched, and nothing
// becomes markup.

import { Code } from "./code.js";
import { html, still, useRef } from "./lib.js";
import MarkdownIt from "./vendor/markdown-it.js";
import { clean } from "./visible.js";

const UNUSED = ["autolink", "entity", "image", "lheading", "link", "reference"];
const PRODUCT = /(?<=\w)\*(?=\w)/y;
const parser = new MarkdownIt().disable(UNUSED);

// The asterisks of 2*3*4 are no emphasis.
parser.inline.ruler.before("emphasis", "product", (state) => {
  PRODUCT.lastIndex = state.pos;
  if (!PRODUCT.test(state.src)) return false;
  state.pending += "*";
  state.pos += 1;
  return true;
});

function elements(tokens) {
  const stack = [[null, []]];
  for (const token of tokens) {
    if (token.nesting === 1) stack.push([token, []]);
    else {
      const element = token.nesting ? around(...stack.pop()) : leaf(token);
      stack.at(-1)[1].push(element);
    }
  }
  return stack[0][1];
}

function around(token, inside) {
  const { tag, hidden } = token;
  if (hidden) return inside; // the paragraph of an item in a list without blank lines
  if (/^h\d$/.test(tag)) {
    const level = Number(tag[1]);
    return html`<p role="heading" aria-level=${Math.min(6, level + 2)} class=${`h h${level}`}>${inside}</p>`;
  }
  switch (tag) {
    case "table":
      return html`<div class="scrolls" tabindex="0"><table>${inside}</table></div>`;
    case "th":
      return html`<th scope="col">${inside}</th>`;
    case "ol":
      return html`<ol start=${token.attrGet("start") ?? 1}>${inside}</ol>`;
    default:
      return html`<${tag === "strong" ? "b" : tag}>${inside}<//>`;
  }
}

function leaf({ type, content, info }) {
  switch (type) {
    case "inline":
      return html`<${Inline} text=${content} />`;
    case "code_inline":
      return html`<code>${content}</code>`;
    case "fence":
    case "code_block": {
      const label = `Code ${clean(info.trim())}`;
      return html`<${Code} text=${content.replace(/\n$/, "")} label=${label} />`;
    }
    case "hr":
      return html`<hr />`;
    case "softbreak":
    case "hardbreak":
      return "\n";
    default:
      return content;
  }
}

// Of a text that grows, only what changed is parsed for its marks and drawn again.
const Inline = still(({ text }) => elements(parser.parseInline(text, {})[0].children));

const letters = (texts) => texts.join("").match(/\p{L}/gu)?.length ?? 0;

/** A block. One of which Markdown would hide a letter (a cell without a column, what is nested too deeply) stays
    text. */
function block(tokens, source) {
  const seen = tokens.flatMap(({ type, content, info }) => (type === "fence" ? [info, content] : [content]));
  return letters(seen) === letters([source]) ? elements(tokens) : html`<p>${source.trim()}</p>`;
}

/** The blocks of a text, each with the line of its start, and the number of lines. */
function blocksOf(text) {
  const tokens = [];
  parser.block.parse(text, parser, {}, tokens);
  const starts = tokens.flatMap(({ level, map }, n) => (level === 0 && map ? [[n, map[0]]] : []));
  const lines = text.split("\n");
  const blocks = starts.map(([n, line], place) => {
    const [nextToken, nextLine] = starts[place + 1] ?? [];
    return { line, drawn: block(tokens.slice(n, nextToken), lines.slice(line, nextLine).join("\n")) };
  });
  return [blocks, lines.length];
}

/** A text of a person or a model as elements. Of a text that grows, the blocks before the last are
    neither read nor drawn again. */
export const Markdown = still(({ text }) => {
  const kept = useRef({ text: "", drawn: [] });
  if (!text.startsWith(kept.current.text)) kept.current = { text: "", drawn: [] };
  const { text: before, drawn } = kept.current;
  // With the line end before it, because what `clean` shows of a character depends on the one before.
  const rest = before ? clean(text.slice(before.length - 1)).slice(1) : clean(text);
  const [blocks, lines] = blocksOf(rest);
  // Until the first two lines of a block are complete, it may turn out to continue the one before.
  const last = blocks.findLastIndex(({ line }) => line + 2 < lines);
  if (last > 0) {
    const done = text.slice(before.length).split("\n", blocks[last].line).join("\n").length + 1;
    kept.current = {
      text: text.slice(0, before.length + done),
      drawn: [...drawn, ...blocks.slice(0, last).map((one) => one.drawn)],
    };
  }
  return html`<div class="md text" dir="auto">${[...drawn, ...blocks.map((one) => one.drawn)]}</div>`;
});
