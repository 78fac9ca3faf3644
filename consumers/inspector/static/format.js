// Formats values for people. Everything here returns plain text, which is never used as HTML.

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const NUMBER = new Intl.NumberFormat("en");

export const clock = (ms) => (ms ? CLOCK.format(ms) : "");
export const date = (ms) => (ms ? DATE.format(ms) : "");
export const number = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));

export function ago(ms, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - ms) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function usd(text, unpriced = 0) {
  if (text === null || text === undefined) return unpriced ? "unknown" : "$0";
  const value = Number(text);
  const shown = value === 0 ? "$0" : value < 0.0001 ? "< $0.0001" : `$${value.toFixed(value < 1 ? 4 : 2)}`;
  return unpriced ? `${shown} + unknown` : shown;
}

/** Indented JSON; a text that is JSON is indented too, any other text is unchanged. */
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}

/** The parts of a line's content: {kind: text, thinking, json, attachment; text}. */
export function partsOf(line) {
  const content = line.content;
  if (content === undefined || content === null) return [];
  if (typeof content === "string") return content ? [{ kind: "text", text: content }] : [];
  if (!Array.isArray(content)) return [{ kind: "json", text: JSON.stringify(content, null, 2) }];
  return content.map(partOf).filter((part) => part !== null && part.text !== "");
}

function partOf(block) {
  if (block === null || typeof block !== "object") return { kind: "text", text: String(block) };
  switch (block.type) {
    case "text":
      return { kind: "text", text: String(block.text ?? "") };
    case "thinking":
      return { kind: "thinking", text: String(block.thinking ?? "") };
    case "tool_use": // the call has its own line
      return null;
    case "image":
    case "document":
      return { kind: "attachment", text: `${block.type} ${String(block.title ?? "")}`.trim() };
    default:
      return { kind: "json", text: JSON.stringify(block, null, 2) };
  }
}
