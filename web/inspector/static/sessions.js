// The table of sessions. Only the visible rows are in the document, however many rows there are.

import { DAYS, STATUSES, isFiltered } from "./home_filters.js";
import { Spark } from "./home_spark.js";
import { number, usd } from "./format.js";
import { brief, full, lasted, since, titleOf } from "./home_words.js";
import { Icon, Status } from "./icons.js";
import { html, still, useEffect, useLayoutEffect, useMemo, useModel, useRef, useState } from "./lib.js";

const CLEAR = { status: "", agent: "", days: "", find: "", sort: "" };
const PHONE = matchMedia("(max-width: 760px)");
const OVERSCAN = 6;
const STUCK = 90; // px of the table's head and the selection, which stay visible
const DRAWN = 128; // row elements, which are reused for other rows

/** The columns. `extra`: shown only if it is chosen. */
const COLUMNS = [
  { name: "title", label: "Session", sort: "title" },
  { name: "status", label: "Status" },
  { name: "agent", label: "Agent" },
  { name: "user", label: "User", extra: true },
  { name: "turns", label: "Turns", sort: "turns" },
  { name: "tokens", label: "Tokens", sort: "tokens", extra: true },
  { name: "cost", label: "Cost", sort: "cost" },
  { name: "took", label: "Duration", sort: "duration" },
  { name: "did", label: "What it did" },
  { name: "started", label: "Started", sort: "started", extra: true },
  { name: "when", label: "Changed", sort: "changed" },
];
const CHOICE = COLUMNS.slice(2); // the title and the status always stay

const rowHeight = () => (PHONE.matches ? 64 : 44);

/** The range [first, last) of the rows that are visible in the page's scroller. */
function useWindow(body, total) {
  const [range, setRange] = useState([0, 40]);
  const height = rowHeight();
  useLayoutEffect(() => {
    const scroller = document.getElementById("talk");
    if (scroller === null || body.current === null) return undefined;
    let [top, room] = [0, 0]; // the top of the rows, and the height of the scroller
    const look = () => {
      const first = Math.max(0, Math.floor((scroller.scrollTop - top) / height) - OVERSCAN);
      const shown = Math.ceil(room / height) + 1 + 2 * OVERSCAN;
      setRange((before) => (before[0] === first && before[1] === first + shown ? before : [first, first + shown]));
    };
    const measure = () => {
      if (body.current === null) return;
      const above = body.current.getBoundingClientRect().top - scroller.getBoundingClientRect().top;
      [top, room] = [above + scroller.scrollTop, scroller.clientHeight];
      look();
    };
    measure();
    scroller.addEventListener("scroll", look, { passive: true });
    const watch = new ResizeObserver(measure);
    watch.observe(scroller);
    for (const child of scroller.children) watch.observe(child);
    return () => {
      scroller.removeEventListener("scroll", look);
      watch.disconnect();
    };
  }, [total, height]);
  return [range, height];
}

