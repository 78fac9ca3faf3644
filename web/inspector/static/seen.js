// Measures which part of a box has been on the screen, down to the row of pixels.

import { useEffect, useRef, useState } from "./lib.js";

/** The part of a box that is on the screen now: [first, end] in pixels of the box; null if none is. */
function rowsOnScreen(box) {
  if (document.visibilityState !== "visible") return null;
  const own = box.getBoundingClientRect();
  let [top, end] = [Math.max(own.top, 0), Math.min(own.bottom, innerHeight)];
  for (let around = box.parentElement; around && around !== document.body; around = around.parentElement) {
    if (getComputedStyle(around).overflowY === "visible") continue;
    const edge = around.getBoundingClientRect().top + around.clientTop;
    top = Math.max(top, edge);
    end = Math.min(end, edge + around.clientHeight);
  }
  return end > top ? [top - own.top, end - own.top] : null;
}

/** The stretches, sorted, with a new one; stretches that touch become one. */
function joined(stretches, added) {
  const found = [];
  for (const [start, end] of [...stretches, added].sort((a, b) => a[0] - b[0])) {
    const last = found.at(-1);
    if (last && start <= last[1] + 1) last[1] = Math.max(last[1], end);
    else found.push([start, end]);
  }
  return found;
}

/** Which part of the content of a box was on the screen since the content or its size changed.
    Returns `whole`: all of it; `share`: how much of it, from 0 to 1; `next`: scrolls to the first row
    that was not. `box`: a ref to the content; `of`: the content. */
export function useSeen(box, of) {
  const rows = useRef({ stretches: [], size: "", of: null });
  const [share, setShare] = useState(0);
  useEffect(() => {
    if (!box.current) return undefined;
    const look = () => {
      if (!box.current) return;
      const { width, height } = box.current.getBoundingClientRect();
      const size = `${Math.round(width)} ${Math.round(height)}`;
      const known = rows.current;
      if (known.size !== size || known.of !== of) rows.current = { stretches: [], size, of };
      const now = rowsOnScreen(box.current);
      if (now) rows.current.stretches = joined(rows.current.stretches, now);
      const { stretches } = rows.current;
      const isWhole = stretches.length === 1 && stretches[0][0] <= 1 && stretches[0][1] >= height - 1;
      const seen = stretches.reduce((sum, [start, end]) => sum + end - start, 0);
      setShare(isWhole ? 1 : Math.min(0.99, height ? seen / height : 0));
    };
    const sizes = new ResizeObserver(look);
    const places = new IntersectionObserver(look, { threshold: [0, 0.25, 0.5, 0.75, 1] });
    sizes.observe(box.current);
    places.observe(box.current);
    document.addEventListener("scroll", look, { capture: true, passive: true });
    document.addEventListener("visibilitychange", look);
    addEventListener("resize", look);
    look();
    return () => {
      sizes.disconnect();
      places.disconnect();
      document.removeEventListener("scroll", look, { capture: true });
      document.removeEventListener("visibilitychange", look);
      removeEventListener("resize", look);
    };
  }, [of]);
  const next = () => {
    const { stretches } = rows.current;
    const first = stretches[0]?.[0] > 1 ? 0 : stretches[0]?.[1] ?? 0;
    scrollTo(box.current, first);
  };
  return { whole: share === 1 && rows.current.of === of, share, next };
}

/** Scrolls the boxes around an element so that one of its rows is at their top. */
function scrollTo(element, row) {
  const around = [];
  for (let at = element.parentElement; at; at = at.parentElement) {
    if (at.scrollHeight > at.clientHeight && getComputedStyle(at).overflowY !== "visible") around.push(at);
  }
  for (const at of around) {
    const place = element.getBoundingClientRect().top + row - at.getBoundingClientRect().top;
    at.scrollTop += place - 8;
  }
}
