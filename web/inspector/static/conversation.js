// The conversation: messages, answers and calls in order, with what a person must decide in its
// place.

import { gist, Text, valueOf, Values } from "./args.js";
import { Attachment } from "./attachment.js";
import { Composer } from "./composer.js";
import { Decision } from "./decide.js";
import { clock, length, partsOf, pretty, when } from "./format.js";
import { Failure, Folded } from "./failure.js";
import { Icon } from "./icons.js";
import { html, Model, still, useLayoutEffect, useMemo, useModel, useReducer, useRef, useState } from "./lib.js";
import { Markdown } from "./markdown.js";
import { Rerun } from "./rerun.js";
import { clean } from "./visible.js";
import { callState, endText, initials, nameOf } from "./words.js";

const SHOWN = 150; // items drawn at least; earlier items on request
const STRIDE = 50; // items that leave together, because Preact then moves all others in the document
const NEAR = 40; // px from the end that count as the end
const NO_TOKENS = new Model(); // what was open at a past instant does not grow
const MARKDOWN_CHARS = 40_000; // a longer text is shown without formatting

const OF_CALLS = new Set(["call", "asks", "approval", "result", "doubt", "resolved"]);

/** Groups lines into the items that are drawn: turns, messages, and groups of steps between them. A call's lines
    are one step, and so are the failed and lost attempts of a model call. */
function itemsOf(lines) {
  const items = [];
  const calls = new Map();
  let turn = 0;
  const steps = () => {
    if (items.at(-1)?.kind !== "steps") items.push({ key: `steps ${items.length}`, kind: "steps", steps: [] });
    return items.at(-1).steps;
  };
  for (const [place, line] of lines.entries()) {
    if (line.turn > turn) {
      turn = line.turn;
      items.push({ key: `turn ${turn}`, kind: "turn", line });
    }
    if (line.call && OF_CALLS.has(line.kind)) {
      const known = calls.get(line.call);
      const call = known ?? { key: line.call, kind: "call", lines: [] };
      call.lines.push(line);
      if (!known) {
        calls.set(line.call, call);
        steps().push(call);
      }
    } else if (line.kind === "attempt") {
      const last = items.at(-1)?.kind === "steps" ? items.at(-1).steps.at(-1) : null;
      if (last?.kind === "attempts" && last.lines[0].step === line.step) last.lines.push(line);
      else steps().push({ key: `attempts ${place}`, kind: "attempts", lines: [line] });
    } else {
      if (line.kind === "ended" && line.name === "failed") dropAttempts(items); // the card of the failure has them
      items.push({ key: `line ${place}`, kind: line.kind, line });
    }
  }
  return items;
}

/** The items. Unchanged items are the same objects as before, so they are not drawn again. */
function useItems(lines, count) {
  const known = useRef(new Map());
  return useMemo(() => {
    const items = itemsOf(lines.slice(0, count)).map((item) => {
      const old = known.current.get(item.key);
      return old && old.kind === item.kind && old.line === item.line && isSame(old.steps, item.steps) ? old : item;
    });
    known.current = new Map(items.map((item) => [item.key, item]));
    return items;
  }, [lines, count]);
}

const isSame = (one, other) => one === other || (one?.length === other?.length
  && one.every((step, n) => step.key === other[n].key && step.lines.length === other[n].lines.length));

function dropAttempts(items) {
  const last = items.at(-1);
  if (last?.kind !== "steps" || last.steps.at(-1).kind !== "attempts") return;
  last.steps.pop();
  if (!last.steps.length) items.pop();
}

/** Returns a function for the runs of a tool call or model call by key, as they were right after
    an offset, and one for all runs, which stays the same. */
function useTimes(session, upto) {
  const runs = useMemo(() => {
    const found = new Map();
    for (const run of [...session.runs, ...session.lasting]) {
      if (run.kind === "point" || !run.key) continue;
      if (!found.has(run.key)) found.set(run.key, []);
      found.get(run.key).push(run);
    }
    return found;
  }, [session, session.runs.length, session.upto]);
  const latest = useRef(runs);
  latest.current = runs;
  const all = useMemo(() => (key) => latest.current.get(key) ?? [], []);
  const asOf = (run) => (run.end_offset > upto ? { ...run, end_at: null, end_offset: null, outcome: "" } : run);
  // Runs of steps before the newest had already ended then, so for them the instant does not
  // matter.
  return [(key) => all(key).filter((run) => run.offset <= upto).map(asOf), all];
}

/** Keeps the end of a scroller in view while the session adds to its content, unless a person
    scrolled away from it. Returns [added, place]: `added` is called when the session has changed
    the content; `place` scrolls, by calling its argument. Sizes are read only after the layout of a
    frame, because reading them earlier causes another layout. */
