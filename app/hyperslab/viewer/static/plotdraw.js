/** Drawing of line plots on a canvas. */

import { formatNumber, niceBelow } from "./format.js";

const LEFT = 64;
const LEFT_OF_DATES = 140;
const RIGHT = 20;
const TOP = 20;
const BOTTOM = 44;
const ALONE = 1.4; // pixels
const BAND = 0.55; // opacity

/**
 * @typedef {object} Bins minimum, maximum and mean of `step` values each, from the index `start` on
 * @property {number} start @property {number} step
 * @property {ArrayLike<number>} low @property {ArrayLike<number>} high @property {ArrayLike<number>} mean
 */

/** The array index of a bin's centre. @param {Bins} data @param {number} bin */
export const indexOf = ({ start, step }, bin) => start + (bin + 0.5) * step - 0.5;

/**
 * Scales of indices and values on the canvas. `dates`: interpretation of values that are dates.
 * @param {{width: number, height: number, range: [number, number], data: Bins, dates: import("./dates.js").Dates|null}} facts
 */
export function scales({ width, height, range: [first, last], data, dates }) {
  const { low, high } = widened(extent(data, first, last));
  const left = dates ? LEFT_OF_DATES : LEFT;
  const wide = Math.max(width - left - RIGHT, 1);
  const tall = Math.max(height - TOP - BOTTOM, 1);
  const span = last - first || 1;
  return {
    width,
    height,
    left,
    dates,
    first,
    last,
    low,
    high,
    x: (index) => left + ((index - first) / span) * wide,
    y: (value) => TOP + (1 - (value / 2 - low / 2) / (high / 2 - low / 2)) * tall,
    index: (x) => first + ((x - left) / wide) * span,
  };
}

/** First and last bin of a range of indices, with one more on either side. */
function places({ start, step, mean }, first, last) {
  return [
    Math.max(Math.floor((first - start) / step) - 1, 0),
    Math.min(Math.ceil((last - start) / step), mean.length - 1),
  ];
}

function extent(data, first, last) {
  let [low, high] = [Infinity, -Infinity];
  const [from, to] = places(data, first, last);
  for (let i = from; i <= to; i += 1) {
    if (data.low[i] < low && data.low[i] > -Infinity) low = data.low[i];
    if (data.high[i] > high && data.high[i] < Infinity) high = data.high[i];
  }
  return { low, high };
}

/** The range of values with margins, also for one value or none. Differences may overflow. */
function widened({ low, high }) {
  if (low > high) return { low: -0.06, high: 1.06 };
  const margin = low < high ? (high / 2 - low / 2) * 0.12 : Math.max(1, Math.abs(low) * 1e-6);
  return { low: Math.max(low - margin, -Number.MAX_VALUE), high: Math.min(high + margin, Number.MAX_VALUE) };
}

function ticks(low, high, about) {
  const step = Math.max(niceBelow(high / about - low / about) || 1, Number.MIN_VALUE);
  const start = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor(high / step - start / step + 1e-9) + 1 }, (_, i) =>
    Number((start + i * step).toPrecision(12)),
  );
}

/** Ticks of the vertical axis, with text. */
function marks({ low, high, dates, height }) {
  const about = Math.min(6, Math.max(2, Math.floor((height - TOP - BOTTOM) / 34)));
  if (!dates) return ticks(low, high, about).map((value) => [value, formatNumber(value)]);
  const values = dates.ticks(low, high, about);
  return values.map((value) => [value, dates.text(value, values[1] - values[0])]);
}

/** Draw grid, ticks and names of both axes; `names.place`: text of an index, in place of its number, `names.each`: what an index is long, for round ticks. */
export function drawAxes(context, plane, style, { each = 1, ...names }) {
  context.font = `12px ${style.fontFamily}`;
  context.fillStyle = style.getPropertyValue("--muted");
  context.strokeStyle = style.getPropertyValue("--line");
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const [value, text] of marks(plane)) {
    const y = Math.round(plane.y(value)) + 0.5;
    line(context, plane.left, y, plane.width - RIGHT, y);
    context.fillText(text, plane.left - 10, y);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  let free = -Infinity; // where the next number may begin
  for (const at of ticks(plane.first * each, plane.last * each, Math.max(2, Math.floor(plane.width / 130)))) {
    const index = at / each;
    const x = Math.round(plane.x(index)) + 0.5;
    line(context, x, plane.height - BOTTOM, x, plane.height - BOTTOM + 5);
    const text = names.place?.(index) || index.toLocaleString("en");
    const half = context.measureText(text).width / 2;
    if (x - half < free) continue;
    context.fillText(text, x, plane.height - BOTTOM + 9);
    free = x + half + 8;
  }
  context.fillText(names.x, plane.left + (plane.width - plane.left - RIGHT) / 2, plane.height - 16);
  context.textAlign = "left";
  if (names.y) context.fillText(names.y, plane.left + 6, TOP - 12);
}

