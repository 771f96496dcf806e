/** Main module: shows the node and view of the address, and updates the address with every change. */

import { get, metadata, Problem, tileInfo } from "./api.js";
import { numericFields, plainInfo, tableInfo } from "./arrays.js";
import { coordinatesOf } from "./coordinates.js";
import { decodeOf, isPacked, meaningOf } from "./decoded.js";
import { ROOT } from "./dom.js";
import { createDownload } from "./download.js";
import { createFollower } from "./follow.js";
import { closeTreeOutside, createHeader, isNarrow, switchTheme, togglePanel } from "./header.js";
import { createInspector } from "./inspector.js";
import { createHelp, listen } from "./keys.js";
import { describe, lastName, viewsOf } from "./nodes.js";
import { createStrip, loadingState, problemState } from "./notice.js";
import { library } from "./osd.js";
import { createStore, DEFAULTS, planeText } from "./state.js";
import { createTree } from "./tree.js";
import { throttle } from "./timing.js";
import { createViews } from "./views.js";

const SLOW = 250; // ms before a wait is shown
const AWAY_EVERY = 1500; // ms between questions to a service that is away

const EXPLAIN_EVERY = 1000; // ms: where one tile fails, many do, and for the same reason

const store = createStore();
const stage = document.getElementById("stage");
const inspector = createInspector(document.getElementById("inspector"));
const help = createHelp();
const strip = createStrip();
const tree = createTree(document.getElementById("tree"), open);
const header = createHeader(document.getElementById("header"), {
  onopen: open,
  onview: openView,
  ondecode: (decode) => store.update({ decode, channels: null }, "decode"),
  onfield: (field) => store.update({ field, range: null, channels: null }, "field"),
  onfollow: () => store.update({ follow: !store.get().follow }, "follow changes"),
  ondownload: () => download.open(),
  onhelp: help.toggle,
});
const download = createDownload(() => ({ sight: current?.shown?.source?.() ?? null, png: current?.shown?.png ?? null }));
const follower = createFollower(refresh);
const explainSoon = throttle(EXPLAIN_EVERY, (address, asked) => void explainTile(address, asked));
const views = createViews({
  store,
  open,
  onsight: showSight,
  onproblem: (problem) => {
    strip.show(problem.message);
    if (problem.status === 0) void recover();
  },
  ontile: (address) => explainSoon(address, question),
});

/**
 * The node of the address: its document, the tile routes' information for one plane and field (`infoKey`).
 * @type {{path: string, document?: any, plain?: any, info?: any, infoKey?: string}|null}
 */
let node = null;
/** The current view. @type {{path: string, view: string, info: any, state: any, shown: import("./views.js").Shown}|null} */
let current = null;
let turn = 0;
/** Number of the latest request: problems of older ones are ignored. */
let question = 0;

function open(path) {
  if (isNarrow()) togglePanel("tree", false);
  const { smooth, opacity } = store.get(); // tastes outlive the node
  store.update({ ...DEFAULTS, smooth, opacity, path }, "open");
  stage.focus({ preventScroll: true });
}

/** Load what the state needs, then show it; a newer call supersedes older ones. */
async function show(state) {
  const mine = ++turn;
  stage.ariaBusy = "true";
  const wait = setTimeout(() => mine === turn && node?.path !== current?.path && clear(loadingState("Opening…")), SLOW);
  try {
    const ready = await prepare(state);
    if (mine === turn) render(ready);
  } catch (error) {
    if (mine === turn) fail(state, error);
  } finally {
    clearTimeout(wait);
    if (mine === turn) stage.ariaBusy = "false";
  }
}

async function prepare(state) {
  if (node?.path !== state.path) node = { path: state.path };
  return load(node, state);
}

