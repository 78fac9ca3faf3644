// The home page: every session.

import { html, useEffect } from "./lib.js";
import { HOME_KEYS, onHomeKeys } from "./keys.js";
import { Sessions } from "./sessions.js";
import { Keys, Side } from "./shell.js";

export function Home({ list, go, about, view }) {
  useEffect(onHomeKeys, []);
  return html`
    <div class="app">
      <a class="skip" href="#talk" onClick=${skip}>Skip to the sessions</a>
      <${Side} />
      <main id="talk" tabindex="-1"><${Sessions} list=${list} current=${null} go=${go} /></main>
      <${Keys} keys=${HOME_KEYS} />
    </div>
  `;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("talk")?.focus();
}
