/** Metadata of a node: facts, attributes and problems. */

import { counted, formatBytes, formatCodec, formatDtype, formatShape, formatValue } from "./format.js";
import { h } from "./dom.js";
import { meaning } from "./nodes.js";

/** Facts of an array as a list of names and values. @param {any} document node document */
export function facts(document, info = null) {
  const names = document.dimension_names;
  const isV3 = document.zarr_format === 3;
  return list([
    meaning(document) && ["Meaning", meaning(document)],
    ["Shape", formatShape(document.shape)],
    names?.some(Boolean) && ["Axes", names.map((name) => name ?? "–").join(", ")],
    ["Data type", dtypeText(document)],
    ["Chunks", pieces(document.shape, document.chunks, "chunk", document.chunk_grid?.name)],
    document.shards && ["Shards", pieces(document.shape, document.shards, "shard")],
    ["Size", formatBytes(document.nbytes)],
    info &&
      info.levels.length > 1 && ["Levels", info.levels.map((level) => level.shape.slice(-2).join(" × ")).join(", ")],
    isV3
      ? ["Codecs", document.codecs.map(formatCodec).join(", ")]
      : ["Compressor", formatCodec(document.compressor)],
    !isV3 && document.filters?.length && ["Filters", document.filters.map(formatCodec).join(", ")],
    ["Fill value", document.fill_value === null ? "none" : formatValue(document.fill_value)],
    ["Memory order", document.order],
    ["Format", `Zarr v${document.zarr_format}`],
  ]);
}

/** Shape and number of chunks or shards, if they are all alike. */
function pieces(shape, sizes, noun, grid) {
  if (grid === "rectilinear") return `up to ${formatShape(sizes)}`;
  const count = shape.reduce((product, size, axis) => product * Math.ceil(size / sizes[axis]), 1);
  return shape.length ? `${formatShape(sizes)} · ${counted(count, noun)}` : formatShape(sizes);
}

function dtypeText(document) {
  const { dtype } = document;
  if (!Array.isArray(dtype)) return `${formatDtype(dtype)} (${dtype})`;
  return h(
    "ul",
    { class: "fields" },
    dtype.map(([name, type, shape]) =>
      h("li", {}, h("b", {}, name), ` ${formatDtype(type)}${shape ? ` [${shape.join(", ")}]` : ""}`),
    ),
  );
}

function list(rows) {
  return h(
    "dl",
    { class: "facts" },
    rows.filter(Boolean).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

/** A JSON value as a collapsible tree. */
export function attributes(value) {
  const entries = Object.entries(value ?? {});
  if (!entries.length) return h("p", { class: "hint" }, "No attributes.");
  return h(
    "div",
    { class: "json" },
    entries.map(([key, inner]) => member(key, inner, 0)),
  );
}

function member(key, value, depth) {
  const name = h("span", { class: "json-key" }, key);
  if (value === null || typeof value !== "object") return h("div", { class: "json-row" }, name, leaf(value));
  const entries = Object.entries(value);
  const text = JSON.stringify(value);
  if (text.length <= 44 && entries.every(([, inner]) => inner === null || typeof inner !== "object")) {
    return h("div", { class: "json-row" }, name, h("span", { class: "json-leaf" }, text));
  }
  const size = counted(entries.length, Array.isArray(value) ? "item" : "member");
  const body = h("div", { class: "json-body" });
  const fill = () =>
    body.childElementCount || body.append(...entries.slice(0, 500).map(([k, inner]) => member(k, inner, depth + 1)));
  const details = h(
    "details",
    { ontoggle: fill },
    h("summary", {}, name, h("span", { class: "json-size" }, size)),
    body,
  );
  return details;
}

function leaf(value) {
  return h("span", { class: `json-leaf ${typeof value}` }, typeof value === "string" ? value : JSON.stringify(value));
}

/** Problems of a node's metadata. @param {any[]} problems */
export function problemList(problems) {
  const text = (problem) =>
    typeof problem === "string" ? problem : (problem.detail ?? problem.reason ?? JSON.stringify(problem));
  return problems.length
    ? h(
        "ul",
        { class: "problems" },
        problems.map((problem) => h("li", {}, text(problem))),
      )
    : null;
}
