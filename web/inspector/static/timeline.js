// The timeline: one axis of real time for the map, the scrubber and the lanes.

import { after, axis, fitted, silences, sliding, ticks } from "./axis.js";
import { brief, clock, fraction, length, number } from "./format.js";
import { Icon } from "./icons.js";
import { moved } from "./keys.js";
import { BarList, Card, LANE, Lanes, Small, rowsOf } from "./lanes.js";
import { html, still, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";

const TOP = 42; // px of the axis above the lanes
const MAP = 28;
const FIRST_MS = 120_000; // of a long session, how much time without pleats is shown at first
const SPEEDS = [4, 20, 100];
const TICK_MS = 1000; // between two redraws of what has not ended
const EDGE = 48; // px at each end where a chosen bar would be hard to see
const SMALL = matchMedia("(max-width: 760px)");

/** Everything that the timeline draws, computed once for each state of the session. `tool`: the
    only tool whose calls are drawn; "" for all. */
function useRuns(session, tool) {
  const [now, setNow] = useState(Date.now());
  const lasts = session.lasting.length > 0;
  const last = session.events.at(-1)?.at ?? 0;
  const end = lasts ? Math.max(last, now) : last;
  useEffect(() => {
    if (!lasts) return undefined;
    // The next event redraws it too, often about a second after the last.
    const timer = setTimeout(() => setNow(Date.now()), end === last ? 1.5 * TICK_MS : TICK_MS);
    return () => clearTimeout(timer);
  }, [lasts, end, now]);
  const times = useMemo(() => {
    let newest = 0;
    return session.events.map((event) => (newest = Math.max(newest, event.at)));
  }, [session, session.events.length]);
  const all = useMemo(() => {
    const runs = [...session.runs, ...session.lasting]
      .sort((one, other) => one.at - other.at || one.offset - other.offset);
    return { runs, turns: turnsOf(runs), tools: toolsOf(runs) };
  }, [session, session.runs.length, session.upto]);
  const drawn = useMemo(() => {
    const runs = tool ? all.runs.filter((run) => run.lane !== "tool" || run.title === tool) : all.runs;
    return { ...all, runs, ...rowsOf(runs) };
  }, [all, tool]);
  const folds = useMemo( // of all runs, so that the axis stays when a tool is chosen
    () => (times.length ? silences(all.runs, session.events, end) : []), [all, end, times.length]);
  return { ...drawn, times, folds, end, start: times[0] ?? 0 };
}

/** The tools and the number of their calls, [name, count], in the order of their names. */
function toolsOf(runs) {
  const found = new Map();
  for (const { lane, title, key } of runs) {
    if (lane === "tool") found.set(title, (found.get(title) ?? new Set()).add(key));
  }
  return [...found].map(([name, keys]) => [name, keys.size]).sort(([one], [other]) => (one < other ? -1 : 1));
}

/** The turns, each with the first words of a person in it. */
function turnsOf(runs) {
  const found = new Map();
  for (const run of runs) {
    const turn = found.get(run.turn) ?? { turn: run.turn, at: run.at, title: "" };
    if (run.kind === "point" && !turn.title) turn.title = run.title;
    if (run.turn > 0) found.set(run.turn, turn);
  }
  return [...found.values()].sort((one, other) => one.turn - other.turn);
}

function useWidth(box) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(box.current.clientWidth);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return width;
}

/** Returns [view, setView]; the view is the times shown. It always contains the instant: it moves
    when the instant leaves it, and if it shows the end it moves with the end. `ready`: whether the
    runs are known, and with them the pleats. */
