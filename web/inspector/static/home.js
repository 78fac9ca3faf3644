// The home page: what waits for the user, new sessions, charts, and all sessions. The link contains
// the whole view.

import { clock, number, plural } from "./format.js";
import { Charts, Groups, SPANS, useCharts } from "./home_charts.js";
import { chosen, isFiltered, NONE, PARTS, parseView, viewLink } from "./home_filters.js";
import { Inbox, inbox } from "./home_inbox.js";
import { HOME_KEYS, onHomeKeys } from "./home_keys.js";
import { Columns, SavedFilters } from "./home_storage.js";
import { NewSession, workersOf } from "./home_new.js";
import { Found } from "./home_search.js";
import { about, sentence } from "./home_words.js";
import { Bulk } from "./home_bulk.js";
import { Icon, Mark } from "./icons.js";
import { html, useEffect, useMemo, useModel, useState } from "./lib.js";
import { waitingIn } from "./session_list.js";
import { Bounds, Filters, Table } from "./sessions.js";
import { ask, Keys, Side } from "./shell.js";

const INBOX_MAX = 6; // shown on the home page; a button shows all
const TICK_MS = 5000;

function useNow(model) {
  const [, again] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => again((number) => number + 1), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return Math.floor(model.now() / TICK_MS) * TICK_MS + TICK_MS - 1;
}

function go_(view, replace) {
  const wanted = viewLink(view);
  if (!replace) location.hash = wanted;
  else {
    history.replaceState(null, "", wanted); // typing adds no entries to the browser's history
    dispatchEvent(new Event("hashchange"));
  }
}

export function Home({ list: model, aside, go, about: caller, view: text }) {
  const saved = useMemo(() => new SavedFilters(), []);
  const columns = useMemo(() => new Columns(), []);
  useModel(model);
  useModel(aside);
  useModel(saved);
  const now = useNow(model);
  const view = useMemo(() => parseView(text), [text]);
  const [picked, setPicked] = useState(new Set());
  const [starting, setStarting] = useState(false); // on a phone
  const change = (changes, replace = false) => go_({ ...view, ...changes }, replace);
  const items = useMemo(() => inbox(model.list, aside), [model.list, aside.turns]);
  const { rows, counts } = useMemo(
    () => chosen(model.list, view, now, aside), [model.list, view, view.days ? now : 0, aside.turns]);
  const shown = view.part === "" || view.part === "sessions";
  const waiting = waitingIn(model.list, aside);
  const [working, unserved] = ["busy", "unserved"].map((status) =>
    model.list.filter((row) => row.status === status).length);
  /** Toggles the selection of rows. `set` selects all of them, `clear` unselects all of them. */
  const pick = (ids, set = false, clear = false) => {
    setPicked((before) => {
      const next = new Set(before);
      for (const id of ids) {
        if (clear || (!set && next.has(id))) next.delete(id);
        else next.add(id);
      }
      return next;
    });
  };
  useEffect(() => onHomeKeys({
    "/": () => document.getElementById("find")?.focus(),
    "?": ask,
    n: () => (view.part === "" && !view.q ? focusNew() : (go_(NONE), setTimeout(focusNew, 100))),
    j: () => shown && dispatchEvent(new CustomEvent("rowstep", { detail: atRow() ? 1 : 0 })),
    k: () => shown && dispatchEvent(new CustomEvent("rowstep", { detail: atRow() ? -1 : 0 })),
    w: () => document.querySelector(".inbox .wants")?.focus(),
    s: () => document.getElementById("save-filter")?.click(),
    i: () => change({ ids: view.ids ? "" : "1" }),
    Escape: () => (picked.size ? setPicked(new Set()) : view.q && change({ q: "" })),
    ...Object.fromEntries(PARTS.map((part, place) => [String(place + 1), () => go_({ ...NONE, part })])),
  }));
  useEffect(() => {
    document.title = waiting ? `(${waiting}) foldlog` : "foldlog";
  }, [waiting]);
  const props = {
    model, view, change, now, items, rows, counts, picked, pick, setPicked, saved, columns, aside, go, starting, caller,
  };
  const words = titleFor(view, { model, waiting, working, unserved, rows });
  return html`
    <div class="app home">
      <a class="skip" href="#talk" onClick=${skip}>Skip to the content</a>
      <${Side}><${Places} model=${model} view=${view} waiting=${waiting} saved=${saved} /><//>
      <main class="front-page" id="talk" tabindex="-1" data-part=${view.part || "home"}
        data-words=${view.q ? "yes" : "no"}>
        <${Lost} model=${model} />
        <header class="crown">
          <h1>${words}</h1>
          ${view.part === "" && model.total > 0 && html`<${StartOne} ...${{ starting, setStarting }} />`}
          <${SearchField} view=${view} change=${change} />
        </header>
        ${!model.loaded ? html`<${Loading} model=${model} />`
          : view.q ? html`<${Found} words=${view.q} now=${now} clear=${() => change({ q: "" })} />`
          : !model.total ? html`<${Empty} model=${model} go=${go} />`
          : html`<${Part} ...${props} />`}
        ${model.why && html`<p class="small-print faint" role="note">${model.why}</p>`}
      </main>
      <${Keys} keys=${HOME_KEYS} />
    </div>
  `;
}

