// The page: the link alone, #/s/SESSION or #/s/SESSION@OFFSET, decides what is shown.

import { get, setToken } from "./api.js";
import { Conversation } from "./conversation.js";
import { Inspect } from "./inspect.js";
import { onKeys } from "./keys.js";
import { html, render, useEffect, useMemo, useModel, useState } from "./lib.js";
import { Session, SessionList } from "./model.js";
import { Scrubber } from "./scrubber.js";
import { Sessions } from "./sessions.js";
import { Banner, Header } from "./top.js";

/** {session, at}: `at` is an offset, null for live. The session id is encoded, so it may contain any
    character; the last @ separates the offset. */
export function parseLink(hash) {
  const [, name, at] = /^#\/s\/([^@?]+)(?:@(\d+))?/.exec(hash) ?? [];
  if (name === undefined) return { session: null, at: null };
  try {
    return { session: decodeURIComponent(name), at: at === undefined ? null : Number(at) };
  } catch {
    return { session: null, at: null };
  }
}

export function link(session, at = null) {
  if (session === null) return "#/";
  return `#/s/${encodeURIComponent(session)}${at === null ? "" : `@${at}`}`;
}

function useLink() {
  const [place, setPlace] = useState(() => parseLink(location.hash));
  useEffect(() => {
    const read = () => setPlace(parseLink(location.hash));
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  const go = (session, at = null) => {
    const wanted = link(session, at);
    // Moving along one session is one entry in the browser's history, not one per event.
    if (session === place.session && at !== null) {
      history.replaceState(null, "", wanted);
      setPlace({ session, at });
    } else {
      location.hash = wanted;
    }
  };
  return [place, go];
}

function App() {
  const [{ session, at }, go] = useLink();
  const list = useMemo(() => new SessionList(), []);
  const [about, setAbout] = useState({ can: {}, user: "" });
  const [pane, setPane] = useState(session === null ? "sessions" : "talk");
  useModel(list);
  useEffect(() => list.start(), [list]);
  useEffect(() => {
    get("/inspector/api/about").then(setAbout, () => {});
  }, []);
  useEffect(() => setPane(session === null ? "sessions" : "talk"), [session]);
  useEffect(() => {
    document.title = session === null ? "foldlog inspector" : `${session} · foldlog`;
  }, [session]);
  if (list.error?.status === 401) return html`<${SignIn} error=${list.error} />`;
  return html`
    <div class=${session === null ? "page" : "page opened"} data-pane=${pane}>
      <a class="skip" href="#talk" onClick=${skip}>Skip to the conversation</a>
      <${Sessions} list=${list} current=${session} go=${go} />
      ${session === null
        ? html`<main class="talk empty" id="talk" tabindex="-1">
            <${Header} session=${null} go=${go} about=${about} />
            <p>Choose a session to see it live or at any past event.</p>
          </main>`
        : html`<${Opened} key=${session} id=${session} at=${at} go=${go} about=${about} />`}
      <nav class="panes" aria-label="Parts of the page">
        ${PANES.map(([name, label]) => html`
          <button
            key=${name}
            aria-pressed=${String(pane === name)}
            disabled=${session === null && name !== "sessions"}
            onClick=${() => setPane(name)}
          >${label}</button>
        `)}
      </nav>
    </div>
  `;
}

const PANES = [["sessions", "Sessions"], ["talk", "Conversation"], ["inspect", "Inspect"]];

function skip(event) {
  event.preventDefault();
  document.getElementById("talk")?.focus();
}

function Opened({ id, at, go, about }) {
  const session = useMemo(() => new Session(id), [id]);
  const [tab, setTab] = useState("events");
  const [mark, setMark] = useState(null);
  useModel(session);
  useEffect(() => session.start(), [session]);
  const moment = at === null ? session.newest : session.moment(at);
  const [last, setLast] = useState(null);
  useEffect(() => {
    if (moment !== null) setLast(moment);
  }, [moment]);
  const shown = moment ?? last; // keep the previous moment while one loads, so nothing jumps
  useEffect(() => onKeys({ session, at, go, setTab }), [session, at, go]);
  const props = { session, at, go, moment: shown, fresh: moment !== null, about };
  return html`
    <main class="talk" id="talk" tabindex="-1" aria-label=${`Session ${id}`}>
      <${Header} ...${props} />
      <${Banner} ...${props} />
      <${Conversation} ...${props} />
    </main>
    <${Inspect} ...${props} tab=${tab} setTab=${setTab} mark=${mark} setMark=${setMark} />
    <${Scrubber} ...${props} mark=${mark} />
  `;
}

function SignIn({ error }) {
  const use = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token"));
    location.reload();
  };
  return html`
    <main class="signin">
      <h1>foldlog inspector</h1>
      <p role="alert">${error.message}</p>
      <form onSubmit=${use}>
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="off" required />
        <button class="primary">Sign in</button>
      </form>
      <p>The token is kept in this tab and sent only to this gateway.</p>
    </main>
  `;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
