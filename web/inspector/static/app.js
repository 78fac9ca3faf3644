// The page. Only the link decides whether the home page or a session is shown, and at which
// instant.

import { get, hasToken, setToken } from "./api.js";
import { asSentence } from "./format.js";
import { Home } from "./home.js";
import { Aside } from "./home_storage.js";
import { Mark } from "./icons.js";
import { html, render, useEffect, useMemo, useState, useValue } from "./lib.js";
import { Changes } from "./model.js";
import { useLink } from "./router.js";
import { SessionPage } from "./session.js";
import { FEW, PAGE, SessionList } from "./session_list.js";

function App() {
  const [{ session, at, view }, go] = useLink();
  // One list for both pages, so they count the same sessions.
  const changes = useMemo(() => new Changes(), []);
  const list = useMemo(() => new SessionList(), []);
  const aside = useMemo(() => new Aside(), []);
  const [about, setAbout] = useState({ can: {}, user: "" });
  const error = useValue(changes, () => changes.error);
  useEffect(() => list.want(session === null ? PAGE : FEW), [session === null]);
  useEffect(() => changes.start(), [changes]);
  useEffect(() => list.start(changes), [list]);
  useEffect(() => {
    get("inspector/api/about").then(setAbout, () => {});
  }, []);
  if (error?.status === 401) return html`<${SignIn} error=${error} />`;
  const props = { list, aside, go, about };
  if (session === null) return html`<${Home} ...${props} view=${view} />`;
  return html`<${SessionPage} key=${session} id=${session} at=${at} ...${props} />`;
}

function SignIn({ error }) {
  const use = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token"));
    location.reload();
  };
  return html`
    <main class="signin">
      <${Mark} />
      <h1>Sign in to see your sessions</h1>
      <p>Everyone sees only their own sessions here. Paste your token; whoever runs this gateway gives you one.</p>
      <form onSubmit=${use}>
        <label for="token">Token</label>
        <input class="field" id="token" name="token" type="password" autocomplete="off" required />
        <button class="btn primary">Sign in</button>
      </form>
      <p class=${hasToken() ? "bad" : "faint"} role="alert">The gateway says: ${asSentence(error.message)}</p>
      <p class="faint">The token is kept in this tab and sent only to this gateway.</p>
    </main>
  `;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
