/** Inspector: the panels beside the data. */

import { attributes, facts, problemList } from "./about.js";
import { h, icon } from "./dom.js";
import { createSnippets } from "./snippets.js";

/** @typedef {{title: string, body: (Node|null)[], action?: Node}} Panel */

/** @param {HTMLElement} host */
export function createInspector(host) {
  const snippets = createSnippets();
  const folded = new Set();

  /** @param {Panel} panel */
  function section({ title, body, action }) {
    const details = h(
      "details",
      { class: "panel", open: !folded.has(title) },
      h("summary", {}, icon("chevron"), h("h2", {}, title)),
      action && h("div", { class: "panel-action" }, action),
      h("div", { class: "panel-body" }, body),
    );
    details.addEventListener("toggle", () => (details.open ? folded.delete(title) : folded.add(title)));
    return details;
  }

  /**
   * @param {{document: any, array: any, info: any, panels: Panel[]}} node `array` is the document
   * whose facts are shown: the finest level of a pyramid
   */
  function open({ document, array, info, panels }) {
    const problems = problemList([...(info?.problems ?? document.decoded?.problems ?? []), ...(document.problems ?? [])]);
    const list = [
      ...panels,
      { title: "Read it", body: [snippets.element] },
      problems && { title: "Problems", body: [problems] },
      array.kind === "array" && { title: "Array", body: [facts(array, info)] },
      document.path && { title: "Attributes", body: [attributes(document.attributes)] },
    ];
    host.replaceChildren(...list.filter(Boolean).map(section));
  }
  return { open, snippets, clear: () => host.replaceChildren() };
}
