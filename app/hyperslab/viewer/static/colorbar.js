/** Colour bars of a picture, one for each channel: name of the map, unit and ticks; their ends are dragged to set the limits. */

import { pictureAddress, url } from "./api.js";
import { h, onDrag } from "./dom.js";
import { formatNumber, niceBelow, rounded } from "./format.js";
import { activeIndices, channelsOf, isRgb, mapOf } from "./tilequery.js";

const COLOURS = 256;
const TICKS = 4;
const LETTERS = 24; // of all ticks, beside each other

/** @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store */
export function createColorBars(store) {
  const element = h("div", { class: "colorbars", hidden: true, "data-testid": "colorbar" });
  /** @type {Map<number, ReturnType<typeof createBar>>} by index of the channel */
  let bars = new Map();

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} info */
  function update(state, info) {
    const none = state.labels || info.kind === "labels" || !info.channels.length || isRgb(channelsOf(state, info));
    const active = none ? [] : activeIndices(state, info);
    element.hidden = !active.length;
    if (active.join() !== [...bars.keys()].join()) {
      bars = new Map(active.map((index) => [index, bars.get(index) ?? createBar(store, index)]));
      element.replaceChildren(...[...bars.values()].map((bar) => bar.element));
    }
    for (const bar of bars.values()) bar.update(state, info);
  }

  return { element, update, facts: () => [...bars.values()].map((bar) => bar.facts()) };
}

/** @param {number} index of the channel */
function createBar(store, index) {
  const name = h("span", { class: "colorbar-name" });
  const band = h("canvas", { width: COLOURS, height: 1, class: "colorbar-band", "aria-hidden": "true" });
  const handles = [0, 1].map(handle);
  const ticks = h("div", { class: "colorbar-ticks", "aria-hidden": "true" });
  const element = h(
    "div",
    { class: "colorbar", role: "group" },
    name,
    h("div", { class: "colorbar-bar", ondblclick: () => store.update({ channels: null }, "channels reset") }, band, handles),
    ticks,
  );
  let info = null;
  /** @type {import("./state.js").ChannelState|null} */
  let channel = null;
  let painted = "";

  function handle(side) {
    let from = null;
    const knob = h("div", {
      class: `colorbar-handle ${["low", "high"][side]}`,
      role: "slider",
      tabindex: 0,
      onkeydown: (event) => onKey(event, side),
    });
    onDrag(knob, (event) => {
      knob.focus();
      if (event.type === "pointerdown") from = { x: event.clientX, window: channel.window };
      const [low, high] = from.window;
      place(side, from.window[side] + ((event.clientX - from.x) * (high - low)) / (band.clientWidth || 1));
    });
    return knob;
  }

  function onKey(event, side) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const [low, high] = channel.window;
    const step = (high - low) / (event.shiftKey ? 10 : 100);
    place(side, channel.window[side] + by * (isInteger() ? Math.max(1, Math.round(step)) : step));
  }

  const isInteger = () => /^[<>|]?[iub]\d/.test(info.dtype);

  function place(side, value) {
    const window = [...channel.window];
    window[side] = isInteger() ? Math.round(value) : rounded(value, channel.window, 4);
    if (!Number.isFinite(window[side]) || window[0] >= window[1] || String(window) === String(channel.window)) return;
    const channels = channelsOf(store.get(), info).map((each) => (each.index === index ? { ...each, window } : each));
    store.update({ channels }, `window ${index}`);
  }

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} newInfo */
  function update(state, newInfo) {
    info = newInfo;
    channel = channelsOf(state, info).find((each) => each.index === index);
    const [low, high] = channel.window;
    const colormap = activeIndices(state, info).length === 1 ? mapOf(state, info) : "";
    const own = info.channel_axis ? info.channels.find((each) => each.index === index)?.label || `Channel ${index}` : "";
    const unit = info.meaning?.unit ?? "";
    name.textContent = [own, colormap || (own ? "" : "grey"), unit].filter(Boolean).join(" · ");
    element.setAttribute("aria-label", ["Colour bar", own].filter(Boolean).join(" of "));
    handles.forEach((knob, side) => {
      knob.setAttribute("aria-label", `${own && `${own}: `}${["Lower", "Upper"][side]} limit of the colours`);
      knob.setAttribute("aria-valuemin", formatNumber(side ? low : Math.min(low, channel.window[0])));
      knob.setAttribute("aria-valuemax", formatNumber(high));
      knob.setAttribute("aria-valuenow", formatNumber(channel.window[side]));
      knob.setAttribute("aria-valuetext", `${formatNumber(channel.window[side])} ${unit}`.trim());
    });
    ticks.replaceChildren(
      ...ticksOf(low, high, isInteger()).map((value) => {
        const tick = h("span", { class: "colorbar-tick" }, formatNumber(value));
        tick.style.left = `${((value - low) / (high - low)) * 100}%`;
        return tick;
      }),
    );
    void paint(state, colormap);
  }

  /** The colours, as the service draws them for the same style. */
  async function paint(state, colormap) {
    const query = new URLSearchParams({ size: String(COLOURS) });
    if (info.channel_axis) query.set("c", String(index));
    if (colormap) query.set("colormap_name", colormap);
    else if (info.channel_axis && channel.color) query.set("color", channel.color);
    if (channel.inverted) query.set("invert", "1");
    if (state.gamma !== 1) query.set("gamma", String(state.gamma));
    if (info.field) query.set("field", info.field);
    const address = url("tile", info.path, `/legend.png?${query}`);
    if (address === painted) return;
    painted = address;
    const image = new Image();
    image.src = await pictureAddress(address).catch(() => ""); // an unknown map is told of by the picture
    await image.decode().catch(() => null);
    if (painted !== address || !image.naturalWidth) return;
    band.getContext("2d").drawImage(image, 0, 0, COLOURS, 1);
    URL.revokeObjectURL(image.src); // one of a copy
  }

  /** What a picture of the bar shows. */
  const facts = () => ({ band, name: name.textContent, window: channel.window, ticks: ticksOf(...channel.window, isInteger()) });
  return { element, update, facts };
}

/** Round values within limits, whole ones where there are no others. */
function ticksOf(low, high, whole) {
  let step = Math.max(niceBelow((high - low) / TICKS), whole ? 1 : 0);
  if (!(step > 0)) return [];
  for (; ; step *= 2) {
    const first = Math.ceil(low / step - 1e-9);
    const count = Math.floor(high / step + 1e-9) - first + 1;
    const values = Array.from({ length: Math.min(count, 99) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
    if (count < 2 || (count <= TICKS + 2 && values.map(formatNumber).join(" ").length <= LETTERS)) return values;
  }
}
