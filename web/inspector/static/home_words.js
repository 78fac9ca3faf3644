// Formats the sentences, costs and times of the home page, as plain text that is never used as
// HTML.

import { ago, word } from "./format.js";
import { failureText, times } from "./words.js";

const BRIEF = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const brief = (count) => BRIEF.format(count).toLowerCase();

/** The sentence at the top of the page. */
export function sentence(waiting, working, unserved) {
  if (waiting === 1) return "One session is waiting for you";
  if (waiting) return `${word(waiting)} sessions are waiting for you`;
  if (unserved === 1) return "One session has no worker";
  if (unserved) return `${word(unserved)} sessions have no worker`;
  if (working === 1) return "One session is working, nothing waits for you";
  if (working) return `${word(working)} sessions are working, nothing waits for you`;
  return "Nothing is waiting for you";
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
export const since = (ms, now) => (now - ms < 4_500 ? "now" : ago(ms, now));

const HOUR = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const BOTH = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const hour = (ms) => HOUR.format(ms);
export const day = (ms) => DAY.format(ms);
export const full = (ms) => (ms ? BOTH.format(ms) : "");
/** A deadline: the time of day if it is soon, else with the day. */
export const until = (ms, now) => (ms - now < 43_200_000 ? hour(ms) : BOTH.format(ms));

/** A session's title, or a text if it has none. */
export const titleOf = (row) => row.title || (row.turns ? "A message without text" : "No message yet");

const REASONS = {
  max_steps: "The turn reached its limit of steps",
  max_tokens: "The answer reached its limit of length",
  budget_exceeded: "The turn used up its tokens",
  refusal: "The model refused to answer",
};

/** Why a turn failed, in a sentence, with how often it was tried. */
export function failureOf({ reason, code, tries }) {
  if (REASONS[reason]) return REASONS[reason];
  return `${failureText(code)}${tries < 2 ? "" : `, ${times(tries)}`}`;
}

/** The provider's own words, without the attempt's number. */
export const errorText = ({ code, detail }) => [code, detail].filter(Boolean).join(": ");
