// The time axis of a session: real time, on which each long silence is narrowed to a pleat.

export const SILENCE_MS = 15_000; // a longer time in which nothing runs becomes a pleat
const PLEAT_PX = 44;
const PLEATS_SHARE = 0.5; // the largest share of the width for pleats
const EDGE_MS = 400; // how much of a silence stays visible at each end

/** The silences of a session, [from, to], oldest first: times in which nothing runs, except
    short waits for a worker or a retry. Waits for a person and calls in doubt are silences. */
export function silences(runs, events, end) {
  const busy = [];
  for (const run of runs) {
    const to = run.end_at ?? end;
    if (run.kind === "run" || run.kind === "point") busy.push([run.at, to]);
    else if (run.kind.startsWith("waits_") && run.kind !== "waits_person" && to - run.at <= SILENCE_MS) {
      busy.push([run.at, to]);
    } else busy.push([run.at, run.at], [to, to]);
  }
  if (events.length) busy.push([events[0].at, events[0].at], [events.at(-1).at, events.at(-1).at]);
  busy.push([end, end]);
  busy.sort((one, other) => one[0] - other[0]);
  const found = [];
  let until = busy[0][0];
  for (const [from, to] of busy) {
    if (from - until > SILENCE_MS) found.push([until + EDGE_MS, from - EDGE_MS]);
    until = Math.max(until, to);
  }
  return found;
}

/** The axis of the times [from, to] on `width` pixels, with the functions `x` (of a time) and
    `time` (of an x), and the pleats. While the times slide, x + `shift` stays. */
export function axis(folds, from, to, width) {
  const span = Math.max(1, to - from);
  const inside = folds.filter(([start, end]) => end > from && start < to)
    .map(([start, end]) => [Math.max(start, from), Math.min(end, to), end - start]);
  const folded = inside.reduce((sum, [start, end]) => sum + end - start, 0);
  const parts = inside.reduce((sum, [start, end, whole]) => sum + (end - start) / whole, 0);
  const open = span - folded;
  const share = open > 0 ? PLEATS_SHARE * width : width;
  const pleat = parts > 0 ? Math.min(open > 0 ? PLEAT_PX : width, share / parts) : 0;
  const scale = open > 0 ? Math.max(0, width - parts * pleat) / open : 0; // pixels per ms
  const times = [from];
  const places = [0];
  const add = (time, by) => {
    times.push(time);
    places.push(places.at(-1) + by);
  };
  for (const [start, end, whole] of inside) {
    if (start > times.at(-1)) add(start, (start - times.at(-1)) * scale);
    add(end, (pleat * (end - start)) / whole);
  }
  if (to > times.at(-1)) add(to, (to - times.at(-1)) * scale);
  const x = (time) => between(times, places, time);
  return {
    from, to, width, scale, x,
    shift: scale * (from % (4 * span)),
    time: (place) => between(places, times, place),
    pleats: inside.map(([start, end, whole]) => ({ start, end, ms: whole, x: x(start), to: x(end) })),
  };
}

/** The attributes of a group whose elements stay where they are while the axis slides, and a function
    that returns the place of an x in this group. */
export function sliding({ shift }) {
  const place = (x) => Math.round((x + shift) * 100) / 100;
  return [{ transform: `translate(${-place(0)})` }, place];
}

/** Interpolates linearly between the points of a rising list. Beyond its ends, returns the end's
    value. */
function between(froms, tos, value) {
  if (value <= froms[0]) return tos[0];
  if (value >= froms.at(-1)) return tos.at(-1);
  const n = after(froms, value);
  const [a, b] = [froms[n - 1], froms[n]];
  return b === a ? tos[n] : tos[n - 1] + ((tos[n] - tos[n - 1]) * (value - a)) / (b - a);
}

/** The index of the first element that is greater than `value`. */
export function after(list, value, of = (one) => one) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(list[middle]) <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5,
  288e5, 864e5,
];

/** The ticks of an axis: round times at least `apart` pixels from each other, outside of pleats. */
export function ticks(shown, apart = 96) {
  const { from, to, scale, x, pleats } = shown;
  if (!scale) return [];
  const step = STEPS.find((ms) => ms * scale >= apart) ?? STEPS.at(-1);
  const found = [];
  const edges = [[from, from], ...pleats.map(({ start, end }) => [start, end]), [to, to]];
  for (let n = 1; n < edges.length; n += 1) {
    const [left, right] = [edges[n - 1][1], edges[n][0]];
    for (let time = Math.ceil(left / step) * step; time <= right; time += step) {
      const place = x(time);
      if (!found.length || place - found.at(-1).x >= apart * 0.7) found.push({ time, x: place, step });
      if (found.length > 200) return found;
    }
  }
  return found;
}

/** The times [from, to], moved into [start, end] and at least `least` long. */
export function fitted([from, to], [start, end], least = 40) {
  const length = Math.min(end - start, Math.max(least, to - from));
  const left = Math.min(Math.max(start, from), end - length);
  return [left, left + length];
}
