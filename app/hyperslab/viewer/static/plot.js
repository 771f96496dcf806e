/** A line plot of a one-dimensional array: wheel or +/- to zoom, drag or arrows to move, hover to read. */

import { numbers } from "./api.js";
import { dtypeOf, isComplex, unitOf } from "./arrays.js";
import { datesOf } from "./dates.js";
import { clamp, debounce, h, onDrag } from "./dom.js";
import { formatNumber, positionOn } from "./format.js";
import { drawAxes, drawCursor, drawLine, scales } from "./plotdraw.js";

const POINTS = 1 << 18; // values asked for at once; of more than these, every n-th
const SHORTEST = 8;

/**
 * @param {{document: any, axis: import("./tilequery.js").Axis, field: string}} source
 * @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @param {(problem: Error) => void} onproblem
 */
export function createPlot({ document: node, axis, field }, store, onproblem) {
  const size = node.shape[0];
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": `Line plot of ${node.path}` });
  const reading = h("div", { class: "probe", hidden: true, "data-testid": "probe" });
  const element = h("div", { class: "plot", "data-view": "plot", "aria-busy": "true" }, canvas, reading);
  const unit = unitOf(node, field);
  const complex = isComplex(node, field);
  const dates = datesOf(dtypeOf(node, field));
  let data = { start: 0, step: 1, values: new Float64Array() };
  /** @type {number|null} where the pointer is, in pixels of the page: what lies under it changes with the range */
  let pointer = null;
  let turn = 0;

  function range() {
    const [first, last] = store.get().range ?? [0, size - 1];
    return first < size - 1 ? [first, Math.min(last, size - 1)] : [0, size - 1];
  }
  const whole = () => range()[0] <= 0 && range()[1] >= size - 1;

  async function load() {
    const wanted = wantedOf(range(), size);
    if (covers(data, range(), wanted.step)) return;
    const mine = ++turn;
    element.setAttribute("aria-busy", "true");
    try {
      const values = await numbers(node.path, `${wanted.start}:${wanted.stop}:${wanted.step}`, { field, complex });
      if (mine !== turn) return;
      data = { start: wanted.start, step: wanted.step, values: perRow(values, wanted) };
      draw();
      element.setAttribute("aria-busy", "false");
    } catch (problem) {
      if (mine === turn) onproblem(problem);
    }
  }
  const reload = debounce(60, load);

  const plane = () => {
    const { width, height } = element.getBoundingClientRect();
    return scales({ width, height, range: range(), data, dates });
  };

  function draw() {
    const ratio = devicePixelRatio || 1;
    const place = plane();
    canvas.width = Math.round(place.width * ratio);
    canvas.height = Math.round(place.height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(element);
    const thinned = data.step > 1 ? ` · every ${ordinal(data.step)} value` : "";
    drawAxes(context, place, style, { x: axis.name + thinned, y: unit });
    drawLine(context, place, style, data);
    const near = underPointer();
    read(near);
    if (near !== null) drawCursor(context, place, style, data, near);
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

  const indexAt = (clientX) => plane().index(clientX - element.getBoundingClientRect().left);

  function underPointer() {
    const near = pointer === null ? -1 : Math.round((indexAt(pointer) - data.start) / data.step);
    return near >= 0 && near < data.values.length ? near : null;
  }

  function read(near) {
    reading.hidden = near === null;
    if (near === null) return;
    const index = data.start + near * data.step;
    const place = positionOn(axis, index);
    const where = `${axis.name} ${index}${place && ` (${place})`}`;
    reading.replaceChildren(
      h("span", { class: "probe-where" }, where),
      h("output", { class: "probe-what" }, said(data.values[near])),
    );
  }

  const said = (value) => (dates ? dates.text(value) : `${formatNumber(value)} ${unit}`);

  function point(event) {
    pointer = event.type === "pointerleave" ? null : event.clientX;
    draw();
  }

  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, indexAt(event.clientX));
    },
    { passive: false },
  );
  canvas.addEventListener("dblclick", () => setRange(0, size - 1));
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerleave", point);
  let grabbed = null;
  onDrag(canvas, (event) => {
    if (event.type === "pointerdown") grabbed = indexAt(event.clientX);
    else if (!whole()) {
      const [first, last] = range();
      const by = grabbed - indexAt(event.clientX);
      setRange(first + by, last + by);
    }
  });
  const resized = new ResizeObserver(draw);
  resized.observe(element);
  void load();

  /** @param {import("./state.js").State} state @param {import("./state.js").State|null} before */
  function update(state, before) {
    if (!before || String(state.range) === String(before.range)) return;
    draw();
    reload();
  }
  function select() {
    const [first, last] = range();
    return whole() ? "" : `${first}:${last + 1}`;
  }
  return {
    element,
    update,
    select,
    zoom,
    move,
    home: () => setRange(0, size - 1),
    redraw: draw,
    close: () => resized.disconnect(),
  };
}

/** What to ask for: the visible part and as much again to either side, thinned by a step where it is long. */
function wantedOf([first, last], size) {
  const margin = last - first;
  const start = clamp(Math.floor(first - margin), 0, size - 1);
  const stop = clamp(Math.ceil(last + margin) + 1, start + 1, size);
  return { start, stop, step: Math.max(1, Math.ceil((stop - start) / POINTS)) };
}

/** Is all that is visible there already, at least as fine? */
function covers({ start, step, values }, [first, last], wanted) {
  return values.length > 0 && step <= wanted && start <= first && start + values.length * step > last;
}

/** One number for each index: complex values and vectors become their length. */
function perRow(values, { start, stop, step }) {
  const rows = Math.ceil((stop - start) / step);
  const width = Math.max(1, Math.round(values.length / rows));
  if (width === 1) return values;
  return Float64Array.from({ length: rows }, (_, i) => Math.hypot(...values.subarray(i * width, (i + 1) * width)));
}

function ordinal(n) {
  const ending = { 1: "st", 2: "nd", 3: "rd" }[n % 10];
  return `${n.toLocaleString("en")}${n % 100 > 10 && n % 100 < 14 ? "th" : (ending ?? "th")}`;
}
