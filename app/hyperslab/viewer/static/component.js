/** Controls for the component of complex values, and for drawing integers as labels. */

import { h } from "./dom.js";

const COMPONENTS = { abs: "Magnitude", real: "Real", imag: "Imaginary", phase: "Phase" };

/** @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store */
export function createComponent(store) {
  const chip = (text, onclick, name = "") =>
    h("button", { type: "button", class: "chip", "data-component": name, onclick }, text);
  const choose = (name) => store.update({ component: name === "abs" ? "" : name, channels: null }, "component");
  const parts = Object.entries(COMPONENTS).map(([name, text]) => chip(text, () => choose(name), name));
  const labels = chip("As labels", () => store.update({ labels: !store.get().labels }, "as labels"));
  const element = h("div", { class: "chips", role: "group", "aria-label": "Component and labels" }, parts, labels);

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} info */
  function update(state, info) {
    const complex = /^[<>|]?c\d/.test(info.dtype);
    for (const part of parts) {
      part.hidden = !complex;
      part.setAttribute("aria-pressed", String(part.dataset.component === (state.component || "abs")));
    }
    labels.hidden = !/^[<>|]?[iub]\d/.test(info.dtype);
    labels.setAttribute("aria-pressed", String(state.labels));
    element.hidden = labels.hidden && !complex;
  }
  return { element, update };
}