const focusNew = () => document.getElementById("new")?.focus();
const atRow = () => document.activeElement?.closest(".tbody") !== null && document.activeElement !== document.body;

function titleFor(view, { model, waiting, working, unserved, rows }) {
  if (!model.loaded) return "Your sessions";
  if (!model.total) return "No sessions yet";
  if (view.q) return html`Search for “<bdi>${view.q}</bdi>”`;
  if (view.part === "sessions") {
    const count = isFiltered(view) ? rows.length : model.total;
    return count === 1 ? "One session" : `${number(count)} sessions`;
  }
  if (view.part === "search") return "Search";
  if (view.part === "cost") return "What it costs, and how long it takes";
  return sentence(waiting, working, unserved);
}

function Part(props) {
  const { model, view, change, now, items, rows, counts, picked, pick, setPicked, saved, columns, aside, go } = props;
  const [span, setSpan] = useState(SPANS[0]);
  const charts = useCharts(span, model.list);
  const chosenRows = useMemo(() => rows.filter((row) => picked.has(row.id)), [rows, picked]);
  const sessions = html`<section class="all" aria-label="All sessions">
    <${Filters} view=${view} change=${change} counts=${counts} model=${model} saved=${saved} columns=${columns}
      link=${viewLink({ ...view, part: "sessions", q: "", ids: "" })}>
      <${Bulk} rows=${chosenRows} clear=${() => setPicked(new Set())} model=${model} />
    <//>
    ${rows.length
      ? html`<${Table} ...${{ rows, model, now, view, change, picked, pick, columns }} ids=${view.ids !== ""} />`
      : html`<p class="card none">No session passes these filters.</p><${Bounds} model=${model} />`}
  </section>`;
  if (view.part === "sessions") return sessions;
  if (view.part === "search") {
    return html`<p class="none">Search covers every session: of a message or an answer the first 100,000 characters,
      of a tool result the first 20,000.</p>`;
  }
  const spans = html`<${Spans} span=${span} setSpan=${setSpan} />`;
  if (view.part === "cost") return html`<${Cost} charts=${charts} spans=${spans} span=${span} />`;
  const first = view.part === "waiting" ? undefined : INBOX_MAX;
  const { caller } = props;
  const waiting = items.length > 0 && html`
    <${Inbox} key=${view.part} ...${{ items, now, model, aside, first, caller }} />`;
  if (view.part === "waiting") {
    return waiting || html`<p class="card none">No call needs an approval, none is in doubt, and no turn has failed.
      What needs you appears here by itself.</p>`;
  }
  return html`
    <${NewSession} agents=${model.agents} go=${go} opened=${props.starting} />
    ${waiting}
    <section class="numbers" aria-label="Numbers">
      <div class="sec"><h2>Last ${span.name}</h2><span class="faint">all agents, ${span.each}</span>
        <span class="grow"></span>${spans}<a class="link" href="#/cost">By agent and model</a></div>
      ${charts
        ? html`<${Charts} found=${charts} series=${charts.all} />`
        : html`<div class="card measures first"></div>`}
    </section>
    ${charts && html`<p class="phone-sum"><b>Sessions</b><a class="link" href="#/cost">${
      about(Number(charts.all.total.usd))} in ${span.name}</a></p>`}
    ${sessions}
  `;
}

function Spans({ span, setSpan }) {
  return html`<span class="spans" role="group" aria-label="Time shown">${SPANS.map((one) => html`
    <button key=${one.name} aria-pressed=${String(one === span)} onClick=${() => setSpan(one)}>${one.name}</button>
  `)}</span>`;
}

function Cost({ charts, spans, span }) {
  const [agent, setAgent] = useState(null);
  if (!charts) return html`<p class="none">Reading the sums…</p>`;
  const series = charts.agents[agent] ?? charts.all;
  const of = charts.agents[agent] ? agent : null;
  return html`
    <section class="numbers" aria-label="Numbers">
      <div class="sec"><h2>Last ${span.name}</h2>
        <span class="faint">${of ? html`agent <bdi>${of}</bdi>` : "all agents"}, ${span.each}</span>
        ${of && html`<button class="link" onClick=${() => setAgent(null)}>All agents</button>`}
        <span class="grow"></span>${spans}</div>
      <${Charts} found=${charts} series=${series} name=${of} />
    </section>
    <section><div class="sec"><h2>By agent</h2><span class="faint">time to answer: from a message to the end of its
      turn, without waits for people</span></div>
      <${Groups} found=${charts} groups=${charts.agents} kind="agent" choose=${setAgent} /></section>
    <section><div class="sec"><h2>By model</h2><span class="faint">${charts.groups === "fleet"
      ? "turns that used it, and their time" : "time of an answer: from what it answers to its end"}</span></div>
      <${Groups} found=${charts} groups=${charts.models} kind="model" /></section>
    ${charts.source !== charts.groups && html`<p class="small-print faint">The sums by agent and by model are what the
      gateway has folded: the fleet keeps them for all users together.</p>`}
    <p class="small-print faint">Costs are today’s list prices of the tokens that were counted. Percentiles are right
      to about 9 %.</p>
  `;
}

