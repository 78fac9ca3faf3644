// The page of one session: the conversation, the pane and the timeline, all for one instant.

import { Conversation } from "./conversation.js";
import { Inspect } from "./inspect.js";
import { KEYS, onKeys } from "./keys.js";
import { html, useEffect, useMemo, useModel, useRef, useState, useValue } from "./lib.js";
import { Session } from "./model.js";
import { beginsCompared } from "./rerun.js";
import { rights } from "./rights.js";
import { Keys, Rail } from "./shell.js";
import { Timeline } from "./timeline.js";
import { Header, Notices, titleOf } from "./top.js";

export function SessionPage({ id, at, list, aside, go, about: known }) {
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
  const last = useRef(null);
  last.current = moment ?? last.current;
  const shown = last.current; // the previous moment stays while one loads, so nothing jumps
  const may = rights(known, shown?.state.user_id);
  const about = may.write ? { ...known, can: { ...known.can, fork: false }, readOnly: may.write } : known;
  session.locked = may.decide; // why its calls cannot be decided here
  const show = (name) => {
    setTab(name);
    setSheet(true);
  };
  const pick = (offset) => {
    setMark(offset);
    setOther("");
    setPicking(false);
    show("compare");
  };
  const startPicking = () => {
    setPicking(!picking);
    setSheet(false); // it covers the timeline
  };
  const commands = useRef({}); // the functions of keys and buttons; each part adds its own
  const latest = useRef(null); // keys act on what is drawn, even before effects have run
  latest.current = { session, at, go, setTab: show, commands };
  const isWide = wide && tab === "compare";
  commands.current.wide = tab === "compare" ? () => setWide(!wide) : undefined;
  commands.current.leave = picking ? () => setPicking(false) : undefined;
  useEffect(() => onKeys(() => latest.current), []);
  const title = titleOf(session, useValue(list, () => list.rows.get(id)?.title));
  const origin = shown?.origin?.session_id;
  const parent = useValue(list, () => list.rows.get(origin)?.title) || origin;
  useEffect(() => {
    document.title = `${title} · foldlog`;
    return () => { document.title = "foldlog inspector"; };
  }, [title]);
  const props = { session, at, go, moment: shown, fresh: moment !== null, about, title, commands };
  return html`
    <div class=${`page${at === null ? "" : " past"}${isWide ? " full" : ""}`}>
      <a class="skip" href="#talk" onClick=${skip}>Skip to the conversation</a>
      <${Rail} list=${list} aside=${aside} />
      <${Header} ...${props} parent=${parent} />
      <main class="talk" id="talk" tabindex="-1" aria-label=${`Session ${title}`}>
        <${Notices} ...${props} />
        <${Conversation} ...${props} />
      </main>
      <${Inspect} ...${props} tab=${tab} setTab=${setTab} wide=${isWide} setWide=${setWide}
        mark=${mark} setMark=${setMark} other=${other} setOther=${setOther} picking=${picking}
        startPicking=${startPicking} sheet=${sheet} setSheet=${setSheet} />
      <${Timeline} ...${props} mark=${mark} picking=${picking} pick=${pick} />
      <${Keys} keys=${KEYS} />
    </div>
  `;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("talk")?.focus();
}