function useEnd(scroller) {
  const end = useRef(0); // scrollTop at the end, as of the last layout
  const isAdded = useRef(true);
  const note = () => { end.current = scroller.current.scrollHeight - scroller.current.clientHeight; };
  useLayoutEffect(() => {
    const box = scroller.current;
    const watch = new ResizeObserver((changes) => {
      const follows = isAdded.current || changes.some(({ target }) => target === box);
      if (follows && box.scrollTop > end.current - NEAR) box.scrollTop = box.scrollHeight;
      isAdded.current = false;
      note();
    });
    for (const element of [box, box.firstElementChild]) watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const place = (scroll) => {
    scroller.current.scrollTop = scroller.current.scrollHeight;
    scroll?.();
    note();
  };
  return [() => { isAdded.current = true; }, place];
}

export function Conversation(props) {
  const { session, at, go, moment, fresh, commands } = props;
  const past = at !== null;
  const { lines } = session;
  const count = past ? Math.min(moment?.lines ?? 0, lines.length) : lines.length;
  const open = past ? moment?.open : session.open;
  const items = useItems(lines, count);
  const [timesOf, allTimes] = useTimes(session, past ? moment?.offset ?? -1 : Infinity);
  const [more, setMore] = useState(0);
  const hidden = Math.max(0, Math.floor((items.length - SHOWN - more) / STRIDE) * STRIDE);
  const shown = items.slice(hidden);
  const scroller = useRef(null);
  const [added, toEnd] = useEnd(scroller);
  const wanted = useRef(null); // what a key or a bar chose: an instant, a call, and whether it gets the focus
  const [, draw] = useReducer((count) => count + 1, 0);
  useLayoutEffect(() => {
    added();
    if (!fresh || wanted.current?.at !== at) return;
    const { call, focus } = wanted.current;
    wanted.current = null;
    const calls = call ? [...scroller.current.querySelectorAll("[data-call]")] : [];
    const found = calls.find((one) => one.dataset.call === call);
    toEnd(() => { // to the newest line of the instant, unless the call is above it
      found?.scrollIntoView({ block: focus ? "start" : "nearest" });
      if (focus) found?.focus({ preventScroll: true });
    });
  });
  const waits = moment ? [...moment.asks, ...moment.doubts] : [];
  const reveal = (instant, call, focus = false) => {
    wanted.current = { at: instant, call, focus };
    draw();
  };
  const { waiting } = session;
  const toWaiting = () => {
    if (past) go(session.id);
    reveal(null, waiting.call, true);
  };
  Object.assign(commands.current, { reveal, waiting: waiting ? toWaiting : undefined });
  const ask = (key) => waits.find((call) => call.call === key);
  const calls = moment?.turn.calls ?? [];
  const stands = new Map(calls.map((call) => [`${call.turn}.${call.step}.${call.index}`, call.status]));
  const drawn = new Set(shown.flatMap((item) => (item.steps ?? []).map((step) => step.key)));
  const agent = moment?.turn.agent ?? "agent";
  const user = moment?.state.user_id ?? "";
  const can = Boolean(props.about.can.fork);
  return html`
    <div class="lines" ref=${scroller} tabindex="0" role="log"
      aria-label="Conversation" aria-live="off"><div class="read">
      ${hidden > 0 && html`
        <button class="btn quiet earlier" onClick=${() => setMore(more + SHOWN)}>Show earlier: ${hidden} more</button>
      `}
      ${!items.length && !open && html`<p class="none">${session.loaded ? "No messages yet." : " "}</p>`}
      ${shown.map((item, n) => {
        if (item.kind !== "steps") {
          const isLast = n === shown.length - 1;
          return html`<${Item} key=${item.key} item=${item} agent=${agent} user=${user} session=${session.id} can=${can}
            props=${
            item.line?.name === "failed" ? { ...props, isLast, lines } : null} times=${
            item.kind === "answer" ? timeOf(timesOf(`${item.line.turn}.${item.line.step}`)) : ""} />`;
        }
        const asked = item.steps.map((step) => ask(step.key)).filter(Boolean);
        const isNewest = n >= shown.length - 3 || asked.length > 0;
        return html`<${Steps} key=${item.key} item=${item} timesOf=${isNewest ? timesOf : allTimes}
          ended=${isNewest ? 0 : endedIn(item, allTimes)} asked=${asked.length ? asked : null}
          stands=${isNewest ? stands : null} session=${session} past=${past} go=${isNewest ? go : null} can=${can} />`;
      })}
      ${waits.filter((call) => !drawn.has(call.call)).map((call) => html`
        <${Decision} key=${call.call} session=${session} call=${call} past=${past} go=${go} />`)}
      ${open && html`<${Streaming} open=${open} past=${past} agent=${agent}
        tokens=${past ? NO_TOKENS : session.tokens} added=${added} />`}
    </div></div>
    <${Composer} ...${props} />
  `;
}

const runKey = (step) => (step.kind === "attempts" ? `${step.lines[0].turn}.${step.lines[0].step}` : step.key);

/** How many runs of these steps have ended. */
const endedIn = ({ steps }, timesOf) => steps.reduce(
  (sum, step) => sum + timesOf(runKey(step)).filter((run) => run.end_at !== null).length, 0);

/** How long the attempt with the answer took. */
function timeOf(runs) {
  const run = runs.findLast((one) => one.kind === "run" && one.outcome === "ok");
  return run ? length(run.end_at - run.at) : "";
}

const Item = still(({ item, agent, user, session, can, times, props }) => {
  const { line } = item;
  switch (item.kind) {
    case "turn":
      return html`<div class="turn num"><span>Turn ${line.turn} · ${when(line.at)}</span></div>`;
    case "message":
      return html`<${Message} who="user" name=${nameOf(user)} mark=${initials(user)}
        line=${line} session=${session} can=${can} />`;
    case "answer":
    case "partial":
      return html`<${Message} who="assistant" name=${agent} line=${line} session=${session} took=${times}
        note=${item.kind === "partial" ? `stopped: ${line.name}` : line.text} />`;
    case "ended":
      return line.name === "failed" ? html`<${Failure} line=${line} ...${props} />` : html`<${End} line=${line} />`;
    default:
      return html`<${Note} line=${line} />`;
  }
});

/** The end of a turn. An ordinary end is visible only to screen readers. */
function End({ line }) {
  const isQuiet = line.name === "end_turn";
  const text = isQuiet ? `Turn ${line.turn} ended.` : endText(line);
  return html`<p class=${isQuiet ? "note ended sr" : "note ended"}><bdi>${text}</bdi></p>`;
}

function Message({ who, name, mark, line, session, can, took, note }) {
  const parts = partsOf(line);
  if (!parts.length && !note) return null;
  const text = () => parts.filter((part) => part.kind === "text").map((part) => part.text).join("\n\n");
  return html`
    <article class=${`msg ${who}`} aria-label=${`${name}, ${clock(line.at)}`}>
      ${mark ? html`<div class="av" aria-hidden="true">${mark}</div>`
        : html`<div class="av m"><${Icon} name="model" small /></div>`}
      <div class="body">
        <div class="who"><b><bdi>${name}</bdi></b>
          <time class="at num" title=${`event at offset ${line.offset}`}>${clock(line.at)}</time>
          ${took && html`<span class="at num">${took}</span>`}
          ${note && html`<span class="at"><bdi>${note}</bdi></span>`}
          ${can && html`<${Rerun} session=${session} edit=${{ message_id: line.name }} text=${text()} />`}</div>
        ${parts.map((part, n) => html`<${Part} key=${n} part=${part} session=${session} />`)}
      </div>
    </article>
  `;
}

function Part({ part, session }) {
  switch (part.kind) {
    case "thinking":
      return html`<${Thinking} text=${part.text} />`;
    case "json":
      return html`<pre class="code" tabindex="0"><${Text} text=${part.text} /></pre>`;
    case "attachment":
      return html`<${Attachment} session=${session} part=${part} />`;
    default:
      return part.text.length > MARKDOWN_CHARS
        ? html`<p class="text plain" dir="auto"><${Text} text=${part.text} /></p>`
        : html`<${Markdown} text=${part.text} />`;
  }
}

const Thinking = ({ text }) => html`
  <details class="thinking"><summary><${Icon} name="right" small />Thought, ${text.length} characters</summary>
    <p class="text plain" dir="auto"><${Text} text=${text} /></p></details>`;

/** The calls and attempts between two answers. A call that waits for a person has its own card. `ended`: how many
    of their runs have ended, which redraws them. */
const Steps = still(({ item, timesOf, asked, stands, session, past, go, can }) => {
  const groups = [];
  for (const step of item.steps) {
    const call = asked?.find((one) => one.call === step.key);
    if (call) groups.push({ call, step });
    else if (groups.at(-1)?.steps) groups.at(-1).steps.push(step);
    else groups.push({ steps: [step] });
  }
  return groups.map((group) => (group.call
    ? html`<${Decision} key=${group.step.key} session=${session} call=${group.call} past=${past} go=${go} />`
    : html`<div class="steps" key=${group.steps[0].key}>
        ${group.steps.map((step) => (step.kind === "attempts"
          ? html`<${Folded} key=${step.key} lines=${step.lines} runs=${timesOf(runKey(step))} />`
          : html`<${Tool} key=${step.key} lines=${step.lines} past=${past} runs=${timesOf(runKey(step))}
              status=${stands?.get(step.key)} session=${session.id} can=${can} />`))}
      </div>`));
});

function Tool({ lines, past, runs, status, session, can }) {
  const [open, setOpen] = useState(false);
  const [first] = lines;
  const request = lines.find((line) => line.kind === "call" || line.kind === "asks");
  const results = lines.filter((line) => line.kind === "result" || line.kind === "resolved");
  const [word, look] = callState(lines, past, status);
  const args = request ? valueOf(request.content) : undefined;
  const tries = runs.filter((run) => run.kind === "run" && run.end_at !== null);
  const took = tries.reduce((sum, run) => sum + run.end_at - run.at, 0);
  return html`
    <details class=${`tool ${look}`} data-call=${first.call} onToggle=${({ target }) => setOpen(target.open)}>
      <summary aria-label=${`Tool ${first.name}${word ? `, ${word}` : ""}`}>
        <${Icon} name="tool" small /><span class="nm"><bdi>${clean(first.name)}</bdi></span>
        <span class="dim cut grow"><bdi>${gist(args)}</bdi></span>
        ${word && html`<span class=${`st ${look}`}>${
          ICONS[look] && html`<${Icon} name=${ICONS[look]} />`}${word}</span>`}
        ${tries.length > 1 && html`<span class="faint num">${tries.length} attempts</span>`}
        ${tries.length > 0 && html`<span class="faint num">${length(took)}</span>`}
        <span class="chev"><${Icon} name="right" small /></span>
      </summary>
      ${open && html`<div class="in">
        <${Values} value=${args} label="Arguments" />
        ${lines.filter((line) => line.kind === "doubt").slice(0, 1).map((line) => html`
          <p class="foot">In doubt since ${clock(line.at)}: ${line.text}</p>`)}
        ${results.map((line) => html`<div key=${line.offset}>
          <${Values} value=${valueOf(line.content)} label="Result" />
          ${line.kind === "resolved" && html`<p class="foot">Reported by a person at ${clock(line.at)}.
            The call was never run again.</p>`}
          ${line.refused && html`<p class="foot">${line.refused.join("; ")}</p>`}
          ${line.replaced && html`<p class="foot">Replaced by a person at ${clock(line.at)}. No tool ran.</p>`}
          ${can && line.kind === "result" && line === results.at(-1) && html`<${Rerun} session=${session}
            edit=${{ call: line.call }} text=${textOf(line.content)} failed=${line.code !== "ok"} />`}
        </div>`)}
        <p class="foot mono">call ${first.call}, offset ${first.offset}</p>
      </div>`}
    </details>
  `;
}

const textOf = (content) => (typeof content === "string" ? content : pretty(content ?? ""));

const ICONS = { asks: "clock", doubt: "doubt", fail: "fail", busy: "busy" };

function Note({ line }) {
  const text = {
    phase: `The phase is now ${line.name}.`,
    project: `The session is about the project ${line.name}.`,
    terminated: `The session was ended. ${line.text}`,
    resolved: `Reported by a person: ${line.code.replaceAll("_", " ")}`,
  }[line.kind] ?? `${line.kind} ${line.name} ${line.text}`;
  return html`<p class=${`note ${line.kind}`}><bdi>${text}</bdi></p>`;
}

/** The open attempt's output so far. The box appears with the first token and only grows. */
function Streaming({ open, past, agent, tokens, added }) {
  useModel(tokens);
  useLayoutEffect(added);
  return html`
    <article class="msg assistant streaming" aria-label="The model's output" aria-busy=${!past}>
      <div class="av m"><${Icon} name="model" small /></div>
      <div class="body">
        <div class="who"><b><bdi>${agent}</bdi></b>
          <span class="at caret">${past ? "until here" : "is answering"}</span>
          ${open.attempt > 1 && html`<span class="at">attempt ${open.attempt}</span>`}</div>
        ${open.parts.map((part, n) => {
          const key = `${part.block}.${part.kind}.${n}`;
          if (part.kind === "thinking") return html`<${Thinking} key=${key} text=${part.text} />`;
          const text = clean(part.text);
          if (part.kind === "tool_name") return html`<p class="dim" key=${key}>calls <code>${text}</code></p>`;
          if (part.kind === "tool_input") return html`<pre class="code" key=${key}>${text}</pre>`;
          return html`<${Part} key=${key} part=${part} />`;
        })}
      </div>
    </article>
  `;
}
