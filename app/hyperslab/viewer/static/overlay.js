/** Controls for the label image over the picture, and its opacity. */

import { h } from "./dom.js";

/** @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store */
export function createOverlay(store) {
  const chips = h("div", { class: "chips", "aria-keyshortcuts": "l" });
  const opacity = h("input", {
    type: "range",
    min: 0,
    max: 1,
    step: 0.05,
    "aria-label": "Opacity of the labels",
    oninput: () => store.update({ opacity: opacity.valueAsNumber }, "opacity"),
  });
  const text = h("output", { class: "figure" });
  const row = h("label", { class: "field-row" }, h("span", {}, "Opacity"), opacity, text);
  const trouble = h("p", { class: "hint", hidden: true });
  const element = h("div", { class: "overlay-panel" }, chips, row, trouble);
  let known = null;
  let labels = [];

  const choose = (path) => store.update({ overlay: store.get().overlay === path ? "" : path }, "overlay");

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} info */
  function update(state, info) {
    if (info !== known) {
      known = info;
      labels = info.labels ?? [];
      chips.replaceChildren(
        ...labels.map(({ name, path }) =>
          h("button", { type: "button", class: "chip", "data-path": path, onclick: () => choose(path) }, name),
        ),
      );
    }
    for (const chip of chips.children) chip.setAttribute("aria-pressed", String(chip.dataset.path === state.overlay));
    row.hidden = !state.overlay;
    opacity.value = String(state.opacity);
    opacity.style.setProperty("--filled", `${state.opacity * 100}%`);
    text.textContent = `${Math.round(state.opacity * 100)} %`;
  }

  /** Say why the chosen labels are not drawn. @param {string} reason "" is none @returns {boolean} whether it is new */
  function say(reason) {
    const changed = trouble.textContent !== reason;
    trouble.textContent = reason;
    trouble.hidden = !reason;
    return changed;
  }
  return { element, update, say, toggle: () => labels.length && choose(store.get().overlay || labels[0].path) };
}
