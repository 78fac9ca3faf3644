// The time scrubber: a slider over the session's events, a picture of them, and playback.

import { clock } from "./format.js";
import { moved } from "./keys.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";

const SPEEDS = [4, 20, 100];
const KINDS = [
  // Drawn in this order: a later kind covers an earlier one.
  ["other", () => true],
  ["chunk", (e) => e.type === "GEN_CHUNK"],
  ["model", (e) => /^(GEN_(?!CHUNK)|LLM_CALLED)/.test(e.type)],
  ["tool", (e) => e.type.startsWith("TOOL_")],
  ["person", (e) => e.writer === "producer"],
  ["bad", (e) => e.verdict !== "accepted" || /FAILED|UNCERTAIN|HUMAN_NEEDED/.test(e.type)],
];

const TALL = { other: 0.3, chunk: 0.3, model: 0.65, tool: 0.65, person: 1, bad: 1 };

const kindOf = (event) => KINDS.findLast(([, is]) => is(event))?.[0] ?? "other";

export function Scrubber({ session, at, go, fresh, mark }) {
  const { events } = session;
  const last = Math.max(0, events.length - 1);
  const place = at === null ? last : session.placeAt(at);
  const event = events[place];
  const [speed, setSpeed] = useState(null);
  const [rate, setRate] = useState(SPEEDS[1]);
  const to = (wanted) => events[wanted] && go(session.id, events[wanted].offset);
  usePlaying({ session, at, place, last, speed, setSpeed, to, ready: fresh });
  const play = () => {
    if (speed !== null) return setSpeed(null);
    if (at === null || place === last) to(0);
    return setSpeed(rate);
  };
  const faster = () => {
    const next = SPEEDS[(SPEEDS.indexOf(rate) + 1) % SPEEDS.length];
    setRate(next);
    if (speed !== null) setSpeed(next);
  };
  const slide = ({ target }) => {
    setSpeed(null);
    to(Number(target.value));
  };
  const label = event ? `offset ${event.offset}, ${event.type}, ${clock(event.at)}` : "no events";
  return html`
    <section class="scrubber" aria-label="Time">
      <div class="buttons">
        <button aria-label="Previous event" disabled=${place === 0}
          onClick=${() => go(session.id, moved(session, at, -1))}>‹</button>
        <button id="play" aria-label=${speed === null ? "Play" : "Stop playing"} aria-pressed=${speed !== null}
          disabled=${!events.length} onClick=${play}>${speed === null ? "▶" : "❚❚"}</button>
        <button aria-label="Next event" disabled=${place === last}
          onClick=${() => go(session.id, moved(session, at, 1))}>›</button>
        <button class="num rate" aria-label=${`Speed: ${rate} events per second. Change`}
          onClick=${faster}>${rate}/s</button>
      </div>
      <div class="track">
        <${Picture} session=${session} count=${events.length} place=${place} mark=${mark} />
        <input type="range" min="0" max=${last} step="1" value=${place} disabled=${!events.length}
          aria-label="Event" aria-valuetext=${label} onInput=${slide} />
      </div>
      <p class="where num">
        <span>${event ? `offset ${event.offset}` : "–"}</span>
        <span>${event ? `${place + 1} of ${events.length}` : ""}</span>
        <button class=${at === null ? "live on" : "live"} aria-pressed=${at === null}
          onClick=${() => { setSpeed(null); go(session.id); }}>Live</button>
      </p>
    </section>
  `;
}

/** Advances at `speed` events per second, but never past what the page has drawn. */
function usePlaying({ session, at, place, last, speed, setSpeed, to, ready }) {
  useEffect(() => {
    if (speed === null) return undefined;
    if (at !== null && place >= last) {
      setSpeed(null);
      return undefined;
    }
    if (!ready) return undefined;
    const step = Math.max(1, Math.round(speed / 20)); // at most twenty redraws per second
    const timer = setTimeout(() => to(Math.min(last, place + step)), (1000 * step) / speed);
    return () => clearTimeout(timer);
  }, [session, speed, at, place, last, ready]);
}

/** A stripe per event, in the colour of its kind, on a canvas: ten thousand nodes would be slow. */
function Picture({ session, count, place, mark }) {
  const canvas = useRef(null);
  const [drawn, again] = useState(0);
  useEffect(() => {
    const redraw = () => again((n) => n + 1);
    const watch = new ResizeObserver(redraw);
    watch.observe(canvas.current);
    addEventListener("themechange", redraw);
    return () => {
      watch.disconnect();
      removeEventListener("themechange", redraw);
    };
  }, []);
  useLayoutEffect(() => draw(canvas.current, session.events), [session, count, drawn]);
  const left = (where) => `${count > 1 ? (100 * where) / (count - 1) : 0}%`;
  return html`
    <div class="picture" aria-hidden="true">
      <canvas ref=${canvas}></canvas>
      ${mark !== null && html`<i class="mark" style=${{ left: left(session.placeAt(mark)) }}></i>`}
      <i class="here" style=${{ left: left(place) }}></i>
    </div>
  `;
}

function draw(canvas, events) {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  const stripe = Math.max(ratio, canvas.width / Math.max(1, events.length));
  for (const [kind] of KINDS) {
    pen.fillStyle = style.getPropertyValue(`--mark-${kind}`);
    const tall = TALL[kind];
    for (let place = 0; place < events.length; place += 1) {
      if (kindOf(events[place]) !== kind) continue;
      const x = (place / Math.max(1, events.length)) * canvas.width;
      pen.fillRect(x, canvas.height * (1 - tall), stripe, canvas.height * tall);
    }
  }
}