function useView({ start, end, folds, instant, ready }) {
  const [own, setOwn] = useState(null);
  const isChosen = useRef(false);
  const whole = [start, end];
  let view = own ?? [Math.max(start, backFrom(end, folds, FIRST_MS)), Infinity];
  if (view[1] === Infinity) view = [view[0], end];
  const isOutside = instant < view[0] || instant > view[1];
  if (isOutside) {
    const open = axis(folds, view[0], view[1], 1000);
    const span = 1 / (open.scale || 1) * 1000;
    view = [backFrom(instant, folds, span / 2), forthFrom(instant, folds, span / 2)];
  }
  view = fitted(view, whole);
  useEffect(() => {
    if (!isOutside || !ready) return;
    if (view[1] < end) setOwn(view);
    else setOwn(isChosen.current ? [view[0], Infinity] : null);
  }, [instant, ready]);
  const set = ([from, to]) => {
    isChosen.current = true;
    const [left, right] = fitted([from, to], whole);
    setOwn(right >= end ? [left, Infinity] : [left, right]);
  };
  return [view, set];
}

/** The time that is `ms` before another time, not counting pleats. */
function backFrom(time, folds, ms) {
  let left = ms;
  for (let n = folds.length - 1; n >= 0; n -= 1) {
    const [from, to] = folds[n];
    if (from >= time) continue;
    const open = Math.max(0, time - to);
    if (open >= left) break;
    left -= open;
    time = from;
  }
  return time - left;
}

function forthFrom(time, folds, ms) {
  let left = ms;
  for (const [from, to] of folds) {
    if (to <= time) continue;
    const open = Math.max(0, from - time);
    if (open >= left) break;
    left -= open;
    time = to;
  }
  return time + left;
}

