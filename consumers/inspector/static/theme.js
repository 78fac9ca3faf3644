// Before anything is drawn: the theme that was chosen, else the system's, so that no page flashes.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const own = dark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = localStorage.getItem("foldlog.theme") ?? own;
    dispatchEvent(new Event("themechange"));
  };
  dark.addEventListener("change", apply);
  addEventListener("themechosen", apply);
  apply();
})();
