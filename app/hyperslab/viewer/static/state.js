/**
 * What is on the screen, and its form in the address: everything that a link should bring back, and nothing else.
 * Names are those of the tile API, so that the query of a page is almost the query of its tiles.
 */

import { ROOT, debounce } from "./dom.js";
import { encodePath } from "./api.js";

/**
 * @typedef {object} ChannelState
 * @property {number} index
 * @property {boolean} active
 * @property {string} color six hex digits, "" for grey
 * @property {[number, number]} window
 * @property {boolean} inverted
 *
 * @typedef {object} State
 * @property {string} path
 * @property {""|"image"|"planes"|"plot"|"values"|"browse"} view "" is what suits the node
 * @property {string} field of a structured array
 * @property {[string, string]|null} plane vertical and horizontal axis; null is the node's own
 * @property {string[]|null} flip axes that run backwards; null is the node's own
 * @property {number|null} aspect height of a cell divided by its width; null is the node's own
 * @property {""|"none"} decode "none": values as they are stored; "" as their attributes mean them
 * @property {Record<string, number>} at positions on the other axes; those left out are the node's own
 * @property {ChannelState[]|null} channels null is what the node says
 * @property {""|"real"|"imag"|"phase"} component of complex values, "" is their magnitude
 * @property {boolean} labels each value is a thing of its own colour
 * @property {string} colormap "" is none
 * @property {number} gamma
 * @property {string} overlay path of the label image over the picture, "" is none
 * @property {number} opacity of the overlay
 * @property {boolean} smooth
 * @property {boolean} follow show what changes as it changes, and the end of an axis that grows
 * @property {[number, number, number]|null} box centre x, y and width of what is visible, in pixels; null is all
 * @property {[number, number]|null} range first and last index of a line plot
 * @property {number} row first row of a table
 * @property {number} column first column of a table
 * @property {[number, number][]} points columns and rows of cells whose values along an axis are plotted
 * @property {string} along the axis of that plot, "" is the node's own
 * @property {[number, number, number, number]|null} area box of cells: first column and row, those behind the last
 * @property {[number, number, number, number]|null} line columns and rows of the ends of a line
 * @property {""|"cards"|"table"} list how the members of a group are shown, "" is what suits
 * @property {string} sort column of that table, with "-" from the largest on
 * @property {string} filter text that its rows have
 * @property {string} pane which of three planes is shown where there is room for one
 */

/** @type {Omit<State, "path">} */
export const DEFAULTS = Object.freeze({
  view: "",
  field: "",
  plane: null,
  flip: null,
  aspect: null,
  decode: "",
  at: Object.freeze({}),
  channels: null,
  component: "",
  labels: false,
  colormap: "",
  gamma: 1,
  overlay: "",
  opacity: 0.5,
  smooth: false,
  follow: false,
  box: null,
  range: null,
  row: 0,
  column: 0,
  points: Object.freeze([]),
  along: "",
  area: null,
  line: null,
  list: "",
  sort: "",
  filter: "",
  pane: "",
});

// Names of parameters of this page and the tile API; axes with these names use `isel=name:position`.
const RESERVED = new Set([
  "view",
  "off",
  "overlay",
  "smooth",
  "follow",
  "box",
  "range",
  ...["row", "column", "points", "along", "area", "line", "list", "sort", "filter", "pane"],
  "isel",
  "sel",
  "method",
  "axes",
  "flip",
  "aspect",
  "decode",
  "field",
  "c",
  "color",
  "rescale",
  "invert",
  "gamma",
  "colormap_name",
  "colormap",
  "nodata",
  "component",
  "labels",
  "opacity",
  "bg",
  "quality",
  "scheme",
  "tile_size",
  "overlap",
  "empty",
  "format",
  "size",
  "bins",
  "v",
]);

/** @param {string} text @param {number} count @returns {number[]|null} */
function numbers(text, count) {
  const list = (text ?? "").split(",").map(Number);
  return list.length === count && text && list.every(Number.isFinite) ? list : null;
}

const integers = (text, count) => onlyIf((list) => list.every(Number.isInteger), numbers(text, count));
const positive = (text, fallback) => (Number(text) > 0 ? Number(text) : fallback);
const index = (text) => (/^\d+$/.test(text ?? "") ? Number(text) : 0);
const onlyIf = (good, list) => (list && good(list) ? list : null);

