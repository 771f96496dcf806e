/** Drawing of line plots on a canvas. */

import { formatNumber, niceBelow } from "./format.js";

const LEFT = 64;
const RIGHT = 20;
const TOP = 20;
const BOTTOM = 44;

/**
 * Where indices and values lie on the canvas.
 * @param {{width: number, height: number, range: [number, number], data: {start: number, step: number, values: number[]}}} facts
 */
export function scales({ width, height, range: [first, last], data }) {
  const inside = data.values.filter((value, i) => Number.isFinite(value) && data.start + i * data.step >= first - data.step && data.start + i * data.step <= last + data.step);
  let low = inside.reduce((a, b) => Math.min(a, b), Infinity);
  let high = inside.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!inside.length) [low, high] = [0, 1];
  if (low === high) [low, high] = [low - 1, high + 1];
  const margin = (high - low) * 0.06;
  [low, high] = [low - margin, high + margin];
  const w = Math.max(width - LEFT - RIGHT, 1);
  const tall = Math.max(height - TOP - BOTTOM, 1);
  const span = last - first || 1;
  return {
    width, height, first, last, low, high,
    x: (index) => LEFT + ((index - first) / span) * w,
    y: (value) => TOP + (1 - (value - low) / (high - low)) * tall,
    index: (x) => first + ((x - LEFT) / w) * span,
  };
}

function ticks(low, high, about) {
  const step = Math.max(niceBelow((high - low) / about) || 1, Number.MIN_VALUE);
  const start = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor((high - start) / step + 1e-9) + 1 }, (_, i) => Number((start + i * step).toPrecision(12)));
}

/** Grid, numbers and names of both axes. */
export function drawAxes(context, plane, style, names) {
  context.font = `12px ${style.fontFamily}`;
  context.fillStyle = style.getPropertyValue("--muted");
  context.strokeStyle = style.getPropertyValue("--line");
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const value of ticks(plane.low, plane.high, 6)) {
    const y = Math.round(plane.y(value)) + 0.5;
    line(context, LEFT, y, plane.width - RIGHT, y);
    context.fillText(formatNumber(value), LEFT - 10, y);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const index of ticks(plane.first, plane.last, Math.max(2, Math.floor(plane.width / 130)))) {
    const x = Math.round(plane.x(index)) + 0.5;
    line(context, x, plane.height - BOTTOM, x, plane.height - BOTTOM + 5);
    context.fillText(index.toLocaleString("en"), x, plane.height - BOTTOM + 9);
  }
  context.fillText(names.x, LEFT + (plane.width - LEFT - RIGHT) / 2, plane.height - 16);
  context.textAlign = "left";
  if (names.y) context.fillText(names.y, LEFT + 6, TOP - 12);
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** The line with gaps where values are missing, points where they are few, and the one under the cursor. */
export function drawLine(context, plane, style, data, hover) {
  const at = (i) => [plane.x(data.start + i * data.step), plane.y(data.values[i])];
  context.save();
  context.beginPath();
  context.rect(LEFT - 2, 0, plane.width - LEFT - RIGHT + 4, plane.height - BOTTOM);
  context.clip();
  context.strokeStyle = context.fillStyle = style.getPropertyValue("--accent");
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.beginPath();
  let gap = true;
  data.values.forEach((value, i) => {
    if (Number.isFinite(value)) context[gap ? "moveTo" : "lineTo"](...at(i));
    gap = !Number.isFinite(value);
  });
  context.stroke();
  const apart = plane.x(data.step) - plane.x(0);
  if (apart > 7) data.values.forEach((value, i) => Number.isFinite(value) && dot(context, at(i), 2.5));
  if (hover !== null && Number.isFinite(data.values[hover])) dot(context, at(hover), 4.5);
  context.restore();
}

function dot(context, [x, y], radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, Math.PI * 2);
  context.fill();
}
