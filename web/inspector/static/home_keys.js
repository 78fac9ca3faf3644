// The keys of the home page, in one table that is also shown as help. Keys typed into a field are
// ignored.

export const HOME_KEYS = [
  ["N", "start a session"],
  ["/", "search everything that was said"],
  ["J K", "next or previous session; in the table also ↓ ↑"],
  ["Enter", "open it"],
  ["X", "select it; Shift and a click selects a range"],
  ["W", "the first thing that waits for you"],
  ["A D", "in its card: allow or deny; try again or set aside"],
  ["S", "save the filters"],
  ["I", "show ids"],
  ["1 … 4", "home, waiting for you, sessions, cost"],
  ["Esc", "leave a field, the search, a selection"],
  ["?", "these keys"],
];

const OWN = "input:not([type=checkbox]), textarea, select, [contenteditable], dialog[open]";

/** Handles the keys of the page. `does` maps each key to its function. */
export function onHomeKeys(does) {
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const own = event.target instanceof Element && event.target.closest(OWN);
    if (own) {
      if (event.key === "Escape" && own.tagName !== "DIALOG") own.blur();
      return;
    }
    const act = does[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}
