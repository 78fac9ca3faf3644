// Exports Preact and htm to every module of the page, and connects components to models.

import {
  Component, html, render, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState,
} from "./vendor/htm-preact.js";

export { Component, html, render, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState };

/** An observable value: notifies its listeners, at most once per drawn frame. */
export class Model {
  #listeners = new Set();
  #due = false;
  version = 0; // the number of changes

  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  changed() {
    this.version += 1;
    if (this.#due) return;
    this.#due = true;
    const notify = () => {
      clearTimeout(timer);
      if (!this.#due) return;
      this.#due = false;
      for (const listener of [...this.#listeners]) listener();
    };
    requestAnimationFrame(notify);
    const timer = setTimeout(notify, 1000); // a background page gets no frames, and must not fall behind
  }
}

/** Redraws the component whenever the model changes. */
export function useModel(model) {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    again();
    return model.subscribe(again);
  }, [model]);
  return model;
}

/** A value that is read from a model. Redraws the component only when the value changes. */
export function useValue(model, read) {
  const [, again] = useReducer((count) => count + 1, 0);
  const value = read();
  const drawn = useRef(null);
  drawn.current = { value, read };
  useEffect(() => {
    const look = () => drawn.current.read() === drawn.current.value || again();
    look();
    return model.subscribe(look);
  }, [model]);
  return value;
}

/** A component that redraws only when its props differ, or its own state. */
export function still(draw) {
  return class extends Component {
    shouldComponentUpdate(next, state) {
      if (state !== this.state) return true;
      const differs = (name) => name !== "children" && next[name] !== this.props[name];
      return Object.keys(next).some(differs) || Object.keys(this.props).some(differs);
    }

    render() {
      return draw(this.props);
    }
  };
}
