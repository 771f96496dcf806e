/** The page: from the address to a node, from the node to a view, and from every change back to the address. */

import { metadata, Problem, tileInfo } from "./api.js";
import { createBrowse } from "./browse.js";
import { createDock } from "./dock.js";
import { createHeader, isNarrow, switchTheme, togglePanel } from "./header.js";
import { createImageView } from "./imageview.js";
import { createInspector } from "./inspector.js";
import { createHelp, listen } from "./keys.js";
import { createStrip, loadingState, problemState } from "./notice.js";
import { describe, lastName, viewsOf } from "./nodes.js";
import { createPlot } from "./plot.js";
import { createStore } from "./state.js";
import { createTable } from "./table.js";
import { positionsOf } from "./tilequery.js";
import { createTree } from "./tree.js";
import { numericField, plainInfo } from "./arrays.js";

const SLOW = 250; // ms before a wait is shown

const store = createStore();
const stage = document.getElementById("stage");
const inspector = createInspector(document.getElementById("inspector"));
const help = createHelp();
const strip = createStrip();
const header = createHeader(document.getElementById("header"), { onopen: open, onview: (view) => store.update({ view }, "view"), onhelp: help.toggle });
const tree = createTree(document.getElementById("tree"), open);

/** @type {{path: string, document: any, views: string[], view: string, infoKey: string, info: any, shown: any}} */
let node = null;
let imageView = null;
let turn = 0;

function open(path) {
  if (isNarrow()) togglePanel("tree", false);
  store.update({ ...blankState, path }, "open");
  stage.focus({ preventScroll: true });
}

const blankState = { view: "", field: "", plane: null, at: {}, channels: null, colormap: "", gamma: 1, overlay: "", box: null, range: null, row: 0, column: 0 };

/** Load what the state needs and is not there yet, then show it; a newer call makes an older one pointless. */
async function show(state, before) {
  const mine = ++turn;
  const waiting = setTimeout(() => mine === turn && !node?.shown && replace(loadingState("Opening…")), SLOW);
  try {
    const ready = await prepare(state);
    if (mine === turn) render(state, before, ready);
  } catch (problem) {
    if (mine === turn) fail(state, problem);
  } finally {
    clearTimeout(waiting);
  }
}

async function prepare(state) {
  const same = node?.path === state.path && node.document;
  if (!same) node = { path: state.path, shown: null };
  const current = node;
  current.document ??= await metadata(state.path);
  const views = viewsOf(current.document);
  const view = views.includes(state.view) ? state.view : views[0];
  const field = state.field || (view === "image" || view === "plot" ? numericField(current.document) : "");
  const resolved = { ...state, field };
  if (view !== "image") return { current, views, view, resolved, info: plainInfo(current.document) };
  const query = new URLSearchParams({ ...(state.plane && { axes: state.plane.join(",") }), ...(field && { field }) }).toString();
  if (current.infoKey !== query || !current.info) {
    current.info = { ...(await tileInfo(state.path, query)), field };
    current.infoKey = query;
  }
  current.array ??= current.document.kind === "array" ? current.document : await describe(current.info.levels[0].path);
  return { current, views, view, resolved, info: current.info };
}

function render(state, before, { current, views, view, resolved, info }) {
  const changed = current.shown === null || current.view !== view || current.shownInfo !== info;
  Object.assign(current, { view, shownInfo: info });
  header.update(state.path, views, view);
  document.title = state.path ? `${lastName(state.path)} · Hyperslab` : "Hyperslab";
  if (!before || before.path !== state.path) void tree.select(state.path);
  if (changed) mount(current, view, resolved, info);
  current.shown.update?.(resolved, before ?? resolved, info);
  showSight();
}

/** Put a view on the stage and its panels beside it. */
function mount(current, view, state, info) {
  strip.hide();
  if (view !== "image") imageView?.hide();
  current.shown?.close?.();
  current.shown = { image: mountImage, plot: mountPlot, values: mountTable, browse: mountBrowse }[view](current, state, info);
  const panels = current.shown.panels?.(info) ?? [];
  inspector.open({ document: current.document, array: current.array ?? current.document, info: view === "image" ? info : null, panels, readable: view !== "browse" });
}

