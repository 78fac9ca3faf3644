"""Accessibility checks that run in the browser. Each returns the violations that it finds."""

UNNAMED = """
() => [...document.querySelectorAll("button, input, select, textarea, a, [tabindex='0'], summary")]
  .filter((e) => e.offsetParent !== null)
  .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim()
    || [...(e.labels ?? [])].some((label) => label.textContent.trim())))
  .map((e) => e.outerHTML.slice(0, 120))
"""
"""Controls without an accessible name."""

CONTRASTS = """
() => {
  const lit = (c) => (c / 255 <= .03928 ? c / 255 / 12.92 : ((c / 255 + .055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => .2126 * lit(r) + .7152 * lit(g) + .0722 * lit(b);
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > .9) return c;
    }
    return [255, 255, 255];
  };
  const ratio = (e) => {
    const both = [light(rgb(getComputedStyle(e).color)), light(ground(e))];
    return (Math.max(...both) + .05) / (Math.min(...both) + .05);
  };
  return [...document.querySelectorAll("#app *")]
    .filter((e) => e.offsetParent !== null && !e.closest(":disabled, .caret, .idle, .sr")
      && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
    .map((e) => [ratio(e), e.className || e.tagName, e.textContent.trim().slice(0, 30)])
    .filter(([found]) => found < 4.5);
}
"""
"""Text with too little contrast, by WCAG's ratio for small text."""

SMALL = """
() => [...document.querySelectorAll("button, .sessions a")]
  .filter((e) => e.offsetParent && !e.closest(".sr, .md") && e.getBoundingClientRect().height < 32)
  .map((e) => e.textContent)
"""
"""Controls too small for a finger."""
