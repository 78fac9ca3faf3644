// The activity strip of a session over real time: model above, tools below, with silences narrowed.

import { html, still } from "./lib.js";

const WIDTH = 132;
const MIN = 2; // px of the shortest bar
const PLEAT = 7;
const SILENCE_MS = 15_000; // a longer time in which nothing ran is narrowed
const LOOKS = [
  { name: "model", y: 4, look: "run-model" },
  { name: "tool", y: 11, look: "run-tool" },
  { name: "waited for a person", y: 11, look: "run-ask" },
  { name: "in doubt", y: 11, look: "run-doubt" },
  { name: "failed", y: 4, look: "run-fail" },
];

/** The bars of a strip as [{x, width, kind}], and the places of its pleats. `runs` is a flat
    list of kind, start, length. */
export function drawn(runs, now, at) {
  const all = [];
  for (let place = 0; place < runs.length; place += 3) {
    all.push({ kind: runs[place], start: runs[place + 1], end: runs[place + 1] + runs[place + 2] });
  }
  if (now !== null) all.push({ kind: now[0], start: now[1], end: Math.max(now[1], at) });
  all.sort((a, b) => a.start - b.start);
  // Waits for people may be long, so they are drawn at most as long as a silence.
  const pieces = [];
  for (const run of all) {
    const people = run.kind === 2 || run.kind === 3;
    const end = people ? Math.min(run.end, run.start + SILENCE_MS) : run.end;
    const last = pieces.at(-1);
    if (last && run.start - last.end <= SILENCE_MS) last.end = Math.max(last.end, end);
    else pieces.push({ start: run.start, end });
  }
  const busy = pieces.reduce((sum, piece) => sum + piece.end - piece.start, 0);
  const fold = Math.min(PLEAT, WIDTH / 3 / Math.max(1, pieces.length));
  const room = WIDTH - MIN - fold * Math.max(0, pieces.length - 1);
  const scale = busy > 0 ? Math.min(room / busy, WIDTH / 4 / 1000) : 0; // at most a quarter of the strip for a second
  let x = 0;
  const pleats = [];
  pieces.forEach((piece, place) => {
    if (place) {
      pleats.push(x + fold / 2);
      x += fold;
    }
    piece.x = x;
    x += Math.max(MIN, (piece.end - piece.start) * scale);
  });
  const bars = all.map((run) => {
    const piece = pieces.findLast((one) => one.start <= run.start);
    const left = piece.x + (run.start - piece.start) * scale;
    const shown = Math.min(run.end, piece.end) - run.start;
    return { kind: run.kind, x: left, width: Math.min(Math.max(MIN, shown * scale - 1), WIDTH - left) };
  });
  return { bars, pleats };
}

/** The runs in words for screen readers, such as "3 model, 2 tool". */
function spoken(runs) {
  const counts = new Map();
  for (let place = 0; place < runs.length; place += 3) {
    const { name } = LOOKS[runs[place]];
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].map(([name, number]) => `${number} ${name}`).join(", ") || "nothing yet";
}

/** One path for each kind of bar, so that a row has few elements however much its session did. */
function paths(bars) {
  const found = new Map();
  for (const { kind, x, width } of bars) {
    const { y, look } = LOOKS[kind];
    const bar = `M${x.toFixed(1)} ${y}h${width.toFixed(1)}v5h-${width.toFixed(1)}z`;
    found.set(look, (found.get(look) ?? "") + bar);
  }
  return [...found];
}

export const Spark = still(({ row, at }) => {
  const { bars, pleats } = drawn(row.runs, row.now, at);
  return html`<svg class="spark" width=${WIDTH} height="20" viewBox="0 0 132 20" role="img"
    aria-label=${`What it did: ${spoken(row.runs)}`}>
    <path d="M0 10h132" class="axis" />
    ${pleats.length > 0 && html`<path d=${pleats.map((x) => `M${(x - 1.5).toFixed(1)} 4v12m3-12v12`).join("")}
      class="pleat" />`}
    ${paths(bars).map(([look, d]) => html`<path key=${look} d=${d} class=${look} />`)}
  </svg>`;
});
