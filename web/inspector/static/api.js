// Calls the gateway over HTTP, at paths relative to the page, which may be mounted below a prefix:
// returns responses, throws refusals as errors, and reconnects
// streams. If a token is needed, the tab keeps it and sends it in a header, never in a link.

const TOKEN = "foldlog.token";
const PAUSE_MS = [250, 1000, 2000, 5000];

export class Failed extends Error {
  constructor(status, code, detail) {
    super(detail || code);
    this.status = status;
    this.code = code;
  }
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token.trim());
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, authorization: `Bearer ${token}` } : { ...more };
}

async function answer(response) {
  const text = await response.text();
  let body = {};
  try {
    body = JSON.parse(text);
  } catch {
    body = { code: `http_${response.status}`, detail: text.slice(0, 300) };
  }
  if (!response.ok) throw new Failed(response.status, body.code, body.detail);
  return body;
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, "unreachable", "the gateway does not respond. Check that it is running");
  }
  return answer(response);
}

export const get = (path, signal) => ask(path, { headers: headers({}), signal });

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** An image that was attached to a message, as a Blob. The token is sent in a header, which an
    <img> cannot do. Throws for any other type of content. */
export async function image(session, sha256, signal) {
  const path = `api/chat/${encodeURIComponent(session)}/files/${sha256}`;
  const response = await fetch(path, { headers: headers({}), signal });
  if (!response.ok) return answer(response);
  const type = response.headers.get("content-type");
  if (!IMAGES.includes(type)) throw new Failed(0, "no_image", `${type} is no image`);
  return new Blob([await response.arrayBuffer()], { type });
}

export const post = (path, body) =>
  ask(path, {
    method: "POST",
    headers: headers({ "content-type": "application/json" }),
    body: JSON.stringify(body),
  });

export const sessionPath = (id) => `v1/sessions/${encodeURIComponent(id)}`;
export const lookPath = (id) => `inspector/api/sessions/${encodeURIComponent(id)}`;

/** Follows a stream of server-sent events until `signal`, and resumes after the last id
    received. `onState` is called with live, waiting and the time of the next try, or refused and
    the error. `onComment` is called for a comment: something changed that the stream does not show,
    or nothing did. `nap` is called with a function that ends the wait early. */
export async function follow(path, { signal, onEvent, onState, onComment = () => {}, nap = () => {} }) {
  let cursor = null;
  for (let tries = 0; !signal.aborted; tries += 1) {
    try {
      const more = cursor === null ? {} : { "last-event-id": cursor };
      const response = await fetch(path, { headers: headers(more), signal });
      if (!response.ok) await answer(response);
      onState("live");
      for await (const event of events(response.body)) {
        tries = 0;
        if (event.data === null) {
          onComment();
          continue;
        }
        if (event.id !== null) cursor = event.id;
        onEvent(event.name, JSON.parse(event.data));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Failed && error.status >= 400 && error.status < 500) {
        onState("refused", error);
        if (error.status !== 429) return;
      }
    }
    if (signal.aborted) return;
    const pause = PAUSE_MS[Math.min(tries, PAUSE_MS.length - 1)];
    onState("waiting", null, Date.now() + pause);
    await new Promise((done) => {
      setTimeout(done, pause);
      nap(done);
    });
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return; // an incomplete event is dropped
    left += value;
    const blocks = left.split("\n\n");
    left = blocks.pop();
    for (const block of blocks) {
      yield parseEvent(block);
    }
  }
}

function parseEvent(block) {
  const event = { id: null, name: "message", data: null };
  for (const line of block.split("\n")) {
    const [, field, value] = /^([a-z]*): ?(.*)$/.exec(line) ?? [];
    if (field === "id") event.id = value;
    if (field === "event") event.name = value;
    if (field === "data") event.data = event.data === null ? value : `${event.data}\n${value}`;
  }
  return event; // of a comment without data
}
