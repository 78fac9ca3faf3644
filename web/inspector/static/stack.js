// Draws what fills a request, as one bar with parts.

import { html } from "./lib.js";

const NAMES = { system: "System", tools: "Tool list", results: "Results", model: "Model", people: "People" };

/** The bytes of each part of a request, from its blocks. */
export function fillOf(blocks) {
  const found = Object.fromEntries(Object.keys(NAMES).map((name) => [name, 0]));
  for (const { part, bytes } of blocks) if (part in found) found[part] += bytes;
  return found;
}

const shares = (parts) => {
  const all = Object.values(parts).reduce((sum, bytes) => sum + bytes, 0) || 1;
  return Object.keys(NAMES).map((name) => [name, (100 * (parts[name] ?? 0)) / all]);
};

const inWords = (parts) =>
  shares(parts).filter(([, share]) => share >= 0.5)
    .map(([name, share]) => `${NAMES[name]} ${Math.round(share)} %`).join(", ");

/** A bar with its parts. `width`: in percent of the track. `marks`: marks at places of the
    track. */
export function Stack({ parts, label, width = 100, marks = [] }) {
  return html`<div class="track" role="img" aria-label=${`${label}: ${inWords(parts)}`}>
    <div class="fill" style=${{ width: `${Math.max(1, width)}%` }}>${shares(parts).map(([name, share]) => html`
      <i key=${name} class=${`p-${name}`} style=${{ width: `${share}%` }}></i>`)}</div>
    ${marks.map(({ at, kind }) => html`<u key=${kind} class=${kind} style=${{ left: `${Math.min(100, at)}%` }}></u>`)}
  </div>`;
}

export const StackKey = ({ parts }) => html`<p class="stack-key faint">${shares(parts).filter(([, share]) => share > 0)
  .map(([name, share]) => html`<span><i class=${`p-${name}`}></i>${NAMES[name]} ${Math.round(share)} %</span>`)}</p>`;
