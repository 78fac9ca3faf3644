// The page's copy of one session: the events and lines fetched so far, the live stream, and the
// moments that were viewed. The gateway's folds compute all of it.

import { follow, get, lookPath, sessionPath } from "./api.js";
import { Model } from "./lib.js";

const MOMENTS_MAX = 400;
const REFRESH_MS = 250; // from an event until it is fetched
const BUSY_MS = 1000; // between two fetches while events arrive, because each redraws the page

export class Session extends Model {
  #stop = new AbortController();
  #timer = null;
  #refreshed = 0;
  #loading = false;
  #again = false;
  #moments = new Map();
  #wanted = null;
  #fetching = false;
  #early = null; // lines received while earlier ones are fetched
  #fetched = -1; // the last event included in the fetched lines

  constructor(id) {
    super();
    this.id = id;
    this.events = [];
    this.runs = []; // runs that have ended, in the order of their ends
    this.lasting = []; // runs that have not ended
    this.upto = -1; // the event up to which the runs are computed
    this.count = 0; // the number of all events
    this.lines = []; // the transcript so far; an earlier moment has a prefix
    this.loaded = false;
    this.open = null; // the streaming attempt: {turn, step, attempt, parts}
    this.tokens = new Model(); // notifies of each token after the first of its attempt
    this.state = "waiting";
    this.since = null; // when the gateway was lost, null if it responds or never did
    this.retryAt = 0; // when the next try is due
    this.retry = () => {};
    this.newest = null; // the moment at the end of the log
    this.error = null;
    this.lost = null; // {offset, error} of a moment whose fetch failed
  }

  start() {
    const { signal } = this.#stop;
    // Past lines are fetched, and only new lines are streamed. The stream opens before the lines
    // are fetched, so there is no gap; a line that is received twice is recognized by its offset.
    follow(`${sessionPath(this.id)}/stream?since=now`, {
      signal,
      onEvent: (name, frame) => this.#frame(name, frame),
      onComment: () => this.#refreshSoon(),
      onState: (state, error, retryAt) => {
        // A failed first try counts as a loss, so that the page shows an error instead of nothing.
        if (state === "waiting" && this.since === null) this.since = Date.now();
        if (state === "live") this.since = null;
        this.state = state;
        this.retryAt = retryAt ?? 0;
        if (error) this.error = error;
        if (state === "live") {
          this.#catchUp();
          this.refresh();
        }
        this.changed();
      },
      nap: (wake) => { this.retry = wake; },
    });
    this.refresh();
    return () => {
      this.#stop.abort();
      clearTimeout(this.#timer);
    };
  }

  #frame(name, frame) {
    switch (name) {
      case "token":
        this.#token(frame);
        return;
      case "dropped":
        if (this.open && sameAttempt(this.open, frame)) this.open = null;
        break;
      case "settled":
        this.open = null;
        this.#addLine(frame.line);
        break;
      case "told":
        this.#addLine(frame.line);
        break;
    }
    if (frame.live) this.#refreshSoon();
    this.changed();
  }

  #addLine(line) {
    if (this.#early !== null) this.#early.push(line);
    else if (line.offset > this.#fetched) this.lines.push(line);
  }

  /** Fetches the existing lines, and adds lines that are streamed during the fetch after them. */
  async #catchUp() {
    if (this.#early !== null) return;
    this.#early = [];
    try {
      await this.#linesUpTo(Infinity);
      this.loaded = true;
    } catch (error) {
      this.#failed(error);
    }
    const early = this.#early;
    this.#early = null;
    for (const line of early) this.#addLine(line);
    this.changed();
  }

  #token(frame) {
    if (!this.open || !sameAttempt(this.open, frame)) {
      const { turn, step, attempt } = frame;
      this.open = { turn, step, attempt, parts: [] };
      this.#refreshSoon();
      this.changed();
    }
    const last = this.open.parts.at(-1);
    if (last && last.block === frame.block && last.kind === frame.kind) last.text += frame.text;
    else this.open.parts.push({ block: frame.block, kind: frame.kind, text: frame.text });
    this.tokens.changed();
  }

