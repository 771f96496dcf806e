/** Three planes of a volume, linked by one cross-hair: each shows the position of the others, in the same colours. */

import { tileInfo, values } from "./api.js";
import { createChannels } from "./channels.js";
import { createColormaps } from "./colormaps.js";
import { createColorBars } from "./colorbar.js";
import { createDock } from "./dock.js";
import { say } from "./decoded.js";
import { clamp, debounce, h } from "./dom.js";
import { Picture, sampledNote } from "./image.js";
import { lastName } from "./nodes.js";
import { planeText } from "./state.js";
import { activeIndices, channelsOf, frameOf, planeLabel, positionsOf, selectText } from "./tilequery.js";
import { throttle } from "./timing.js";

const SHOW_EVERY = 60; // ms between frames asked for while the cross-hair moves

/** The three axes of a volume: rows and columns of the node's own plane, and the one that they are stacked along. */
function axesOf(info) {
  const others = info.axes.filter(({ name, size }) => size > 1 && !info.plane.includes(name) && name !== info.channel_axis);
  const third = others.find(({ type }) => type === "space") ?? others.toSorted((a, b) => b.size - a.size)[0];
  return [...info.plane, third.name];
}

/**
 * @param {any} document node document @param {import("./tilequery.js").TileInfo} own of its own plane
 * @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @param {{onsight: () => void, onproblem: (problem: Error) => void, ontile: (address: string) => void}} events
 */