/** @param {Location|URL} address @returns {State} */
export function parse(address) {
  const query = new URLSearchParams(address.search);
  const view = query.get("view") ?? "";
  const axes = (query.get("axes") ?? "").split(",").filter(Boolean).map(decoded);
  const opacity = Number(query.get("opacity") ?? DEFAULTS.opacity);
  return {
    path: pathOf(address.pathname),
    view: ["image", "planes", "plot", "values", "browse"].includes(view) ? view : "",
    field: query.get("field") ?? "",
    plane: axes.length === 2 ? axes : null,
    flip: flipped(query.get("flip")),
    aspect: positive(query.get("aspect"), null),
    decode: query.get("decode") === "none" ? "none" : "",
    at: positions(query),
    channels: channels(query),
    component: ["real", "imag", "phase"].includes(query.get("component")) ? query.get("component") : "",
    labels: query.get("labels") === "1",
    colormap: query.get("colormap_name") ?? "",
    gamma: positive(query.get("gamma"), 1),
    overlay: query.get("overlay") ?? "",
    opacity: opacity >= 0 && opacity <= 1 ? opacity : DEFAULTS.opacity,
    smooth: query.get("smooth") === "1",
    follow: query.get("follow") === "1",
    box: onlyIf(([, , width]) => width > 0, numbers(query.get("box"), 3)),
    range: onlyIf(([first, last]) => first >= 0 && first < last, integers(query.get("range"), 2)),
    row: index(query.get("row")),
    column: index(query.get("column")),
    points: (query.get("points") ?? "").split(";").map((text) => integers(text, 2)).filter((point) => point?.every((n) => n >= 0)),
    along: query.get("along") ?? "",
    area: onlyIf(([x0, y0, x1, y1]) => x0 >= 0 && y0 >= 0 && x0 < x1 && y0 < y1, integers(query.get("area"), 4)),
    line: onlyIf((ends) => ends.every((n) => n >= 0), integers(query.get("line"), 4)),
    list: ["cards", "table"].includes(query.get("list")) ? query.get("list") : "",
    sort: query.get("sort") ?? "",
    filter: query.get("filter") ?? "",
    pane: query.get("pane") ?? "",
  };
}

/** @param {string|null} text "none" is no axis, "auto" the node's own */
const flipped = (text) =>
  text === null || text === "auto" ? null : text.split(",").filter((name) => name && name !== "none").map(decoded);

