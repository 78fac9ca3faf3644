// The icons of the page: paths on a grid of 16, drawn in the colour of the text beside them.

import { clock } from "./format.js";
import { html } from "./lib.js";

const PATHS = {
  home: "M2.5 7 8 2.5 13.5 7v6.5h-4v-4h-3v4h-4z",
  inbox: "M2.5 9 4.5 3h7l2 6v4h-11zM2.5 9h3.2l.8 1.6h3L10.3 9h3.2",
  list: "M2.5 4h11M2.5 8h11M2.5 12h11",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.4 10.4l3.1 3.1",
  chart: "M2.5 13.5h11M4.5 11V7M8 11V3.5M11.5 11V8.5",
  light: "M8 10.7a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4zM8 1.8v1.4M8 12.8v1.4M1.8 8h1.4M12.8 8h1.4M3.6 3.6l1 1"
    + "M11.4 11.4l1 1M3.6 12.4l1-1M11.4 4.6l1-1",
  dark: "M13 9.6A5.6 5.6 0 0 1 6.4 3a5.6 5.6 0 1 0 6.6 6.6z",
  auto: "M2.5 3.5h11v7.5h-11zM6 13.5h4",
  keys: "M2 4.5h12v7H2zM4.5 7h.1M7 7h.1M9.5 7h.1M11.5 7h.1M5 9.5h6",
  link: "M6.7 9.3a2.6 2.6 0 0 0 3.7 0l2.3-2.3a2.6 2.6 0 0 0-3.7-3.7l-.8.8M9.3 6.7a2.6 2.6 0 0 0-3.7 0L3.3 9"
    + "A2.6 2.6 0 0 0 7 12.7l.8-.8",
  fork: "M4.5 4.5v7M4.5 8h3a4 4 0 0 0 4-3.5M4.5 4.5a1 1 0 1 0 0-2 1 1 0 0 0 0 2zM4.5 13.5a1 1 0 1 0 0-2 1 1 0 0 0 0 2z"
    + "M11.5 4.5a1 1 0 1 0 0-2 1 1 0 0 0 0 2z",
  stop: "M4.5 4.5h7v7h-7z",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.2l2.2 1.3",
  doubt: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.3 6.4a1.8 1.8 0 1 1 2.4 1.7c-.5.2-.7.5-.7 1M8 11.2v.1",
  fail: "M8 2.5 14 13H2zM8 6.5v3M8 11.2v.1",
  busy: "M8 2v2.4M8 11.6V14M2 8h2.4M11.6 8H14M3.8 3.8l1.7 1.7M10.5 10.5l1.7 1.7M3.8 12.2l1.7-1.7M10.5 5.5l1.7-1.7",
  done: "m3 8.5 3.2 3.2L13 4.8",
  cross: "m4.5 4.5 7 7M11.5 4.5l-7 7",
  right: "M6 3.5 10.5 8 6 12.5",
  left: "M10 3.5 5.5 8l4.5 4.5",
  down: "M3.5 6 8 10.5 12.5 6",
  first: "M11 3.5 6.5 8l4.5 4.5M4.5 3.5v9",
  last: "M5 3.5 9.5 8 5 12.5M11.5 3.5v9",
  play: "M5.5 3.5 12 8l-6.5 4.5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  whole: "M2.5 4v8M13.5 4v8M5 8h6M6.5 6 4.5 8l2 2M9.5 6l2 2-2 2",
  tool: "M9.8 2.8a3.4 3.4 0 0 0-3.3 4.6l-3.8 3.8a1.3 1.3 0 0 0 1.9 1.9l3.8-3.8a3.4 3.4 0 0 0 4.5-4.1l-2.1 2.1"
    + "-2.1-2.1 2.2-2.2a3.4 3.4 0 0 0-1.1-.2z",
  model: "M8 2.2 9.5 6.5 13.8 8 9.5 9.5 8 13.8 6.5 9.5 2.2 8l4.3-1.5z",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  send: "M8 13V3.5M4 7.5l4-4 4 4",
  columns: "M2.5 3.5h11v9h-11zM6.2 3.5v9M9.8 3.5v9",
  wire: "M3 6.5a7 7 0 0 1 10 0M5 8.8a4.2 4.2 0 0 1 6 0M8 11.5v.1",
};

/** An icon beside a word or in a control that has a name, so it is hidden from screen readers. */
export function Icon({ name, small }) {
  return html`<svg class=${small ? "i s" : "i"} viewBox="0 0 16 16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

/** The mark of foldlog: a folded sheet. */
export function Mark() {
  return html`<svg class="i mark" viewBox="0 0 20 20" aria-hidden="true">
    <path d="M2 3.5 7.3 6v11L2 14.5z" fill="currentColor" stroke="none" />
    <path d="M7.3 6 12.7 3.5v11L7.3 17z" fill="currentColor" stroke="none" opacity=".55" />
    <path d="M12.7 3.5 18 6v11l-5.3-2.5z" fill="currentColor" stroke="none" opacity=".28" />
  </svg>`;
}

/** What a status is called, how it looks, and its picture. */
const STATUS = {
  new: ["Not begun", "idle", "plus"],
  asks: ["Asks approval", "asks", "clock"],
  doubt: ["In doubt", "doubt", "doubt"],
  failed: ["Failed", "fail", "fail"],
  unserved: ["No worker", "fail", "wire"],
  frozen: ["Frozen", "fail", "fail"],
  busy: ["Working", "busy", "busy"],
  worker: ["Waits for worker", "busy", "clock"],
  closing: ["Stopping", "busy", "stop"],
  summary: ["Summarizing", "busy", "busy"],
  retry: ["Tries again", "busy", "clock"],
  rate_limit: ["Rate limit", "busy", "clock"],
  over_budget: ["Over budget", "fail", "fail"],
  stopped: ["Stopped", "idle", "stop"],
  idle: ["Done", "idle", "done"],
  terminated: ["Ended", "idle", "done"],
};

/** The status of a session or a row, by its reason where that says more. */
export function Status({ of, pill }) {
  const named = ["idle", "busy", "failed"].includes(of.status) && STATUS[of.reason];
  const [label, look, icon] = named || STATUS[of.status] || [of.status, "idle", "done"];
  const until = pill && of.status === "busy" && of.until > Date.now() ? ` until ${clock(of.until)}` : "";
  return html`<span class=${`st ${look}${pill ? " pill" : ""} status`}><${Icon} name=${icon} />${label}${until}</span>`;
}
