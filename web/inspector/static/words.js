// Words sentences about calls and attempts for people.

import { length } from "./format.js";

/** The name of a person from their id: the part before an @. */
export const nameOf = (user) => (user || "A person").split("@")[0];

export const initials = (user) => {
  const parts = nameOf(user).split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  return (parts.length > 1 ? parts[0][0] + parts.at(-1)[0] : (parts[0] ?? "?").slice(0, 2)).toUpperCase();
};

const ERRORS = {
  overloaded: "The model was overloaded",
  rate_limit: "The model's rate limit was reached",
  rate_limit_bare: "A rate limit or the spend limit was reached",
  setting_refused: "The provider refused a setting of the agent",
  bad_request: "The provider refused the content of the request",
  authentication: "The provider refused the key",
  context_too_long: "The request was too long for the model",
  request_too_large: "The request was too large",
  timeout: "The model did not answer in time",
  stalled: "The model stopped answering",
};

/** Why an attempt failed, from the code of its error: known errors in words. */
export function failureText(error) {
  return ERRORS[error] ?? (error ? `The model call failed: ${error}` : "The model call failed");
}

const TIMES = ["", "once", "twice", "three times", "four times", "five times", "six times"];
export const times = (count) => TIMES[count] ?? `${count} times`;

/** The unsuccessful attempts of a step, in one line. `runs`: the runs of the step's model call. */
export function attemptsText(lines, runs) {
  const lost = lines.filter((line) => line.name !== "failed");
  const failed = lines.filter((line) => line.name === "failed");
  const words = [];
  const often = failed.length > 1 ? `, ${times(failed.length)}` : "";
  if (failed.length) words.push(`${failureText(failed.at(-1).code)}${often}.`);
  for (const line of lost) words.push(lostText(line, runs));
  return words.join(" ");
}

function lostText(line, runs) {
  const taken = runs.find((run) => run.offset === line.offset && run.kind === "run");
  const wait = runs.find((run) => run.end_offset === line.offset && run.kind === "waits_worker");
  const before = runs.findLast((run) => run.outcome === "lost" && run.offset < line.offset);
  const lost = before?.note.split(" · ")[0] ?? "a worker";
  const Lost = lost[0].toUpperCase() + lost.slice(1);
  const who = taken?.note.split(" · ")[0] ?? "another worker";
  const same = who === lost ? "It was started again and" : who[0].toUpperCase() + who.slice(1);
  const how = line.name === "continued" ? "continued its text" : "took over";
  return `${Lost} was lost. ${same} ${how}${wait ? ` ${length(wait.end_at - wait.at)} later` : ""}.`;
}

const ENDS = {
  cancelled: "was stopped by a person",
  interrupted: "was interrupted by a new message",
  terminated: "ended with the session",
  failed: "failed",
  max_steps: "reached its limit of steps",
  max_tokens: "ended because the answer reached its limit of length",
  refusal: "ended because the model refused to answer",
  budget_exceeded: "reached its limit of tokens",
  should_stop: "ended as a tool asked for it",
  stop_tool: "ended with the call of a tool that ends turns",
};

/** A sentence for the end of a turn that did not end in the ordinary way. */
export function endText(line) {
  const how = ENDS[line.name] ?? `ended: ${line.name.replaceAll("_", " ")}`;
  return `Turn ${line.turn} ${how}${line.text ? ` (${line.text})` : ""}.`;
}

const STANDS = {
  proposed: ["waits for a worker", "busy"],
  allowed: ["allowed, waits for a worker", "busy"],
  started: ["is running", "busy"],
};

/** The state of a call as [word, look]; an ordinary state has no word. `status`: the call's
    status if the turn is open. */
export function callState(lines, past, status) {
  if (STANDS[status]) return STANDS[status];
  const last = lines.at(-1);
  const wasInDoubt = lines.some((line) => line.kind === "doubt");
  const outcome = last.code;
  switch (last.kind) {
    case "asks":
      return [past ? "waited for approval" : "waits for approval", "asks"];
    case "call":
      return ["called", "busy"];
    case "approval":
      return { allow: ["allowed", "busy"], deny: ["denied", "idle"] }[last.code] ?? ["expired", "idle"];
    case "doubt":
      return ["in doubt", "doubt"];
    case "resolved":
      return [`in doubt, settled: ${last.code === "happened" ? "it happened" : "it did not happen"}`, "doubt"];
  }
  if (outcome === "ok") return wasInDoubt ? ["was in doubt", "doubt"] : ["", ""];
  return [{ error: "returned an error", not_run: "was not run", denied: "denied" }[outcome]
    ?? outcome.replaceAll("_", " "), "fail"];
}
