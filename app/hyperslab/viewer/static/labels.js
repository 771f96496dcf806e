/** A label image over a picture: an image of its own axes, size and levels, laid where it belongs. */

import { tileInfo } from "./api.js";
import { appendPositions, planeText } from "./state.js";
import { planeOf, positionsOf } from "./tilequery.js";

/** @typedef {import("./tilequery.js").TileInfo} TileInfo @typedef {import("./tilequery.js").Axis} Axis */

const SLACK = 1e-6; // scales are decimal fractions: 0.65 / 0.325 need not be 2 exactly
const UNLIKE = 0.01; // a pixel that is so much higher than wide cannot be drawn as a square

/** What the service says of label images, asked for once. */
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
   * The frame that shows labels over a picture; rejects where they cannot be drawn there.
   * @param {string} path @param {import("./state.js").State} state @param {TileInfo} info of the picture
   * @returns {Promise<import("./osd.js").Frame>}
   */
  async function frameOf(path, state, info) {
    const plane = planeOf(state, info);
    const found = await infoOf(path, "");
    const missing = plane.find((name) => !axisOf(found, name));
    if (missing) throw new Error(`they have no axis ${missing}, only ${found.axes.map((a) => a.name).join(", ")}`);
    const turned = found.plane.join() !== plane.join();
    const query = new URLSearchParams(turned ? { axes: planeText(plane) } : {});
    const own = turned ? await infoOf(path, query.toString()) : found;
    appendPositions(query, positionsIn(own, plane, state, info));
    query.append("labels", "1");
    const { width, height, tile_size: tileSize, minzoom, maxzoom } = own;
    const share = shareOf(own, plane, info);
    return { path, query: query.toString(), width, height, tileSize, minzoom, maxzoom, share, blank: false };
  }
  return { frameOf, forget: () => known.clear() };
}

const axisOf = (info, name) => info.axes.find((axis) => axis.name === name);

/** Where the labels stand on the axes that they share with the picture and that are not drawn. */
function positionsIn(own, plane, state, info) {
  const shared = Object.entries(positionsOf(state, info)).filter(
    ([name]) => axisOf(own, name) && !plane.includes(name) && name !== own.channel_axis,
  );
  return Object.fromEntries(shared.map(([name, at]) => [name, positionOn(axisOf(own, name), axisOf(info, name), at)]));
}

/** Space may be divided more coarsely, of moments there may be fewer; a single position holds for all. */
function positionOn(axis, whole, at) {
  if (axis.size === 1) return 0;
  const position = axis.type === "space" ? Math.floor(at / factor(whole, axis) + SLACK) : at;
  if (position >= axis.size && axis.type !== "space") throw new Error(`they end at ${axis.name} = ${axis.size - 1}`);
  return Math.min(position, axis.size - 1);
}

/** The width of the labels, where that of the picture is 1. */
function shareOf(own, plane, info) {
  const [down, across] = plane.map((name) => factor(axisOf(info, name), axisOf(own, name)));
  if (Math.abs(down / across - 1) > UNLIKE) throw new Error("they are not divided alike along both axes");
  return (own.width * across) / info.width;
}

/** Pixels of the picture per pixel of the labels: by the scales where the sizes agree, else what explains the sizes. */
function factor({ size: full, scale: fine }, { size, scale: coarse }) {
  if (full === size || !full || !size) return 1;
  const agrees = (candidate) => candidate > 0 && Math.abs(full / candidate - size) < 1 + SLACK;
  return [coarse / fine, Math.round(full / size)].find(agrees) ?? full / size;
}
