// A chart over offsets, drawn with uPlot; a click goes to that moment.

import { html, useEffect, useRef } from "./lib.js";

const HEIGHT = 180;
const short = (value) =>
  value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : String(+value.toPrecision(3));

export function Chart({ label, x, lines, here, choose }) {
  const box = useRef(null);
  const plot = useRef(null);
  const go = useRef(choose);
  const place = useRef(here);
  go.current = choose;
  place.current = here;
  const shape = `${x.length} ${x.at(-1)} ${lines.map(([name]) => name)}`;
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      plot.current = draw(box.current, x, lines, place, go);
    };
    make();
    const watch = new ResizeObserver(() =>
      plot.current.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    watch.observe(box.current);
    addEventListener("themechange", make);
    return () => {
      watch.disconnect();
      removeEventListener("themechange", make);
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.redraw(false), [here]);
  const key = lines.map(([name, color]) => html`
    <span class="key"><i style=${{ background: `var(${color})` }}></i>${name}</span>
  `);
  return html`
    <div class="chart" ref=${box} role="img" aria-label=${label}></div>
    <p class="keys" aria-hidden="true">${key}</p>
  `;
}

function draw(box, x, lines, place, go) {
  const style = getComputedStyle(box);
  const of = (name) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: of("--muted"),
    grid: { stroke: of("--line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui",
  };
  const options = {
    width: box.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    scales: { x: { time: false }, y: { range: (_plot, _low, high) => [0, (high || 1) * 1.1] } },
    axes: [axis, { ...axis, size: 52, values: (_plot, values) => values.map(short) }],
    series: [{}, ...lines.map(([name, color]) => ({
      label: name,
      stroke: of(color),
      width: 2,
      points: { show: x.length < 2 },
    }))],
    hooks: {
      draw: [(plot) => mark(plot, place.current, of("--ink"))],
      ready: [(plot) => plot.over.addEventListener("click", () => {
        if (plot.cursor.idx !== null) go.current(x[plot.cursor.idx]);
      })],
    },
  };
  return new uPlot(options, [x, ...lines.map(([, , values]) => values)], box);
}

/** A line at the offset that the page shows. */
function mark(plot, offset, color) {
  const at = Math.round(plot.valToPos(offset, "x", true));
  const { left, top, width, height } = plot.bbox;
  if (at < left || at > left + width) return;
  plot.ctx.fillStyle = color;
  plot.ctx.fillRect(at, top, Math.max(1, devicePixelRatio), height);
}
