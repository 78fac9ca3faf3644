// Searches all messages, answers and results with the gateway's full-text index. A hit is a link to
// its instant.

import { get } from "./api.js";
import { number } from "./format.js";
import { since } from "./home_words.js";
import { html, useEffect, useState } from "./lib.js";

const TYPING_MS = 200;
const BEHIND_MS = 1000;
const HITS = 50;
const KINDS = { said: "said", answered: "answered", stopped: "began", result: "returned" };

/** {hits, behind, error} of some words; hits is null while they are looked up. */
function useSearch(words) {
  const [state, setState] = useState({ hits: null, behind: null, error: "" });
  useEffect(() => {
    const stop = new AbortController();
    let timer = null;
    const ask = async () => {
      try {
        const query = new URLSearchParams({ q: words, limit: HITS });
        const page = await get(`inspector/api/search?${query}`, stop.signal);
        setState({ hits: page.behind ? null : page.found, behind: page.behind, error: "" });
        if (page.behind) timer = setTimeout(ask, BEHIND_MS);
      } catch (error) {
        if (error.name !== "AbortError") setState({ hits: null, behind: null, error: error.message });
      }
    };
    if (words.trim()) timer = setTimeout(ask, TYPING_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [words]);
  return state;
}

export function Found({ words, now, clear }) {
  const { hits, behind, error } = useSearch(words);
  return html`<section class="found" aria-label="Found">
    <div class="sec">
      <h2>${heading(hits, error)}</h2>
      <button class="link" onClick=${clear}>Back to all sessions</button>
    </div>
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    ${behind && html`<div class="card reading" role="status">
      <span>Reading the log for the first search</span>
      <progress max=${Math.max(1, behind.behind)} value=${behind.read}></progress>
      <span class="num">${number(behind.read)} of ${number(behind.behind)} events</span>
    </div>`}
    ${hits !== null && !hits.length && html`<p class="none">No message, answer or tool result has these words.
      Other forms of a word are found, too. Of a message or an answer the first 100,000 characters are searched, of a
      tool result the first 20,000.</p>`}
    ${hits !== null && hits.length > 0 && html`<ol class="card hits bare">
      ${hits.map((hit) => html`<li key=${`${hit.id} ${hit.offset} ${hit.kind}`}>
        <a href=${`#/s/${encodeURIComponent(hit.id)}@${hit.offset}`}>
          <span class="t cut"><bdi>${hit.title || hit.id}</bdi></span>
          <span class="faint num">${since(hit.at, now)}</span>
          <span class="said"><span class="faint"><bdi>${hit.who}</bdi> ${KINDS[hit.kind] ?? hit.kind}: </span><bdi>${
            hit.before}<mark>${hit.match}</mark>${hit.after}</bdi></span>
        </a>
      </li>`)}
    </ol>`}
  </section>`;
}

function heading(hits, error) {
  if (error) return "The search did not work";
  if (hits === null) return "Searching…";
  if (hits.length >= HITS) return `The ${HITS} best places`;
  return hits.length === 1 ? "One place" : `${number(hits.length)} places`;
}