export function Table({ rows, model, now, view, change, picked, pick, ids, columns }) {
  useModel(columns);
  const shownColumns = COLUMNS.filter((column) => !CHOICE.includes(column) || columns.has(column));
  const names = shownColumns.map(({ name }) => name).join(" ");
  const body = useRef(null);
  const [[first, last], height] = useWindow(body, rows.length);
  const [cursor, setCursor] = useState({ id: null, place: 0 }); // the session's id, because its row may move
  const here = useMemo(() => {
    const place = rows.findIndex((row) => row.id === cursor.id);
    return place < 0 ? Math.min(cursor.place, rows.length - 1) : place;
  }, [rows, cursor]);
  const held = useRef(false); // whether the cursor's row should have the focus
  const move = (place) => {
    const next = Math.max(0, Math.min(rows.length - 1, place));
    held.current = true;
    setCursor({ id: rows[next].id, place: next });
    reveal(body.current, next, height);
    focus(next);
  };
  const focus = (place) => {
    const active = document.activeElement;
    const link = body.current?.querySelector(`[data-place="${place}"] a`); // absent until it is drawn
    if (link && active !== link) link.focus({ preventScroll: true });
  };
  // A row that leaves the document or moves in it loses the focus.
  useLayoutEffect(() => {
    const active = document.activeElement;
    const place = body.current.contains(active) ? active.closest(".tr")?.dataset.place ?? null : null;
    if (held.current && (active === document.body || (place !== null && place !== String(here)))) focus(here);
  });
  useEffect(() => {
    const release = (event) => {
      held.current = event.type === "focusin" && body.current?.contains(event.target) === true;
    };
    addEventListener("pointerdown", release);
    addEventListener("focusin", release);
    return () => {
      removeEventListener("pointerdown", release);
      removeEventListener("focusin", release);
    };
  }, []);
  useEffect(() => {
    const step = (event) => move(event.detail === 0 ? here : here + event.detail);
    addEventListener("rowstep", step);
    return () => removeEventListener("rowstep", step);
  });
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor((last - first) / 2));
    const to = {
      ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: rows.length - 1, PageDown: here + page, PageUp: here - page,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      move(to);
    } else if (event.key.toLowerCase() === "x") {
      event.preventDefault();
      pick([rows[here].id]);
    }
  };
  const anchor = useRef(0);
  const latest = useRef(null);
  latest.current = (place, range) => {
    const [low, high] = [Math.min(place, anchor.current), Math.max(place, anchor.current)];
    pick(range ? rows.slice(low, high + 1).map((row) => row.id) : [rows[place].id], range);
    anchor.current = place;
    setCursor({ id: rows[place].id, place });
  };
  const choose = useMemo(() => (place, range) => latest.current(place, range), []); // so that no row is drawn again
  const all = rows.length > 0 && rows.every((row) => picked.has(row.id));
  const shown = rows.slice(first, last);
  return html`
    <div class=${picked.size ? "card sheet picking" : "card sheet"} role="table" aria-label="Sessions"
      aria-rowcount=${rows.length + 1}>
      <div role="rowgroup" class="heads"><div role="row" aria-rowindex="1" class="tr">
        <span role="columnheader" class="pickcell"><input type="checkbox"
          aria-label=${`Select all ${number(rows.length)}`} checked=${all}
          onChange=${() => pick(rows.map((row) => row.id), !all, all)} /></span>
        ${shownColumns.map((column) => html`<${ColumnHead} key=${column.name} ...${column} view=${view}
          change=${change} />`)}
      </div></div>
      <div role="rowgroup" class="tbody" ref=${body} onKeyDown=${press}
        style=${{ height: `${rows.length * height}px` }}>
        ${shown.map((row, index) => html`<${Row} key=${(first + index) % DRAWN} row=${row} place=${first + index}
          top=${(first + index) * height} picked=${picked.has(row.id)} here=${first + index === here}
          ...${{ now, choose, ids, names }} />`)}
      </div>
    </div>
    <${Bounds} model=${model} />
  `;
}

/** Says which sessions the list, its filters and its counts cover, if these are not all. */
export function Bounds({ model }) {
  const { total, rows, canReadMore } = model;
  if (total <= rows.size) return null;
  return html`<p class="none bounds">This list, its filters and its counts cover ${number(rows.size)} of${" "}
    ${number(total)} sessions: those that wait for you, then those that changed last.${" "}
    ${canReadMore ? html`<button class="link" onClick=${() => model.more()}>Read more</button>`
      : html`That is the most that this page lists; the search covers every session, and${" "}
        <code>foldlog sessions</code> lists them all.`}</p>`;
}

/** The choice of columns. */
function Choice({ columns }) {
  useModel(columns);
  const box = useRef(null);
  const leave = ({ relatedTarget }) => {
    if (relatedTarget && !box.current.contains(relatedTarget)) box.current.open = false;
  };
  const press = (event) => {
    if (event.key !== "Escape" || !box.current.open) return;
    event.stopPropagation();
    box.current.open = false;
    box.current.querySelector("summary").focus();
  };
  useEffect(() => {
    const away = ({ target }) => box.current.contains(target) || (box.current.open = false);
    addEventListener("pointerdown", away);
    return () => removeEventListener("pointerdown", away);
  }, []);
  return html`<details class="choice" ref=${box} onFocusOut=${leave} onKeyDown=${press}>
    <summary class="chip" aria-label="Columns" title="Columns"><${Icon} name="columns" small /></summary>
    <fieldset class="card"><legend class="sr">Columns of the table</legend>
      ${CHOICE.map((column) => html`<label class="tick" key=${column.name}><input type="checkbox"
        checked=${columns.has(column)} onChange=${(event) => columns.set(column, event.target.checked)} />
        ${column.label}</label>`)}</fieldset>
  </details>`;
}

function reveal(body, place, height) {
  const scroller = document.getElementById("talk");
  const room = scroller.getBoundingClientRect();
  const top = body.getBoundingClientRect().top + place * height - room.top;
  if (top < STUCK) scroller.scrollTop += top - STUCK;
  else if (top + 2 * height > room.height) scroller.scrollTop += top + 2 * height - room.height;
}

function ColumnHead({ name, label, sort, view, change }) {
  if (!sort) return html`<span role="columnheader" class=${`c-${name}`}>${label}</span>`;
  const value = sort === "changed" ? "" : sort;
  const on = view.sort === value;
  const order = on ? (sort === "title" ? "ascending" : "descending") : "none";
  return html`<span role="columnheader" class=${`c-${name}`} aria-sort=${order}>
    <button onClick=${() => change({ sort: on ? "" : value })}>${label}${
      on && html`<${Icon} name="down" small />`}</button>
  </span>`;
}

