/** Queries and selections from the state and a node's `info.json`. Pure. */

import { appendActive, appendPositions, planeText } from "./state.js";

/** @typedef {import("./state.js").State} State @typedef {import("./state.js").ChannelState} ChannelState */
/**
 * @typedef {object} Axis
 * @property {string} name @property {string|null} type @property {string|null} unit
 * @property {number} size @property {number|null} scale
 * @property {number|null} translation where the middle of the first cell lies, in units of the scale
 *
 * @typedef {object} Channel
 * @property {number} index @property {string} label @property {string} color @property {boolean} active @property {boolean} inverted
 * @property {{min: number, max: number, start: number, end: number}} window
 *
 * @typedef {object} TileInfo
 * @property {string} path @property {"array"|"multiscale"|"labels"|string} kind @property {string} name
 * @property {Axis[]} axes @property {string} dtype @property {[string, string]} plane
 * @property {number} width @property {number} height in pixels of the picture @property {number} tile_size
 * @property {[number, number]} pixels_per_cell along rows and columns
 * @property {{flip: string[], aspect: number, steps: [number|null, string|null][]}} natural what the coordinates say;
 *   steps are size and unit of a cell along rows and columns
 * @property {number} minzoom @property {number} maxzoom @property {number} sampled_below zooms that show single cells
 * @property {{path: string, shape: number[]}[]} levels @property {Record<string, number>} selection
 * @property {boolean} omero whether the metadata describes the channels @property {boolean} rgb whether they are a photograph's
 * @property {Channel[]} channels @property {string|null} channel_axis @property {[number, number]} rescale_auto
 * @property {{name: string, path: string}[]} labels @property {string[]} colormaps @property {any[]} problems
 * @property {{path: string, x: number, y: number, width: number, height: number}[]|null} [images] of a mosaic
 * @property {{name: string, y: number}[]|null} [rows] @property {{name: string, x: number}[]|null} [columns] of a plate
 * @property {string} [field] @property {"cf"|""} [decode] @property {import("./decoded.js").Meaning} [meaning]
 */

/** Maximum number of channels in a picture. */
export const MAX_CHANNELS = 16;

/** Vertical and horizontal axis. @param {State} state @param {TileInfo} info @returns {[string, string]} */
export const planeOf = (state, info) => state.plane ?? info.plane;

/** Axes of the plane that run backwards. @param {State} state @param {TileInfo} info @returns {string[]} */
export const flipOf = (state, info) =>
  (state.flip ?? info.natural.flip).filter((name) => planeOf(state, info).includes(name));

/** Height of a cell divided by its width. @param {State} state @param {TileInfo} info */
export const aspectOf = (state, info) => state.aspect ?? info.natural.aspect;

/** Axes that need a position: neither in the plane nor the channels. @returns {Axis[]} */
export function sliderAxes(state, info) {
  const plane = planeOf(state, info);
  return info.axes.filter((axis) => !plane.includes(axis.name) && axis.name !== info.channel_axis);
}

/** Positions on these axes. @returns {Record<string, number>} */
export function positionsOf(state, info) {
  const place = (axis) => Math.min(state.at[axis.name] ?? info.selection[axis.name] ?? 0, Math.max(axis.size - 1, 0));
  return Object.fromEntries(sliderAxes(state, info).map((axis) => [axis.name, place(axis)]));
}

/** Planes to choose from, the node's own first. @returns {[string, string][]} */
export function planesOf(info) {
  const names = info.axes.filter((axis) => axis.name !== info.channel_axis && axis.size > 1).map((axis) => axis.name);
  const own = info.plane.join();
  if (names.indexOf(info.plane[0]) > names.indexOf(info.plane[1])) names.reverse(); // x comes before y in the array
  const pairs = names.flatMap((a, i) => names.slice(i + 1).map((b) => [a, b])).reverse();
  return pairs.sort((a, b) => Number(b.join() === own) - Number(a.join() === own)).slice(0, 6);
}

/** "xy" for (y, x), "lon × lat" for longer names. */
export const planeLabel = ([vertical, horizontal]) =>
  vertical.length === 1 && horizontal.length === 1 ? horizontal + vertical : `${horizontal} × ${vertical}`;

/** Whether values are measured in a unit, as floats: a colour map shows more of them than grey does. */
const isMeasured = ({ dtype, meaning, channel_axis: axis, kind }) =>
  /^[<>|]?f/.test(dtype) && Boolean(meaning?.unit) && !axis && kind === "array";

/** Whether measured values lie on both sides of zero, which a diverging map then has in its middle. */
export function isDiverging(info) {
  const window = info.channels[0]?.window;
  return isMeasured(info) && window?.start < 0 && window.end > 0;
}

/** The colour map that suits the values; "" is none. @param {TileInfo} info */
const naturalMap = (info) => (isDiverging(info) ? "RdBu_r" : isMeasured(info) ? "viridis" : "");

/** The colour map that was chosen, or else suits. @param {State} state @param {TileInfo} info */
export const mapOf = (state, info) => state.colormap || naturalMap(info);

const MAX_COMPOSITED = 6;

/** Whether a few channels without metadata are composited in default colours (not photographs). */
const isComposited = ({ channel_axis: axis, omero, channels }) =>
  axis && !omero && channels.length <= MAX_COMPOSITED && channels.filter(({ active }) => active).length < 2;

/** Whether the picture has the colours of a single channel. @param {State} state */
const isOneColoured = (state) => Boolean(state.colormap || state.labels);

/** Whether a colour map applies, which needs a single channel. */
const isMapped = (state, info) => Boolean(mapOf(state, info)) && activeIndices(state, info).length === 1;

/**
 * The channels as the node describes them; one without a colour where it has no channel axis.
 * @param {TileInfo} info @param {boolean} [composited] whether several may be laid over each other @returns {ChannelState[]}
 */
