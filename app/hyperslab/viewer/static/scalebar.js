/** Scale bar, in the units of the plane's axes, or in pixels. */

import { formatLength, metresIn, niceBelow, unitSign } from "./format.js";
import { planeOf } from "./tilequery.js";
import { h } from "./dom.js";

const LONGEST = 120; // screen pixels
const UNLIKE = 0.02; // steps that differ by less are called the same, as cells are then drawn as squares

export function createScaleBar() {
  const bar = h("div", { class: "scalebar-bar" });
  const text = h("span", { class: "scalebar-text" });
  const element = h("div", { class: "scalebar", role: "img", "data-testid": "scalebar" }, bar, text);

  /** @param {number} scale screen pixels per pixel of the picture */
  function update(state, info, scale) {
    const [vertical, horizontal] = planeOf(state, info).map((name) => info.axes.find((axis) => axis.name === name));
    const { pixels, label } = lengthFor(...[horizontal, vertical].map((axis, i) => along(axis, info, 1 - i)), scale);
    bar.style.width = `${pixels.toFixed(1)}px`;
    text.textContent = label;
    element.setAttribute("aria-label", `Scale: the bar is ${label} long`);
  }
  return { element, update };
}

/** An axis with the length of a pixel by its coordinates; in cells without a unit. */
function along({ name }, info, side) {
  const [size, unit] = info.natural.steps[side];
  const known = size && unit ? { scale: size, unit: unit.replace(/ since .*/, "") } : { scale: 1, unit: null };
  return { name, unit: known.unit, scale: known.scale / info.pixels_per_cell[side] };
}

/** With different lengths of pixels on both axes, the bar shows both. */
function lengthFor(axis, other, scale) {
  const length = niceBelow((LONGEST / scale) * step(axis));
  const pixels = (length / step(axis)) * scale;
  const along = lengthText(axis, length);
  const lengths = [axis, other].map(({ unit }) => metresIn(unit) !== null);
  const comparable = lengths.every(Boolean) || unitSign(axis.unit) === unitSign(other.unit);
  const alike = comparable && Math.abs(step(other) / step(axis) - 1) < UNLIKE;
  if (alike) return { pixels, label: along };
  return { pixels, label: `${axis.name} ${along}, ${other.name} ${lengthText(other, (pixels / scale) * step(other))}` };
}

/** Length of a pixel, in metres if the unit is a length, else in its unit. */
const step = (axis) => (axis.scale || 1) * (metresIn(axis.unit) ?? 1);

function lengthText(axis, length) {
  if (metresIn(axis.unit) !== null) return formatLength(length);
  return `${Number(length.toPrecision(3))} ${axis.unit ? unitSign(axis.unit) : "px"}`;
}