function Places({ model, view, waiting, saved }) {
  const current = (part) => (view.part === part && !view.q ? "page" : undefined);
  const item = (part, icon, label, number) => html`
    <a href=${`#/${part}`} aria-current=${current(part)}><${Icon} name=${icon} /><span>${label}</span>${number}</a>`;
  return html`
    <nav class="nav places" aria-label="Main">
      ${item("", "home", "Home")}
      ${item("waiting", "inbox", html`Waiting<span class="long"> for you</span>`,
        waiting > 0 && html`<span class="n on num">${waiting}</span>`)}
      ${item("sessions", "list", "Sessions", html`<span class="n num">${number(model.total)}</span>`)}
      ${item("cost", "chart", "Cost")}
      <a class="for-phone" href="#/search" aria-current=${current("search")}>
        <${Icon} name="search" /><span>Search</span></a>
    </nav>
    ${model.agents.length > 0 && html`<nav class="nav agents" aria-label="Agents">
      <h2>Agents</h2>
      ${model.agents.map((agent) => html`
        <a key=${agent.name} href=${`#/sessions?agent=${encodeURIComponent(agent.name)}`}>
          <span class=${agent.workers ? "lamp on" : "lamp"} aria-hidden="true"></span>
          <bdi class="cut">${agent.name}</bdi>
          <span class=${agent.workers ? "n" : "n bad"}>${workersOf(agent)}</span></a>`)}
    </nav>`}
    ${saved.all.length > 0 && html`<nav class="nav saved" aria-label="Saved filters">
      <h2>Saved filters</h2>
      ${saved.all.map((one) => html`<div class="row" key=${one.name}>
        <a href=${`#/${one.view.replace(/^#\//, "")}`}><bdi class="cut">${one.name}</bdi></a>
        <button class="drop" aria-label=${`Remove the filter ${one.name}`} onClick=${() => saved.remove(one.name)}>
          <${Icon} name="cross" small /></button></div>`)}
    </nav>`}
  `;
}

function SearchField({ view, change }) {
  return html`<label class="finder"><${Icon} name="search" small />
    <span class="sr">Search everything that was said</span>
    <input id="find" type="search" maxlength="400" placeholder="Search everything that was said" value=${view.q}
      onInput=${(event) => change({ q: event.target.value }, true)} /><kbd aria-hidden="true">/</kbd></label>`;
}

function Lost({ model }) {
  const [, again] = useState(0);
  const lost = model.lost;
  useEffect(() => {
    if (lost === null) return undefined;
    const timer = setInterval(() => again((number) => number + 1), 1000);
    return () => clearInterval(timer);
  }, [lost]);
  if (model.refused) return html`<div class="card no-answer" role="alert"><p>${model.refused.message}</p></div>`;
  if (lost === null) return null;
  const left = Math.max(0, Math.ceil((lost.next - Date.now()) / 1000));
  return html`<div class="card no-answer" role="alert">
    <${Icon} name="wire" />
    <p><b>No answer from the gateway since ${clock(lost.since)}</b>
      <span class="dim">${model.loaded ? "You see the sessions as they were then. " : ""}${
        capital(lost.message)}</span></p>
    <span class="faint num" aria-hidden="true">${left ? `Trying again in ${left} s` : "Trying…"}</span>
    <button class="btn" onClick=${() => model.nudge()}>Try now</button>
  </div>`;
}

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

const Loading = ({ model }) =>
  (model.lost ? null : html`<p class="none" role="status">Reading the list of sessions…</p>`);

function Empty({ model, go }) {
  const agent = model.agents.find((one) => one.workers)?.name;
  return html`<section class="first-visit" aria-label="No sessions yet">
    <${Mark} />
    <p>Say what should be done, and it appears here as it happens.</p>
    <${NewSession} agents=${model.agents} go=${go} />
    <p class="faint">or from a terminal: <code>foldlog chat${agent ? ` --agent ${agent}` : ""}</code></p>
  </section>`;
}

/** On a phone, the button that opens the form for a new session. */
function StartOne({ starting, setStarting }) {
  const press = () => {
    setStarting(!starting);
    setTimeout(focusNew, 50);
  };
  return html`<button class="btn primary start-one" aria-expanded=${String(starting)} onClick=${press}>
    <${Icon} name="plus" small />New session</button>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("talk")?.focus();
}