/** `count`, `upto`, `state`: those of the session, whose changes redraw the timeline. */
export const Timeline = still(({ session, count, upto, state, at, go, fresh, mark, picking, pick, commands }) => {
  const { events } = session;
  const box = useRef(null);
  const width = useWidth(box);
  const [tool, setTool] = useState("");
  const drawn = useRuns(session, tool);
  const { runs, rows, lanes, tools, turns, times, folds, start, end } = drawn;
  const last = Math.max(0, count - 1);
  const place = at === null ? last : session.placeAt(at);
  const instant = at === null ? end : times[place] ?? 0;
  const [view, setView] = useView({ start, end, folds, instant, ready: upto >= 0 });
  const [from, to] = view;
  const shown = useMemo(() => axis(folds, from, to, width), [folds, from, to, width]);
  const whole = useMemo(() => axis(folds, start, end, width), [folds, start, end, width]);
  const [hover, setHover] = useState(null);
  const toPlace = (wanted) => events[wanted] && go(session.id, events[wanted].offset);
  const placeOf = (time) => Math.max(0, after(times, time) - 1);
  const toTime = (time) => toPlace(placeOf(time));
  /** Compares with the instant at a time, if a press on the timeline asks for that. */
  const picks = (event, time) => {
    const isPick = (picking || event.shiftKey) && events.length > 0;
    if (isPick) pick(events[placeOf(time)].offset);
    return isPick;
  };
  const toRun = (run) => {
    go(session.id, run.offset);
    commands.current.reveal(run.offset, run.key);
  };
  const latest = useRef(null);
  latest.current = (run, event) => (picking || event.shiftKey ? pick(run.offset) : toRun(run));
  const choose = useMemo(() => (run, event) => latest.current(run, event), [session]);
  const zoom = (by, around = Math.min(Math.max(instant, from), to)) => {
    const x = shown.x(around);
    const left = backFrom(around, folds, ((x / (shown.scale || 1)) || 0) / by);
    const right = forthFrom(around, folds, (((width - x) / (shown.scale || 1)) || 0) / by);
    setView([left, right]);
  };
  const bring = (run) => {
    toRun(run);
    const x = shown.x(run.at);
    if (run.at >= from && run.at <= to && x >= EDGE && x <= width - EDGE) return;
    const half = width / (shown.scale || 1) / 2;
    setView([backFrom(run.at, folds, half), forthFrom(run.at, folds, half)]);
  };
  const player = usePlaying({ session, at, place, last, toPlace, ready: fresh });
  Object.assign(commands.current, {
    zoomIn: () => zoom(2), zoomOut: () => zoom(0.5), whole: () => setView([start, end]), play: player.play,
    bar: (step) => nextBar(
      tool ? runs.filter((run) => run.lane === "tool") : runs, at === null ? Infinity : at, step, bring),
  });
  useWheel(box, { shown, zoom, setView });
  const x = shown.x(instant);
  const words = at === null ? "Now" : clock(instant);
  const height = TOP + lanes.length * LANE;
  const event = events[place];
  const facts = { session, state, at, event, place, last, instant, player };
  return html`
    <section class=${picking ? "tl picking" : "tl"} aria-label="Time">
      <${Controls} ...${facts} picking=${picking} go=${go} toPlace=${toPlace} commands=${commands} />
      <div class="tl-grid">
        <span class="tl-name faint">Whole session</span>
        <${MapBox} whole=${whole} shown=${shown} setView=${setView} runs=${runs} end=${end}
          instant=${instant} past=${at !== null} toTime=${toTime} picks=${picks} />
        <div class="tl-labels" style=${{ paddingTop: `${TOP}px` }}>
          ${lanes.map(([lane, label], n) => html`<span key=${n}>${
            label && html`<i class=${`glyph ${lane}`}></i>`}${lane === "tool" && label && tools.length > 1
            ? html`<${ToolChoice} tools=${tools} tool=${tool} setTool=${setTool} />` : label}</span>`)}
        </div>
        <div class="tl-plot" ref=${box} ...${scrubbing({ shown, toTime, picks, setHover, runs })}>
          <input class="tl-slider" type="range" min="0" max=${last} step="1" value=${place} disabled=${!count}
            aria-label="Event" aria-valuetext=${saying(event, place, last)}
            onInput=${({ target }) => toPlace(Number(target.value))} />
          ${width > 0 && count > 0 && upto >= 0 && html`
            <svg class="tl-svg" width=${width} height=${height} aria-hidden="true">
              <${Axis} shown=${shown} turns=${turns} height=${height} instant=${x} words=${words} />
              <${Lanes} shown=${shown} runs=${runs} rows=${rows} lanes=${lanes} end=${end} top=${TOP}
                choose=${choose} />
            </svg>
            <svg class="tl-svg over" width=${width} height=${height} aria-hidden="true">
              ${at !== null && html`<rect class="veil" x=${x} y="0" width=${Math.max(0, width - x)}
                height=${height} />`}
              ${mark !== null && html`<line class="marked" x1=${shown.x(times[session.placeAt(mark)])}
                x2=${shown.x(times[session.placeAt(mark)])} y1=${TOP - 18} y2=${height} />`}
              <${Head} x=${x} width=${width} height=${height} words=${words} />
            </svg>
            <${Card} hover=${hover} end=${end} width=${width} />
          `}
        </div>
      </div>
      <${BarList} shown=${shown} runs=${runs} end=${end} choose=${choose} />
    </section>
  `;
});

/** In the name of the lane: which tool's calls the lane and the keys J and K show. */
const ToolChoice = ({ tools, tool, setTool }) => html`
  <label class="tl-tool"><select class=${tool ? "on" : ""} aria-label="Show the calls of" value=${tool}
    title=${tool ? `Only calls of ${tool} are shown` : "Show the calls of one tool"}
    onChange=${({ target }) => setTool(target.value)}>
    <option value="">Tools</option>
    ${tools.map(([name, count]) => html`<option key=${name} value=${name}>${name} (${count})</option>`)}
  </select><${Icon} name="down" /></label>
`;

/** The handlers of the plot. A press or a drag goes to the event at that time; the bar under the
    pointer shows its facts. */
function scrubbing({ shown, toTime, picks, setHover, runs }) {
  const timeAt = (event) => {
    const { left } = event.currentTarget.getBoundingClientRect();
    return shown.time(event.clientX - left);
  };
  return {
    onPointerDown: (event) => {
      if (event.button !== 0 || event.target.closest(".hit") || picks(event, timeAt(event))) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      toTime(timeAt(event));
    },
    onPointerMove: (event) => {
      if (event.currentTarget.hasPointerCapture(event.pointerId)) return void toTime(timeAt(event));
      const name = event.target.closest?.("[data-run]")?.dataset.run;
      if (!name) return void setHover(null);
      const run = runs.find((one) => `${one.offset}.${one.lane}.${one.kind}` === name);
      const { left, bottom } = event.currentTarget.getBoundingClientRect();
      setHover(run ? { run, x: event.clientX - left, y: bottom - event.clientY + 14 } : null);
    },
    onPointerLeave: () => setHover(null),
  };
}