export function createVolume(document, own, store, events) {
  const [down, across, through] = axesOf(own);
  const middle = Object.fromEntries(own.plane.map((name) => [name, own.axes.find((axis) => axis.name === name).size >> 1]));
  const info = { ...own, plane: [], selection: { ...middle, ...own.selection } };
  const value = h("output", { class: "single-value", "data-testid": "cross-value" });
  const choice = h("div", { class: "segmented pane-choice", "aria-keyshortcuts": "p", role: "group", "aria-label": "Plane" });
  const [front, side, top] = [[down, across], [down, through], [through, across]];
  const labels = [planeLabel(front), planeLabel([through, down]), planeLabel(top)]; // xy, yz, xz
  const bar = createColorBars(store);
  const panes = [front, side, top].map((plane, i) => createPane(plane, labels[i]));
  const facts = h("div", { class: "pane-facts" }, choice, value, bar.element);
  const grid = h("div", { class: "panes" }, panes[0].element, panes[1].element, panes[2].element, facts);
  const dock = createDock(store, { settled });
  const channels = createChannels(store, settled);
  const colormaps = createColormaps(store, channels.invert);
  const element = h("div", { class: "planes-view", "data-view": "planes", "aria-busy": "true" }, grid, dock.element);
  let active = panes[0];
  let question = "";
  let closed = false;

  async function settled() {
    await new Promise((resolve) => setTimeout(resolve));
    await Promise.all(panes.map(({ picture }) => picture.settled()));
  }

  /** Positions on all axes. */
  const here = () => positionsOf({ ...store.get(), plane: null }, info);

  function move(patch) {
    const at = { ...store.get().at, ...patch };
    for (const [name, position] of Object.entries(patch)) {
      at[name] = clamp(position, 0, info.axes.find((axis) => axis.name === name).size - 1);
    }
    store.update({ at }, "cross-hair");
  }

  function createPane(plane, label) {
    const canvas = h("div", { class: "picture", role: "img", tabindex: 0, "aria-label": `Plane ${label} of ${own.path}`, "data-testid": "pane" });
    const lines = ["across", "down"].map((name) => h("div", { class: `cross ${name}`, hidden: true }));
    const sampled = sampledNote();
    const body = h("div", { class: "pane", "data-plane": label }, canvas, lines, h("span", { class: "pane-name" }, label), sampled);
    const picture = new Picture(canvas, {
      onMove: () => lay(),
      onResize: () => queueMicrotask(() => picture.home(true)),
      onLoad: () => tellBusy(),
      onFail: events.ontile,
      onPart: () => {},
    });
    const pane = { element: body, picture, plane, label, info: null, update, lay, stop: () => show.cancel() };
    let asked = null; // one answer for all updates, so that the newest is the last to be shown
    picture.viewer.addHandler("update-viewport", () => (sampled.hidden = !pane.info || !picture.isSampled(pane.info.sampled_below)));
    const show = throttle(SHOW_EVERY, (frame) => picture.show(frame));
    canvas.addEventListener("frame", () => (lay(), events.onsight()));
    canvas.addEventListener("focus", () => (active = pane));
    picture.viewer.addHandler("canvas-click", ({ quick, originalEvent }) => {
      const cell = quick && picture.pixelAt(originalEvent.clientX, originalEvent.clientY);
      canvas.focus({ preventScroll: true });
      if (cell) move({ [plane[0]]: cell.y, [plane[1]]: cell.x });
    });
    canvas.addEventListener("keydown", (event) => {
      const [y, x] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
      if (y === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      const flip = picture.wanted?.flip ?? [false, false];
      const [rows, columns] = [flip[0] ? -y : y, flip[1] ? -x : x];
      move({ [plane[0]]: here()[plane[0]] + rows, [plane[1]]: here()[plane[1]] + columns });
    });
    choice.append(h("button", { type: "button", "data-pane": label, onclick: () => store.update({ pane: label }, "pane") }, label));

    async function update(state) {
      asked ??= pane === panes[0] ? Promise.resolve(own) : ask(plane);
      pane.info = await asked.catch((problem) => ((asked = null), Promise.reject(problem)));
      if (closed) return;
      const at = { ...state.at, ...here() };
      const shown = { ...state, plane, at, flip: null, aspect: null, box: null };
      if (own.kind !== "labels") shown.channels = channelsOf(state, own);
      show(frameOf(shown, pane.info));
    }

    /** Place the cross-hair. */
    function lay() {
      const ready = picture.shown !== null;
      for (const line of lines) line.hidden = !ready;
      if (!ready) return;
      const { x, y } = picture.screenAt(here()[plane[1]] + 0.5, here()[plane[0]] + 0.5);
      lines[0].style.top = `${y}px`;
      lines[1].style.left = `${x}px`;
    }
    return pane;
  }

  async function ask(plane) {
    const { field, decode, component, version, meaning } = own;
    const given = { axes: planeText(plane), aspect: "auto", ...(field && { field }), ...(decode && { decode }), ...(component && { component }) };
    return { ...(await tileInfo(own.path, new URLSearchParams(given).toString())), field, decode, component, version, meaning };
  }

  const tellBusy = () => element.setAttribute("aria-busy", String(panes.some(({ picture }) => picture.busy || !picture.shown)));

  /** The value under the cross-hair. */
  const read = debounce(120, async (state) => {
    const at = here();
    const mine = (question = JSON.stringify(at));
    const box = { x: [at[across], at[across] + 1], y: [at[down], at[down] + 1] };
    const select = selectText({ ...state, plane: [down, across], at: { ...state.at, ...at } }, { ...own, plane: [down, across] }, box);
    try {
      const found = await values(own.levels[0].path, select, { field: state.field, decode: own.decode });
      if (mine === question) value.replaceChildren(...told(found, state));
    } catch (problem) {
      if (mine === question) value.textContent = problem.message;
    }
  });

  /** A value, or that of each channel with its name. */
  function told(found, state) {
    const complex = /^[<>|]?c\d/.test(own.dtype);
    if (!own.channel_axis || !Array.isArray(found) || complex) return [say(Array.isArray(found) ? found.flat() : found, own.meaning)];
    const names = activeIndices(state, own).map((index) => own.channels.find((each) => each.index === index)?.label || `Channel ${index}`);
    return found.flat(Infinity).map((each, i) => h("div", { class: "probe-channel" }, h("i", {}, names[i]), say(each, own.meaning)));
  }

  /** @param {import("./state.js").State} state */
  function update(state) {
    const chosen = panes.find(({ label }) => label === state.pane) ?? panes[0];
    for (const pane of panes) pane.element.classList.toggle("chosen", pane === chosen);
    for (const button of choice.children) button.setAttribute("aria-pressed", String(button.dataset.pane === chosen.label));
    dock.update({ ...state, plane: null }, info);
    channels.update(state, own);
    colormaps.update(state, own);
    bar.update(state, own);
    for (const pane of panes) {
      pane.lay();
      pane.update(state).catch(events.onproblem);
    }
    read(state);
  }

  /** The whole volume, or the channels that are displayed of it. */
  const sight = () => ({ path: own.levels[0].path, name: lastName(own.path), select: "", field: own.field, decode: own.decode, rank: own.levels[0].shape.length });

  return {
    element,
    update,
    named: dock.refresh,
    sight,
    settled,
    ready: () => panes[0].picture.shown !== null,
    redraw: channels.redraw,
    panels: [{ title: own.channel_axis ? "Channels" : "Display", body: [channels.element, colormaps.element], action: channels.reset }],
    zoom: (factor) => panes.forEach(({ picture }) => picture.zoomBy(factor)),
    home: () => panes.forEach(({ picture }) => picture.home()),
    step: (by) => {
      const name = [down, across, through].find((each) => !active.plane.includes(each));
      move({ [name]: here()[name] + by });
    },
    play: () => dock.toggle(),
    channel: channels.toggle,
    plane: () => choice.querySelector("[aria-pressed=true] + button, button").click(),
    close: () => {
      closed = true;
      dock.stop();
      read.cancel();
      for (const { picture, stop } of panes) (stop(), picture.clear(), picture.viewer.destroy());
    },
  };
}
