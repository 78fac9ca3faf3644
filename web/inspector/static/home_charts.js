// The charts over all sessions: cost, tokens, turns with errors, and time to answer, by hour or
// day, in total, by agent or by model. The gateway computes the sums.

import { get } from "./api.js";
import { number, plural } from "./format.js";
import { about, brief, day, hour, lasted } from "./home_words.js";
import { html, useEffect, useRef, useState } from "./lib.js";

const FRESH_MS = 15_000;
export const SPANS = [
  { name: "24 hours", hours: 24, step: 1, each: "by hour" },
  { name: "7 days", hours: 168, step: 6, each: "by 6 hours" },
  { name: "30 days", hours: 720, step: 24, each: "by day" },
];

/** The sums of a time span, fetched again when they are old; null before the first response. */
export function useCharts(span, version) {
  const [found, setFound] = useState(null);
  const fetched = useRef({ at: 0, hours: 0 });
  useEffect(() => {
    const stop = new AbortController();
    const { at, hours } = fetched.current;
    const wait = hours === span.hours ? Math.max(0, at + FRESH_MS - Date.now()) : 0;
    const timer = setTimeout(async () => {
      try {
        const page = await get(`inspector/api/charts?hours=${span.hours}&step=${span.step}`, stop.signal);
        fetched.current = { at: Date.now(), hours: span.hours };
        setFound({ ...page, span });
      } catch {
        // The list of sessions shows that the gateway is unreachable; the charts stay as they are.
      }
    }, wait);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [span, version]);
  return found;
}

const MEASURES = [
  {
    name: "Cost",
    value: (sums) => about(Number(sums.usd)),
    note: (sums) => (sums.unpriced ? `and ${plural(sums.unpriced, "request")} without a price` : ""),
    bars: (series) => series.usd.map(Number),
    top: about,
  },
  { name: "Tokens", value: (sums) => brief(sums.tokens), note: () => "", bars: (series) => series.tokens, top: brief },
  {
    name: "Turns",
    value: (sums) => number(sums.turns),
    note: (sums) => (sums.errors ? `${number(sums.errors)} failed` : "none failed"),
    bars: (series) => series.turns,
    errors: (series) => series.errors,
    top: number,
  },
  {
    name: "Time to answer",
    value: (sums) => (sums.p50 === null ? "–" : lasted(sums.p50)),
    note: (sums) => (sums.p95 === null ? "no answers" : `median, p95 ${lasted(sums.p95)}`),
    lines: (series) => [series.p50, series.p95],
    top: lasted,
  },
];

/** The four charts of one series. */
export function Charts({ found, series, name }) {
  const [at, setAt] = useState(null);
  return html`<div class="card measures" onPointerLeave=${() => setAt(null)}>
    ${MEASURES.map((measure) => html`
      <${Chart} key=${measure.name} ...${{ measure, found, series, at, setAt }} of=${name} />
    `)}
  </div>`;
}

const sumsAt = (series, at) =>
  (at === null ? series.total : Object.fromEntries(Object.keys(series.total).map((name) => [name, series[name][at]])));

function when(found, at) {
  const start = found.first_at + at * found.step_ms;
  if (found.step_ms >= 86_400_000) return day(start);
  const clock = `${hour(start)} to ${hour(start + found.step_ms)}`;
  return found.count * found.step_ms > 86_400_000 ? `${day(start)}, ${clock}` : clock;
}

function Chart({ measure, found, series, of, at, setAt }) {
  const sums = sumsAt(series, at);
  const note = at === null ? measure.note(sums) : when(found, at);
  const label = `${measure.name}${of ? ` of ${of}` : ""}, ${found.span.each}`;
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const place = Math.floor(((event.clientX - box.left) / box.width) * found.count);
    setAt(Math.min(found.count - 1, Math.max(0, place)));
  };
  const press = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    const here = at ?? (step > 0 ? -1 : found.count);
    setAt(step === undefined ? null : Math.min(found.count - 1, Math.max(0, here + step)));
  };
  return html`
    <figure class="measure">
      <figcaption>
        <span class="sub">${measure.name}</span>
        <span class="v num" aria-live="polite">${measure.value(sums)}${" "}
          <span class="faint">${note}</span></span>
      </figcaption>
      <div class="plot" tabindex="0" role="group" aria-label=${`${label}. Arrow keys read each interval.`}
        onPointerMove=${move} onKeyDown=${press} onBlur=${() => setAt(null)}>
        <${Plot} measure=${measure} found=${found} series=${series} at=${at} />
      </div>
      <div class="ticks num" aria-hidden="true">${ticks(found).map((text) => html`<span>${text}</span>`)}</div>
    </figure>
  `;
}

