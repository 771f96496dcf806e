/** Controls for flipped axes, and for the aspect ratio of cells. */

import { h } from "./dom.js";
import { aspectOf, flipOf, planeOf } from "./tilequery.js";

/** @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store */
export function createOrientation(store) {
  let info = null;
  const chip = (onclick, title) => h("button", { type: "button", class: "chip", title, onclick });
  const sides = [0, 1].map((side) => chip(() => flip(side), "Flip this axis"));
  const square = chip(
    () => store.update({ aspect: aspectOf(store.get(), info) === 1 ? null : 1 }, "aspect"),
    "Square pixels, whatever the size of cells",
  );
  square.textContent = "1:1";
  square.setAttribute("aria-keyshortcuts", "z");
  const element = h("div", { class: "chips", role: "group", "aria-label": "Orientation" }, sides, square);

  function flip(side) {
    const state = store.get();
    const name = planeOf(state, info)[side];
    const now = flipOf(state, info);
    const next = now.includes(name) ? now.filter((other) => other !== name) : [...now, name];
    const natural = flipOf({ ...state, flip: null }, info);
    const same = next.length === natural.length && next.every((axis) => natural.includes(axis));
    store.update({ flip: same ? null : next }, "flip");
  }

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} newInfo */
  function update(state, newInfo) {
    info = newInfo;
    planeOf(state, info).forEach((name, side) => {
      sides[side].textContent = `Flip ${name}`;
      sides[side].setAttribute("aria-pressed", String(flipOf(state, info).includes(name)));
    });
    square.hidden = info.natural.aspect === 1 && state.aspect === null;
    square.setAttribute("aria-pressed", String(aspectOf(state, info) === 1));
  }
  return { element, update };
}
