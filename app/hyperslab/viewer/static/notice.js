/** Notices in place of the data: loading and problems. */

import { h, icon } from "./dom.js";

/** @param {string} text */
export const loadingState = (text) =>
  h("div", { class: "empty", "aria-busy": "true" }, h("div", { class: "spinner" }), h("p", {}, text));

/**
 * A problem as described by the service.
 * @param {import("./api.js").Problem} problem
 * @param {{title: string, onclick: () => void}[]} [actions]
 */
export function problemState(problem, actions = []) {
  const code = problem.status ? `${problem.status} · ${problem.code}` : problem.code;
  return h(
    "div",
    { class: "empty problem", role: "alert", "data-view": "problem" },
    icon("warning"),
    h("h1", {}, problem.title ?? "Something went wrong"),
    h("p", {}, problem.message),
    code && h("p", { class: "problem-code" }, code),
    h(
      "div",
      { class: "chips" },
      actions.map(({ title, onclick }) => h("button", { type: "button", class: "button", onclick }, title)),
    ),
  );
}

/** A banner over the data for a problem with a part of it, until dismissed or the node changes. */
export function createStrip() {
  const text = h("span", {});
  const element = h(
    "div",
    { class: "strip", role: "alert", hidden: true },
    icon("warning"),
    text,
    h("button", { type: "button", class: "text-button", onclick: () => (element.hidden = true) }, "Dismiss"),
  );
  return {
    element,
    show: (message) => {
      text.textContent = message;
      element.hidden = false;
    },
    hide: () => (element.hidden = true),
  };
}
