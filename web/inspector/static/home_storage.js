// What this browser keeps for the home page: failed turns that were set aside, saved filters, columns.

import { Model } from "./lib.js";

/** The storage key of failed turns that were set aside in this browser: {session: turn}. */
const ASIDE = "foldlog.aside";

export class Aside extends Model {
  constructor() {
    super();
    this.turns = read(ASIDE, {});
    addEventListener("storage", ({ key }) => { // another tab set a turn aside
      if (key !== ASIDE) return;
      this.turns = read(ASIDE, {});
      this.changed();
    });
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

/** The storage key of the columns that were hidden or added: {name: shown}. */
const COLUMNS = "foldlog.columns";

/** Which columns of the table of sessions are shown. */
export class Columns extends Model {
  constructor() {
    super();
    this.#chosen = read(COLUMNS, {});
  }

  #chosen;

  has({ name, extra }) {
    return this.#chosen[name] ?? !extra;
  }

  set({ name }, shown) {
    this.#chosen = { ...this.#chosen, [name]: shown };
    write(COLUMNS, this.#chosen);
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