/** Handles the wheel: it zooms around the pointer. Sideways or with Shift, it moves the view. */
function useWheel(box, { shown, zoom, setView }) {
  const now = useRef(null);
  now.current = { shown, zoom, setView };
  useEffect(() => {
    const turn = (event) => {
      event.preventDefault();
      const { shown: here, zoom: by, setView: set } = now.current;
      const { left } = box.current.getBoundingClientRect();
      const sideways = event.shiftKey ? event.deltaY : event.deltaX;
      if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
        const ms = sideways / (here.scale || 1);
        set([here.from + ms, here.to + ms]);
      } else by(Math.exp(-event.deltaY / 300), here.time(event.clientX - left));
    };
    box.current.addEventListener("wheel", turn, { passive: false });
    return () => box.current?.removeEventListener("wheel", turn);
  }, []);
}

function nextBar(runs, at, step, bring) {
  const found = step > 0 ? runs.find((run) => run.offset > at) : runs.findLast((run) => run.offset < at);
  if (found) bring(found);
}

const saying = (event, place, last) =>
  (event ? `${clock(event.at)}, right after event ${place + 1} of ${last + 1}: ${event.type}` : "no events");

function Controls({ session, state, at, event, place, last, instant, player, picking, go, toPlace, commands }) {
  const step = (by) => go(session.id, moved(session, at, by));
  const Press = (name, icon, act, off = false, pressed = undefined) => html`
    <button class="btn icon" aria-label=${name} title=${name} disabled=${off} aria-pressed=${pressed}
      onClick=${act}><${Icon} name=${icon} /></button>`;
  return html`
    <div class="tl-controls">
      ${Press("First event", "first", () => toPlace(0), place === 0)}
      ${Press("Previous event", "left", () => step(-1), place === 0)}
      ${Press(player.playing ? "Stop playing" : "Play", player.playing ? "pause" : "play", player.play, !event,
        String(player.playing))}
      ${Press("Next event", "right", () => step(1), place === last)}
      ${Press("Last event", "last", () => toPlace(last), at !== null && place === last)}
      <button class="btn quiet num rate" aria-label=${`Speed: ${player.rate} events per second. Change`}
        onClick=${player.faster}>${player.rate}/s</button>
      <span class="tl-clock num">${clock(instant)}${
        at !== null && html`<i class="faint">${fraction(instant)}</i>`}</span>
      <span class="tl-where dim num">${picking ? html`<b role="status">Click the instant to compare with.</b>`
        : at === null ? html`<span class=${`live ${state}`}><i aria-hidden="true"></i>${
          state === "live" ? "Live" : "Not connected"}</span>${
          event && ` event ${number(place + 1)} of ${number(last + 1)}`}`
        : `right after event ${number(place + 1)} of ${number(last + 1)}`}</span>
      <${Legend} />
      <span class="row">
        ${Press("Zoom out", "minus", () => commands.current.zoomOut())}
        ${Press("Zoom in", "plus", () => commands.current.zoomIn())}
        ${Press("Show the whole session", "whole", () => commands.current.whole())}
      </span>
    </div>
  `;
}

const Legend = still(() => html`
  <span class="tl-legend faint" aria-hidden="true">
    <span><i class="glyph doubt"></i>in doubt</span>
    <span><i class="glyph asks"></i>waits for a person</span>
    <span><i class="glyph waits"></i>waits for a worker or a retry</span>
    <span><i class="glyph fail"></i>lost or failed</span>
    <span><i class="glyph pleat"></i>silence, folded</span>
  </span>
`);

