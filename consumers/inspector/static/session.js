// The page of one session: the conversation, the pane and the timeline, all for one instant.

import { Conversation } from "./conversation.js";
import { Inspect } from "./inspect.js";
import { KEYS, onKeys } from "./keys.js";
import { html, useEffect, useMemo, useModel, useRef, useState } from "./lib.js";
import { Session } from "./model.js";
import { Keys, Rail } from "./shell.js";
import { Timeline } from "./timeline.js";
import { Header, Notices, titleOf } from "./top.js";

export function SessionPage({ id, at, list, go, about }) {
  const session = useMemo(() => new Session(id), [id]);
  const [tab, setTab] = useState("events");
  const [mark, setMark] = useState(null);
  const [pane, setPane] = useState("talk");
  useModel(session);
  useEffect(() => session.start(), [session]);
  const moment = at === null ? session.newest : session.moment(at);
  const [last, setLast] = useState(null);
  useEffect(() => {
    if (moment !== null) setLast(moment);
  }, [moment]);
  const shown = moment ?? last; // keep the previous moment while one loads, so nothing jumps
  const commands = useRef({}); // what keys and buttons do: each part adds its own
  useEffect(() => onKeys({ session, at, go, setTab, commands }), [session, at, go]);
  const title = titleOf(session, list.rows.get(id)?.title);
  useEffect(() => {
    document.title = `${title} · foldlog`;
    return () => { document.title = "foldlog inspector"; };
  }, [title]);
  const props = { session, at, go, moment: shown, fresh: moment !== null, about, title, commands };
  const waiting = list.sorted().filter((row) => row.status === "asks" || row.status === "doubt").length;
  return html`
    <div class=${at === null ? "page" : "page past"} data-pane=${pane}>
      <a class="skip" href="#talk" onClick=${skip}>Skip to the conversation</a>
      <${Rail} waiting=${waiting} />
      <${Header} ...${props} />
      <main class="talk" id="talk" tabindex="-1" aria-label=${`Session ${title}`}>
        <${Notices} ...${props} />
        <${Conversation} ...${props} />
      </main>
      <${Inspect} ...${props} tab=${tab} setTab=${setTab} mark=${mark} setMark=${setMark} />
      <${Timeline} ...${props} mark=${mark} />
      <nav class="panes" aria-label="Parts of the page">
        ${PANES.map(([name, label]) => html`
          <button key=${name} aria-pressed=${String(pane === name)} onClick=${() => setPane(name)}>${label}</button>
        `)}
      </nav>
      <${Keys} keys=${KEYS} />
    </div>
  `;
}

const PANES = [["talk", "Conversation"], ["inspect", "Inspect"]];

function skip(event) {
  event.preventDefault();
  document.getElementById("talk")?.focus();
}