export function defaultChannels(info, composited = isComposited(info)) {
  const [low, high] = info.rescale_auto ?? [0, 1];
  const list = info.channels.length
    ? info.channels
    : [{ index: 0, active: true, color: "", window: { start: low, end: high } }];
  const largest = Math.max(Math.abs(list[0].window.start), Math.abs(list[0].window.end));
  return list.map(({ index, active, color, window, inverted }) => ({
    index,
    active: active || Boolean(composited),
    color: info.channel_axis ? color : "",
    window: isDiverging(info) ? [-largest, largest] : [window.start, window.end],
    inverted: Boolean(inverted),
  }));
}

/** All channels; those not in the state are off, with default colours. @returns {ChannelState[]} */
export function channelsOf(state, info) {
  if (!state.channels) return defaultChannels(info, isComposited(info) && !isOneColoured(state));
  if (!info.channel_axis) return state.channels;
  const named = new Map(state.channels.map((channel) => [channel.index, channel]));
  const listed = defaultChannels(info).map((own) => {
    const channel = named.get(own.index);
    named.delete(own.index);
    return channel ? { ...channel, color: channel.color || own.color } : { ...own, active: false };
  });
  const { size } = info.axes.find((axis) => axis.name === info.channel_axis);
  const unlisted = [...named.values()].filter(({ index }) => index < size);
  return [...listed, ...unlisted.map((channel) => ({ ...channel, color: channel.color || "FFFFFF" }))];
}

/** Query of a tile: all parameters that change its pixels. @param {State} state @param {TileInfo} info */
export function tileQuery(state, info) {
  const query = new URLSearchParams();
  appendPlane(query, state, info);
  appendOrientation(query, state, info);
  if (state.field) query.append("field", state.field);
  if (info.decode) query.append("decode", info.decode);
  const composited = isComposited(info) && !isOneColoured(state);
  if (state.channels || composited || (isDiverging(info) && !state.labels)) appendChannels(query, state, info);
  if (state.component) query.append("component", state.component);
  if (state.labels) query.append("labels", "1");
  if (isMapped(state, info) && !state.labels) query.append("colormap_name", mapOf(state, info));
  if (state.gamma !== 1) query.append("gamma", String(state.gamma));
  return query.toString();
}

function appendPlane(query, state, info) {
  if (state.plane) query.append("axes", planeText(state.plane));
  appendPositions(query, positionsOf(state, info));
}

/** Add flips and aspect for the tile API. @param {URLSearchParams} query */
export function appendOrientation(query, state, info) {
  const flip = flipOf(state, info);
  if (flip.length) query.append("flip", planeText(flip));
  if (aspectOf(state, info) !== 1) query.append("aspect", String(aspectOf(state, info)));
}

function appendChannels(query, state, info) {
  const active = channelsOf(state, info).filter((channel) => channel.active);
  appendActive(query, active, {
    numbered: Boolean(info.channel_axis),
    colored: Boolean(info.channel_axis) && !isMapped(state, info),
  });
}

const BLOCK = 16; // cells along each side of what is read at once: moving within one asks nothing

/** The block of an index, half-open. @returns {[number, number]} */
export const blockAt = (at, size) => [at - (at % BLOCK), Math.min(at - (at % BLOCK) + BLOCK, size)];

/**
 * numpy text for a box of the plane at the current positions, in the order of the array's axes.
 * @param {State} state @param {TileInfo} info
 * @param {{x: [number, number], y: [number, number]}} box half-open ranges of pixels
 * @param {number[]} [channels] indices; by default those that are active
 */
export function selectText(state, info, box, channels) {
  const [vertical, horizontal] = planeOf(state, info);
  const at = positionsOf(state, info);
  const parts = info.axes.map(({ name, size }) => {
    if (name === horizontal) return rangeText(box.x, size);
    if (name === vertical) return rangeText(box.y, size);
    return name === info.channel_axis ? channelText(channels ?? activeIndices(state, info), size) : String(at[name]);
  });
  return parts.join(",");
}

/** Colours of the first three channels as a photograph. */
export const RGB = ["FF0000", "00FF00", "0000FF"];

/** Whether channels are drawn as a photograph. @param {ChannelState[]} channels */
export function isRgb(channels) {
  const active = channels.filter((channel) => channel.active);
  return active.length === 3 && active.every(({ index, color }) => RGB[index] === color);
}

/** Indices of the active channels. */
export const activeIndices = (state, info) =>
  channelsOf(state, info)
    .filter((c) => c.active)
    .map((c) => c.index);

function rangeText([start, stop], size) {
  if (stop - start === 1) return String(start);
  return start === 0 && stop === size ? ":" : `${start}:${stop}`;
}

function channelText(list, size) {
  if (list.length === size && size > 1) return ":";
  return list.length === 1 ? String(list[0]) : `[${list.join(",")}]`;
}

/** The picture of a plane, for `Picture`. @param {State} state @param {TileInfo} info @returns {import("./osd.js").Frame} */
export function frameOf(state, info) {
  const { path, width, height, pixels_per_cell: scale, tile_size: tileSize, minzoom, maxzoom, version } = info;
  const flip = planeOf(state, info).map((name) => flipOf(state, info).includes(name));
  // under its own address, a tile that has changed is not taken from a cache
  const query = [tileQuery(state, info), version && `v=${encodeURIComponent(version)}`].filter(Boolean).join("&");
  const gaps = info.kind !== "labels" && !state.labels && !info.images; // there, what is not drawn is no gap
  const blank = activeIndices(state, info).length === 0;
  return { path, query, width, height, scale, flip, tileSize, minzoom, maxzoom, blank, gaps: gaps && !blank };
}
