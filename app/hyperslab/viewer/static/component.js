/** Controls for the component of complex values, for drawing integers as labels, and channels as red, green and blue. */

import { h } from "./dom.js";
import { channelsOf, isRgb, RGB } from "./tilequery.js";

const COMPONENTS = { abs: "Magnitude", real: "Real", imag: "Imaginary", phase: "Phase" };

/** @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store */
export function createComponent(store) {
  const chip = (text, onclick, name = "") =>
    h("button", { type: "button", class: "chip", "data-component": name, onclick }, text);
  const choose = (name) => store.update({ component: name === "abs" ? "" : name, channels: null }, "component");
  const parts = Object.entries(COMPONENTS).map(([name, text]) => chip(text, () => choose(name), name));
  const labels = chip("As labels", () => store.update({ labels: !store.get().labels }, "as labels"));
  const rgb = chip("RGB", () => switchColours());
  rgb.title = "Channels as red, green and blue";
  const element = h("div", { class: "chips", role: "group", "aria-label": "Component and labels" }, parts, labels, rgb);
  let known = null;

  /** The first three channels as a photograph, or as the node describes them; a photograph's first one in grey. */
  function switchColours() {
    const channels = channelsOf(store.get(), known);
    const on = isRgb(channels);
    const own = known.rgb ? channels.map((c) => ({ ...c, active: c.index === 0, color: "FFFFFF" })) : null;
    const mixed = channels.map((c) => ({ ...c, active: c.index < 3, color: RGB[c.index] ?? c.color }));
    const plain = known.rgb ? null : mixed;
    store.update({ channels: on ? own : plain, colormap: "", labels: false }, "rgb");
  }

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} info */
  function update(state, info) {
    const complex = /^[<>|]?c\d/.test(info.dtype);
    for (const part of parts) {
      part.hidden = !complex;
      part.setAttribute("aria-pressed", String(part.dataset.component === (state.component || "abs")));
    }
    known = info;
    labels.hidden = !/^[<>|]?[iub]\d/.test(info.dtype) || info.rgb;
    labels.setAttribute("aria-pressed", String(state.labels));
    rgb.hidden = ![3, 4].includes(info.axes.find(({ name }) => name === info.channel_axis)?.size);
    rgb.setAttribute("aria-pressed", String(!rgb.hidden && isRgb(channelsOf(state, info))));
    element.hidden = labels.hidden && rgb.hidden && !complex;
  }
  return { element, update };
}
