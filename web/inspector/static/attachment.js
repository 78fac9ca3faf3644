// Shows an image that was attached to a message, once it comes into view.

import { image } from "./api.js";
import { Icon } from "./icons.js";
import { html, useEffect, useRef, useState } from "./lib.js";

/** The URL of the image while the component is drawn; "" before it is fetched. */
function useImage(session, sha256, box) {
  const [state, setState] = useState({ url: "", error: "" });
  useEffect(() => {
    const stop = new AbortController();
    let url = "";
    const fetch = async () => {
      try {
        url = URL.createObjectURL(await image(session, sha256, stop.signal));
        setState({ url, error: "" });
      } catch (error) {
        if (error.name !== "AbortError") setState({ url: "", error: error.message });
      }
    };
    const watch = new IntersectionObserver(([seen]) => {
      if (!seen.isIntersecting) return;
      watch.disconnect();
      fetch();
    });
    watch.observe(box.current);
    return () => {
      watch.disconnect();
      stop.abort();
      URL.revokeObjectURL(url);
    };
  }, [session, sha256]);
  return state;
}

/** An attachment of a message: an image, or the name of any other file. */
export function Attachment({ session, part }) {
  return part.image ? html`<${Image} session=${session} part=${part} />`
    : html`<p class="file dim"><${Icon} name="list" small /><bdi>${part.text}</bdi></p>`;
}

function Image({ session, part }) {
  const box = useRef(null);
  const [whole, setWhole] = useState(false);
  const [broken, setBroken] = useState(false);
  const { url, error } = useImage(session, part.image, box);
  const problem = error || (broken ? "the browser cannot show it" : "");
  const look = whole ? "whole" : url || problem ? "" : "loading";
  return html`<figure class=${`shot ${look}`} ref=${box}>
    ${url && !broken && html`<button aria-label=${whole ? "Show the image smaller" : "Show the image in full size"}
      onClick=${() => setWhole(!whole)}>
      <img src=${url} alt=${`Attached image, ${part.text}`} onError=${() => setBroken(true)} /></button>`}
    <figcaption class="faint"><bdi>${part.text}</bdi>${
      problem && html`<span class="bad">: ${problem}</span>`}</figcaption>
  </figure>`;
}
