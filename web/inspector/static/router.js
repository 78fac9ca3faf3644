// Only the link decides what is shown: #/s/SESSION, #/s/SESSION@OFFSET, or else a view of the home
// page.

import { useLayoutEffect, useState } from "./lib.js";

/** {session, at, view}: `at` is an offset, null for now; `view` is the home page's own part of the link.
    The session id is encoded, so it may contain any character; the last @ separates the offset. */
function parseLink(hash) {
  const [, name, at] = /^#\/s\/([^@?]+)(?:@(\d+))?/.exec(hash) ?? [];
  const home = { session: null, at: null, view: hash.replace(/^#\/?/, "") };
  if (name === undefined) return home;
  try {
    return { session: decodeURIComponent(name), at: at === undefined ? null : Number(at), view: "" };
  } catch {
    return home;
  }
}

export function link(session, at = null) {
  if (session === null) return "#/";
  return `#/s/${encodeURIComponent(session)}${at === null ? "" : `@${at}`}`;
}

/** Returns [place, go]: the place in the link, and a function that goes to a session, or for
    null to the home page. */
export function useLink() {
  const [place, setPlace] = useState(() => parseLink(location.hash));
  useLayoutEffect(() => { // runs at once: a link that changes before the first frame is not lost
    const read = () => setPlace(parseLink(location.hash));
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  const go = (session, at = null) => {
    const wanted = link(session, at);
    // Moves within one session replace the same entry in the browser's history.
    if (session !== null && session === place.session && at !== null) {
      history.replaceState(null, "", wanted);
      setPlace({ session, at, view: "" });
    } else {
      location.hash = wanted;
    }
  };
  return [place, go];
}
