// Before anything is drawn: the theme that was chosen, so that no page flashes in the other.
"use strict";
(() => {
  const chosen = localStorage.getItem("foldlog.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