/** Plays the session: advances by `speed` events per second, but never beyond what the page has
    drawn. */
function usePlaying({ session, at, place, last, toPlace, ready }) {
  const [speed, setSpeed] = useState(null);
  const [rate, setRate] = useState(SPEEDS[1]);
  useEffect(() => {
    if (speed === null) return undefined;
    if (at !== null && place >= last) {
      setSpeed(null);
      return undefined;
    }
    if (!ready) return undefined;
    const step = Math.max(1, Math.round(speed / 20)); // at most twenty redraws per second
    const timer = setTimeout(() => toPlace(Math.min(last, place + step)), (1000 * step) / speed);
    return () => clearTimeout(timer);
  }, [session, speed, at, place, last, ready]);
  const play = () => {
    if (speed !== null) return setSpeed(null);
    if (at === null || place === last) toPlace(0);
    return setSpeed(rate);
  };
  const faster = () => {
    const next = SPEEDS[(SPEEDS.indexOf(rate) + 1) % SPEEDS.length];
    setRate(next);
    if (speed !== null) setSpeed(next);
  };
  return { playing: speed !== null, rate, play, faster };
}

const TITLES = TOP - 28; // the row of the turns' titles
const TIMES = TOP - 8; // the row of the times
const LETTER = 6.2;
const TURN = 52; // px of the words "Turn 12"

/** `instant` and `words`: the place and the words of the head, which hides the time below it. */
const Axis = still(({ shown, turns, height, instant, words }) => {
  const [group, place] = sliding(shown);
  const head = headPlace(instant, shown.width, words);
  const marks = ticks(shown);
  const times = marks.filter(({ x, time, step }) =>
    Math.abs(x - head.middle) > head.half + tickText(time, step).length * LETTER / 2);
  const titles = turnLabels(shown, turns);
  return html`
    <line class="base" x1="0" x2=${shown.width} y1=${TOP - 24} y2=${TOP - 24} />
    <g ...${group}>
      ${marks.map(({ time, x }) => html`
        <line key=${time} class="tick" x1=${place(x)} x2=${place(x)} y1=${TOP} y2=${height} />`)}
      ${times.map(({ time, x, step }) => html`
        <text key=${time} x=${place(within(x, tickText(time, step), shown.width))} y=${TIMES} text-anchor="middle">${
          tickText(time, step)}</text>`)}
      ${pleatNames(shown, titles, times, head).map(({ x, y, name, start }) => html`
        <text key=${start} class="plate" x=${place(x)} y=${y} text-anchor="middle">${name}</text>`)}
      ${titles.map(({ turn, x, title }) => html`
        <text key=${turn} class="turn" x=${place(x)} y=${TITLES}>
          <tspan class="strong">Turn ${turn}</tspan> ${title}</text>`)}
    </g>
  `;
});

/** The lengths of the pleats, each in the row of the titles or of the times, where it is free. */
function pleatNames(shown, titles, times, head) {
  const taken = [
    [TITLES, titles.map(({ x, title }) => [x, x + TURN + title.length * LETTER])],
    [TIMES, [[head.middle - head.half, head.middle + head.half], ...times.map(({ x, time, step }) => {
      const half = tickText(time, step).length * LETTER / 2;
      return [x - half, x + half];
    })]],
  ];
  const found = [];
  for (const { x, to, ms, start } of shown.pleats) {
    const [name, middle] = [length(ms), (x + to) / 2];
    const [left, right] = [middle - name.length * LETTER / 2 - 4, middle + name.length * LETTER / 2 + 4];
    const row = taken.find(([, ranges]) => ranges.every((range) => range[1] < left || range[0] > right));
    if (to - x <= 20 || row === undefined) continue;
    row[1].push([left, right]);
    found.push({ x: middle, y: row[0], name, start });
  }
  return found;
}

