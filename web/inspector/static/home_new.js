// The form that starts a session, with a message and an agent.

import { post, sessionPath } from "./api.js";
import { plural } from "./format.js";
import { Icon } from "./icons.js";
import { html, useRef, useState } from "./lib.js";

const AGENT = "foldlog.agent"; // the storage key of the last chosen agent
const OTHER = " other"; // no agent has a name that begins with a blank

/** The agent to begin with: the one chosen last if it is served, else the first that is. */
function preferred(agents) {
  const served = agents.filter((agent) => agent.workers > 0);
  const last = localStorage.getItem(AGENT);
  return (served.find((agent) => agent.name === last) ?? served[0] ?? agents[0])?.name ?? "default";
}

export function NewSession({ agents, go, opened: shown = true }) {
  const [text, setText] = useState("");
  const [picked, setPicked] = useState(null);
  const [typed, setTyped] = useState("");
  const [state, setState] = useState({ busy: false, error: "" });
  const opened = useRef(null); // a session that was opened, but did not get its message
  const choice = picked ?? preferred(agents);
  const agent = choice === OTHER ? typed.trim() : choice;
  const known = agents.find((one) => one.name === agent);
  const names = agents.length ? agents.map((one) => one.name) : ["default"];
  const start = async (event) => {
    event.preventDefault();
    if (!text.trim() || !agent || state.busy) return;
    setState({ busy: true, error: "" });
    try {
      if (opened.current?.agent !== agent) {
        const { session_id: id } = await post("v1/sessions", { agent });
        opened.current = { id, agent };
      }
      await post(`${sessionPath(opened.current.id)}/messages`, { text });
      localStorage.setItem(AGENT, agent);
      go(opened.current.id);
    } catch (error) {
      setState({ busy: false, error: `${error.message} (What you typed is kept.)` });
    }
  };
  const press = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) start(event);
    if (event.key === "Escape") event.currentTarget.blur();
  };
  return html`
    <form class=${shown ? "begin-one opened" : "begin-one"} aria-label="New session" onSubmit=${start}>
      <div class="entry">
        <${Icon} name="plus" />
        <textarea id="new" rows="1" aria-label="What should be done" placeholder="Start a session: what should be done?"
          value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${press}></textarea>
        <label class="pick"><span class="faint">with</span>
          <select aria-label="Agent" value=${choice} onChange=${(event) => setPicked(event.target.value)}>
            ${names.map((name) => html`<option key=${name} value=${name}>${name}${served(agents, name)}</option>`)}
            <option value=${OTHER}>another agent</option>
          </select><${Icon} name="down" small /></label>
        <button class="btn start" disabled=${state.busy || !text.trim() || !agent}>Start session <kbd>↵</kbd></button>
      </div>
      ${choice === OTHER && html`<label class="extra">Name of the agent <input class="field" value=${typed}
        maxlength="200" onInput=${(event) => setTyped(event.target.value)} /></label>`}
      ${agent && !known?.workers && html`<${NoWorker} agent=${agent} none=${!agents.some((one) => one.workers)} />`}
      ${state.error && html`<p class="extra bad" role="alert">${state.error}</p>`}
    </form>
  `;
}

function served(agents, name) {
  const workers = agents.find((agent) => agent.name === name)?.workers ?? 0;
  return workers ? "" : " (no worker)";
}

/** What to do when no worker serves an agent. The message is kept in the log all the same. */
function NoWorker({ agent, none }) {
  return html`<p class="extra noworker" role="status">
    <${Icon} name="fail" small />
    <span><b>${none ? "No worker serves any agent." : html`No worker serves the agent <bdi>${agent}</bdi>.`}</b>${" "}
      The message is kept, and answered as soon as one starts: ${" "}
      <code class="code-inline">foldlog worker --agent FILE</code></span>
  </p>`;
}

export const workersOf = (agent) => (agent.workers ? plural(agent.workers, "worker") : "no worker");
