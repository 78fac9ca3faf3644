// The page's copy of the list of sessions. It is fetched once, then only changes are fetched. It
// recovers from errors by itself.

import { get } from "./api.js";
import { Model } from "./lib.js";

const QUIET_MS = 10_000; // workers start and end without changing a session
const FLEET_MS = 2000; // the fleet learns of a change after the gateway
const SETTLE_MS = 250; // changes within this time cause one request
const BUSY_MS = 1000; // between two requests while sessions change, because each redraws the page
const RETRY_MS = [1000, 2000, 4000, 8000];
export const PAGE = 1000;
export const FEW = 100; // on the page of a session, which only counts what waits

export class SessionList extends Model {
  #wake = () => {}; // ends the wait for a change
  #hurry = () => {}; // ends the wait after a change
  #due = false;
  #limit = 0;
  #version = "";

  constructor() {
    super();
    this.rows = new Map();
    this.list = [];
    this.agents = [];
    this.total = 0; // of all sessions, including those that the gateway cannot list
    this.most = 0; // how many sessions the gateway can list
    this.loaded = false;
    this.why = ""; // why the list does not come from the fleet
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

  /** Reads at least this many sessions. Those that wait for a person come first. */
  want(count) {
    if (count <= this.#limit) return;
    const has = this.loaded && this.rows.size >= this.most;
    this.#limit = count;
    if (has) return;
    this.loaded &&= this.lost !== null; // what is known stays in view while the gateway is lost
    this.#again();
  }

  get canReadMore() {
    return this.rows.size < this.most;
  }

  more() {
    this.#limit = Math.min(this.#limit + PAGE, this.most);
    this.#again();
  }

  #again() {
    this.#version = "";
    this.nudge();
    this.#hurry();
    this.changed();
  }

  async #run(signal) {
    let tries = 0;
    while (!signal.aborted) {
      this.#due = false;
      try {
        await this.#fetch(signal);
        tries = 0;
        const rested = Date.now() + BUSY_MS;
        if (!this.#due) await this.#pause(this.why ? QUIET_MS : FLEET_MS);
        if (this.#version === "") continue;
        await new Promise((done) => {
          setTimeout(done, Math.max(SETTLE_MS, rested - Date.now()));
          this.#hurry = done;
        });
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
    const limit = this.#limit;
    const query = new URLSearchParams({ since: this.#version, limit });
    const page = await get(`inspector/api/home?${query}`, signal);
    if (limit !== this.#limit) { // more is wanted by now
      this.#due = true;
      return;
    }
    if (page.whole) this.rows.clear();
    for (const row of page.rows) this.rows.set(row.id, row);
    this.#version = page.version;
    this.total = page.total;
    this.most = page.most;
    this.agents = page.agents;
    this.skew = page.now - Date.now();
    const same = this.loaded && this.lost === null && !page.whole && !page.rows.length && page.why === this.why;
    this.why = page.why;
    const agents = JSON.stringify(page.agents);
    if (same && agents === this.shownAgents) return;
    this.shownAgents = agents;
    this.loaded = true;
    this.lost = null;
    this.refused = null;
    if (page.whole || page.rows.length) {
      this.#trim();
      this.list = [...this.rows.values()].sort(byChange);
    }
    this.changed();
  }

  /** Keeps as many rows as are wanted, like the gateway: those that wait, then the newest. */
  #trim() {
    if (this.rows.size <= this.#limit) return;
    const rows = [...this.rows.values()].sort((a, b) => waits(b) - waits(a) || byChange(a, b));
    this.rows = new Map(rows.slice(0, this.#limit).map((row) => [row.id, row]));
  }
}

const byChange = (a, b) => b.updated_at - a.updated_at || (a.id < b.id ? -1 : 1);
const waits = (row) => row.waits.length > 0 || row.failure !== null;

/** Whether a session waits for a person: an approval, a call in doubt, or a failed turn that was
    not set aside. Every count of waiting sessions uses this function. */
export const waitsFor = (row, aside) => waits(row) && !aside.has(row);

/** How many sessions wait for a person. */
export const waitingIn = (list, aside) => list.filter((row) => waitsFor(row, aside)).length;
