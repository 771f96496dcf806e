/** Channel rows: on or off, colour, window with its histogram. */

import { histogram, tileInfo } from "./api.js";
import { h, icon, iconButton, setIcon, toast } from "./dom.js";
import { rounded } from "./format.js";
import { createHistogram } from "./histogram.js";
import { activeIndices, channelsOf, MAX_CHANNELS } from "./tilequery.js";

const BINS = 128;
const OPEN_AT_ONCE = 4; // more channels than this begin with their histograms closed

/**
 * @param {{update: (patch: object, kind?: string) => void, get: () => import("./state.js").State}} store
 * @param {() => Promise<void>} quiet resolves when the picture is complete, after which histograms load
 */
export function createChannels(store, quiet) {
  const list = h("div", { class: "channels" });
  const reset = h(
    "button",
    { type: "button", class: "text-button", "aria-keyshortcuts": "r", onclick: () => store.update({ channels: null }, "channels reset") },
    "Reset",
  );
  let info = null;
  /** @type {Map<number, ReturnType<typeof channelRow>>} */
  let rows = new Map();

  function change(index, patch, kind) {
    if (patch.active && activeIndices(store.get(), info).length >= MAX_CHANNELS) {
      return void toast(`No more than ${MAX_CHANNELS} channels can be shown at once`);
    }
    const channels = channelsOf(store.get(), info).map((c) => (c.index === index ? { ...c, ...patch } : c));
    store.update({ channels }, `${kind} ${index}`);
  }

  /** Turn one on or off by its place in the list. */
  function toggle(place) {
    const channel = channelsOf(store.get(), info)[place];
    if (channel && info.channel_axis) change(channel.index, { active: !channel.active }, "channel");
  }

  function rebuild(state) {
    const channels = channelsOf(state, info);
    rows = new Map(channels.map((channel) => [channel.index, channelRow(channel, info, { change, quiet })]));
    list.replaceChildren(...[...rows.values()].map((row) => row.element));
    rows.forEach((row, index) => row.start(channels.length <= OPEN_AT_ONCE || channels[0].index === index));
  }

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} newInfo */
  function update(state, newInfo) {
    if (newInfo !== info) {
      info = newInfo;
      rebuild(state);
    }
    reset.hidden = state.channels === null;
    channelsOf(state, info).forEach((channel) => rows.get(channel.index)?.update(channel));
  }

  /** Exchange light and dark in all channels that are on. */
  function invert() {
    const channels = channelsOf(store.get(), info);
    const inverted = !channels.some((channel) => channel.active && channel.inverted);
    store.update({ channels: channels.map((c) => (c.active ? { ...c, inverted } : c)) }, "invert");
  }

  return { element: list, reset, update, toggle, invert, redraw: () => rows.forEach((row) => row.redraw()) };
}

/** The query of a single channel. */
function questionAbout(info, index) {
  const query = new URLSearchParams();
  if (info.channel_axis) query.set("c", String(index));
  if (info.field) query.set("field", info.field);
  if (info.component) query.set("component", info.component);
  if (info.decode) query.set("decode", info.decode);
  return query;
}

function channelRow(channel, info, { change, quiet }) {
  const { index } = channel;
  const facts = info.channels.find((c) => c.index === index);
  const label = info.channel_axis ? facts?.label || `Channel ${index}` : "Contrast limits";
  const integer = /[iu]\d/.test(info.dtype);
  const set = (window) => change(index, { window }, "window");
  const bars = createHistogram({ label, integer, onchange: set });
  const ends = [numberField(`${label}: lower limit`, 0), numberField(`${label}: upper limit`, 1)];
  const auto = iconButton("wand", `${label}: contrast limits from the data`, () => void setFromData(), info.channel_axis ? {} : { "aria-keyshortcuts": "a" });
  let current = channel;
  let shown = ""; // the contrast limits that stand in the fields

  /** What the node says may have been chosen by hand; the service looks at the data. */
  async function setFromData() {
    const query = questionAbout(info, index);
    const answer = await tileInfo(info.path, query.toString()).catch((problem) => toast(problem.message));
    if (answer?.rescale_auto) set(answer.rescale_auto);
    else if (answer) toast("None of the data can be decoded");
  }

  function numberField(name, side) {
    const input = h("input", { type: "number", step: "any", "aria-label": name, onchange: () => accept(input, side) });
    return input;
  }
  function accept(input, side) {
    const other = ends[1 - side]; // it may wait for this one
    const waits = other.hasAttribute("aria-invalid") && Number.isFinite(other.valueAsNumber);
    const opposite = waits ? other.valueAsNumber : current.window[1 - side];
    const window = side === 0 ? [input.valueAsNumber, opposite] : [opposite, input.valueAsNumber];
    if (window[0] < window[1]) set(window);
    else input.setAttribute("aria-invalid", "true");
  }

  const body = h(
    "div",
    { class: "channel-body" },
    bars.element,
    h("div", { class: "channel-window" }, ends[0], h("span", { "aria-hidden": "true" }, "–"), ends[1], auto),
  );
  const head = info.channel_axis ? channelHead(index, label, change, () => open(body.hidden)) : null;
  const element = h("div", { class: "channel", role: "group", "aria-label": label }, head?.element, body);
  let asked = false;

  function open(wanted) {
    body.hidden = !wanted;
    head?.fold(wanted);
    if (!wanted || asked) return;
    asked = true;
    const query = questionAbout(info, index);
    query.set("bins", String(BINS));
    const without = () => bars.element.classList.add("without-bars");
    quiet().then(() => histogram(info.path, query, undefined).then(bars.setCounts, without));
  }

  function update(next) {
    current = next;
    element.classList.toggle("off", !next.active);
    element.style.setProperty("--channel", next.color ? `#${next.color}` : "var(--accent)");
    head?.update(next);
    bars.setWindow(next.window);
    if (String(next.window) === shown) return; // what is being typed stays
    shown = String(next.window);
    ends.forEach((input, side) => {
      input.value = String(integer ? next.window[side] : rounded(next.window[side], next.window, 6));
      input.removeAttribute("aria-invalid");
    });
  }
  return { element, update, start: open, redraw: bars.redraw };
}

function channelHead(index, label, change, onfold) {
  const eye = icon("eye");
  const toggle = h(
    "button",
    {
      type: "button",
      class: "icon-button",
      onclick: () => change(index, { active: toggle.getAttribute("aria-pressed") === "false" }, "channel"),
    },
    eye,
  );
  const color = h("input", {
    type: "color",
    "aria-label": `${label}: colour`,
    title: "Colour",
    oninput: () => change(index, { color: color.value.slice(1).toUpperCase() }, "color"),
  });
  const fold = h(
    "button",
    { type: "button", class: "channel-name", onclick: onfold },
    h("span", {}, label),
    icon("chevron"),
  );
  const element = h("div", { class: "channel-head" }, toggle, color, fold);

  function update({ active, color: hex }) {
    toggle.setAttribute("aria-pressed", String(active));
    toggle.title = `${active ? "Hide" : "Show"} ${label}`;
    toggle.setAttribute("aria-label", toggle.title);
    setIcon(eye, active ? "eye" : "eye-off");
    color.value = `#${(hex || "ffffff").toLowerCase()}`;
  }
  return { element, update, fold: (open) => fold.setAttribute("aria-expanded", String(open)) };
}
