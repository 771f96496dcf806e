/** Sliders with playback for the axes outside the plane. */

import { clamp, h, iconButton, setIcon } from "./dom.js";
import { positionOn } from "./format.js";
import { positionsOf, sliderAxes } from "./tilequery.js";

const FRAMES_PER_SECOND = 10;

/**
 * @param {{update: (patch: object, kind?: string) => void, get: () => import("./state.js").State}} store
 * @param {{settled: () => Promise<void>}} picture
 */
export function createDock(store, picture) {
  const element = h("div", { class: "dock", role: "group", "aria-label": "Position on the other axes" });
  let info = null;
  /** @type {Map<string, {element: HTMLElement, set: (position: number) => void, play: HTMLElement}>} */
  let rows = new Map();
  let playing = "";
  let active = "";
  let direction = 0;
  let path = ""; // of the node whose sliders these are

  function moveTo(name, position, kind = `axis ${name}`) {
    const state = store.get();
    if (state.path !== path) return void stop(); // another node is being opened
    const before = positionsOf(state, info)[name];
    active = name;
    if (position !== before) direction = Math.sign(position - before);
    store.update({ at: { ...state.at, [name]: position } }, kind);
  }

  /** A step along the axis used last. */
  function step(by) {
    const axis = sliderAxes(store.get(), info).find((a) => a.name === active) ?? firstLong(store.get(), info);
    if (!axis) return;
    moveTo(axis.name, clamp(positionsOf(store.get(), info)[axis.name] + by, 0, axis.size - 1));
  }

  function toggle(name = active || firstLong(store.get(), info)?.name) {
    if (!name) return;
    const start = playing !== name;
    stop();
    if (start) void run(name);
  }

  function stop() {
    if (!playing) return;
    showPlaying(playing, false);
    playing = "";
  }

  async function run(name) {
    playing = name;
    showPlaying(name, true);
    const { size } = info.axes.find((axis) => axis.name === name);
    while (playing === name && rows.has(name)) {
      moveTo(name, (positionsOf(store.get(), info)[name] + 1) % size, `play ${name}`);
      await Promise.all([picture.settled(), new Promise((resolve) => setTimeout(resolve, 1000 / FRAMES_PER_SECOND))]);
    }
  }

  function showPlaying(name, on) {
    const button = rows.get(name)?.play;
    if (!button) return;
    setIcon(button.firstChild, on ? "pause" : "play");
    button.title = on ? `Stop ${name}` : `Play ${name}`;
    button.setAttribute("aria-label", button.title);
    button.setAttribute("aria-pressed", String(on));
  }

  function rebuild(state) {
    stop();
    const axes = sliderAxes(state, info).filter((axis) => axis.size > 1);
    rows = new Map(axes.map((axis) => [axis.name, axisRow(axis)]));
    element.replaceChildren(...[...rows.values()].map((row) => row.element));
    element.hidden = axes.length === 0;
    if (!rows.has(active)) active = "";
  }

  function axisRow(axis) {
    const last = axis.size - 1;
    const move = (position) => {
      stop();
      moveTo(axis.name, clamp(position, 0, last));
    };
    const play = iconButton("play", `Play ${axis.name}`, () => toggle(axis.name), { "aria-pressed": "false", "aria-keyshortcuts": "Space" });
    const slider = h("input", {
      type: "range",
      min: 0,
      max: last,
      step: 1,
      "aria-label": `${axis.name} position`,
      "data-axis": axis.name,
      "aria-keyshortcuts": "[ ]",
      oninput: () => move(slider.valueAsNumber),
    });
    const field = h("input", {
      type: "number",
      class: "dock-index",
      "aria-keyshortcuts": "j",
      min: 0,
      max: last,
      "aria-label": `${axis.name} index`,
      onchange: () => (Number.isInteger(field.valueAsNumber) ? move(field.valueAsNumber) : refresh()),
    });
    const place = h("span", { class: "dock-place" });
    const set = (position) => {
      slider.value = String(position);
      slider.style.setProperty("--filled", `${(position / last) * 100}%`);
      if (document.activeElement !== field || field.valueAsNumber !== position) field.value = String(position);
      const text = positionOn(axis, position);
      place.textContent = text;
      slider.setAttribute("aria-valuetext", `${position} of ${last}${text && `, ${text}`}`);
    };
    const row = h(
      "div",
      { class: "dock-row" },
      h("span", { class: "dock-name", title: `${axis.name}: ${axis.size} positions` }, axis.name),
      play,
      slider,
      field,
      h("span", { class: "dock-of" }, `/ ${last}`),
      place,
    );
    return { element: row, set, play };
  }

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} newInfo */
  function update(state, newInfo) {
    const names = sliderAxes(state, newInfo)
      .filter((axis) => axis.size > 1)
      .map((axis) => axis.name);
    path = state.path;
    const same = info === newInfo && names.join() === [...rows.keys()].join();
    info = newInfo;
    if (!same) rebuild(state);
    refresh();
  }

  /** Update the labels of positions, after coordinates were loaded. */
  function refresh() {
    for (const [name, position] of Object.entries(positionsOf(store.get(), info))) rows.get(name)?.set(position);
  }

  /** Neighbouring positions: one step forward and one back. */
  function neighbours(state) {
    const axis = info.axes.find((a) => a.name === active);
    if (!axis || !rows.has(active)) return [];
    const here = positionsOf(state, info)[active];
    const ahead = direction < 0 ? [here - 1, here + 1] : [here + 1, here - 1];
    return ahead.filter((n) => n >= 0 && n < axis.size).map((n) => ({ ...state.at, [active]: n }));
  }

  return { element, update, refresh, step, toggle, stop, neighbours };
}

/** The default axis of steps: the longest. */
function firstLong(state, info) {
  return sliderAxes(state, info)
    .toSorted((a, b) => b.size - a.size)
    .find((axis) => axis.size > 1);
}