/** The labels of the visible turns, cut to the space before the next turn or a pleat. */
function turnLabels(shown, turns) {
  const found = [];
  const inView = turns.filter(({ at }, n) => at <= shown.to && (turns[n + 1]?.at ?? Infinity) > shown.from);
  let free = 0;
  for (const [n, turn] of inView.entries()) {
    const x = Math.max(shown.x(turn.at), free);
    const pleat = shown.pleats.find((one) => one.x >= x)?.x ?? Infinity;
    const next = inView[n + 1] ? shown.x(inView[n + 1].at) : shown.width;
    const room = Math.floor((Math.min(next, pleat - 12, shown.width) - x - 56) / 6.2);
    if (Math.min(next, shown.width) - x < 46) continue;
    found.push({ ...turn, x, title: room > 6 ? brief(turn.title, room) : "" });
    free = x + 52;
  }
  return found;
}

/** The middle of a text at x that must not leave the axis. */
const within = (x, text, width) => Math.max(text.length * LETTER / 2, Math.min(width - text.length * LETTER / 2, x));

const tickText = (time, step) => (step < 1000 ? `${clock(time)}${fraction(time)}` : clock(time));

/** Where the head's words are: their middle, and half of their width. */
function headPlace(x, width, words) {
  const half = Math.max(20, words.length * 3.4 + 8);
  return { half, middle: Math.min(Math.max(half, x), width - half) };
}

function Head({ x, width, height, words }) {
  const { half, middle } = headPlace(x, width, words);
  return html`<g class="head">
    <line x1=${Math.min(x, width - 1)} x2=${Math.min(x, width - 1)} y1=${TOP - 22} y2=${height} />
    <rect x=${middle - half} y=${TOP - 22} width=${2 * half} height="20" rx="10" />
    <text x=${middle} y=${TOP - 8} text-anchor="middle">${words}</text>
  </g>`;
}

/** The map. Drag the frame to move the view, or its edges to zoom. A press elsewhere moves the
    frame there. */
function MapBox({ whole, shown, setView, runs, end, instant, past, toTime, picks }) {
  const drag = useRef(null);
  const left = whole.x(shown.from);
  const right = Math.max(whole.x(shown.to), left + 4);
  const place = (event) => event.clientX - event.currentTarget.getBoundingClientRect().left;
  const down = (event) => {
    const x = place(event);
    if (picks(event, whole.time(x))) return;
    const grip = Math.abs(x - left) < 8 ? "left" : Math.abs(x - right) < 8 ? "right" : "move";
    const isOutside = x < left - 8 || x > right + 8;
    drag.current = { grip, from: isOutside ? (right - left) / 2 : x - left, size: right - left };
    event.currentTarget.setPointerCapture(event.pointerId);
    if (isOutside || SMALL.matches) move(event);
  };
  const move = (event) => {
    if (!drag.current || (event.type === "pointermove" && !event.buttons)) return;
    const x = place(event);
    if (SMALL.matches) return void toTime(whole.time(x)); // the lanes are not shown: the map is the scrubber
    const { grip, from, size } = drag.current;
    if (grip === "left") setView([whole.time(Math.min(x, right - 4)), shown.to]);
    else if (grip === "right") setView([shown.from, whole.time(Math.max(x, left + 4))]);
    else {
      const start = Math.min(Math.max(0, x - from), Math.max(0, whole.width - size));
      setView([whole.time(start), whole.time(start + size)]);
    }
  };
  const x = whole.x(instant);
  return html`
    <div class="tl-map" onPointerDown=${down} onPointerMove=${move} onPointerUp=${() => { drag.current = null; }}>
      ${whole.width > 0 && runs.length > 0 && html`<svg width=${whole.width} height=${MAP} aria-hidden="true">
        <${Small} shown=${whole} runs=${runs} end=${end} height=${MAP} />
        ${past && html`<rect class="veil" x=${x} y="0" width=${Math.max(0, whole.width - x)} height=${MAP} />`}
        <line class="here" x1=${x} x2=${x} y1="0" y2=${MAP} />
        <rect class="frame" x=${left + 0.75} y="0.75" width=${Math.max(3, right - left - 1.5)} height=${MAP - 1.5}
          rx="4" />
      </svg>`}
    </div>
  `;
}
