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

const LINES = 8; // in one plot
const THIN = 100; // times as long as wide: drawn whole, hardly a pixel is left of the short side
const COUNTLESS = 1e9; // samples: more are not read for a plot unasked

const sizeOf = (shape) => shape.reduce((product, size) => product * size, 1);

/** Whether an array is one or a few long lines. */
export function isSeries(shape) {
  const long = Math.max(...shape);
  const lines = sizeOf(shape) / long;
  return shape.length === 1 || (lines <= LINES && long >= (lines === 1 ? 2 : THIN * lines));
}

/** Whether a picture would be a line: of the last two axes, and also of the two longest, as those of a photograph. */
const isThin = (shape) =>
  [shape.slice(-2), shape.toSorted((a, b) => a - b).slice(-2)].every((sides) => Math.max(...sides) >= THIN * Math.min(...sides));

const SPACE = /^(x|y|z|row|rows|col|cols|column|columns|line|lines|depth|height|width|d\d+)$/i;

/** Whether a node has three axes of space, or of an unknown meaning. */
function isVolume(document) {
  const [image] = document.multiscales ?? [];
  if (image) return (image.axes ?? []).filter(({ name, type }) => type === "space" || SPACE.test(name)).length >= 3;
  const { shape, dtype, dimension_names: names } = document;
  const isPhoto = /u1$/.test(dtype) && [3, 4].includes(shape.at(-1)) && !names?.at(-1);
  return shape.filter((size, axis) => size > 1 && (!names?.[axis] || SPACE.test(names[axis]))).length >= (isPhoto ? 4 : 3);
}

/** The views of a node, the best first. @returns {("image"|"planes"|"plot"|"values"|"browse")[]} */
export function viewsOf(document) {
  if (document.kind === "group" && !isPictureGroup(document)) return ["browse"];
  if (document.kind === "group") return isPyramid(document) && isVolume(document) ? ["image", "planes", "browse"] : ["image", "browse"];
  const rank = document.shape.length;
  const empty = document.shape.includes(0);
  if (empty || rank === 0) return ["values"];
  if (!isNumeric(document.dtype)) {
    const records = Array.isArray(document.dtype);
    return records ? ["values", rank === 1 ? "plot" : "image"] : ["values"];
  }
  const pictures = rank === 1 ? [] : isVolume(document) ? ["image", "planes"] : ["image"];
  if (isSeries(document.shape)) {
    const own = rank > 1 && sizeOf(document.shape) > COUNTLESS ? ["values", "plot"] : ["plot", "values"];
    return [...own, ...pictures];
  }
  return isThin(document.shape) ? ["values", ...pictures] : [...pictures, "values"];
}

/** Whether a node has a thumbnail. */
export const hasThumbnail = (document) => viewsOf(document)[0] === "image";

/** The icon of a node. */
export function iconOf(document) {
  if (document.kind === "group")
    return ome(document)["image-label"] ? "labels" : isPictureGroup(document) ? "image" : "group";
  return { image: "array", plot: "line", values: "table" }[viewsOf(document)[0]];
}

const said = (value) => (typeof value === "string" ? value : "");
const sizes = (shape) => (Array.isArray(shape) ? formatShape(shape) : "");
const ofGroups = (text) => (_, { kind }) => (kind === "group" ? text : "");

/** Attributes that say what a node means, and the text for a value: the first text counts. */
const MEANINGS = [
  ["image-label", ofGroups("label image")],
  ["multiscales", (_, document) => (isPyramid(document) ? "multiscale image" : "")],
  ["plate", ofGroups("plate")],
  ["well", ofGroups("well")],
  ["bioformats2raw.layout", ofGroups("series of images")],
  ["spatialdata_attrs", ofGroups("SpatialData")],
  ["spatialdata-encoding-type", said],
  ["encoding-type", (type, { attributes: { shape } }) => `${said(type)} ${sizes(shape)}`.trim()], // AnnData
  ["neurodata_type", (type, document) => [said(type), linksOf(document)].filter(Boolean).join(", ")], // NWB
  ["_LINKS", (_, document) => linksOf(document)],
  ["_DTYPE", (type) => (type === "object_reference" ? "references" : "")],
  ["vcf_zarr_version", (version) => `VCF Zarr ${said(version)}`],
  ["apiVersion", (version, { attributes }) => (attributes.createdOn ? `MDIO ${said(version)}` : "")],
  ["long_name", said], // CF
  ["standard_name", said],
  ["description", said],
];

/** The members that a group of NWB has elsewhere. */
function linksOf({ attributes: { _LINKS: links } }) {
  const named = Array.isArray(links) ? links.filter((link) => said(link?.name)) : [];
  return named.map(({ name, path }) => `${name} → ${said(path)}`).join(", ");
}

/** What its attributes say that a node means; "" if nothing. */
export function meaning(document) {
  const attributes = { ...document.attributes, ...ome(document) };
  const told = MEANINGS.filter(([name]) => attributes[name]);
  return told.map(([name, text]) => text(attributes[name], { ...document, attributes })).find(Boolean) ?? "";
}

/** Description of a node: shape and dtype of an array, and what it means. */
export function summary(document) {
  const told = meaning(document);
  if (document.kind === "group") return told || "group";
  return [formatShape(document.shape), formatDtype(document.dtype), told].filter(Boolean).join(" · ");
}