/** Draw the names of lines, each in its colour, at the top right. @param {{label: string, colour: string}[]} lines */
export function drawLegend(context, plane, style, lines) {
  context.textAlign = "right";
  context.textBaseline = "middle";
  let right = plane.width - RIGHT;
  for (const { label, colour } of lines.toReversed()) {
    context.fillStyle = style.getPropertyValue("--text");
    context.fillText(label, right, TOP / 2);
    right -= context.measureText(label).width + 12;
    context.fillStyle = colour;
    context.fillRect(right, TOP / 2 - 4, 8, 8);
    right -= 14;
  }
}

/** The least and the largest of several lines with the same bins, for scales that hold all of them. @param {Bins[]} all */
export function together(all) {
  const at = (choose, member) => all[0].mean.map?.((_, i) => choose(...all.map((data) => data[member][i]).filter((v) => !Number.isNaN(v))));
  return { ...all[0], low: at(Math.min, "low"), high: at(Math.max, "high") };
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** Draw means as a line with gaps for missing values, over a band from minima to maxima; with points if there are few. */
export function drawLine(context, plane, style, data, colour = style.getPropertyValue("--accent")) {
  const [from, to] = places(data, plane.first, plane.last);
  context.save();
  context.beginPath();
  context.rect(plane.left - 2, 0, plane.width - plane.left - RIGHT + 4, plane.height - BOTTOM);
  context.clip();
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 1.4;
  context.lineJoin = "round";
  const apart = plane.x(data.step) - plane.x(0);
  if (data.low !== data.mean) fillBand(context, plane, data, from, to);
  context.beginPath();
  traceLine(context, plane, data, from, to);
  context.stroke();
  if (apart > 9 && data.step === 1) eachPoint(plane, data, from, to, (x, y) => dot(context, x, y, 2.5));
  context.restore();
}

function eachPoint(plane, data, from, to, draw) {
  for (let i = from; i <= to; i += 1) {
    if (Number.isFinite(data.mean[i])) draw(plane.x(indexOf(data, i)), plane.y(data.mean[i]));
  }
}

/** Draw a value between two gaps as a short line. */
function traceLine(context, plane, data, from, to) {
  let gap = true;
  for (let i = from; i <= to; i += 1) {
    const finite = Number.isFinite(data.mean[i]);
    if (finite) {
      const [x, y] = [plane.x(indexOf(data, i)), plane.y(data.mean[i])];
      const alone = gap && !Number.isFinite(data.mean[i + 1]);
      context[gap ? "moveTo" : "lineTo"](alone ? x - ALONE / 2 : x, y);
      if (alone) context.lineTo(x + ALONE / 2, y);
    }
    gap = !finite;
  }
}

/** Draw minimum to maximum of each bin, in whole columns of pixels, so that no peak is lost. */
function fillBand(context, plane, data, from, to) {
  context.save();
  context.globalAlpha = BAND;
  context.beginPath();
  for (let i = from; i <= to; i += 1) {
    if (Number.isNaN(data.low[i])) continue;
    const [left, right] = [i - 0.5, i + 0.5].map((edge) => Math.round(plane.x(indexOf(data, edge))));
    const [top, bottom] = [plane.y(data.high[i]), plane.y(data.low[i])];
    context.rect(left, top, Math.max(right - left, 1), Math.max(bottom - top, 1));
  }
  context.fill();
  context.restore();
}

/** Draw a cursor at a value. */
export function drawCursor(context, plane, style, data, place) {
  const x = plane.x(indexOf(data, place));
  if (x < plane.left - 1 || x > plane.width - RIGHT + 1) return;
  context.strokeStyle = style.getPropertyValue("--strong-line");
  line(context, Math.round(x) + 0.5, TOP, Math.round(x) + 0.5, plane.height - BOTTOM);
  context.fillStyle = style.getPropertyValue("--text");
  if (Number.isFinite(data.mean[place])) dot(context, x, plane.y(data.mean[place]), 4);
}

function dot(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, Math.PI * 2);
  context.fill();
}

/** Draw the whole line on a card. */
export function drawSpark(canvas, values) {
  const { width, height } = canvas;
  const data = { start: 0, step: 1, low: values, high: values, mean: values };
  const { low, high } = extent(data, 0, values.length - 1);
  const context = canvas.getContext("2d");
  const x = (i) => 28 + (i / Math.max(values.length - 1, 1)) * (width - 56);
  const y = (value) => 36 + (1 - (value - low) / (high - low || 1)) * (height - 72);
  context.strokeStyle = getComputedStyle(canvas).getPropertyValue("--accent");
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.beginPath();
  traceLine(context, { x, y }, data, 0, values.length - 1);
  context.stroke();
}