function mountImage() {
  imageView ??= createImageView(store, { onsight: showSight, onfail: explainTile });
  replace(imageView.element);
  const { element, panels, sight, links, update } = imageView;
  return {
    element, panels, sight, links,
    update: (state, before, info) => update(state, info, before),
    actions: imageActions(imageView),
  };
}

function imageActions({ picture, dock, planes, channels, overlay, home }) {
  return {
    move: (x, y) => picture.panBy(x, y), zoom: (factor) => picture.zoomBy(factor), home, step: dock.step, play: () => dock.toggle(),
    plane: planes.cycle, channel: channels.toggle, labels: overlay.toggle,
  };
}

function mountPlot({ document: array }, state, info) {
  const plot = createPlot({ document: array, axis: info.axes[0], field: state.field }, store, (problem) => strip.show(problem.message));
  replace(plot.element);
  const actions = { move: (x) => plot.move(x), zoom: (factor) => plot.zoom(1 / factor), home: plot.home, step: (by) => plot.move(by) };
  document.addEventListener("themechange", plot.redraw);
  const close = () => (plot.close(), document.removeEventListener("themechange", plot.redraw));
  return { update: plot.update, sight: () => ({ path: array.path, select: plot.select(), field: state.field }), actions, close };
}

function mountTable({ document: array }, state, info) {
  const table = createTable(array, store, () => positionsOf(store.get(), info), (problem) => strip.show(problem.message));
  const dock = createDock(store, { settled: () => Promise.resolve() });
  replace(table.element, dock.element);
  const update = (next, before) => {
    dock.update(next, info);
    table.update(next, before);
  };
  const actions = { step: dock.step, play: () => dock.toggle(), move: (x, y) => y && table.turnPage(Math.sign(y)) };
  return { update, sight: () => ({ path: array.path, select: table.select(), field: store.get().field }), actions, close: dock.stop };
}

function mountBrowse({ document: group }) {
  replace(createBrowse(group, open));
  return { actions: {} };
}

function replace(...elements) {
  stage.replaceChildren(strip.element, ...elements);
}

function showSight() {
  const shown = node?.shown;
  if (!shown?.sight || (shown.element && !imageView.ready())) return;
  inspector.snippets.update(shown.sight(), shown.links?.() ?? []);
}

function fail(state, error) {
  const problem = error instanceof Problem ? error : new Problem({ title: "The page failed", detail: String(error?.message ?? error), status: 0, code: "page" });
  if (!(error instanceof Problem)) console.error(error);
  imageView?.hide();
  const views = node?.document ? viewsOf(node.document) : [];
  header.update(state.path, views, state.view || views[0]);
  inspector.clear();
  if (node) node.shown = null;
  const again = { title: "Try again", onclick: () => void show(store.get(), null) };
  const parent = state.path.split("/").slice(0, -1).join("/");
  replace(problemState(problem, state.path ? [again, { title: parent ? `Open ${parent}` : "All stores", onclick: () => open(parent) }] : [again]));
  void tree.select(state.path);
}

/** A tile failed: ask for it once more to hear why. */
async function explainTile(address) {
  const answer = await fetch(address).catch(() => null);
  if (answer?.ok) return;
  const facts = await answer?.json().catch(() => null);
  strip.show(facts?.detail ?? facts?.title ?? "A part of the picture could not be loaded.");
}

const act = (name) => (...args) => node?.shown?.actions?.[name]?.(...args);
listen({
  move: act("move"), zoom: act("zoom"), home: act("home"), step: act("step"), play: act("play"), plane: act("plane"),
  channel: act("channel"), labels: act("labels"), filter: tree.focus, panels: () => togglePanel("inspector"),
  view: () => nextView(), theme: switchTheme, help: help.toggle,
});

function nextView() {
  const { document: current, view } = node ?? {};
  const views = current ? viewsOf(current) : [];
  if (views.length > 1) store.update({ view: views[(views.indexOf(view) + 1) % views.length] }, "view");
}

document.addEventListener("themechange", () => imageView?.channels.redraw());
store.watch((state, before) => void show(state, before));
void show(store.get(), null);
