// What every module of the page draws with: Preact and htm, and a component's view of a model.

import {
  Component, html, render, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState,
} from "./vendor/htm-preact.js";

export { Component, html, render, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState };

/** A thing that changes and tells who listens, at most once per drawn frame. */
export class Model {
  #listeners = new Set();
  #due = false;

  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  changed() {
    if (this.#due) return;
    this.#due = true;
    const tell = () => {
      if (!this.#due) return;
      this.#due = false;
      for (const listener of [...this.#listeners]) listener();
    };
    // A page in the background is given no frames, and must not fall behind.
    requestAnimationFrame(tell);
    setTimeout(tell, 100);
  }
}

/** Draw again whenever the model changes. */
export function useModel(model) {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    again();
    return model.subscribe(again);
  }, [model]);
  return model;
}

/** A component that draws again only when its props differ. */
export function still(draw) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const names = new Set([...Object.keys(next), ...Object.keys(this.props)]);
      return [...names].some((name) => name !== "children" && next[name] !== this.props[name]);
    }

    render() {
      return draw(this.props);
    }
  };
}