function took(row, now) {
  const open = row.turn_at === null ? 0 : Math.max(0, now - row.turn_at);
  return row.in_turns_ms + open;
}

const Row = still(({ row, place, top, now, picked, here, choose, ids, names }) => {
  const tab = here ? 0 : -1;
  const title = titleOf(row);
  const unused = !row.turns;
  const cells = {
    title: () => html`<span role="cell" class="c-title cut"><a href=${`#/s/${encodeURIComponent(row.id)}`}
      tabindex=${tab} class=${row.title ? "" : "faint"}><bdi>${title}</bdi></a>${
      ids && html`<span class="id mono faint"><bdi>${row.id}</bdi></span>`}</span>`,
    status: () => html`<span role="cell" class="c-status"><${Status} of=${row} /></span>`,
    agent: () => html`<span role="cell" class="c-agent dim cut"><bdi>${row.agent}</bdi></span>`,
    user: () => html`<span role="cell" class="c-user dim cut"><bdi>${row.user}</bdi></span>`,
    turns: () => html`<span role="cell" class="c-turns num dim">${row.turns}</span>`,
    tokens: () => html`<span role="cell" class="c-tokens num dim">${unused ? "" : brief(row.tokens)}</span>`,
    cost: () => html`<span role="cell" class="c-cost num">${unused ? "" : usd(row.usd, row.unpriced, "?")}</span>`,
    took: () => html`<span role="cell" class="c-took num dim">${unused ? "" : lasted(took(row, now))}</span>`,
    did: () => html`<span role="cell" class="c-did"><${Spark} row=${row} at=${row.now === null ? 0 : now} /></span>`,
    started: () => html`<span role="cell" class="c-started num faint" title=${full(row.started_at)}>${
      since(row.started_at, now)}</span>`,
    when: () => html`<span role="cell" class="c-when num faint" title=${full(row.updated_at)}>${
      since(row.updated_at, now)}</span>`,
  };
  return html`
    <div role="row" class=${picked ? "tr picked" : "tr"} aria-rowindex=${place + 2} data-place=${place}
      style=${{ top: `${top}px` }} aria-selected=${String(picked)}>
      <span role="cell" class="pickcell"><input type="checkbox" aria-label=${`Select ${title}`} checked=${picked}
        tabindex=${tab} onClick=${(event) => choose(place, event.shiftKey)} /></span>
      ${names.split(" ").map((name) => cells[name]())}
    </div>
  `;
});

/** The filters above the table. `children`: the actions on a selection. */
export function Filters({ view, change, counts, model, saved, columns, link, children }) {
  const [naming, setNaming] = useState(false);
  const field = useRef(null);
  useLayoutEffect(() => field.current?.focus(), [naming]);
  const save = (event) => {
    event.preventDefault();
    const name = new FormData(event.target).get("name").trim();
    if (name) saved.save(name, link);
    setNaming(false);
  };
  const isWhole = model.total <= model.rows.size;
  const mine = saved.all.find((one) => one.view === link);
  return html`
    <div class="sieve">
      <h2>Sessions</h2>
      <div class="chips" role="group" aria-label="Status">
        ${STATUSES.map(([value, label]) => (value === "" || value === view.status || counts[value] > 0) && html`
          <button key=${value} class="chip" aria-pressed=${String(view.status === value)}
            onClick=${() => change({ status: value })}>
            ${value || isWhole ? label : "Listed"} <span class="num">${number(counts[value])}</span></button>`)}
      </div>
      <span class="grow"></span>
      <select class="field chip-like" aria-label="Agent" value=${view.agent}
        onChange=${(event) => change({ agent: event.target.value })}>
        <option value="">Any agent</option>
        ${model.agents.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
      <select class="field chip-like" aria-label="Changed" value=${view.days}
        onChange=${(event) => change({ days: event.target.value })}>
        ${DAYS.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
      </select>
      <input class="field title-find" type="search" aria-label="Find by title" placeholder="Find by title"
        value=${view.find} onInput=${(event) => change({ find: event.target.value }, true)} />
      <${Choice} columns=${columns} />
    </div>
    ${(isFiltered(view) || view.sort) && html`<div class="filtered">
      <button class="link" onClick=${() => change(CLEAR)}>Clear filters</button>
      ${mine ? html`<span class="faint">Saved as “<bdi>${mine.name}</bdi>”</span>`
        : naming ? html`<form onSubmit=${save}><label class="sr" for="filter-name">Name of this filter</label>
            <input id="filter-name" name="name" class="field" maxlength="40" required placeholder="Name of this filter"
              ref=${field} />
            <button class="btn">Save filter</button></form>`
        : html`<button class="link" id="save-filter" onClick=${() => setNaming(true)}>Save this filter</button>`}
    </div>`}
    ${children}
  `;
}
