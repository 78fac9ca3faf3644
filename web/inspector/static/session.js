// The page of one session: the conversation, the pane and the timeline, all for one instant.

import { Conversation } from "./conversation.js";
import { Inspect } from "./inspect.js";
import { KEYS, onKeys } from "./keys.js";
import { html, still, useEffect, useMemo, useModel, useRef, useState, useValue } from "./lib.js";
import { Session } from "./model.js";
import { beginsCompared } from "./rerun.js";
import { rights } from "./rights.js";
import { Keys, Rail } from "./shell.js";
import { Timeline } from "./timeline.js";
import { Header, Notices, titleOf } from "./top.js";

const REST_MS = 150; // after the last step; then the link is written
const STEPS_MS = 1000; // between two links that are written while steps follow each other

/** The instant that is shown, and a function that goes to another. It takes a browser milliseconds to write a link,
    so the page is ahead of its link while steps follow each other, as of a dragged slider. `linked`: the instant
    of the link; `follow`: goes to a link. */
function useInstant(id, linked, follow) {
  const [shown, setShown] = useState(null); // {hash, at}: an instant, for as long as the link is `hash`
  const latest = useRef(null);
  latest.current = follow;
  const [go, write, drop] = useMemo(() => {
    let [ahead, timer, stepped, written] = [null, 0, 0, 0];
    const show = (instant) => {
      clearTimeout(timer);
      ahead = instant;
      setShown(instant);
    };
    const write = () => {
      const step = ahead;
      show(null);
      written = Date.now();
      if (step?.hash === location.hash) latest.current(id, step.at);
    };
    const drop = () => { // a link to the instant that the link still names: its hash does not change
      if (ahead?.hash === location.hash) show(null);
    };
    const go = (session, offset = null) => {
      const now = Date.now();
      const isStep = session === id && offset !== null && now - stepped < REST_MS;
      stepped = now;
      if (isStep) {
        show({ hash: location.hash, at: offset });
        timer = setTimeout(write, Math.max(0, Math.min(REST_MS, written + STEPS_MS - now)));
      } else {
        write();
        latest.current(session, offset);
      }
    };
    return [go, write, drop];
  }, [id]);
  useEffect(() => {
    addEventListener("pagehide", write);
    addEventListener("popstate", drop);
    return () => {
      removeEventListener("pagehide", write);
      removeEventListener("popstate", drop);
    };
  }, [write, drop]);
  return [shown?.hash === location.hash ? shown.at : linked, go];
}

export function SessionPage({ id, at: linked, list, aside, go: follow, about: known }) {
  const [at, go] = useInstant(id, linked, follow);
  const session = useMemo(() => new Session(id), [id]);
  const [tab, setTab] = useState(beginsCompared(id) ? "compare" : "why");
  const [mark, setMark] = useState(null);
  const [other, setOther] = useState(null); // the session to compare with, "" for the mark
  const [picking, setPicking] = useState(false); // whether the next click on the timeline sets the mark
  const [wide, setWide] = useState(beginsCompared(id)); // whether the comparison takes the place of the conversation
  const [sheet, setSheet] = useState(false); // on a narrow page, the pane is a sheet at the bottom
  useModel(session);
  useEffect(() => session.start(), [session]);
  const listed = useValue(list, () => list.rows.get(id)?.status);
  useEffect(() => { // a worker that ends or starts writes no event of the session
    if (listed) session.refresh();
  }, [session, listed]);
  const moment = at === null ? session.newest : session.moment(at);
  const shown = useRef({ at, moment: null, fresh: false });
  // The previous moment stays while one loads, so nothing jumps. Only the timeline and the list of events are ahead.
  if (moment !== null) shown.current = { at, moment, fresh: true };
  else if (at === null || shown.current.moment === null || session.lost?.offset === at) {
    shown.current = { at, moment: shown.current.moment, fresh: false };
  }
  const may = rights(known, shown.current.moment?.state.user_id);
  const about = useMemo(() => (
    may.write ? { ...known, can: { ...known.can, fork: false }, readOnly: may.write } : known), [known, may.write]);
  session.locked = may.decide; // why its calls cannot be decided here
  const [show, pick, startPicking] = useMemo(() => {
    const showPart = (name) => {
      setTab(name);
      setSheet(true);
    };
    return [showPart, (offset) => {
      setMark(offset);
      setOther("");
      setPicking(false);
      showPart("compare");
    }, () => {
      setPicking((before) => !before);
      setSheet(false); // it covers the timeline
    }];
  }, []);
  const commands = useRef({}); // the functions of keys and buttons; each part adds its own
  const latest = useRef(null); // keys act on what is drawn, even before effects have run
  latest.current = { session, at, go, setTab: show, commands };
  const isWide = wide && tab === "compare";
  commands.current.wide = tab === "compare" ? () => setWide(!wide) : undefined;
  commands.current.leave = picking ? () => setPicking(false) : undefined;
  useEffect(() => onKeys(() => latest.current), []);
  const title = titleOf(session, useValue(list, () => list.rows.get(id)?.title));
  const origin = shown.current.moment?.origin?.session_id;
  const parent = useValue(list, () => list.rows.get(origin)?.title) || origin;
  useEffect(() => {
    document.title = `${title} · foldlog`;
    return () => { document.title = "foldlog inspector"; };
  }, [title]);
  const props = { session, go, about, title, commands, mark, picking, count: session.events.length };
  const ahead = { at, moment: shown.current.moment, fresh: moment !== null };
  return html`
    <div class=${`page${shown.current.at === null ? "" : " past"}${isWide ? " full" : ""}`}>
      <a class="skip" href="#talk" onClick=${skip}>Skip to the conversation</a>
      <${Rail} list=${list} aside=${aside} />
      <${Instant} ...${props} ...${shown.current} version=${session.version} parent=${parent} />
      <${Inspect} ...${props} ...${tab === "events" ? ahead : shown.current} total=${session.count}
        unknown=${session.lost !== null || session.unknown}
        tab=${tab} setTab=${setTab} wide=${isWide} setWide=${setWide} setMark=${setMark} other=${other}
        setOther=${setOther} startPicking=${startPicking} sheet=${sheet} setSheet=${setSheet} />
      <${Timeline} ...${props} ...${ahead} pick=${pick} upto=${session.upto}
        state=${session.state} />
      <${Keys} keys=${KEYS} />
    </div>
  `;
}

/** The head and the conversation. `version`: that of the session. */
const Instant = still((props) => html`
  <${Header} ...${props} />
  <main class="talk" id="talk" tabindex="-1" aria-label=${`Session ${props.title}`}>
    <${Notices} ...${props} />
    <${Conversation} ...${props} />
  </main>
`);

function skip(event) {
  event.preventDefault();
  document.getElementById("talk")?.focus();
}
