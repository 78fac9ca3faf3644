// The keyboard shortcuts, in one table that is also shown as help. Keys typed into a field are
// ignored.

export const KEYS = [
  ["← →", "previous or next event"],
  ["Shift ← →", "the same, past pieces of text"],
  ["[ ]", "previous or next end of a turn"],
  ["J K", "next or previous bar of the timeline, or call of the chosen tool"],
  ["Home End", "first or last event"],
  ["Space", "play or pause"],
  ["L", "back to now"],
  ["G", "to now, and to what waits for you"],
  ["+ − 0", "zoom, whole session"],
  ["1 … 6", "why, request, events, budget, cost, compare"],
  ["Shift click", "on the timeline: compare with that instant"],
  ["W", "compare at full width, or beside the conversation"],
  ["F", "fork here"],
  ["C", "copy the link of this instant"],
  ["M", "write a message"],
  ["H", "home"],
  ["?", "these keys"],
];

export const TABS = ["why", "request", "events", "budget", "cost", "compare"];

const OWN = "input, textarea, select, [contenteditable], [role=listbox], [role=tablist]";

/** The offset of the next event in a direction, `step` -1 or 1, for which `wanted` is true. */
export function moved(session, at, step, wanted = () => true) {
  const { events } = session;
  if (!events.length) return at;
  let place = at === null ? events.length - 1 : session.placeAt(at);
  for (place += step; place >= 0 && place < events.length; place += step) {
    if (wanted(events[place])) return events[place].offset;
  }
  return step < 0 ? events[0].offset : events.at(-1).offset;
}

const isNotChunk = (event) => event.type !== "GEN_CHUNK";
const endsTurn = (event) => event.type === "TURN_ENDED" && event.verdict === "accepted";

/** Whether a key pressed here belongs to the element that has the focus. */
function isOwn(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return true;
  if (!(event.target instanceof Element) || document.querySelector("dialog[open]")) return true;
  const own = event.target.closest(OWN);
  if (!own) return event.key === " " && event.target.closest("button, a, summary") !== null;
  if (own.matches("[role=tablist]")) return /^(Arrow|Home|End|Enter| )/.test(event.key);
  const isSlider = own.type === "range" && !/^(Arrow|Home|End|Page)/.test(event.key);
  return !(isSlider || (own.type === "checkbox" && event.key !== " "));
}

/** Handles the keys of the page. `latest` returns what the page shows when a key is pressed. */
export function onKeys(latest) {
  const press = (event) => {
    if (isOwn(event)) return;
    const { session, at, go, setTab, commands } = latest();
    const to = (offset) => offset !== null && go(session.id, offset);
    const { events } = session;
    const now = commands.current;
    const tab = TABS[Number(event.key) - 1];
    const action = {
      arrowleft: () => to(moved(session, at, -1, event.shiftKey ? isNotChunk : undefined)),
      arrowright: () => to(moved(session, at, 1, event.shiftKey ? isNotChunk : undefined)),
      "[": () => to(moved(session, at, -1, endsTurn)),
      "]": () => to(moved(session, at, 1, endsTurn)),
      home: () => events.length && to(events[0].offset),
      end: () => events.length && to(events.at(-1).offset),
      j: () => now.bar(1),
      k: () => now.bar(-1),
      l: () => { go(session.id); now.reveal(null); },
      g: now.waiting,
      escape: now.leave,
      " ": now.play,
      "+": now.zoomIn,
      "=": now.zoomIn,
      "-": now.zoomOut,
      0: now.whole,
      w: now.wide,
      f: now.fork,
      c: now.copy,
      m: () => document.getElementById("message")?.focus(),
      h: () => go(null),
      "?": () => dispatchEvent(new Event("keyswanted")),
    }[event.key.toLowerCase()];
    const act = tab ? () => setTab(tab) : action;
    if (!act) return;
    event.preventDefault();
    act();
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}
