// Draws runs on an axis: the lanes of the timeline, and its small map. Only visible runs are drawn.

import { after, sliding } from "./axis.js";
import { clock, fraction, length } from "./format.js";
import { html, still } from "./lib.js";

export const LANE = 26; // px, also in tokens.css
const BAR = 16;
const LEAST = 3; // px of the shortest bar
const NAMES = { person: "People", model: "Model", tool: "Tools", background: "Background" };
const TOOL_ROWS = 3; // rows for simultaneous calls; further calls share the last row
const LETTER = 6.4; // px of a letter, about; a label is drawn only if it fits

/** The rows of the lanes, [lane, label], and the row of each run. Simultaneous calls get
    different rows. */
export function rowsOf(runs) {
  const ends = [];
  const placed = runs.map((run) => {
    if (run.lane !== "tool") return 0;
    let row = ends.findIndex(({ key, end }) => key === run.key || end <= run.at);
    if (row < 0) row = Math.min(ends.length, TOOL_ROWS - 1);
    ends[row] = { key: run.key, end: Math.max(ends[row]?.end ?? 0, run.end_at ?? Infinity) };
    return row;
  });
  const tools = Array.from({ length: Math.max(1, ends.length) }, (_, n) => ["tool", n ? "" : NAMES.tool]);
  const lanes = [["person", NAMES.person], ["model", NAMES.model], ...tools, ["background", NAMES.background]];
  const first = { person: 0, model: 1, tool: 2, background: lanes.length - 1 };
  return { lanes, rows: runs.map((run, n) => first[run.lane] + placed[n]) };
}

/** What happened, as a word, for people and screen readers. */
function describe(run, end) {
  const took = length((run.end_at ?? end) - run.at);
  const call = run.attempt > 1 ? `${run.title}, attempt ${run.attempt},` : run.title;
  const note = run.note ? ` (${run.note})` : "";
  switch (run.kind) {
    case "point":
      return `${run.note || "A person"}: ${run.title}`;
    case "waits_person":
      return run.end_at === null ? `${run.title} waits for a person, since ${took}`
        : `${run.title} waited ${took} for a person: ${OUTCOMES[run.outcome] ?? run.outcome}`;
    case "waits_worker":
      return `${run.note && run.lane === "model" ? `${run.note}, ` : ""}waited ${took} for a worker`;
    case "waits_retry":
      return `waited ${took} for the next attempt${note}`;
    case "doubt":
      return run.end_at === null ? `${run.title} is in doubt, since ${took}`
        : `${run.title} was in doubt for ${took}: ${OUTCOMES[run.outcome] ?? run.outcome}`;
  }
  const ended = run.end_at === null ? "runs since" : `${OUTCOMES[run.outcome] ?? run.outcome} after`;
  return `${run.lane === "model" ? `model call ${call}` : call} ${ended} ${took}${note}`;
}

const OUTCOMES = {
  ok: "ended", error: "returned an error", failed: "failed", lost: "was lost", stopped: "was stopped",
  doubt: "ended in doubt", allow: "allowed", deny: "denied", expired: "expired",
  happened: "it happened", did_not_happen: "it did not happen", not_run: "was not run",
};

const isBad = (run) => ["lost", "failed", "error", "doubt"].includes(run.outcome) && run.kind === "run";

/** The bars of the times that an axis shows. Neighbours that are too small to distinguish become
    one bar. */
function bars(runs, rows, shown, end, gap) {
  const found = [];
  const last = new Map();
  for (const [n, run] of runs.entries()) {
    const to = run.end_at ?? end;
    if (to < shown.from || run.at > shown.to) continue;
    const x = shown.x(run.at);
    const right = run.kind === "point" ? x : Math.max(shown.x(to), x + LEAST);
    const row = rows[n];
    const before = last.get(row);
    const isSmall = right - x < 5;
    if (before && isSmall && before.small && before.run.kind === run.kind && x < before.right + gap) {
      before.right = Math.max(before.right, right);
      before.many += 1;
      before.bad ||= isBad(run);
      continue;
    }
    const bar = { run, row, x, right, small: isSmall, many: 1, bad: isBad(run) };
    last.set(row, bar);
    found.push(bar);
  }
  return found;
}

