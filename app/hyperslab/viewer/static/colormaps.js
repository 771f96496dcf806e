/** Colour maps with swatches, gamma and invert. */

import { pictureAddress, url } from "./api.js";
import { h, icon } from "./dom.js";
import { activeIndices, channelsOf, mapOf } from "./tilequery.js";

const FAVOURITES = [
  "gray",
  "viridis",
  "magma",
  "inferno",
  "cividis",
  "turbo",
  "coolwarm",
  "RdBu",
  "Spectral",
  "twilight",
  "tab20",
];

const SWATCH = 128; // pixels
const GREY = "linear-gradient(to right, #000, #fff)";

/** @type {Map<string, Promise<string>>} cache of legends */
const pictures = new Map();

function pictureOf(address) {
  if (!pictures.has(address)) pictures.set(address, pictureAddress(address));
  return pictures.get(address);
}

/**
 * @param {{update: (patch: object, kind?: string) => void, get: () => import("./state.js").State}} store
 * @param {() => void} oninvert
 */
export function createColormaps(store, oninvert) {
  const choice = createChoice((colormap) => store.update({ colormap }, "colormap"));
  const flip = h("button", { type: "button", class: "chip", "aria-keyshortcuts": "w", onclick: () => reverse() }, "Reverse");
  const gamma = h("input", {
    type: "range",
    min: -1,
    max: 1,
    step: 0.05,
    "aria-label": "Gamma",
    title: "Double click: 1",
    oninput: () => store.update({ gamma: Number((10 ** gamma.valueAsNumber).toFixed(2)) }, "gamma"),
    ondblclick: () => store.update({ gamma: 1 }, "gamma"),
  });
  const gammaText = h("output", { class: "figure" });
  const invert = h("button", { type: "button", class: "chip", "aria-keyshortcuts": "n", onclick: oninvert }, "Invert");
  const element = h(
    "div",
    { class: "colours" },
    choice.element,
    h("label", { class: "field-row" }, h("span", {}, "Gamma"), gamma, gammaText),
    h("div", { class: "chips" }, invert, flip),
  );

  let known = null;

  function reverse() {
    const colormap = mapOf(store.get(), known);
    store.update({ colormap: colormap.endsWith("_r") ? colormap.slice(0, -2) : `${colormap}_r` }, "colormap");
  }

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} info */
  function update(state, info) {
    known = info;
    const single = activeIndices(state, info).length === 1;
    const colormap = mapOf(state, info);
    choice.update(state.colormap, colormap, info);
    choice.element.hidden = flip.hidden = !single || !info.colormaps?.length;
    flip.disabled = !colormap;
    flip.setAttribute("aria-pressed", String(colormap.endsWith("_r")));
    gamma.value = String(Math.log10(state.gamma));
    gamma.style.setProperty("--filled", `${(Math.log10(state.gamma) + 1) * 50}%`);
    gammaText.textContent = state.gamma.toFixed(2);
    const inverted = channelsOf(state, info).some((channel) => channel.active && channel.inverted);
    invert.setAttribute("aria-pressed", String(inverted));
  }

  return { element, update };
}

/** Drop-down list with a filter and a swatch for each map. */
function createChoice(onchoose) {
  const swatch = h("span", { class: "swatch" });
  const name = h("span", {});
  const filter = h("input", {
    type: "search",
    placeholder: "Filter",
    "aria-label": "Filter colour maps",
    oninput: () => narrow(),
  });
  const options = h("div", { class: "colormap-options", role: "listbox", "aria-label": "Colour maps" });
  const popup = h(
    "div",
    { class: "colormap-popup", hidden: true, onkeydown: (event) => onKey(event) },
    filter,
    options,
  );
  const button = h(
    "button",
    {
      type: "button",
      class: "colormap-button",
      "aria-keyshortcuts": "m",
      "aria-haspopup": "listbox",
      "aria-expanded": "false",
      onclick: () => open(popup.hidden),
    },
    swatch,
    name,
    icon("chevron"),
  );
  const element = h("div", { class: "colormap" }, button, popup);
  const seen = new IntersectionObserver(
    (entries) =>
      entries.filter((e) => e.isIntersecting).forEach(({ target }) => paint(target.firstChild, target.dataset.name)),
    { root: options },
  );
  let info = null;

  function open(wanted) {
    const inside = popup.contains(document.activeElement);
    popup.hidden = !wanted;
    button.setAttribute("aria-expanded", String(wanted));
    document[wanted ? "addEventListener" : "removeEventListener"]("pointerdown", outside);
    if (wanted) {
      options.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
      filter.focus({ preventScroll: true });
    } else {
      filter.value = "";
      narrow();
      if (inside) button.focus();
    }
  }

  function narrow() {
    const text = filter.value.toLowerCase();
    for (const one of options.children) one.hidden = !one.dataset.name.toLowerCase().includes(text);
  }

  /** The map that is meant by the filter: one of that name, or that begins so, or the first of those that have it. */
  function best() {
    const text = filter.value.toLowerCase();
    const shown = [...options.children].filter((one) => !one.hidden && one.dataset.name);
    const named = (fits) => shown.find(({ dataset: { name } }) => fits(name.toLowerCase()));
    return text ? named((name) => name === text) ?? named((name) => name.startsWith(text)) ?? shown[0] : null;
  }

  function onKey(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") open(false);
    else if (event.key === "Enter" && event.target === filter) best()?.click();
    else if (by) {
      const shown = [...options.children].filter((one) => !one.hidden);
      const at = shown.indexOf(document.activeElement);
      shown[(at + by + shown.length) % shown.length]?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function option(colormap) {
    const band = h("span", { class: "swatch" });
    const choose = () => {
      onchoose(colormap);
      open(false);
    };
    const one = h(
      "button",
      { type: "button", role: "option", "data-name": colormap, onclick: choose },
      band,
      colormap || "Automatic",
    );
    seen.observe(one);
    return one;
  }

  /** The picture of a colour map; grey where there is none. */
  async function paint(band, colormap) {
    const wanted = colormap && legend(colormap);
    if (band.dataset.legend === wanted) return;
    band.dataset.legend = wanted;
    const address = wanted && (await pictureOf(wanted).catch(() => "")); // its name stands beside it
    if (band.dataset.legend === wanted) band.style.backgroundImage = address ? `url("${address}")` : GREY;
  }

  function legend(colormap) {
    const query = new URLSearchParams({ colormap_name: colormap, size: String(SWATCH) });
    if (info.channel_axis) query.set("c", "0");
    if (info.field) query.set("field", info.field);
    return url("tile", info.path, `/legend.png?${query}`);
  }

  function rebuild() {
    const known = new Set(info.colormaps ?? []);
    const first = FAVOURITES.filter((one) => known.has(one));
    options.replaceChildren(...["", ...first, ...[...known].filter((one) => !first.includes(one))].map(option));
  }

  /** @param {string} chosen "" is what suits @param {string} colormap what is drawn, "" is none */
  function update(chosen, colormap, newInfo) {
    if (newInfo !== info) {
      info = newInfo;
      rebuild();
    }
    const base = chosen.replace(/_r$/, "");
    paint(swatch, colormap);
    name.textContent = colormap || (info.channel_axis ? "Channel colour" : "Grey");
    for (const one of options.children) one.setAttribute("aria-selected", String(one.dataset.name === base));
  }

  function outside({ target }) {
    if (!element.contains(target)) open(false);
  }
  return { element, update };
}