  #refreshSoon() {
    if (this.#timer === null) {
      this.#timer = setTimeout(() => {
        this.#timer = null;
        this.refresh();
      }, Math.max(REFRESH_MS, this.#refreshed + BUSY_MS - Date.now()));
    }
  }

  /** Fetches the new events and the moment at the end. A call during a fetch causes another
      fetch. */
  async refresh() {
    if (this.#loading) {
      this.#again = true;
      return;
    }
    this.#loading = true;
    try {
      do {
        this.#again = false;
        await this.#events();
        await this.#runs();
        this.newest = await get(`${lookPath(this.id)}/moment`, this.#stop.signal);
        this.error = null;
        this.#refreshed = Date.now();
        this.changed();
      } while (this.#again);
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#loading = false;
    }
  }

  async #events() {
    for (;;) {
      const path = `${lookPath(this.id)}/events?since=${this.events.length}`;
      const page = await get(path, this.#stop.signal);
      for (const row of page.events) this.events.push(rowObject(page.fields, row));
      this.count = page.count;
      if (page.next >= page.count || !page.events.length) return;
      this.changed();
    }
  }

  async #runs() {
    const page = await get(`${lookPath(this.id)}/runs?since=${this.runs.length}`, this.#stop.signal);
    for (const row of page.runs) this.runs.push(rowObject(page.fields, row));
    this.lasting = page.open.map((row) => rowObject(page.fields, row));
    this.upto = page.upto;
  }

  #failed(error) {
    if (error.name === "AbortError") return;
    this.error = error;
    this.changed();
  }

  /** Whether there is no such session. */
  get unknown() {
    return this.error?.status === 404 && this.newest === null;
  }

  /** The first call that waits for a person now. */
  get waiting() {
    return this.newest?.asks[0] ?? this.newest?.doubts[0] ?? null;
  }

  /** The index of the last event at or before an offset, or of the first event if there is none. */
  placeAt(offset) {
    let low = 0;
    let high = this.events.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.events[middle].offset <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** The moment at an offset if it was fetched. Otherwise fetches it and returns null. */
  moment(offset) {
    const found = this.#moments.get(offset);
    if (found === undefined && this.#wanted !== offset && this.lost?.offset !== offset) {
      this.lost = null;
      this.#wanted = offset;
      this.#fetch();
    }
    return found ?? null;
  }

  // If the slider moves while a moment is fetched, only the newest position is fetched next.
  async #fetch() {
    if (this.#fetching) return;
    this.#fetching = true;
    try {
      while (this.#wanted !== null) {
        const offset = this.#wanted;
        const moment = await get(`${lookPath(this.id)}/moment?at=${offset}`, this.#stop.signal);
        if (this.#early === null && this.lines.length < moment.lines) await this.#catchUp();
        if (this.#wanted === offset) this.#wanted = null;
        this.#moments.set(offset, moment);
        if (this.#moments.size > MOMENTS_MAX) this.#moments.delete(this.#moments.keys().next().value);
        this.changed();
      }
    } catch (error) {
      if (error.name !== "AbortError") this.lost = { offset: this.#wanted, error };
      this.#wanted = null;
      this.changed();
    } finally {
      this.#fetching = false;
    }
  }

  async #linesUpTo(count) {
    while (this.lines.length < count) {
      const path = `${lookPath(this.id)}/lines?since=${this.lines.length}`;
      const page = await get(path, this.#stop.signal);
      this.lines.push(...page.lines);
      if (page.next >= page.count) {
        this.#fetched = page.upto;
        return;
      }
      this.changed();
    }
  }
}

const rowObject = (fields, row) => Object.fromEntries(fields.map((name, n) => [name, row[n]]));

function sameAttempt(one, other) {
  return one.turn === other.turn && one.step === other.step && one.attempt === other.attempt;
}

/** Notifies its listeners whenever a session of the user changes. */
export class Changes extends Model {
  error = null;

  start() {
    const stop = new AbortController();
    follow("v1/sessions/events", {
      signal: stop.signal,
      onEvent: () => this.changed(),
      onState: (_state, error) => {
        this.error = error ?? null;
        this.changed();
      },
    });
    return () => stop.abort();
  }
}