/** A percent-decoded name; unchanged if it is not encoded. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a per cent sign of its own
  }
}

/** Axes for the tile API: commas in names become %2C. @param {string[]} plane */
export const planeText = (plane) =>
  plane.map((name) => name.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");

function pathOf(pathname) {
  const inner = pathname.slice(ROOT.length).replace(/^\/view(\/|$)/, "");
  return inner.split("/").filter(Boolean).map(decoded).join("/");
}

/** Positions by axis name; for names of parameters from `isel=name:position`, once `sel`. */
function positions(query) {
  const pairs = [...query].filter(([name]) => !RESERVED.has(name));
  const escaped = ["sel", "isel"]
    .flatMap((name) => query.getAll(name))
    .map((text) => [text.slice(0, text.lastIndexOf(":")), text.slice(text.lastIndexOf(":") + 1)]);
  const known = [...pairs, ...escaped].filter(([, text]) => /^\d+$/.test(text));
  return Object.fromEntries(known.map(([name, text]) => [name, Number(text)]));
}

/** Active channels come as parallel `c`, `color`, `rescale`, `invert`; the others as `off=index,color,low,high,inverted`. */
function channels(query) {
  const windows = query.getAll("rescale").map((text) => numbers(text, 2));
  const [colors, inverted] = [query.getAll("color"), query.getAll("invert")];
  const indices = query.has("c") ? query.getAll("c") : windows.length ? ["0"] : [];
  if (indices.length !== windows.length || windows.includes(null)) return null;
  const on = indices.map((text, i) => ({
    index: index(text),
    active: true,
    color: colors[i] ?? "",
    window: windows[i],
    inverted: inverted[i] === "1",
  }));
  const off = query.getAll("off").map(hiddenChannel).filter(Boolean);
  const all = [...on, ...off].sort((a, b) => a.index - b.index);
  return all.length ? all : null;
}

function hiddenChannel(text) {
  const [number, color, low, high, inverted] = text.split(",");
  const window = numbers(`${low},${high}`, 2);
  return window && { index: index(number), active: false, color, window, inverted: inverted === "1" };
}

/** @param {State} state @returns {string} path and query of the page's address */
export function format(state) {
  const query = new URLSearchParams();
  const put = (name, value, text = String(value)) => value !== DEFAULTS[name] && query.append(name, text);
  put("view", state.view);
  put("field", state.field);
  if (state.plane) query.append("axes", planeText(state.plane));
  if (state.flip) query.append("flip", planeText(state.flip) || "none");
  put("aspect", state.aspect);
  put("decode", state.decode);
  appendPositions(query, state.at);
  appendChannels(query, state.channels ?? []);
  put("component", state.component);
  put("labels", state.labels, "1");
  if (state.colormap) query.append("colormap_name", state.colormap);
  put("gamma", state.gamma);
  put("overlay", state.overlay);
  put("opacity", state.opacity);
  put("smooth", state.smooth, "1");
  put("follow", state.follow, "1");
  if (state.box) query.append("box", state.box.map((n) => Number(n.toPrecision(7))).join(","));
  if (state.range) query.append("range", state.range.join(","));
  put("row", state.row);
  put("column", state.column);
  if (state.points.length) query.append("points", state.points.map((point) => point.join(",")).join(";"));
  put("along", state.along);
  if (state.area) query.append("area", state.area.join(","));
  if (state.line) query.append("line", state.line.join(","));
  for (const name of ["list", "sort", "filter", "pane"]) put(name, state[name]);
  return pageAddress(state.path, query);
}

/** @param {string} path @param {URLSearchParams} [query] */
export function pageAddress(path, query = new URLSearchParams()) {
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3A", ":").replaceAll("%3B", ";");
  return `${ROOT}/${path ? `view/${encodePath(path)}` : ""}${text && `?${text}`}`;
}

/** Add positions for the tile API. @param {URLSearchParams} query */
export function appendPositions(query, at) {
  for (const [name, position] of Object.entries(at)) {
    if (RESERVED.has(name)) query.append("isel", `${name}:${position}`);
    else query.append(name, String(position));
  }
}

function appendChannels(query, list) {
  for (const { index: number, color, window, inverted } of list.filter((channel) => !channel.active)) {
    query.append("off", [number, color, ...window, Number(inverted)].join(","));
  }
  const active = list.filter((channel) => channel.active);
  const plain = list.length === 1 && !list[0].color; // no channel axis: the window is all there is to say
  appendActive(query, active, { numbered: !plain, colored: !plain });
}

/**
 * Write channels as the tile API reads them: parallel parameters.
 * @param {URLSearchParams} query
 * @param {ChannelState[]} active
 * @param {{numbered: boolean, colored: boolean}} which parameters are wanted
 */
export function appendActive(query, active, { numbered, colored }) {
  const invert = active.some((channel) => channel.inverted);
  for (const { index: number, color, window, inverted } of active) {
    if (numbered) query.append("c", String(number));
    if (colored) query.append("color", color);
    query.append("rescale", window.join(","));
    if (invert) query.append("invert", String(Number(inverted)));
  }
}

/**
 * The state and those who watch it. Changes of the same kind in a row (one slider, one window) are one step back.
 * @returns {{get: () => State, update: (patch: Partial<State>, kind?: string) => void, watch: (fn: (state: State, before: State) => void) => void, write: () => void}}
 *   `write`: put what has changed into the address now
 */
export function createStore() {
  let state = parse(location);
  let lastKind = "";
  let waiting = null;
  const watchers = [];
  const notify = (before) => watchers.forEach((watcher) => watcher(state, before));

  function write() {
    if (waiting === null) return;
    later.cancel();
    const address = format(state);
    const push = waiting !== "follow" && waiting !== lastKind;
    if (push) lastKind = waiting;
    waiting = null;
    if (address === location.pathname + location.search) return;
    history[push ? "pushState" : "replaceState"](null, "", address);
  }
  const later = debounce(150, write);

  function update(patch, kind = "follow") {
    if (kind !== "follow" && waiting !== null && waiting !== kind) write();
    const before = state;
    state = { ...state, ...patch };
    if (waiting === null || kind !== "follow") waiting = kind;
    if (state.path !== before.path) write();
    else later();
    notify(before);
  }

  addEventListener("popstate", () => {
    later.cancel();
    waiting = null;
    lastKind = "";
    const before = state;
    state = parse(location);
    notify(before);
  });
  addEventListener("pagehide", write);
  return { get: () => state, update, watch: (fn) => watchers.push(fn), write };
}
