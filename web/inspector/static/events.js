// Shows every event of the session as a sentence, including refused and ignored events. Only the
// visible rows are drawn. Choosing an event moves the page to it; a button shows its type and
// fields.

import { clock, length, number, pretty } from "./format.js";
import { Icon } from "./icons.js";
import { html, still, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";

const ROW = 30; // px, also in pane.css
const AROUND = 8; // rows drawn beyond the visible ones
const DRAWN = 128; // row elements, which are reused for other rows

export function Events({ session, at, go, moment }) {
  const [chunks, setChunks] = useState(false);
  const [query, setQuery] = useState("");
  const count = session.events.length;
  const latest = useRef(go);
  latest.current = go;
  const choose = useMemo(() => (row) => latest.current(session.id, row.offset), [session]);
  const rows = useMemo(() => {
    const wanted = query.trim().toLowerCase();
    return session.events.filter((event) =>
      (chunks || event.type !== "GEN_CHUNK") &&
      (!wanted || `${event.offset} ${event.type} ${event.says} ${event.summary} ${event.verdict} ${event.code}`
        .toLowerCase().includes(wanted)));
  }, [session, count, chunks, query]);
  return html`
    <div class="filters">
      <label class="sr" for="filter">Filter events</label>
      <input class="field grow" id="filter" type="search" placeholder="Find an event" value=${query}
        onInput=${(event) => setQuery(event.target.value)} />
      <label class="tick"><input type="checkbox" checked=${chunks}
        onChange=${(event) => setChunks(event.target.checked)} /> chunks</label>
      <span class="num faint">${number(rows.length)} of ${number(count)}</span>
    </div>
    <${List} rows=${rows} at=${at} follows=${at === null} choose=${choose} />
    ${moment && html`<${Detail} moment=${moment} />`}
  `;
}

/** The last row at or before an offset. For a hidden chunk, this is the row before the chunk. */
function rowAt(rows, at) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].offset <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function List({ rows, at, follows, choose }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const here = at === null ? -1 : rowAt(rows, at);
  useEffect(() => {
    const measure = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const watch = new ResizeObserver(measure);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const stays = useRef(false); // where a person scrolled, while new events arrive
  useLayoutEffect(() => { stays.current = false; }, [follows]);
  useLayoutEffect(() => {
    const element = box.current;
    if (follows) {
      if (!stays.current) element.scrollTop = rows.length * ROW;
    } else if (here >= 0) {
      const top = here * ROW;
      const isVisible = top >= element.scrollTop && top + ROW <= element.scrollTop + element.clientHeight;
      if (!isVisible) element.scrollTop = top - element.clientHeight / 2;
    }
  }, [here, follows, follows ? rows.length : 0, view.height]);
  const scrolled = ({ target }) => {
    const { scrollTop: top, clientHeight: height } = target;
    stays.current = top + height < (rows.length - 1) * ROW;
    setView({ top, height });
  };
  const first = Math.max(0, Math.floor(view.top / ROW) - AROUND);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + AROUND);
  const press = (event) => {
    const page = Math.max(1, Math.floor(view.height / ROW) - 1);
    const from = here < 0 ? rows.length - 1 : here;
    const to = {
      ArrowUp: from - 1, ArrowDown: from + 1, PageUp: from - page, PageDown: from + page,
      Home: 0, End: rows.length - 1,
    }[event.key];
    if (to === undefined || !rows.length) return;
    event.preventDefault();
    choose(rows[Math.min(rows.length - 1, Math.max(0, to))]);
  };
  return html`
    <div
      class="events"
      ref=${box}
      role="listbox"
      tabindex="0"
      aria-label="Events"
      aria-activedescendant=${here >= first && here < last ? `event-${rows[here].offset}` : undefined}
      onScroll=${scrolled}
      onKeyDown=${press}
    >
      <div class="rows" style=${`height:${rows.length * ROW}px;padding-top:${first * ROW}px`}>
        ${rows.slice(first, last).map((row, n) => html`
          <div key=${(first + n) % DRAWN} class=${lookOf(row, rows[first + n - 1])} id=${`event-${row.offset}`}
            role="option" aria-selected=${String(first + n === here)} aria-posinset=${first + n + 1}
            aria-setsize=${rows.length} onClick=${() => choose(row)}>
            <${Cells} row=${row} before=${rows[first + n - 1]} />
          </div>
        `)}
      </div>
    </div>
  `;
}

const GLYPHS = [
  ["doubt", /UNCERTAIN|HUMAN_NEEDED/], ["fail", /FAILED|REFUSED|OWNER_GONE/], ["model", /^GEN_/], ["tool", /^TOOL_/],
  ["background", /^(BACKGROUND|CONTEXT_COMPACTED|RESULT_COMPACTED|DELIVERY)/],
  ["person", /^(MESSAGE|APPROVAL_DECIDED|HUMAN_RESOLVED|RESULT_REPLACED|CANCEL|PHASE|PROJECT|SESSION_TERM)/],
];
const glyphOf = (type) => GLYPHS.find(([, is]) => is.test(type))?.[0] ?? "other";

/** What a row shows. The element of the row itself is part of the list: Preact would move all rows in the document
    if two were components that leave it together. */
const Cells = still(({ row, before }) => {
  const gap = before && row.turn === before.turn ? row.at - before.at : null;
  const says = row.says || (row.type === "GEN_CHUNK" ? row.summary : row.type);
  return html`
    <span class="num faint offset">${row.offset}</span><i class=${`glyph ${glyphOf(row.type)}`}></i>
    <span class="cut" title=${`${row.type} at offset ${row.offset}, ${clock(row.at)}`}><bdi>${
      row.verdict === "accepted" ? says : `${row.verdict}: ${row.code}. ${says}`}</bdi></span>
    <span class="faint num">${gap === null ? clock(row.at) : `+${length(Math.max(0, gap))}`}</span>
  `;
});

const lookOf = (row, before) =>
  `event${row.verdict === "accepted" ? "" : ` ${row.verdict}`}${before && row.turn !== before.turn ? " first" : ""}`;

/** The event of the moment with all its fields. */
function Detail({ moment }) {
  const { event, ruling } = moment;
  const { partition, offset, at, type, writer, session_id: _, ...fields } = event;
  return html`
    <details class="detail more">
      <summary><${Icon} name="right" small /><span class="mono">${type}</span>
        <span class="num faint">${partition}:${offset}</span>
        <span class="faint">by ${writer}, ${clock(at)}</span>
        <span class=${`verdict ${ruling.verdict}`}>${ruling.verdict}</span>
      </summary>
      ${ruling.code && html`<p>${ruling.code}${ruling.detail ? `: ${ruling.detail}` : ""}</p>`}
      <pre class="code" tabindex="0" aria-label="Fields of the event">${pretty(fields)}</pre>
    </details>
  `;
}
