// The view of the home page in the link: its part, filters and order.
// #/PART?status=failed&agent=shop&days=7&find=TITLE&sort=cost&q=WORDS

import { waitsFor } from "./session_list.js";

export const PARTS = ["", "waiting", "sessions", "cost", "search"];
export const NONE = { part: "", status: "", agent: "", days: "", find: "", sort: "", q: "", ids: "" };
const FILTERS = ["status", "agent", "days", "find", "sort", "q", "ids"];

export const STATUSES = [
  ["", "All", () => true],
  ["waiting", "Waiting for you", waitsFor],
  ["working", "Working", (row) => row.status === "busy"],
  ["unserved", "No worker", (row) => row.status === "unserved"],
  ["failed", "Failed", (row) => row.status === "failed" || row.status === "frozen"],
  ["done", "Done", (row) => row.status === "idle" || row.status === "terminated"],
];

export const DAYS = [["", "Any day"], ["1", "Last 24 hours"], ["7", "Last 7 days"], ["30", "Last 30 days"]];

const SORTS = {
  title: (a, b) => a.title.localeCompare(b.title),
  turns: (a, b) => b.turns - a.turns,
  cost: (a, b) => Number(b.usd ?? 0) - Number(a.usd ?? 0),
  tokens: (a, b) => b.tokens - a.tokens,
  duration: (a, b) => worked(b) - worked(a),
  started: (a, b) => b.started_at - a.started_at,
};
const worked = (row) => row.in_turns_ms + (row.turn_at === null ? 0 : Math.max(0, row.updated_at - row.turn_at));

/** Parses the filters in a link; unknown filters and values are left out. */
export function parseView(text) {
  const [part, query] = text.split("?", 2);
  const given = new URLSearchParams(query ?? "");
  const view = { ...NONE, part: PARTS.includes(part) ? part : "" };
  for (const name of FILTERS) view[name] = (given.get(name) ?? "").slice(0, 200);
  if (!STATUSES.some(([value]) => value === view.status)) view.status = "";
  if (!DAYS.some(([value]) => value === view.days)) view.days = "";
  if (!SORTS[view.sort]) view.sort = "";
  return view;
}

export function viewLink(view) {
  const given = new URLSearchParams();
  for (const name of FILTERS) if (view[name]) given.set(name, view[name]);
  const query = given.toString();
  return `#/${view.part}${query ? `?${query}` : ""}`;
}

export const isFiltered = (view) => ["status", "agent", "days", "find"].some((name) => view[name] !== "");

/** The rows of a view, in the view's order. `counts`: the number of rows by status, if only the
    other filters apply. */
export function chosen(list, view, now, aside) {
  const words = view.find.trim().toLowerCase();
  const after = view.days ? now - Number(view.days) * 86_400_000 : 0;
  const others = list.filter((row) =>
    (!view.agent || row.agent === view.agent) && row.updated_at >= after && (!words || textOf(row).includes(words)));
  const counts = Object.fromEntries(STATUSES.map(([value, , holds]) =>
    [value, others.filter((row) => holds(row, aside)).length]));
  const holds = STATUSES.find(([value]) => value === view.status)[2];
  const rows = view.status ? others.filter((row) => holds(row, aside)) : others;
  return { rows: view.sort ? [...rows].sort(SORTS[view.sort]) : rows, counts };
}

const textOf = (row) => `${row.title} ${row.agent} ${row.user} ${row.id}`.toLowerCase();
