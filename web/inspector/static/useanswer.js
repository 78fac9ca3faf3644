// Gives a component the response of the gateway as a value.

import { get } from "./api.js";
import { useEffect, useState } from "./lib.js";

/** The response for a path, fetched again when the path or `again` changes. The previous
    response stays until then. */
export function useAnswer(path, again = null) {
  const [answer, setAnswer] = useState({ value: null, error: "" });
  useEffect(() => {
    if (!path) return undefined;
    const stop = new AbortController();
    get(path, stop.signal).then(
      (value) => setAnswer({ value, error: "" }),
      (error) => {
        if (error.name !== "AbortError") setAnswer({ value: null, error: error.message });
      },
    );
    return () => stop.abort();
  }, [path, again]);
  return answer;
}