function ticks(found) {
  const at = (place) => found.first_at + place * found.step_ms;
  const text = found.count * found.step_ms > 86_400_000 ? day : hour;
  return [text(at(0)), text(at(Math.floor(found.count / 2))), "now"];
}

const W = 240;
const H = 56;

function Plot({ measure, found, series, at }) {
  const slot = W / found.count;
  const bars = measure.bars?.(series);
  const lines = measure.lines?.(series);
  const highest = Math.max(...(bars ?? lines.flat().filter((value) => value !== null)), 0);
  const y = (value) => H - (highest ? (value / highest) * H : 0);
  const look = (place) => measure.look ?? (place === (at ?? found.count - 1) ? "bar hi" : "bar");
  const width = Math.max(1, slot - Math.min(2, slot / 4));
  const x = (place) => place * slot + (slot - width) / 2;
  const errors = measure.errors?.(series);
  return html`<svg viewBox="0 -1 240 58" preserveAspectRatio="none" aria-hidden="true">
      <path d="M0 -.5h240M0 56.5h240" class="axis" />
      ${at !== null && html`<rect x=${at * slot} y="0" width=${slot} height=${H} class="cursor" />`}
      ${bars?.map((value, place) => value > 0 && html`<rect class=${look(place)} x=${x(place)}
        y=${Math.min(y(value), H - 1)} width=${width} height=${Math.max(1, H - y(value))} />`)}
      ${errors?.map((value, place) => value > 0 && html`<rect class="bar f" x=${x(place)}
        y=${Math.min(y(value), H - 3)} width=${width} height=${Math.max(3, H - y(value))} />`)}
      ${lines && html`
        <path class="line p95" d=${path(lines[1], slot, y)} />
        <path class="line p50" d=${path(lines[0], slot, y)} />`}
    </svg>
    ${highest > 0 && html`<span class="peak num" aria-hidden="true">${measure.top(highest)}</span>`}`;
}

/** The path of a line through the known values. A single value is a short dash. */
function path(values, slot, y) {
  let before = false;
  return values.map((value, place) => {
    if (value === null) {
      before = false;
      return "";
    }
    const x = (place + 0.5) * slot;
    const alone = !before && (values[place + 1] ?? null) === null;
    const text = alone ? `M${x - slot / 2} ${y(value)}h${slot}` : `${before ? "L" : "M"}${x} ${y(value)}`;
    before = true;
    return text;
  }).join("");
}

/** A row for each agent or model, with its sums and their course over time. */
export function Groups({ found, groups, kind, choose }) {
  const names = Object.keys(groups);
  if (!names.length) return html`<p class="none">Nothing ran in this time.</p>`;
  return html`
    <div class="card scroller" role="region" aria-label=${`By ${kind}`} tabindex="0">
      <table class="groups">
        <thead><tr>
          <th scope="col">${kind === "agent" ? "Agent" : "Model"}</th>
          <th scope="col">Cost</th><th scope="col">Tokens</th>
          <th scope="col">${kind === "agent" ? "Turns" : "Requests"}</th>
          ${kind === "agent" && html`<th scope="col">Failed</th>`}
          <th scope="col">${kind === "agent" ? "Time to answer" : "Time of an answer"}</th>
        </tr></thead>
        <tbody>${names.map((name) => html`<${Group} key=${name} name=${name} found=${found} series=${groups[name]}
          kind=${kind} choose=${choose} />`)}</tbody>
      </table>
    </div>
  `;
}

function Group({ name, found, series, kind, choose }) {
  const { total } = series;
  const cells = [MEASURES[0], MEASURES[1], { ...MEASURES[2], errors: undefined }];
  const isAgent = kind === "agent";
  return html`<tr>
    <th scope="row">${isAgent && choose
      ? html`<button class="link" onClick=${() => choose(name)}><bdi>${name}</bdi></button>`
      : html`<bdi>${name}</bdi>`}</th>
    ${cells.map((measure) => html`<td>
      <span class="num">${measure.value(total)}</span><${Small} measure=${measure} found=${found} series=${series} />
    </td>`)}
    ${isAgent && html`<td><span class=${total.errors ? "num bad" : "num faint"}>${number(total.errors)}</span>
      <${Small} measure=${ERRORS} found=${found} series=${series} /></td>`}
    <td><span class="num">${MEASURES[3].value(total)}<span class="faint">${
      total.p95 === null ? "" : `, p95 ${lasted(total.p95)}`}</span></span>
      <${Small} measure=${MEASURES[3]} found=${found} series=${series} /></td>
  </tr>`;
}

const ERRORS = { bars: (series) => series.errors, look: "bar f", top: () => "" };

function Small({ measure, found, series }) {
  const one = { ...measure, top: () => "" };
  return html`<span class="small"><${Plot} measure=${one} found=${found} series=${series} at=${null} /></span>`;
}
