// Applies the chosen theme, or else the system's, before anything is drawn, so that the page never
// flashes.
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
