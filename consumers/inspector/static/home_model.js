// The home page's copy of the sessions. It is fetched once, then only changes are fetched. It
// recovers from errors by itself.

import { get } from "./api.js";
import { Model } from "./lib.js";

const QUIET_MS = 10_000; // workers start and end without changing a session
const SETTLE_MS = 250; // changes within this time cause one request
const RETRY_MS = [1000, 2000, 4000, 8000];
const PAGE = 1000;

export class HomeModel extends Model {
  #wake = () => {};
  #due = false;
  #limit = PAGE;
  #version = "";

  constructor() {
    super();
    this.rows = new Map();
    this.list = [];
    this.agents = [];
    this.total = 0;
    this.loaded = false;
    this.skew = 0; // the gateway's clock minus this one
    this.lost = null; // {since, message, next} while the gateway does not respond
    this.refused = null;
  }

  now() {
    return Date.now() + this.skew;
  }

  /** Follows the sessions until the returned function is called. `changes`: a model that changes
      when a session does. */
  start(changes) {
    const stop = new AbortController();
    const unsubscribe = changes.subscribe(() => this.nudge());
    const visible = () => document.hidden || this.nudge();
    document.addEventListener("visibilitychange", visible);
    this.#run(stop.signal);
    return () => {
      stop.abort();
      unsubscribe();
      document.removeEventListener("visibilitychange", visible);
      this.#wake();
    };
  }

  /** Fetches the changes soon. */
  nudge() {
    this.#due = true;
    this.#wake();
  }

  more() {
    this.#limit += PAGE;
    this.#version = "";
    this.nudge();
  }

  async #run(signal) {
    let tries = 0;
    while (!signal.aborted) {
      this.#due = false;
      try {
        await this.#fetch(signal);
        tries = 0;
        await this.#pause(this.#due ? 0 : QUIET_MS);
        await new Promise((done) => setTimeout(done, SETTLE_MS));
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401 || error.status === 403) {
          this.refused = error;
          this.changed();
          return;
        }
        const wait = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)];
        tries += 1;
        const lostSince = this.lost?.since ?? Date.now();
        this.lost = { since: lostSince, message: error.message, next: Date.now() + wait };
        this.changed();
        this.#due = false;
        await this.#pause(wait);
      }
    }
  }

  #pause(ms) {
    return new Promise((done) => {
      const timer = setTimeout(done, ms);
      this.#wake = () => {
        clearTimeout(timer);
        done();
      };
    });
  }

  async #fetch(signal) {
    const query = new URLSearchParams({ since: this.#version, limit: this.#limit });
    const page = await get(`inspector/api/home?${query}`, signal);
    if (page.whole) this.rows.clear();
    for (const row of page.rows) this.rows.set(row.id, row);
    this.#version = page.version;
    this.total = page.total;
    this.agents = page.agents;
    this.skew = page.now - Date.now();
    const same = this.loaded && this.lost === null && !page.whole && !page.rows.length;
    const agents = JSON.stringify(page.agents);
    if (same && agents === this.shownAgents) return;
    this.shownAgents = agents;
    this.loaded = true;
    this.lost = null;
    this.refused = null;
    if (page.whole || page.rows.length) {
      this.list = [...this.rows.values()].sort((a, b) => b.updated_at - a.updated_at || (a.id < b.id ? -1 : 1));
    }
    this.changed();
  }
}

export const waits = (row) => row.waits.length > 0 || row.failure !== null;

/** The storage key of failed turns that were set aside in this browser: {session: turn}. */
const ASIDE = "foldlog.aside";

export class Aside extends Model {
  constructor() {
    super();
    this.turns = read(ASIDE, {});
  }

  has(row) {
    return !row.waits.length && row.failure !== null && this.turns[row.id] === row.failure.turn;
  }

  add(row) {
    const kept = Object.entries(this.turns).slice(-499);
    this.turns = { ...Object.fromEntries(kept), [row.id]: row.failure.turn };
    write(ASIDE, this.turns);
    this.changed();
  }
}

/** The storage key of saved filters: [{name, view}], with `view` as in the link. */
const FILTERS = "foldlog.filters";

export class SavedFilters extends Model {
  constructor() {
    super();
    const found = read(FILTERS, []);
    this.all = Array.isArray(found) ? found.filter((one) => typeof one?.view === "string") : [];
  }

  save(name, view) {
    this.#set([...this.all.filter((one) => one.name !== name), { name, view }]);
  }

  remove(name) {
    this.#set(this.all.filter((one) => one.name !== name));
  }

  #set(all) {
    this.all = all.slice(-20);
    write(FILTERS, this.all);
    this.changed();
  }
}

function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // If the storage is full or forbidden, the choice lasts as long as the page.
  }
}
