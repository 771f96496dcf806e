/** Plot below a picture: values of chosen points along another axis, mean and range of a box, or values along a line. */

import { datesOf } from "./dates.js";
import { say } from "./decoded.js";
import { counted, formatNumber, positionOn, unitSign } from "./format.js";
import { h, iconButton, toast } from "./dom.js";
import { COLOURS } from "./marks.js";
import { drawAxes, drawCursor, drawLine, indexOf, scales, together } from "./plotdraw.js";
import { areaSeries, axesBeside, profile, series, summary } from "./samples.js";
import { savePicture, saveText } from "./snapshot.js";
import { planeOf } from "./tilequery.js";

const BINS = 1024; // of one series: as many as a screen shows
export const MOST_POINTS = COLOURS.length;

/** @typedef {{label: string, colour: string, data: import("./plotdraw.js").Bins}} Line */

/** @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store */
export function createMeasure(store) {
  const canvas = h("canvas", { tabindex: 0, role: "img", "data-testid": "series-plot" });
  const legend = h("ul", { class: "measure-legend" });
  const reading = h("output", { class: "measure-reading", "data-testid": "series-reading" });
  const axes = h("select", { "aria-label": "Axis of the plot", onchange: () => store.update({ along: axes.value }, "along") });
  const close = iconButton("close", "Close the plot", () => store.update({ points: [], area: null, line: null }, "clear"));
  const csv = h("button", { type: "button", class: "chip", onclick: () => void saveCsv() }, "CSV");
  const png = h("button", { type: "button", class: "chip", onclick: () => savePng() }, "PNG");
  const head = h("div", { class: "measure-head" }, axes, legend, h("div", { class: "measure-buttons" }, csv, png, close));
  const plot = h("div", { class: "measure-plot" }, canvas);
  const element = h("section", { class: "measure", hidden: true, "aria-label": "Plot of chosen values", "data-testid": "series" }, head, plot, reading);
  let info = null;
  let state = null;
  let asked = "";
  /** @type {Line[]} */
  let lines = [];
  let pointer = null;

  const beside = () => axesBeside(state, info);
  const along = () => beside().find(({ name }) => name === state.along) ?? beside()[0] ?? null;

  /** The question that the state asks, as text. */
  function question() {
    const { points, area, line, component, field, channels } = state;
    const active = channels?.filter((channel) => channel.active).map(({ index }) => index);
    const others = line || area ? state.at : Object.fromEntries(Object.entries(state.at).filter(([name]) => name !== along()?.name));
    return JSON.stringify([info.path, info.version, info.decode, planeOf(state, info), points, area, line, component, field, active, others, along()?.name]);
  }

  /** @param {import("./state.js").State} newState @param {import("./tilequery.js").TileInfo} newInfo */
  function update(newState, newInfo) {
    [state, info] = [newState, newInfo];
    const wanted = !info.images && (state.area || state.line || (state.points.length && along()));
    element.hidden = !wanted;
    if (!wanted) return void (asked = "");
    const names = state.line ? [] : beside().map(({ name }) => name);
    axes.hidden = names.length < 2;
    axes.replaceChildren(...names.map((name) => h("option", { value: name, selected: name === along()?.name }, name)));
    if (question() === asked) return draw();
    void load();
  }

  async function load() {
    const mine = (asked = question());
    element.setAttribute("aria-busy", "true");
    try {
      const made = await linesOf(BINS);
      if (mine !== asked) return;
      lines = made;
      element.setAttribute("aria-busy", "false");
      showLegend();
      draw();
    } catch (problem) {
      if (mine !== asked) return;
      element.setAttribute("aria-busy", "false");
      lines = [];
      showLegend();
      reading.textContent = problem.message;
      draw();
    }
  }

  /** @param {number} [bins] @returns {Promise<Line[]>} */
  async function linesOf(bins) {
    const [vertical, horizontal] = planeOf(state, info);
    if (state.line) {
      const [x0, y0, x1, y1] = state.line;
      const label = `${horizontal} ${x0}, ${vertical} ${y0} to ${horizontal} ${x1}, ${vertical} ${y1}`;
      return [{ label, colour: COLOURS[0], data: await profile(state, info, state.line) }];
    }
    const inside = ([x, y]) => x < sizeOf(horizontal) && y < sizeOf(vertical);
    const points = along() ? state.points.filter(inside) : [];
    const found = await Promise.all(points.map((point) => series(state, info, point, along(), bins)));
    const all = found.map((data, i) => ({
      label: `${horizontal} ${points[i][0]}, ${vertical} ${points[i][1]}`,
      colour: COLOURS[i % COLOURS.length],
      data,
    }));
    if (!state.area) return all;
    const [x0, y0, x1, y1] = state.area;
    const area = [x0, y0, Math.min(x1, sizeOf(horizontal)), Math.min(y1, sizeOf(vertical))];
    if (area[0] >= area[2] || area[1] >= area[3]) return all;
    const data = await areaSeries(state, info, area, along());
    const some = data.every > 1 ? `, every ${data.every}th cell` : "";
    return [...all, { label: `box ${horizontal} ${area[0]}–${area[2] - 1}, ${vertical} ${area[1]}–${area[3] - 1}${some}`, colour: COLOURS.at(-1), data }];
  }

  const sizeOf = (name) => info.axes.find((axis) => axis.name === name).size;

  function showLegend() {
    csv.disabled = png.disabled = !lines.length;
    legend.replaceChildren(
      ...lines.map(({ label, colour }, i) => {
        const dot = h("i", {});
        dot.style.background = colour;
        const remove = () => store.update({ points: state.points.filter((_, place) => place !== i) }, "point");
        const isPoint = !state.line && i < state.points.length;
        return h("li", {}, dot, label, isPoint && iconButton("close", `Remove ${label}`, remove));
      }),
    );
    const whole = lines.at(-1);
    if (whole && (state.area || state.line)) reading.textContent = toldOf(whole);
    else reading.textContent = "";
    canvas.setAttribute("aria-label", `Plot of ${counted(lines.length, "line")} along ${axisName()}`);
  }

  const told = (value) => say(Number.isNaN(value) ? "NaN" : value, { ...info.meaning, dates: false });

  /** Mean and range of a box or a line. */
  function toldOf({ data }) {
    const [low, high] = [summary(data.low).low, summary(data.high).high];
    return `mean ${told(Number(summary(data.mean).mean.toPrecision(7)))}, from ${told(low)} to ${told(high)}`;
  }

  const axisName = () => (state.line ? "the line" : (along()?.name ?? ""));

  /** The length of a step along a line, and its unit. */
  function stepOf() {
    const { apart } = lines[0].data;
    const [vertical, horizontal] = info.natural.steps;
    const [x0, y0, x1, y1] = state.line;
    const known = vertical[0] && horizontal[0] && vertical[1] && vertical[1] === horizontal[1];
    if (!known || !apart) return [apart || 1, "px"];
    return [Math.hypot((x1 - x0) * horizontal[0], (y1 - y0) * vertical[0]) / (lines[0].data.mean.length - 1), unitSign(horizontal[1])];
  }

  /** Where an index lies: a date or a coordinate of the axis, or the distance along a line. */
  function placeOf(index) {
    if (!state.line) return along() ? positionOn(along(), index) : "";
    const [each, unit] = stepOf();
    return `${formatNumber(Number((each * index).toPrecision(4)))} ${unit}`;
  }

  function plane(width, height) {
    const data = lines.length > 1 ? together(lines.map((line) => line.data)) : lines[0].data;
    const last = Math.max((lines[0].data.mean.length * lines[0].data.step) - 1, 1);
    return scales({ width, height, range: [0, last], data, dates: datesOf("") });
  }

  function draw() {
    const { clientWidth: width, clientHeight: height } = plot;
    const ratio = devicePixelRatio || 1;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    if (lines.length && width > 0) paint(context, width, height);
  }

  function paint(context, width, height) {
    const style = getComputedStyle(element);
    const place = plane(width, height);
    const banded = lines.some(({ data }) => data.step > 1) ? " · mean, minimum and maximum" : state.area ? " · mean and range" : "";
    const unit = info.meaning?.unit ?? "";
    drawAxes(context, place, style, { x: axisName() + banded, y: unit, place: placeOf, each: state.line ? stepOf()[0] : 1 });
    for (const { data, colour } of lines) drawLine(context, place, style, data, colour);
    const bin = pointer === null ? null : Math.round((place.index(pointer) + 0.5) / lines[0].data.step - 0.5);
    if (bin === null || bin < 0 || bin >= lines[0].data.mean.length) return;
    for (const { data } of lines) drawCursor(context, place, style, data, bin);
    const index = Math.max(0, Math.round(indexOf(lines[0].data, bin)));
    const where = placeOf(index);
    reading.textContent = `${axisName()} ${index}${where && ` (${where})`}: ${lines.map(({ data }) => told(data.mean[bin])).join(", ")}`;
  }

  const point = (event) => {
    pointer = event.clientX - canvas.getBoundingClientRect().left;
    draw();
  };
  for (const type of ["pointerdown", "pointermove"]) canvas.addEventListener(type, point);
  canvas.addEventListener("pointerleave", ({ pointerType }) => {
    if (pointerType !== "mouse") return; // what a finger has left is read now
    pointer = null;
    showLegend();
    draw();
  });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !lines.length) return;
    event.preventDefault();
    event.stopPropagation();
    const place = plane(plot.clientWidth, plot.clientHeight);
    const index = Math.min(Math.max((pointer === null ? -1 : Math.round(place.index(pointer))) + by, 0), place.last);
    pointer = place.x(index);
    draw();
  });
  new ResizeObserver(() => lines.length && !element.hidden && draw()).observe(plot);

  /** All values, also where the plot shows bins of them. */
  async function saveCsv() {
    try {
      const all = lines.some(({ data }) => data.step > 1) ? await linesOf() : lines;
      const ranged = all.map(({ data }) => data.low !== data.mean);
      const unit = info.meaning?.unit ?? "";
      const titles = all.flatMap(({ label }, i) => (ranged[i] ? [`${label} mean`, `${label} minimum`, `${label} maximum`] : [label]));
      const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
      const head = [axisName() || "index", "place", ...titles.map((title) => (unit ? `${title} (${unit})` : title))];
      const row = (i) => [i, placeOf(i), ...all.flatMap(({ data }, n) => (ranged[n] ? [data.mean[i], data.low[i], data.high[i]] : [data.mean[i]]))];
      const rows = Array.from({ length: all[0].data.mean.length }, (_, i) => row(i));
      saveText([head, ...rows].map((cells) => cells.map((cell) => quoted(String(cell))).join(",")).join("\n") + "\n", `${info.name}-series.csv`, "text/csv");
    } catch (problem) {
      toast(problem.message);
    }
  }

  function savePng() {
    const [width, height] = [Math.max(plot.clientWidth, 640), Math.max(plot.clientHeight, 280)];
    const picture = h("canvas", { width: 2 * width, height: 2 * (height + 20 * lines.length) });
    const context = picture.getContext("2d");
    const style = getComputedStyle(element);
    context.scale(2, 2);
    context.fillStyle = style.getPropertyValue("--surface");
    context.fillRect(0, 0, picture.width, picture.height);
    pointer = null;
    paint(context, width, height);
    context.textAlign = "left";
    lines.forEach(({ label, colour }, i) => {
      const y = height + 20 * i + 8;
      context.fillStyle = colour;
      context.fillRect(64, y - 5, 10, 10);
      context.fillStyle = style.getPropertyValue("--text");
      context.fillText(label, 82, y - 5);
    });
    savePicture(picture, `${info.name}-series.png`);
  }

  return { element, update, redraw: () => !element.hidden && draw() };
}
