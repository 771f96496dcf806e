/** A plot of one line or a few along the longest axis of an array: wheel or +/- to zoom, drag or arrows to move, hover to read. */

import { numbers } from "./api.js";
import { datesOf } from "./dates.js";
import { meaningOf, say, shownDtype } from "./decoded.js";
import { clamp, debounce, h, onDrag } from "./dom.js";
import { positionOn } from "./format.js";
import { COLOURS } from "./marks.js";
import { lastName } from "./nodes.js";
import { drawAxes, drawCursor, drawLegend, drawLine, scales, together } from "./plotdraw.js";
import { savePicture } from "./snapshot.js";

const MAX_BINS = 1 << 16; // of one request
const COLUMNS = 256; // bins are asked for in multiples: not anew for each pixel that the window grows
const SHORTEST = 8;

/**
 * @param {{document: any, info: {axes: import("./tilequery.js").Axis[], decode: "cf"|""}, field: string}} source
 * @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @param {(problem: Error) => void} onproblem
 */
export function createPlot({ document: node, info, field }, store, onproblem) {
  const { decode, axes } = info;
  const long = node.shape.indexOf(Math.max(...node.shape));
  const [axis, size] = [axes[long], node.shape[long]];
  const places = linesOf(node.shape, long);
  const selectOf = (range, place) => place.map((at, i) => (i === long ? range : at)).join(",");
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": `Line plot of ${node.path}` });
  const reading = h("div", { class: "probe", hidden: true, "data-testid": "probe" });
  const element = h("div", { class: "plot", "data-view": "plot", "aria-busy": "true" }, canvas, reading);
  const meaning = meaningOf(node, field, decode);
  const dates = datesOf(shownDtype(node, field, decode));
  /** @type {import("./plotdraw.js").Bins} the least and the largest of all lines */
  let data = { start: 0, step: 1, low: [], high: [], mean: [] };
  /** @type {{label: string, colour: string|undefined, data: import("./plotdraw.js").Bins}[]} */
  let lines = [];
  /** @type {number|null} where the pointer is, in pixels of the page: what lies under it changes with the range */
  let pointer = null;
  let asked = "";

  function range() {
    const [first, last] = store.get().range ?? [0, size - 1];
    return first < size - 1 ? [first, Math.min(last, size - 1)] : [0, size - 1];
  }
  const whole = () => range()[0] <= 0 && range()[1] >= size - 1;

  async function load() {
    const columns = Math.ceil(element.clientWidth / COLUMNS) * COLUMNS;
    const { start, stop, bins } = wantedOf(range(), size, columns);
    const step = (stop - start) / bins;
    const mine = `${start}:${stop}/${bins}`;
    if (mine === asked || covers(data, range(), step)) return;
    asked = mine;
    element.setAttribute("aria-busy", "true");
    try {
      const all = await Promise.all(
        places.map((place) => numbers(node.path, selectOf(`${start}:${stop}`, place), { field, decode, bins })),
      );
      if (mine !== asked) return;
      lines = all.map((triples, i) => {
        const part = (which) => triples.filter((_, each) => each % 3 === which);
        const colour = places.length > 1 ? COLOURS[i % COLOURS.length] : undefined;
        const mean = part(2); // of one value each: there is no range
        return { label: labelOf(places[i]), colour, data: { start, step, low: step > 1 ? part(0) : mean, high: step > 1 ? part(1) : mean, mean } };
      });
      data = lines.length > 1 ? together(lines.map((line) => line.data)) : lines[0].data;
      draw();
      element.setAttribute("aria-busy", "false");
    } catch (problem) {
      if (mine !== asked) return;
      asked = ""; // so that it is asked for again
      element.setAttribute("aria-busy", "false");
      onproblem(problem);
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
    const banded = data.step > 1 ? " · mean, minimum and maximum" : "";
    drawAxes(context, place, style, { x: axis.name + banded, y: meaning.unit });
    for (const line of lines) drawLine(context, place, style, line.data, line.colour);
    if (lines.length > 1) drawLegend(context, place, style, lines);
    const bin = binAt(pointer);
    read(bin);
    if (bin === null) return;
    for (const line of lines) drawCursor(context, place, style, line.data, bin);
  }

  function savePlot() {
    draw();
    const picture = h("canvas", { width: canvas.width, height: canvas.height });
    const context = picture.getContext("2d");
    context.fillStyle = getComputedStyle(element).backgroundColor;
    context.fillRect(0, 0, picture.width, picture.height);
    context.drawImage(canvas, 0, 0);
    savePicture(picture, `${lastName(node.path)}.png`);
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

  /** What lies under the pointer, null where nothing does. */
  function binAt(clientX) {
    if (clientX === null) return null;
    const near = Math.round((indexAt(clientX) + 0.5 - data.start) / data.step - 0.5);
    return near >= 0 && near < data.mean.length ? near : null;
  }

  function read(bin) {
    reading.hidden = bin === null;
    if (bin === null) return;
    reading.replaceChildren(
      h("span", { class: "probe-where" }, whereText(bin)),
      h("output", { class: "probe-what" }, lines.map((line) => whatText(line, bin))),
    );
  }

  function whereText(bin) {
    const begin = (n) => Math.floor(data.start + n * data.step + 1e-9);
    const [first, last] = [begin(bin), begin(bin + 1) - 1];
    const place = positionOn(axis, first);
    return `${axis.name} ${first}${last > first ? `–${last}` : ""}${place && ` (${place})`}`;
  }

  function whatText({ label, data: own }, bin) {
    const [low, high, mean] = [own.low[bin], own.high[bin], own.mean[bin]];
    const text = low < high ? `${said(mean)} (${said(low, "")} to ${said(high, "")})` : said(mean);
    return label ? h("span", { class: "probe-channel" }, h("i", {}, label), text) : text;
  }

  /** What tells a line from the others: its places on the other axes. */
  function labelOf(place) {
    const others = axes.map((each, i) => i !== long && each.size > 1 && `${each.name} ${positionOn(each, place[i]) || place[i]}`);
    return others.filter(Boolean).join(", ");
  }

  const said = (value, unit = meaning.unit) => (dates ? dates.text(value) : say(value, { ...meaning, unit }));

  function hover(clientX) {
    pointer = clientX;
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
  for (const type of ["pointerdown", "pointermove"]) canvas.addEventListener(type, (event) => hover(event.clientX));
  canvas.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && hover(null)); // what a finger has left is read now
  let grabbed = null;
  onDrag(canvas, (event) => {
    if (event.type === "pointerdown") grabbed = indexAt(event.clientX);
    else if (!whole()) {
      const [first, last] = range();
      const by = grabbed - indexAt(event.clientX);
      setRange(first + by, last + by);
    }
  });
  const resized = new ResizeObserver(() => {
    draw();
    void load();
  });
  resized.observe(element);

  /** @param {import("./state.js").State} state @param {import("./state.js").State|null} before */
  function update(state, before) {
    if (!before || String(state.range) === String(before.range)) return;
    draw();
    reload();
  }
  function select() {
    const [first, last] = range();
    return whole() ? "" : selectOf(`${first}:${last + 1}`, node.shape.map(() => ":"));
  }
  return {
    element,
    update,
    select,
    zoom,
    move,
    home: () => setRange(0, size - 1),
    redraw: draw,
    named: () => {
      for (const [i, line] of lines.entries()) line.label = labelOf(places[i]);
      draw();
    },
    savePng: savePlot,
    close: () => (resized.disconnect(), reload.cancel()),
  };
}

/** The range to request: the visible part and as much on either side, in bins for the visible part. */
function wantedOf([first, last], size, columns) {
  const margin = last - first;
  const start = clamp(Math.floor(first - margin), 0, size - 1);
  const stop = clamp(Math.ceil(last + margin) + 1, start + 1, size);
  const fine = Math.ceil((Math.max(columns, COLUMNS) * (stop - start)) / (last - first + 1));
  return { start, stop, bins: Math.min(stop - start, fine, MAX_BINS) };
}

/** Whether the visible part is loaded, at least as fine. */
function covers({ start, step, mean }, [first, last], wanted) {
  return mean.length > 0 && step <= wanted * 1.001 && start <= first && start + mean.length * step > last;
}

/** The indices of each line on all axes. @param {number[]} shape @param {number} long the axis of the lines */
const linesOf = (shape, long) =>
  shape.reduce((all, size, axis) => all.flatMap((place) => Array.from({ length: axis === long ? 1 : size }, (_, i) => [...place, i])), [[]]);
