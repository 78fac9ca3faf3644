// The keyboard shortcuts: one table, also shown as help. Keys typed into a field are left alone.

export const KEYS = [
  ["← →", "previous or next event"],
  ["Shift ← →", "previous or next event that is not a chunk"],
  ["[ ]", "previous or next turn"],
  ["Home End", "first or last event"],
  ["Space", "play or pause"],
  ["L", "go live"],
  ["1 … 7", "events, state, wake, budget, request, compare, cost"],
  ["?", "these keys"],
];

export const HOME_KEYS = [
  ["/", "find a session"],
  ["?", "these keys"],
];

export const TABS = ["events", "state", "wake", "budget", "request", "compare", "cost"];

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

export function onKeys({ session, at, go, setTab }) {
  const to = (offset) => offset !== null && go(session.id, offset);
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target instanceof Element && event.target.closest(OWN)) return;
    const { events } = session;
    const tab = TABS[Number(event.key) - 1];
    const action = {
      ArrowLeft: () => to(moved(session, at, -1, event.shiftKey ? isNotChunk : undefined)),
      ArrowRight: () => to(moved(session, at, 1, event.shiftKey ? isNotChunk : undefined)),
      "[": () => to(moved(session, at, -1, endsTurn)),
      "]": () => to(moved(session, at, 1, endsTurn)),
      Home: () => events.length && to(events[0].offset),
      End: () => events.length && to(events.at(-1).offset),
      l: () => go(session.id),
      L: () => go(session.id),
      " ": () => !event.target.closest("button, a, summary") && press_("play"),
      "?": () => dispatchEvent(new Event("keyswanted")),
    }[event.key];
    const act = tab ? () => setTab(tab) : action;
    if (!act || (event.key === " " && event.target.closest("button, a, summary"))) return;
    event.preventDefault();
    act();
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}

function press_(id) {
  document.getElementById(id)?.click();
}

export function onHomeKeys() {
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target instanceof Element && event.target.closest(OWN)) return;
    if (event.key === "/") document.getElementById("find")?.focus();
    else if (event.key === "?") dispatchEvent(new Event("keyswanted"));
    else return;
    event.preventDefault();
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}
