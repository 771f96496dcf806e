/** Choosing of points, a box or a line of a picture, whose values are plotted: by pointer and by keys. */

import { iconButton } from "./dom.js";
import { MOST_POINTS } from "./measure.js";
import { axesBeside } from "./samples.js";

/**
 * @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @param {import("./image.js").Picture} picture @param {ReturnType<typeof import("./marks.js").createMarks>} marks
 * @param {() => import("./tilequery.js").TileInfo|null} info of what is displayed
 */
export function createPicks(store, picture, marks, info) {
  const drawers = {
    area: iconButton("area", "Mean and range of a box (b)", () => draw("area"), { "aria-keyshortcuts": "b" }),
    line: iconButton("ruler", "Values along a line (k)", () => draw("line"), { "aria-keyshortcuts": "k" }),
  };
  let cell = null; // under the pointer

  function tell() {
    for (const [name, button] of Object.entries(drawers)) button.setAttribute("aria-pressed", String(marks.mode() === name));
  }

  function stop() {
    marks.setMode("");
    tell();
  }

  /** The next drag draws; asked for twice, what is visible is taken. @param {"area"|"line"} what */
  function draw(what) {
    if (!info() || info().images || !picture.shown) return;
    if (marks.mode() !== what) {
      marks.setMode(what);
      return void tell();
    }
    stop();
    const { x, y } = picture.visible();
    const middle = Math.floor((y[0] + y[1] - 1) / 2);
    if (what === "area") store.update({ area: [x[0], y[0], x[1], y[1]], line: null }, "area");
    else store.update({ line: [x[0], middle, x[1] - 1, middle], area: null, points: [] }, "line");
  }

  /** Plot a cell along another axis, or no longer. @param {{x: number, y: number}|null} wanted */
  function plot(wanted) {
    if (!wanted || !info() || info().images || !axesBeside(store.get(), info()).length) return;
    const { points } = store.get();
    const others = points.filter(([x, y]) => x !== wanted.x || y !== wanted.y);
    const next = others.length < points.length ? others : [...others, [wanted.x, wanted.y]].slice(-MOST_POINTS);
    store.update({ points: next, line: null }, "point");
  }

  /** Plot the cell under the pointer, or that in the middle of what is visible. */
  function plotHere() {
    if (!picture.shown) return;
    const { x, y } = picture.visible();
    plot(cell ?? { x: (x[0] + x[1] - 1) >> 1, y: (y[0] + y[1] - 1) >> 1 });
  }

  tell();
  return { buttons: Object.values(drawers), tell, stop, draw, plot, plotHere, point: (at) => (cell = at), cell: () => cell };
}
