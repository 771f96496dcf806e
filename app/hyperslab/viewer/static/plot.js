/** A line plot of a one-dimensional array: wheel or +/- to zoom, drag or arrows to move, hover to read. */

import { values } from "./api.js";
import { clamp, debounce, h, onDrag } from "./dom.js";
import { formatNumber, positionOn } from "./format.js";
import { drawAxes, drawLine, scales } from "./plotdraw.js";

const POINTS = 4000; // values asked for at once; more of them than pixels are thinned by the selection's step
const SHORTEST = 8;

/**
 * @param {{document: any, axis: {name: string, unit: string|null, scale: number}, field: string}} source
 * @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @param {(problem: Error) => void} onproblem
 */
export function createPlot({ document: node, axis, field }, store, onproblem) {
  const size = node.shape[0];
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": `Line plot of ${node.path}` });
  const reading = h("div", { class: "probe", hidden: true, "data-testid": "probe" });
  const note = h("div", { class: "plot-note" });
  const element = h("div", { class: "plot", "data-view": "plot", "aria-busy": "true" }, canvas, reading, note);
  let data = { start: 0, step: 1, values: [] };
  let hover = null;
  let turn = 0;

  const range = () => store.get().range ?? [0, size - 1];
  const whole = () => range()[0] <= 0 && range()[1] >= size - 1;

  async function load() {
    const [first, last] = range();
    const start = clamp(Math.floor(first), 0, size - 1);
    const stop = clamp(Math.ceil(last) + 1, start + 1, size);
    const step = Math.max(1, Math.ceil((stop - start) / POINTS));
    const mine = ++turn;
    element.setAttribute("aria-busy", "true");
    try {
      const answer = await values(node.path, `${start}:${stop}:${step}`, { field });
      if (mine !== turn) return;
      data = { start, step, values: answer.map(numeric) };
      note.textContent = step > 1 ? `every ${step.toLocaleString("en")}th value · zoom in for all` : "";
      draw();
      element.setAttribute("aria-busy", "false");
    } catch (problem) {
      if (mine === turn) onproblem(problem);
    }
  }
  const reload = debounce(60, load);

  function draw() {
    const ratio = devicePixelRatio || 1;
    const { width, height } = element.getBoundingClientRect();
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const plane = scales({ width, height, range: range(), data });
    const style = getComputedStyle(element);
    const unit = node.attributes?.units ?? node.attributes?.unit ?? "";
    drawAxes(context, plane, style, { x: axis.unit ? `${axis.name} (index)` : axis.name, y: typeof unit === "string" ? unit : "" });
    drawLine(context, plane, style, data, hover);
  }

  function setRange(first, last) {
    const length = clamp(last - first, SHORTEST - 1, size - 1);
    const start = clamp(first, 0, Math.max(size - 1 - length, 0));
    const next = [Math.round(start), Math.round(start + length)];
    store.update({ range: next[0] <= 0 && next[1] >= size - 1 ? null : next }, "range");
  }

  function zoom(factor, centre = null) {
    const [first, last] = range();
    const at = centre ?? (first + last) / 2;
    setRange(at - (at - first) * factor, at + (last - at) * factor);
  }

  function move(share) {
    const [first, last] = range();
    setRange(first + share * (last - first), last + share * (last - first));
  }

  function indexAt(clientX) {
    const box = element.getBoundingClientRect();
    const plane = scales({ width: box.width, height: box.height, range: range(), data });
    return plane.index(clientX - box.left);
  }

  function read(event) {
    const near = Math.round((indexAt(event.clientX) - data.start) / data.step);
    const inside = near >= 0 && near < data.values.length;
    hover = inside ? near : null;
    reading.hidden = !inside;
    if (inside) {
      const index = data.start + near * data.step;
      const place = positionOn(axis, index);
      const value = data.values[near];
      reading.replaceChildren(h("span", { class: "probe-where" }, `${axis.name} ${index}${place && ` (${place})`}`), h("output", { class: "probe-what" }, Number.isNaN(value) ? "NaN" : formatNumber(value)));
    }
    draw();
  }

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, indexAt(event.clientX));
  }, { passive: false });
  canvas.addEventListener("dblclick", () => setRange(0, size - 1));
  canvas.addEventListener("pointermove", read);
  canvas.addEventListener("pointerleave", () => {
    hover = null;
    reading.hidden = true;
    draw();
  });
  let grabbed = null;
  onDrag(canvas, (event) => {
    if (grabbed === null) grabbed = indexAt(event.clientX);
    else if (!whole()) {
      const [first, last] = range();
      const by = grabbed - indexAt(event.clientX);
      setRange(first + by, last + by);
    }
  }, () => (grabbed = null));
  const resized = new ResizeObserver(draw);
  resized.observe(element);
  void load();

  /** @param {import("./state.js").State} state @param {import("./state.js").State} before */
  function update(state, before) {
    if (state.range === before.range) return;
    draw();
    reload();
  }
  const select = () => {
    const [first, last] = range();
    return whole() ? "" : `${first}:${last + 1}`;
  };
  return { element, update, select, zoom, move, home: () => setRange(0, size - 1), redraw: draw, close: () => resized.disconnect() };
}

/** Numbers as they are; true is 1; NaN, null and words that are no numbers are gaps. */
function numeric(value) {
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return Number(value);
  if (value === "Infinity" || value === "-Infinity") return Number.NaN;
  if (Array.isArray(value)) return Math.hypot(...value.map(Number)); // complex: its size
  if (typeof value === "string" && Number.isNaN(Number(value))) return Date.parse(value);
  return value === null ? Number.NaN : Number(value);
}
