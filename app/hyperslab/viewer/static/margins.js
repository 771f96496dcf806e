/** Names of a plate's rows and columns, at the edges of the picture. */

import { h } from "./dom.js";

const APART = 18; // screen pixels: of names that would be closer than that, only every so manieth is shown
const BESIDE = 24; // screen pixels from the edge of the picture to the names that stand beside it
const INSIDE = 4; // from the edge of the screen, where that is nearer

export function createMargins() {
  const element = h("div", { class: "margins", hidden: true });
  let known = null;
  let [rows, columns] = [[], []];

  /** @param {import("./tilequery.js").TileInfo} info @param {import("./image.js").Picture} picture */
  function update(info, picture) {
    if (info !== known) {
      known = info;
      rows = (info.rows ?? []).map(({ name }) => h("span", { class: "margin-row" }, name));
      columns = (info.columns ?? []).map(({ name }) => h("span", { class: "margin-column" }, name));
      element.replaceChildren(...rows, ...columns);
    }
    element.hidden = !element.children.length || !picture.shown;
    if (element.hidden) return;
    const [{ width, height }] = info.images;
    const down = info.rows.map(({ y }) => picture.screenAt(0, y + height / 2).y);
    const across = info.columns.map(({ x }) => picture.screenAt(x + width / 2, 0).x);
    const { left, top } = picture.bounds.style;
    lay(rows, down, element.clientHeight, (at) => [Math.max(parseFloat(left) - BESIDE, INSIDE), at]);
    lay(columns, across, element.clientWidth, (at) => [at, Math.max(parseFloat(top) - BESIDE, INSIDE)]);
  }
  return { element, update };
}

function lay(names, places, end, pointAt) {
  const each = Math.max(1, Math.ceil(APART / Math.abs((places.at(-1) - places[0]) / Math.max(names.length - 1, 1) || APART)));
  for (const [i, name] of names.entries()) {
    name.hidden = i % each !== 0 || places[i] < 0 || places[i] > end;
    const [x, y] = pointAt(places[i]);
    name.style.transform = `translate(${x}px, ${y}px)`;
  }
}