/** The patterns of waits and doubts. `id` distinguishes the patterns of the map from those of
    the lanes. */
const Patterns = ({ id }) => html`
  <defs>
    <pattern id=${`${id}-doubt`} width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <line x1="0" y1="0" x2="0" y2="7" class="s-doubt" /></pattern>
    <pattern id=${`${id}-asks`} width="6" height="6" patternUnits="userSpaceOnUse">
      <line x1="3" y1="0" x2="3" y2="6" class="s-asks" /></pattern>
    <pattern id=${`${id}-pleat`} width="8" height="8" patternUnits="userSpaceOnUse">
      <rect width="4" height="8" class="pleat-in" /><rect x="4" width="4" height="8" class="pleat-out" /></pattern>
  </defs>
`;

const Pleats = ({ shown, place = (x) => x, top, height, id }) => shown.pleats.map((pleat) => html`
  <rect key=${pleat.start} x=${place(pleat.x)} y=${top} width=${Math.max(0, pleat.to - pleat.x)} height=${height}
    fill=${`url(#${id}-pleat)`} />`);

/** A bar. `end`: the time until which it lasts, null if it has ended. */
const Bar = still(({ run, x, right, many, bad, y, end, choose }) => {
  const width = right - x;
  const middle = y + LANE / 2;
  const top = y + (LANE - BAR) / 2;
  const pick = {
    "data-run": `${run.offset}.${run.lane}.${run.kind}`,
    onClick: (event) => {
      event.stopPropagation();
      choose(run, event);
    },
  };
  const label = many > 1 ? `${many}×` : labelOf(run);
  const fits = label && width > label.length * LETTER + 12;
  switch (run.kind) {
    case "point":
      return html`<circle ...${pick} class="f-person hit" cx=${x} cy=${middle} r="4.5" />`;
    case "waits_worker":
    case "waits_retry": {
      const took = length((run.end_at ?? end) - run.at);
      const waits = run.kind === "waits_retry" ? "waits for a retry" : "waits for a worker";
      const words = run.note ? `${run.note.split(" · ").at(-1)}, ${took}` : waits;
      const room = width > words.length * LETTER + 40;
      const half = room ? (words.length * LETTER) / 2 + 8 : 0;
      const [one, other] = [(x + right) / 2 - half, (x + right) / 2 + half];
      return html`<g ...${pick} class="hit">
        <rect x=${x} y=${top} width=${width} height=${BAR} fill="transparent" />
        ${width > 4 && html`<path class="s-wait" d=${room
          ? `M${x + 4} ${middle}H${one}M${other} ${middle}H${right - 2}` : `M${x + 2} ${middle}H${right - 2}`} />`}
        ${room && html`<text class="note" x=${(x + right) / 2} y=${middle + 4} text-anchor="middle">${words}</text>`}
      </g>`;
    }
    case "waits_person":
      return html`<g ...${pick} class="hit">
        <rect class="bar asks" x=${x} y=${top} width=${width} height=${BAR} rx="3" fill="url(#lane-asks)" />
        ${fits && html`
          <rect class="plate asks" x=${x + 1} y=${top + 1} width=${label.length * LETTER + 12}
            height=${BAR - 2} rx="2" />
          <text class="on-asks" x=${x + 7} y=${middle + 4}>${label}</text>`}
      </g>`;
    case "doubt":
      return html`<g ...${pick} class="hit">
        <rect class="bar doubt" x=${x} y=${top} width=${width} height=${BAR} rx="3" fill="url(#lane-doubt)" />
        <circle class="f-doubt" cx=${x + 9} cy=${middle} r="7" />
        <text class="mark" x=${x + 9} y=${middle + 4} text-anchor="middle">?</text>
      </g>`;
  }
  const ended = bad && run.outcome !== "doubt";
  return html`<g ...${pick} class="hit">
    <rect class=${`bar f-${run.lane}${ended ? " pale" : ""}${run.end_at === null ? " lasts" : ""}`} x=${x} y=${top}
      width=${width} height=${BAR} rx=${width < 6 ? 1 : 3} />
    ${fits && html`<text class=${run.lane === "background" || ended ? "note" : "on"} x=${x + 7}
      y=${middle + 4}>${label}</text>`}
    ${ended && html`<path class="s-fail" d=${`M${right - 5} ${middle - 5}l10 10m0-10l-10 10`} />`}
  </g>`;
});

const keyOf = (run) => `${run.offset}.${run.lane}.${run.kind}.${run.key}`;
const labelOf = (run) =>
  run.lane === "model" && run.attempt > 1 ? `${run.title} again` : run.title;

/** The lanes of the times shown. Choosing a bar calls `choose` with its run. */
export const Lanes = still(({ shown, runs, rows, lanes, end, top, choose }) => {
  const drawn = bars(runs, rows, shown, end, 1);
  const height = lanes.length * LANE;
  const [group, place] = sliding(shown);
  return html`
    <${Patterns} id="lane" />
    ${lanes.map((_, n) => html`<line key=${n} class="rule" x1="0" x2=${shown.width}
      y1=${top + (n + 0.5) * LANE} y2=${top + (n + 0.5) * LANE} />`)}
    <g ...${group}>
      <${Pleats} shown=${shown} place=${place} top=${top} height=${height} id="lane" />
      ${drawn.map(({ run, row, x, right, many, bad }) => html`
        <${Bar} key=${keyOf(run)} run=${run} x=${place(x)} right=${place(right)} many=${many} bad=${bad}
          y=${top + row * LANE} end=${run.end_at === null ? end : null} choose=${choose} />`)}
    </g>
  `;
});

/** A small drawing of the whole session, with one path for each kind, so that a thousand runs
    need few elements. */
export const Small = still(({ shown, runs, end, height }) => {
  const paths = {};
  const y = { person: 4, model: 10, tool: 17, background: 23 };
  for (const { run, x, right, bad } of bars(runs, runs.map((r) => y[r.lane]), shown, end, 2)) {
    const line = y[run.lane];
    const kind = run.kind === "run" ? run.lane : run.kind;
    paths[kind] = `${paths[kind] ?? ""}M${x.toFixed(1)} ${line}H${Math.max(right, x + 2).toFixed(1)}`;
    if (bad && run.outcome !== "doubt") paths.fail = `${paths.fail ?? ""}M${right - 2.5} ${line - 2.5}l5 5m0-5l-5 5`;
  }
  return html`
    <${Patterns} id="map" />
    <${Pleats} shown=${shown} top=${0} height=${height} id="map" />
    ${Object.entries(paths).map(([kind, d]) => html`<path key=${kind} class=${`m-${kind}`} d=${d} />`)}
  `;
});

/** The visible bars as a list for screen readers. A click goes to the start of a bar. */
export const BarList = still(({ shown, runs, end, choose }) => {
  const first = after(runs, shown.from, (run) => run.at);
  const inView = runs.slice(Math.max(0, first - 5))
    .filter((run) => run.at <= shown.to && (run.end_at ?? end) >= shown.from);
  return html`
    <ol class="sr" aria-label="What happened in this stretch">
      ${inView.slice(0, 60).map((run) => html`
        <${ListedBar} key=${keyOf(run)} run=${run} end=${run.end_at === null ? end : null} choose=${choose} />`)}
    </ol>
  `;
});

const ListedBar = still(({ run, end, choose }) => html`
  <li><button tabindex="-1" onClick=${(event) => choose(run, event)}>
    ${clock(run.at)}: ${describe(run, end)}</button></li>
`);

/** The facts of one bar, beside the pointer. The list and the pane show the same facts. */
export function Card({ hover, end, width }) {
  if (!hover) return null;
  const { run, x, y } = hover;
  const till = run.end_at === null ? "now" : `${clock(run.end_at)}${fraction(run.end_at)}`;
  return html`
    <div class="tl-card" role="presentation" style=${{ left: `${Math.min(x, width - 280)}px`, bottom: `${y}px` }}>
      <b>${describe(run, end)}</b>
      <span class="faint num">${clock(run.at)}${fraction(run.at)}${run.kind === "point" ? "" : ` to ${till}`}</span>
    </div>
  `;
}
