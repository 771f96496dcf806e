/** Label images over a picture, placed by their own axes, sizes and scales. */

import { tileInfo } from "./api.js";
import { metresIn } from "./format.js";
import { appendPositions, planeText } from "./state.js";
import { activeIndices, appendOrientation, aspectOf, blockAt, flipOf, planeOf, positionsOf } from "./tilequery.js";

/** @typedef {import("./tilequery.js").TileInfo} TileInfo @typedef {import("./tilequery.js").Axis} Axis */

const SLACK = 1e-6; // scales are decimal fractions: 0.65 / 0.325 need not be 2 exactly
const NEAR = 0.05; // in pixels: translations of few digits
const UNLIKE = 0.01; // a pixel that is so much higher than wide cannot be drawn as a square

/** The `info.json` of label images, cached. */
export function createLabels() {
  /** @type {Map<string, Promise<TileInfo>>} */
  const known = new Map();

  function infoOf(path, query) {
    const key = `${path}?${query}`;
    if (!known.has(key)) {
      known.set(key, tileInfo(path, query));
      known.get(key).catch(() => known.delete(key));
    }
    return known.get(key);
  }

  /**
   * The frame that shows labels over a picture, with `ask` for the one under a cell; rejects where they cannot be drawn.
   * @param {string} path @param {import("./state.js").State} state @param {TileInfo} info of the picture
   * @returns {Promise<import("./osd.js").Frame & {ask: ReturnType<typeof askerOf>}>}
   */
  async function frameOf(path, state, info) {
    const plane = planeOf(state, info);
    const aspect = String(aspectOf(state, info));
    const found = await infoOf(path, `aspect=${aspect}`);
    const missing = plane.find((name) => !axisOf(found, name));
    if (missing) throw new Error(`they have no axis ${missing}, only ${found.axes.map((a) => a.name).join(", ")}`);
    const turned = found.plane.join() !== plane.join();
    const query = new URLSearchParams(turned ? { axes: planeText(plane) } : {});
    appendOrientation(query, state, info);
    const own = turned ? await infoOf(path, new URLSearchParams({ axes: planeText(plane), aspect }).toString()) : found;
    const positions = positionsIn(own, plane, state, info);
    appendPositions(query, positions);
    query.append("labels", "1");
    const { width, height, tile_size: tileSize, minzoom, maxzoom } = own;
    const place = placeOf(own, plane, info, flipOf(state, info));
    const ask = askerOf(own, plane, positions, info);
    return { path, query: query.toString(), width, height, tileSize, minzoom, maxzoom, place, ask, blank: false };
  }
  return { frameOf, forget: () => known.clear() };
}

const axisOf = (info, name) => info.axes.find((axis) => axis.name === name);

/**
 * An axis of the labels and the picture's of that name. ``moved``: the labels begin elsewhere than the picture; those that
 * do not say where begin with it.
 * @typedef {{axis: Axis, whole: Axis, moved: boolean}} Pair
 */

/** @returns {Pair[]} of all axes that both have */
function pairsOf(own, info) {
  const pairs = own.axes.map((axis) => ({ axis, whole: axisOf(info, axis.name) })).filter(({ whole }) => whole);
  const known = pairs.every(({ axis, whole }) => axis.translation !== null && axis.scale > 0 && whole.scale > 0);
  const moved = known && pairs.some(({ axis, whole }) => axis.translation !== (whole.translation ?? 0));
  return pairs.map((pair) => ({ ...pair, moved }));
}

/** Positions of the labels on the axes outside the plane. */
function positionsIn(own, plane, state, info) {
  const positions = positionsOf(state, info);
  const shared = pairsOf(own, info).filter(
    ({ axis: { name } }) => name in positions && !plane.includes(name) && name !== own.channel_axis,
  );
  return {
    ...Object.fromEntries(shared.map((pair) => [pair.axis.name, positionOn(pair, positions[pair.axis.name])])),
    ...channelOf(own, plane, state, info),
  };
}

/** The channel of the labels for the displayed one, the first of several, where both have as many. */
function channelOf(own, plane, state, info) {
  const name = own.channel_axis;
  const size = name && name === info.channel_axis && !plane.includes(name) ? axisOf(own, name).size : 1;
  const [first] = activeIndices(state, info);
  return size > 1 && size === axisOf(info, name).size && first !== undefined ? { [name]: first } : {};
}

