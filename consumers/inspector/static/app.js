// The page. Only the link decides whether the home page or a session is shown, and at which
// instant.

import { get, setToken } from "./api.js";
import { Home } from "./home.js";
import { html, render, useEffect, useMemo, useModel, useState } from "./lib.js";
import { SessionList } from "./model.js";
import { useLink } from "./router.js";
import { SessionPage } from "./session.js";

function App() {
  const [{ session, at, view }, go] = useLink();
  const list = useMemo(() => new SessionList(), []);
  const [about, setAbout] = useState({ can: {}, user: "" });
  useModel(list);
  useEffect(() => list.start(), [list]);
  useEffect(() => {
    get("inspector/api/about").then(setAbout, () => {});
  }, []);
  if (list.error?.status === 401) return html`<${SignIn} error=${list.error} />`;
  const props = { list, go, about };
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
      <h1>foldlog inspector</h1>
      <p role="alert">${error.message}</p>
      <form onSubmit=${use}>
        <label for="token">Token</label>
        <input class="field" id="token" name="token" type="password" autocomplete="off" required />
        <button class="btn primary">Sign in</button>
      </form>
      <p class="dim">The token is kept in this tab and sent only to this gateway.</p>
    </main>
  `;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
