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
    const [vertical, horizontal] = planeOf(state, info).map((name) => info.axes.find((axis) => axis.name === name));
    const { pixels, label } = lengthFor(horizontal, vertical, scale);
    bar.style.width = `${pixels.toFixed(1)}px`;
    text.textContent = label;
    element.setAttribute("aria-label", `Scale: the bar is ${label} long`);
  }
  return { element, update };
}

/** Where the two axes have steps of unlike lengths, the bar says how long it is along either. */
function lengthFor(axis, other, scale) {
  const length = niceBelow((LONGEST / scale) * step(axis));
  const pixels = (length / step(axis)) * scale;
  const along = lengthText(axis, length);
  const alike =
    Math.abs(step(other) / step(axis) - 1) < 0.01 && (metresIn(axis.unit) !== null) === (metresIn(other.unit) !== null);
  if (alike) return { pixels, label: along };
  return { pixels, label: `${axis.name} ${along}, ${other.name} ${lengthText(other, (pixels / scale) * step(other))}` };
}

/** Length of one pixel: in metres where the unit is a length, else in whatever unit there is. */
const step = (axis) => (axis.scale || 1) * (metresIn(axis.unit) ?? 1);

function lengthText(axis, length) {
  if (metresIn(axis.unit) !== null) return formatLength(length);
  return `${Number(length.toPrecision(3))} ${axis.unit ? unitSign(axis.unit) : "px"}`;
}
