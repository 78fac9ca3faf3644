// An answer of the gateway as a value of a component.

import { get } from "./api.js";
import { useEffect, useState } from "./lib.js";

/** The response of a path, fetched again when it changes; the previous one stays until then. */
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
