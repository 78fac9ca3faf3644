// A block of code with a button that copies it.

import { Icon } from "./icons.js";
import { html, useState } from "./lib.js";

export function Code({ text, label }) {
  const [notice, setNotice] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setNotice("Copied");
    } catch {
      setNotice("Copying failed: select the text");
    }
  };
  return html`<div class="copied" onPointerLeave=${() => setNotice("")}>
    <pre class="code" tabindex="0" aria-label=${label}>${text}</pre>
    <span class="copier"><span class="faint" role="status">${notice}</span>
      <button class="btn icon" aria-label="Copy this code" title="Copy" onClick=${copy}>
        <${Icon} name="copy" small /></button></span>
  </div>`;
}