/** Load the parts of a node that the state needs. */
async function load(mine, state) {
  mine.document ??= await metadata(state.path);
  const available = viewsOf(mine.document);
  const view = available.includes(state.view) ? state.view : available[0];
  const fields = ["image", "planes", "plot"].includes(view) ? numericFields(mine.document) : [];
  const field = state.field || (fields[0] ?? "");
  const ready = { node: mine, available, view, fields, state: { ...state, field } };
  const decode = decodeOf(mine.document, state, view);
  if (view === "image" || view === "planes") {
    await prepareInfo(mine, view === "image" ? state : { ...state, plane: null, aspect: null }, field, decode);
    return { ...ready, info: mine.info };
  }
  if (view === "values" && available.includes("image")) {
    const drawn = state.field || (numericFields(mine.document)[0] ?? "");
    const there = await prepareInfo(mine, state, drawn, decode).then(() => true, () => false); // what cannot be drawn has values
    if (there) return { ...ready, info: mine.table };
  }
  if (mine.plain?.decode !== decode) mine.plain = plainInfo(mine.document, decode);
  return { ...ready, info: mine.plain };
}

/** The `info.json`, which depends on plane, aspect, field and decoding. */
async function prepareInfo(mine, { plane, aspect, component }, field, decode) {
  const asked = {
    ...(plane && { axes: planeText(plane) }),
    aspect: String(aspect ?? "auto"),
    ...(field && { field }),
    ...(decode && { decode }),
    ...(component && { component }),
  };
  const key = new URLSearchParams(asked).toString();
  if (mine.infoKey === key) return;
  const [info] = await Promise.all([tileInfo(mine.path, key), library()]);
  mine.info = { ...info, version: mine.version, field, decode, component, meaning: meaningOf(mine.document, field, decode) };
  mine.table = tableInfo(mine.info);
  mine.infoKey = key;
}

function render({ node: mine, available, view, fields, state, info }) {
  const moved = current?.path !== mine.path;
  const decode = view !== "browse" && isPacked(mine.document) ? state.decode || "cf" : "";
  header.update({ path: mine.path, available, view, fields, field: state.field, decode, follow: state.follow });
  follower.watch(state.follow ? mine.path : null);
  if (moved) {
    document.title = mine.path ? `${lastName(mine.path)} · Hyperslab` : "Hyperslab";
    void tree.select(mine.path, { expand: view === "browse" });
  }
  if (moved || current.view !== view || current.info !== info || current.state.field !== state.field) {
    mount(mine, view, state, info);
  }
  const before = current.state;
  if (before && before.box === state.box) newQuestion();
  current.state = state;
  current.shown.update(state, before);
  showSight();
}

/** Show a view and its panels. */
function mount(mine, view, state, info) {
  newQuestion();
  if (current?.view !== view || view !== "image") current?.shown?.close?.();
  const shown = views[view](mine.document, info, state);
  current = { path: mine.path, view, info, state: null, shown };
  place(...shown.elements);
  void describeArray(mine, view, info);
  void nameCoordinates(mine, shown, info);
}

/** Show the panels; the facts of a pyramid are those of its finest level, which is loaded later. */
async function describeArray({ document: array }, view, info) {
  const { shown } = current;
  const facts = { document: array, info: view === "image" || view === "planes" ? info : null, panels: shown.panels ?? [] };
  inspector.open({ ...facts, array });
  if (!["image", "planes"].includes(view) || array.kind === "array") return;
  const finest = await describe(info.levels[0].path).catch(() => null); // the picture is there all the same
  if (finest && current?.shown === shown) inspector.open({ ...facts, array: finest });
}

/** Load coordinates of the axes after the picture, from sibling arrays. */
async function nameCoordinates(mine, shown, info) {
  const places = await coordinatesOf(mine.document);
  for (const axis of info.axes) axis.place = places[axis.name];
  if (Object.keys(places).length && current?.shown === shown) shown.named?.();
}

/** Show a changed node again, at the end of an axis that has grown. @param {string} version */
async function refresh(version) {
  const before = node;
  const fresh = { path: before.path, version };
  const state = store.get();
  try {
    await load(fresh, state);
  } catch (error) {
    if (node === before && state.follow) fail(state, error);
    return;
  }
  if (node !== before || !store.get().follow || store.get().path !== fresh.path) return;
  const [old, info] = [before, fresh].map((each) => each.info ?? each.plain ?? { axes: [], plane: [] });
  const grown = info.axes.filter(
    ({ name, size }) => !info.plane.includes(name) && size > (old.axes.find((axis) => axis.name === name)?.size ?? size),
  );
  node = fresh;
  const ends = Object.fromEntries(grown.map(({ name, size }) => [name, size - 1]));
  store.update({ at: { ...store.get().at, ...ends } });
  await new Promise((resolve) => setTimeout(resolve)); // until the views have heard of it
  await current?.shown?.settled?.();
}

