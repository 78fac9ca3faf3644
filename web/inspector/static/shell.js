// The frame of every page: the side bar of the home page, the rail of a session, theme and keys.

import { Icon, Mark } from "./icons.js";
import { html, still, useEffect, useModel, useRef, useState, useValue } from "./lib.js";
import { waitingIn } from "./session_list.js";

const THEMES = ["auto", "light", "dark"];

function useTheme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("foldlog.theme") ?? "auto");
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  const change = () => {
    if (next === "auto") localStorage.removeItem("foldlog.theme");
    else localStorage.setItem("foldlog.theme", next);
    setTheme(next);
    dispatchEvent(new Event("themechosen"));
  };
  return { theme, change, label: `Theme: ${theme}. Change to ${next}` };
}

export const ask = () => dispatchEvent(new Event("keyswanted"));

/** The dialog with the keys of the page, which `?` opens. `keys`: rows [keys, what they do]. */
export const Keys = still(({ keys }) => {
  const dialog = useRef(null);
  useEffect(() => {
    const open = () => dialog.current.open || dialog.current.showModal();
    addEventListener("keyswanted", open);
    return () => removeEventListener("keyswanted", open);
  }, []);
  return html`
    <dialog ref=${dialog} aria-label="Keys">
      <h2>Keys</h2>
      <dl class="keys">
        ${keys.map(([names, does]) => html`<div>
          <dt>${names.split(" ").map((name) => html`<kbd>${name}</kbd> `)}</dt><dd>${does}</dd>
        </div>`)}
      </dl>
      <form method="dialog"><button class="btn primary">Close</button></form>
    </dialog>
  `;
});

/** The side bar of the home page. Its children are the links and counts. */
export function Side({ children }) {
  const { theme, change, label } = useTheme();
  return html`
    <header class="side">
      <a class="brand" href="#/" aria-label="foldlog, home"><${Mark} /><span>foldlog</span></a>
      ${children}
      <div class="nav foot-nav">
        <button aria-label="Keys" onClick=${ask}><${Icon} name="keys" /><span>Keys</span></button>
        <button aria-label=${label} onClick=${change}><${Icon} name=${theme} /><span>Theme</span>
          <span class="n">${theme}</span></button>
      </div>
    </header>
  `;
}

/** The rail beside a session. */
export const Rail = still(({ list, aside }) => {
  const { theme, change, label } = useTheme();
  useModel(aside);
  const waiting = useValue(list, () => waitingIn(list.list, aside));
  const waits = `Waiting for you: ${waiting || "nothing"}`;
  return html`
    <nav class="rail" aria-label="Main">
      <a href="#/" aria-label="foldlog, home"><${Mark} /></a>
      <a href="#/" aria-label="Home" title="Home (H)"><${Icon} name="home" /></a>
      <a href="#/waiting" aria-label=${waits} title=${waits}><${Icon} name="inbox" />${
        waiting > 0 && html`<span class="dot num">${waiting > 99 ? "99+" : waiting}</span>`}</a>
      <a href="#/sessions" aria-label="Sessions" title="Sessions"><${Icon} name="list" /></a>
      <span class="grow"></span>
      <button aria-label=${label} title=${label} onClick=${change}><${Icon} name=${theme} /></button>
      <button class="help" aria-label="Keys" title="Keys (?)" onClick=${ask}><${Icon} name="keys" /></button>
    </nav>
  `;
});
