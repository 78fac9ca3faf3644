// Formats values for people. Everything here returns plain text, which is never used as HTML.

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const NUMBER = new Intl.NumberFormat("en");
const NUMBERS = [
  "No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve",
];

export const clock = (ms) => (ms ? CLOCK.format(ms) : "");
export const date = (ms) => (ms ? DATE.format(ms) : "");
export const number = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));

export const word = (count) => NUMBERS[count] ?? number(count);
export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

export function ago(ms, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - ms) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** Money; `rest` stands for the attempts without a price. */
export function usd(text, unpriced = 0, rest = "unknown") {
  if (text === null || text === undefined) return unpriced ? "unknown" : "$0";
  const value = Number(text);
  const shown = value === 0 ? "$0" : value < 0.0001 ? "< $0.0001" : `$${value.toFixed(value < 1 ? 4 : 2)}`;
  return unpriced ? `${shown} + ${rest}` : shown;
}

/** The value as indented JSON. A text that is JSON is indented too; any other text is unchanged. */
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
      return attachment(block);
    default:
      return { kind: "json", text: JSON.stringify(block, null, 2) };
  }
}

/** A file that a message contains. `image`: the SHA-256 of an image that the gateway has. */
function attachment({ type, title, source }) {
  const isOurs = source?.type === "foldlog_blob" && /^[0-9a-f]{64}$/.test(source.sha256);
  const facts = [title, source?.media_type ?? type, Number.isInteger(source?.bytes) && size(source.bytes)];
  return {
    kind: "attachment",
    text: facts.filter(Boolean).map(String).join(", "),
    image: isOurs && type === "image" ? source.sha256 : "",
  };
}

/** A number of bytes for people. */
export const size = (bytes) => (bytes < 1000 ? `${bytes} B`
  : bytes < 1e6 ? `${(bytes / 1000).toFixed(bytes < 10_000 ? 1 : 0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

/** A duration for people: 84 ms, 2.6 s, 5 min 43 s, 2 h 5 min, 3 d. */
export function length(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${seconds < 9.95 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return both(minutes, "min", Math.round(seconds % 60), "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return both(hours, "h", minutes % 60, "min");
  return `${Math.floor(hours / 24)} d`;
}

const both = (many, name, few, fewName) => `${many} ${name}${few ? ` ${few} ${fewName}` : ""}`;

const DAY = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });

/** A time of day, with the day unless it is today. */
export function when(ms, now = Date.now()) {
  if (!ms) return "";
  const isToday = new Date(ms).toDateString() === new Date(now).toDateString();
  return isToday ? clock(ms) : `${DAY.format(ms)}, ${clock(ms)}`;
}

/** The milliseconds of a time, such as ".712", for a clock that shows them smaller. */
export const fraction = (ms) => `.${String(ms % 1000).padStart(3, "0")}`;

/** A recorded reason as a sentence. */
export const asSentence = (text) => `${text.slice(0, 1).toUpperCase()}${text.slice(1).replace(/[.\s]+$/, "")}.`;

/** The text as one line of at most `chars` characters. */
export function brief(text, chars = 80) {
  const line = text.slice(0, 4 * chars).replace(/\s+/g, " ").trim();
  return line.length <= chars ? line : `${line.slice(0, chars - 1)}…`;
}
