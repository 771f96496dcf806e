/** A bar of a round length, from the units of the plane's axes; pixels where they have none. */

import { formatLength, metresIn, niceBelow, unitSign } from "./format.js";
import { planeOf } from "./tilequery.js";
import { h } from "./dom.js";

const LONGEST = 120; // screen pixels

export function createScaleBar() {
  const bar = h("div", { class: "scalebar-bar" });
  const text = h("span", { class: "scalebar-text" });
  const element = h("div", { class: "scalebar", role: "img", "data-testid": "scalebar" }, bar, text);

  /** @param {number} scale screen pixels per pixel of the picture */
  function update(state, info, scale) {
    const horizontal = info.axes.find((axis) => axis.name === planeOf(state, info)[1]);
    const { pixels, label } = lengthFor(horizontal, scale);
    bar.style.width = `${pixels.toFixed(1)}px`;
    text.textContent = label;
    element.setAttribute("aria-label", `Scale: the bar is ${label} long`);
  }
  return { element, update };
}

function lengthFor(axis, scale) {
  const perPixel = (axis.scale || 1) * (metresIn(axis.unit) ?? 1);
  const length = niceBelow((LONGEST / scale) * perPixel);
  const pixels = (length / perPixel) * scale;
  if (metresIn(axis.unit) !== null) return { pixels, label: formatLength(length) };
  return { pixels, label: `${Number(length.toPrecision(4))} ${axis.unit ? unitSign(axis.unit) : "px"}` };
}
