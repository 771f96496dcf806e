/** Marks over a picture: points, a box and a line that were chosen, and drawing of the last two. */

import { clamp } from "./dom.js";

export const COLOURS = ["#e8590c", "#1c7ed6", "#2f9e44", "#d6336c", "#7048e8", "#0c8599", "#b08800", "#868e96"];
/** Colours of points in order, each to be told from the others on light and dark ground. */

const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

/**
 * @param {import("./image.js").Picture} picture
 * @param {{area: (area: number[]) => void, line: (line: number[]) => void, ended: () => void}} events a drag has drawn
 */
export function createMarks(picture, events) {
  const element = shape("svg", { class: "marks", "aria-hidden": "true" });
  /** @type {""|"area"|"line"} what a drag draws */
  let mode = "";
  let start = null;
  let drawn = null;
  let state = null;

  /** @param {import("./state.js").State} [newState] */
  function update(newState = state) {
    state = newState;
    element.replaceChildren();
    if (!state || !picture.shown) return;
    const { points, area, line } = { ...state, ...drawn };
    if (area) element.append(box(area));
    if (line) element.append(stroke(line));
    points.forEach(([x, y], i) => {
      const { x: cx, y: cy } = picture.screenAt(x + 0.5, y + 0.5);
      element.append(shape("circle", { cx, cy, r: 6, stroke: COLOURS[i % COLOURS.length] }));
    });
  }

  function box([x0, y0, x1, y1]) {
    const [a, b] = [picture.screenAt(x0, y0), picture.screenAt(x1, y1)];
    const [x, y] = [Math.min(a.x, b.x), Math.min(a.y, b.y)];
    return shape("rect", { x, y, width: Math.abs(a.x - b.x), height: Math.abs(a.y - b.y) });
  }

  function stroke([x0, y0, x1, y1]) {
    const [a, b] = [picture.screenAt(x0 + 0.5, y0 + 0.5), picture.screenAt(x1 + 0.5, y1 + 0.5)];
    return shape("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y });
  }

  /** The cell under the pointer, or the nearest at the edge. */
  function cellAt(event) {
    const { left, top, width, height } = picture.element.getBoundingClientRect();
    const inside = (x, y) => picture.pixelAt(clamp(x, left + 1, left + width - 1), clamp(y, top + 1, top + height - 1));
    return inside(event.clientX, event.clientY);
  }

  function boxOf({ x, y }) {
    const [x0, x1] = [Math.min(start.x, x), Math.max(start.x, x) + 1];
    const [y0, y1] = [Math.min(start.y, y), Math.max(start.y, y) + 1];
    return { area: [x0, y0, x1, y1], line: null };
  }

  function follow(event) {
    const cell = start && cellAt(event);
    if (!cell) return;
    drawn = mode === "area" ? boxOf(cell) : { line: [start.x, start.y, cell.x, cell.y], area: null };
    update();
  }

  picture.element.addEventListener(
    "pointerdown",
    (event) => {
      if (!mode || event.button !== 0) return;
      start = cellAt(event);
      if (start) picture.element.setPointerCapture(event.pointerId);
    },
    { capture: true },
  );
  picture.element.addEventListener("pointermove", follow);
  picture.element.addEventListener("pointercancel", () => {
    [start, drawn] = [null, null];
    update();
  });
  picture.element.addEventListener("pointerup", () => {
    if (!start) return;
    const [done, made] = [mode, drawn?.[mode]];
    [start, drawn] = [null, null];
    setMode("");
    if (made) events[done](made);
    events.ended();
  });

  /** @param {""|"area"|"line"} wanted */
  function setMode(wanted) {
    mode = wanted;
    picture.viewer.setMouseNavEnabled(!mode);
    picture.element.classList.toggle("drawing", Boolean(mode));
  }

  return { element, update, setMode, mode: () => mode };
}
