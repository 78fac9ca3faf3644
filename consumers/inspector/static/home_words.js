// The words and numbers of the home page: sentences, money, times. Plain text, never used as HTML.

const NUMBERS = [
  "No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve",
];
const COUNT = new Intl.NumberFormat("en");
const BRIEF = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (number) => COUNT.format(number);
export const word = (number) => NUMBERS[number] ?? count(number);
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
export const brief = (number) => BRIEF.format(number).toLowerCase();

/** The one sentence on top of the page. */
export function sentence(waiting, working) {
  if (waiting === 1) return "One session is waiting for you";
  if (waiting) return `${word(waiting)} sessions are waiting for you`;
  if (working === 1) return "One session is working, nothing waits for you";
  if (working) return `${word(working)} sessions are working, nothing waits for you`;
  return "Nothing is waiting for you";
}

export function money(usd, unpriced = 0) {
  if (usd === null || usd === undefined) return unpriced ? "unknown" : "$0";
  const value = Number(usd);
  const digits = value < 1 ? 4 : 2;
  const shown = value === 0 ? "$0" : value < 0.0001 ? "<$0.0001" : `$${value.toFixed(digits)}`;
  return unpriced ? `${shown} + ?` : shown;
}

/** Money on an axis or in a caption: two significant places are enough. */
export const about = (usd) =>
  (usd === 0 ? "$0" : usd < 0.0001 ? "<$0.0001" : `$${usd < 0.01 ? usd.toFixed(4) : usd.toFixed(2)}`);

export function lasted(ms) {
  const seconds = ms / 1000;
  if (ms <= 0) return "0 s";
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

/** How long ago, in one unit. */
export function since(ms, now) {
  const seconds = Math.max(0, Math.round((now - ms) / 1000));
  if (seconds < 5) return "now";
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const HOUR = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const BOTH = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const clock = (ms) => CLOCK.format(ms);
export const hour = (ms) => HOUR.format(ms);
export const day = (ms) => DAY.format(ms);
export const full = (ms) => (ms ? BOTH.format(ms) : "");
/** Until when: a time today, else with the day. */
export const until = (ms, now) => (ms - now < 43_200_000 ? hour(ms) : BOTH.format(ms));

/** A session's title; one without a message says so. */
export const titleOf = (row) => row.title || (row.turns ? "A message without text" : "No message yet");

/** [word, look, icon] of a status. */
const STATUS = {
  asks: ["Asks approval", "asks", "clock"],
  doubt: ["In doubt", "doubt", "doubt"],
  failed: ["Failed", "fail", "fail"],
  unserved: ["No worker", "fail", "wire"],
  frozen: ["Frozen", "fail", "fail"],
  busy: ["Working", "busy", "busy"],
  idle: ["Done", "idle", "done"],
  terminated: ["Ended", "idle", "done"],
};

export function statusOf(row) {
  if (row.status === "idle" && !row.turns) return ["Not begun", "idle", "plus"];
  return STATUS[row.status] ?? [row.status, "idle", "done"];
}

const REASONS = {
  max_steps: "The turn reached its limit of steps",
  max_tokens: "The answer reached its limit of length",
  budget_exceeded: "The turn used up its tokens",
  refusal: "The model refused to answer",
};
const ERRORS = [
  [/overloaded/i, "The model was overloaded"],
  [/rate.?limit|429/i, "The model’s rate limit was reached"],
  [/authenticat|api.?key|401/i, "The model did not accept the key"],
  [/too.long|too.large/i, "The request was too long for the model"],
  [/timeout|timed out|stall/i, "The model did not answer in time"],
];

/** Why a turn failed, in a sentence, with how often it was tried. */
export function failureOf({ reason, error, tries }) {
  if (REASONS[reason]) return REASONS[reason];
  const found = ERRORS.find(([pattern]) => pattern.test(error))?.[1] ?? "The model call failed";
  if (tries < 2) return found;
  return `${found}, ${tries === 2 ? "twice" : `${word(tries).toLowerCase()} times`}`;
}

/** The provider's own words, without the attempt's number. */
export const errorText = (text) => text.replace(/^attempt \d+: /, "");