/** The index of the labels for an index of the picture, on an axis that may be coarser, shorter or of a single position. */
function positionOn(pair, at) {
  const { axis, moved } = pair;
  if (axis.type !== "space") {
    if (at >= axis.size && axis.size > 1) throw new Error(`they end at ${axis.name} = ${axis.size - 1}`);
    return Math.min(at, axis.size - 1);
  }
  if (axis.size === 1 && !moved) return 0;
  const [each, first] = [factor(pair), Math.round(start(pair))];
  const position = Math.floor((at - first) / each + SLACK);
  if (moved && (position < 0 || position >= axis.size)) {
    throw new Error(`they lie at ${axis.name} = ${first} to ${Math.ceil(first + axis.size * each) - 1}`);
  }
  return Math.min(position, axis.size - 1);
}

/** The labels' position and width, relative to a picture at 0, 0 of width 1. */
function placeOf(own, plane, info, flip) {
  const pairs = plane.map((name) => pairsOf(own, info).find(({ axis }) => axis.name === name));
  const [down, across] = pairs.map(factor);
  if (Math.abs(down / across - 1) > UNLIKE) throw new Error("they are not divided alike along both axes");
  const sides = pairs.map((pair, side) => {
    const scale = info.pixels_per_cell[side];
    const [first, length, whole] = [start(pair) * scale, pair.axis.size * factor(pair) * scale, pair.whole.size * scale];
    if (first >= whole || first + length <= 0) throw new Error("by their translation they lie outside the picture");
    return { first: flip.includes(plane[side]) ? whole - first - length : first, length };
  });
  const [y, x] = sides.map(({ first }) => first / info.width);
  return { x, y, width: sides[1].length / info.width };
}

/** Maps a cell of the picture to the block of the labels with it, and the offset in the block; null outside. */
function askerOf(own, plane, positions, info) {
  const pairs = plane.map((name) => pairsOf(own, info).find(({ axis }) => axis.name === name));
  const names = own.axes.map(({ name }) => name);
  const turned = names.indexOf(plane[0]) > names.indexOf(plane[1]);
  return ({ x, y }) => {
    const cells = [y, x].map((at, side) => Math.floor((at + 0.5 - start(pairs[side])) / factor(pairs[side])));
    if (cells.some((at, side) => at < 0 || at >= pairs[side].axis.size)) return null;
    const blocks = cells.map((at, side) => blockAt(at, pairs[side].axis.size));
    const parts = names.map((name) => blocks[plane.indexOf(name)]?.join(":") ?? positions[name] ?? own.selection[name] ?? 0);
    const [row, column] = cells.map((at, side) => at - blocks[side][0]);
    const pick = (block) => (turned ? block[column][row] : block[row][column]);
    return { path: own.levels[0].path, select: parts.join(","), pick };
  };
}

/**
 * The start of the labels in pixels of the picture. Translations are those of pixel centres; of writers that leave the
 * half pixel out, the start lies on an edge, as for the levels of a picture.
 */
function start(pair) {
  const { axis, whole, moved } = pair;
  if (!moved) return 0;
  const shift = (axis.translation * unitsIn(pair) - (whole.translation ?? 0)) / whole.scale;
  const each = factor(pair);
  const centred = shift + (1 - each) / 2;
  const edges = [each, 1].flatMap((unit) => [centred, shift].map((at) => [at, Math.round(at / unit) * unit]));
  return (edges.find(([at, edge]) => Math.abs(at - edge) <= NEAR) ?? [0, centred])[1];
}

/** Ratio of the labels' unit to the picture's. */
const unitsIn = ({ axis, whole }) => (metresIn(axis.unit) ?? 1) / (metresIn(whole.unit) ?? metresIn(axis.unit) ?? 1);

/**
 * Pixels of the picture per pixel of the labels: by the scales if the labels are shifted, the sizes agree or a scale is a
 * multiple (labels may be padded), else by the sizes.
 */
function factor(pair) {
  const [{ size: full, scale: fine }, { size, scale: coarse }] = [pair.whole, pair.axis];
  if (pair.moved) return (coarse * unitsIn(pair)) / fine;
  if (full === size || !full || !size) return 1;
  const agrees = (candidate) => candidate > 0 && Math.abs(full / candidate - size) < 1 + SLACK;
  const padded = Number.isInteger(coarse / fine) && coarse > fine ? coarse / fine : full / size;
  return [coarse / fine, Math.round(full / size)].find(agrees) ?? padded;
}