/** Show elements; those already shown are not replaced, to keep the focus. */
function place(...elements) {
  const wanted = [strip.element, ...elements];
  if (wanted.length !== stage.children.length || wanted.some((element, i) => element !== stage.children[i])) {
    stage.replaceChildren(...wanted);
  }
}

/** Show something other than a view. */
function clear(element) {
  current?.shown?.close?.();
  current = null;
  newQuestion();
  place(element);
}

function showSight() {
  const texts = current?.shown?.texts();
  if (texts) inspector.snippets.update(texts, current.shown.links?.());
}

let awaiting = false;

/** If the service is unreachable, wait for it and reload the page, whose address has the whole state. */
async function recover() {
  if (awaiting) return;
  awaiting = true;
  const isThere = () => fetch(`${ROOT}/healthz`, { cache: "no-store" }).then(({ ok }) => ok, () => false);
  const wasAway = !(await isThere()); // else it is no more than this question that gets no answer
  while (wasAway && !(await isThere())) await new Promise((resolve) => setTimeout(resolve, AWAY_EVERY));
  awaiting = false;
  if (wasAway) location.reload();
}

function fail(state, error) {
  const known = error instanceof Problem;
  if (known && error.status === 0) void recover();
  if (!known) console.error(error);
  const unknown = { title: "The page failed", detail: String(error?.message ?? error), status: 0, code: "page" };
  const available = node?.document ? viewsOf(node.document) : [];
  header.update({ path: state.path, available, view: state.view || available[0], follow: state.follow });
  inspector.clear();
  const parent = state.path.split("/").slice(0, -1).join("/");
  const up = { title: parent ? `Open ${parent}` : "All stores", onclick: () => open(parent) };
  const again = { title: "Try again", onclick: () => void show(store.get()) };
  clear(problemState(known ? error : new Problem(unknown), state.path ? [again, up] : [again]));
  void tree.select(state.path);
}

/** Clear problems, as other data are requested. */
function newQuestion() {
  question += 1;
  strip.hide();
}

/** A tile failed: request it again for the problem. */
async function explainTile(address, asked) {
  if (asked !== question) return;
  try {
    await get(address);
  } catch (problem) {
    if (asked !== question) return;
    strip.show(problem.message);
    if (problem.status === 0) return void recover();
    await showWhatChanged(asked);
  }
}

/** If the picture's size has changed, it was resized or replaced. */
async function showWhatChanged(asked) {
  const { path, info, infoKey } = node;
  const now = await tileInfo(path, infoKey).catch(() => info);
  if (asked !== question || sizeOf(now) === sizeOf(info)) return;
  node = { path };
  await show(store.get());
  if (node.path === path) strip.show("This node has changed since it was opened; the current version is shown.");
}

const sizeOf = ({ width, height, axes }) => JSON.stringify([width, height, axes.map(({ size }) => size)]);

function nextView() {
  const available = node?.document ? viewsOf(node.document) : [];
  const next = available[(available.indexOf(current?.view) + 1) % available.length];
  if (available.length > 1) openView(next);
}

/** Start a table at the visible part of the picture. */
function openView(view) {
  const corner = view === "values" && current?.shown.corner?.();
  store.update({ view, ...corner }, "view");
}

/** Run the action of a key in the current view. @param {keyof import("./keys.js").Actions} name */
function act(name) {
  return (...facts) => current?.shown?.actions[name]?.(...facts);
}

listen({
  ...Object.fromEntries(
    ["move", "zoom", "home", "step", "play", "plane", "channel", "labels", "series", "area", "line", "smooth"].map((name) => [name, act(name)]),
  ),
  filter: () => {
    if (isNarrow()) togglePanel("tree", true);
    tree.focus();
  },
  download: download.open,
  panels: (open) => togglePanel("inspector", open),
  view: nextView,
  theme: switchTheme,
  help: help.toggle,
});
closeTreeOutside(stage);
document.getElementById("header").addEventListener("click", store.write, { capture: true }); // links are copied there
document.addEventListener("themechange", () => current?.shown?.themed?.());
store.watch((state) => void show(state));
void show(store.get());
