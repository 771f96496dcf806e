/** Kinds of nodes, and a cache of documents for lists. */

import { metadata } from "./api.js";
import { formatDtype, formatShape } from "./format.js";

const AT_ONCE = 4;
const KEPT = 500;
const LISTED = 5; // children of a group that a card may name

/** @type {Map<string, Promise<any>>} */
const known = new Map();
const queue = [];
let running = 0;

/** The document of a node in a list, cached, with a limit of concurrent requests. */
export function describe(path) {
  if (!known.has(path)) {
    if (known.size >= KEPT) known.delete(known.keys().next().value);
    known.set(path, new Promise((resolve, reject) => queue.push({ path, resolve, reject })));
    known.get(path).catch(() => known.delete(path));
    next();
  }
  return known.get(path);
}

function next() {
  while (running < AT_ONCE && queue.length) {
    const { path, resolve, reject } = queue.shift();
    running += 1;
    metadata(path, { limit: LISTED })
      .then(resolve, reject)
      .finally(() => {
        running -= 1;
        next();
      });
  }
}

/** @param {string} parent @param {string} name */
export const join = (parent, name) => (parent ? `${parent}/${name}` : name);

export const lastName = (path) => path.slice(path.lastIndexOf("/") + 1);

const ome = (document) => document.attributes?.ome ?? document.attributes ?? {};

/** Whether a group is an image. */
export const isPyramid = (document) =>
  document.kind === "group" && Boolean(document.multiscales?.length ?? document.multiscales ?? false);

/** Whether a group is an image for the tile routes: an image, a label image, a plate, a well. */
export const isPictureGroup = (document) => isPyramid(document) || Boolean(ome(document).plate || ome(document).well);

const isNumeric = (dtype) => typeof dtype === "string" && !/^[<>|]?[OSUV]/.test(dtype);

const [NARROW, MANY, COUNTLESS] = [8, 1000, 1e9];

/** Whether an array is extremely long and narrow: as a picture it would be a line. */
function isTable(shape) {
  const [short, long] = [Math.min(...shape), Math.max(...shape)];
  return shape.length === 2 && short <= NARROW && long >= MANY * short && long <= COUNTLESS;
}

/** The views of a node, the best first. @returns {("image"|"plot"|"values"|"browse")[]} */
export function viewsOf(document) {
  if (document.kind === "group") return isPictureGroup(document) ? ["image", "browse"] : ["browse"];
  const rank = document.shape.length;
  const empty = document.shape.includes(0);
  if (empty || rank === 0) return ["values"];
  const numeric = isNumeric(document.dtype);
  if (rank === 1) return numeric ? ["plot", "values"] : Array.isArray(document.dtype) ? ["values", "plot"] : ["values"];
  if (numeric) return isTable(document.shape) ? ["values", "image"] : ["image", "values"];
  return Array.isArray(document.dtype) ? ["values", "image"] : ["values"];
}

/** Whether a node has a thumbnail. */
export const hasThumbnail = (document) => viewsOf(document)[0] === "image";

/** The icon of a node. */
export function iconOf(document) {
  if (document.kind === "group")
    return ome(document)["image-label"] ? "labels" : isPictureGroup(document) ? "image" : "group";
  return { image: "array", plot: "line", values: "table" }[viewsOf(document)[0]];
}

/** Description of a node: shape and dtype of an array, role of a group. */
export function summary(document) {
  if (document.kind === "array") return `${formatShape(document.shape)} · ${formatDtype(document.dtype)}`;
  if (ome(document)["image-label"]) return "label image";
  return isPyramid(document)
    ? "multiscale image"
    : ome(document).plate
      ? "plate"
      : ome(document).well
        ? "well"
        : "group";
}
