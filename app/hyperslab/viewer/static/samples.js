/** Values along an axis, of a box, and along a line of a picture: minimum, maximum and mean of bins. */

import { ask, get, numbers, url } from "./api.js";
import { positionsOf, planeOf, selectText } from "./tilequery.js";

/** @typedef {import("./state.js").State} State @typedef {import("./tilequery.js").TileInfo} TileInfo */
/** @typedef {import("./plotdraw.js").Bins} Bins */

const MOST = 1 << 22; // values of a box that are read
const LONGEST = 1000; // points of a line

const PARTS = {
  "": (re, im) => Math.hypot(re, im),
  real: (re) => re,
  imag: (_, im) => im,
  phase: (re, im) => Math.atan2(im, re),
};
const isComplex = ({ dtype }) => /^[<>|]?c\d/.test(dtype);

/** Axes along which a point of the picture has more values, the best first: time, then the longest. @returns {import("./tilequery.js").Axis[]} */
export function axesBeside(state, info) {
  const plane = planeOf(state, info);
  const rank = ({ type, size }) => (type === "time" ? Infinity : type === "channel" ? 0 : size);
  return info.axes.filter(({ name, size }) => size > 1 && !plane.includes(name)).toSorted((a, b) => rank(b) - rank(a));
}

/** numpy text of a box of the plane, and of one index or all along each other axis. */
function selectAlong(state, info, box, along) {
  const channels = along === info.channel_axis ? info.axes.find(({ name }) => name === along) : null;
  const text = selectText(state, info, box, channels ? [...Array(channels.size).keys()] : undefined);
  const parts = text.match(/(\[[^\]]*\]|[^,[])+/g);
  const of = (name) => info.axes.findIndex((axis) => axis.name === name);
  if (along) parts[of(along)] = ":";
  const channel = of(info.channel_axis);
  if (channel >= 0 && along !== info.channel_axis) parts[channel] = parts[channel].replace(/^\[(\d+).*$/, "$1");
  if (channel >= 0 && along !== info.channel_axis && !/^\d+$/.test(parts[channel])) parts[channel] = "0"; // all, or none
  return parts;
}

/** Numbers of a selection in C order; of complex ones the displayed component. @returns {Promise<ArrayLike<number>>} */
async function read(state, info, select, bins) {
  const asked = { field: state.field, decode: info.decode };
  if (!isComplex(info)) return numbers(info.levels[0].path, select, { ...asked, bins });
  const query = new URLSearchParams({ select, format: "raw", dtype: "<c16", ...(state.field && { field: state.field }) });
  const pairs = new Float64Array(await (await get(url("slice", info.levels[0].path, `?${query}`))).arrayBuffer());
  return Float64Array.from({ length: pairs.length / 2 }, (_, i) => PARTS[state.component](pairs[2 * i], pairs[2 * i + 1]));
}

/** @param {ArrayLike<number>} values @returns {Bins} */
const whole = (values) => ({ start: 0, step: 1, low: values, high: values, mean: values });

/**
 * The values of a cell along an axis, in bins where there are more of them.
 * @param {State} state @param {TileInfo} info @param {[number, number]} cell column and row
 * @param {import("./tilequery.js").Axis} axis @param {number} [bins] without it, every value
 * @returns {Promise<Bins>}
 */
export async function series(state, info, [x, y], axis, bins) {
  const select = selectAlong(state, info, { x: [x, x + 1], y: [y, y + 1] }, axis.name).join(",");
  if (!bins || axis.size <= bins) return whole(await read(state, info, select));
  if (isComplex(info)) return binned(await read(state, info, select), bins);
  const triples = await read(state, info, select, bins);
  const part = (which) => triples.filter((_, i) => i % 3 === which);
  return { start: 0, step: axis.size / bins, low: part(0), high: part(1), mean: part(2) };
}

function binned(values, bins) {
  const groups = Array.from({ length: bins }, (_, i) =>
    summary(values.slice(Math.floor((i * values.length) / bins), Math.floor(((i + 1) * values.length) / bins))),
  );
  const part = (name) => groups.map((group) => group[name]);
  return { start: 0, step: values.length / bins, low: part("low"), high: part("high"), mean: part("mean") };
}

/** Minimum, maximum and mean without NaN. @param {Iterable<number>} values */
export function summary(values) {
  let [low, high, sum, count] = [Infinity, -Infinity, 0, 0];
  for (const value of values) {
    if (Number.isNaN(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
    sum += value;
    count += 1;
  }
  return count ? { low, high, mean: sum / count, count } : { low: NaN, high: NaN, mean: NaN, count };
}

/**
 * Mean and range of a box of the picture, at each index of an axis or at the current position.
 * @param {[number, number, number, number]} area columns and rows: first, first, behind the last, behind the last
 * @param {import("./tilequery.js").Axis|null} axis
 * @returns {Promise<Bins & {every: number}>} `every`: so manieth cell along both axes was read
 */
export async function areaSeries(state, info, [x0, y0, x1, y1], axis) {
  const cells = (x1 - x0) * (y1 - y0) * (axis?.size ?? 1);
  const every = Math.max(1, Math.ceil(Math.sqrt(cells / MOST)));
  const parts = selectAlong(state, info, { x: [x0, x1], y: [y0, y1] }, axis?.name);
  const [vertical, horizontal] = planeOf(state, info);
  for (const [name, first, behind] of [[horizontal, x0, x1], [vertical, y0, y1]]) {
    parts[info.axes.findIndex((each) => each.name === name)] = `${first}:${behind}:${every}`;
  }
  const values = await read(state, info, parts.join(","));
  const order = info.axes.map(({ name }) => name).filter((name) => [horizontal, vertical, axis?.name].includes(name));
  const size = { [horizontal]: Math.ceil((x1 - x0) / every), [vertical]: Math.ceil((y1 - y0) / every), [axis?.name]: axis?.size };
  const place = order.indexOf(axis?.name);
  const inner = order.slice(place + 1).reduce((product, name) => product * size[name], 1);
  const count = axis?.size ?? 1;
  const groups = Array.from({ length: count }, (_, i) => summary(place < 0 ? values : partOf(values, i, count, inner)));
  const part = (name) => groups.map((group) => group[name]);
  return { start: 0, step: 1, low: part("low"), high: part("high"), mean: part("mean"), every };
}

/** The values at an index of an axis of `count`, with `inner` values behind each index. */
function* partOf(values, index, count, inner) {
  for (let start = index * inner; start < values.length; start += count * inner) {
    for (let i = start; i < start + inner; i += 1) yield values[i];
  }
}

/**
 * The values of the cells along a line, and the distance between two of them in cells.
 * @param {[number, number, number, number]} line columns and rows of both ends
 * @returns {Promise<Bins & {apart: number}>}
 */
export async function profile(state, info, [x0, y0, x1, y1]) {
  const length = Math.hypot(x1 - x0, y1 - y0);
  const count = Math.min(Math.max(Math.ceil(length) + 1, 2), LONGEST);
  const at = positionsOf(state, info);
  const [vertical, horizontal] = planeOf(state, info);
  const channel = Number(selectAlong(state, info, { x: [0, 1], y: [0, 1] }, "")[info.axes.findIndex(({ name }) => name === info.channel_axis)] ?? 0);
  const index = (name, share) => {
    if (name === horizontal) return Math.round(x0 + share * (x1 - x0));
    if (name === vertical) return Math.round(y0 + share * (y1 - y0));
    return name === info.channel_axis ? channel : at[name];
  };
  const points = Array.from({ length: count }, (_, i) => info.axes.map(({ name }) => index(name, i / (count - 1))));
  const rank = info.levels[0].shape.length;
  const query = new URLSearchParams({ format: "json", ...(state.field && { field: state.field }), ...(info.decode && { decode: info.decode }) });
  const address = url("points", info.levels[0].path, `?${query}`);
  const answer = await ask(address, { coordinates: points.map((point) => point.slice(0, rank)) });
  const picked = answer.map((value, i) => points[i].slice(rank).reduce((inner, place) => inner[place], value));
  const number = (value) => (isComplex(info) ? PARTS[state.component](Number(value[0]), Number(value[1])) : Number(value));
  return { ...whole(Float64Array.from(picked, number)), apart: length / (count - 1) };
}
