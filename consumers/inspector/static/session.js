// The page of one session: the conversation, the pane and the timeline, all for one instant.

import { Conversation } from "./conversation.js";
import { Inspect } from "./inspect.js";
import { KEYS, onKeys } from "./keys.js";
import { html, useEffect, useMemo, useModel, useState } from "./lib.js";
import { Session } from "./model.js";
import { Scrubber } from "./scrubber.js";
import { Keys, Rail } from "./shell.js";
import { Banner, Header } from "./top.js";

export function SessionPage({ id, at, list, go, about }) {
  const session = useMemo(() => new Session(id), [id]);
  const [tab, setTab] = useState("events");
  const [mark, setMark] = useState(null);
  const [pane, setPane] = useState("talk");
  useModel(session);
  useEffect(() => session.start(), [session]);
  useEffect(() => {
    document.title = `${id} · foldlog`;
    return () => { document.title = "foldlog inspector"; };
  }, [id]);
  const moment = at === null ? session.newest : session.moment(at);
  const [last, setLast] = useState(null);
  useEffect(() => {
    if (moment !== null) setLast(moment);
  }, [moment]);
  const shown = moment ?? last; // keep the previous moment while one loads, so nothing jumps
  useEffect(() => onKeys({ session, at, go, setTab }), [session, at, go]);
  const props = { session, at, go, moment: shown, fresh: moment !== null, about };
  const waiting = list.sorted().filter((row) => row.status === "asks" || row.status === "doubt").length;
  return html`
    <div class="page opened" data-pane=${pane}>
      <a class="skip" href="#talk" onClick=${skip}>Skip to the conversation</a>
      <${Rail} waiting=${waiting} />
      <main class="talk" id="talk" tabindex="-1" aria-label=${`Session ${id}`}>
        <${Header} ...${props} />
        <${Banner} ...${props} />
        <${Conversation} ...${props} />
      </main>
      <${Inspect} ...${props} tab=${tab} setTab=${setTab} mark=${mark} setMark=${setMark} />
      <${Scrubber} ...${props} mark=${mark} />
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
