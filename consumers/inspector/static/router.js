// The link alone decides what is shown: #/s/SESSION, #/s/SESSION@OFFSET, else a view of the home page.

import { useEffect, useState } from "./lib.js";

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

/** [place, go]: the place that the link names, and a function that goes to a session, or to null: home. */
export function useLink() {
  const [place, setPlace] = useState(() => parseLink(location.hash));
  useEffect(() => {
    const read = () => setPlace(parseLink(location.hash));
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  const go = (session, at = null) => {
    const wanted = link(session, at);
    // Moving along one session is one entry in the browser's history, not one per event.
    if (session !== null && session === place.session && at !== null) {
      history.replaceState(null, "", wanted);
      setPlace({ session, at, view: "" });
    } else {
      location.hash = wanted;
    }
  };
  return [place, go];
}
