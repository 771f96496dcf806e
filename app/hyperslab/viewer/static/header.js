/** Header: path, views and buttons. */

import { copyText, h, icon, iconButton } from "./dom.js";
import { lastName } from "./nodes.js";
import { shareButton } from "./share.js";
import { pageAddress } from "./state.js";
import { forgetToken, heldToken } from "./token.js";

const DECODINGS = [
  ["cf", "Decoded", "Values decoded by their CF attributes"],
  ["none", "Stored", "Stored numbers"],
];
const VIEW_NAMES = { image: "Image", planes: "Planes", plot: "Plot", values: "Values", browse: "Members" };

/**
 * @typedef {object} Place
 * @property {string} path
 * @property {string[]} available its views
 * @property {string} view the current view
 * @property {string[]} [fields] of records, one of which is drawn
 * @property {string} [field]
 * @property {""|"cf"|"none"} [decode] "" without a choice
 * @property {boolean} follow whether the node is followed
 *
 * @param {HTMLElement} host
 * @param {{onopen: (path: string) => void, onview: (view: string) => void, onfield: (field: string) => void, ondecode: (decode: string) => void, onfollow: () => void, ondownload: () => void, onhelp: () => void}} events
 */
export function createHeader(host, { onopen, onview, onfield, ondecode, onfollow, ondownload, onhelp }) {
  const crumbs = h("nav", { class: "crumbs", "aria-label": "Path" });
  const views = h("div", { class: "segmented views", "aria-keyshortcuts": "v", role: "group", "aria-label": "View" });
  const decodings = h("div", { class: "segmented decodings", "aria-keyshortcuts": "d", role: "group", "aria-label": "Values", hidden: true });
  const fields = h("select", { hidden: true, "aria-label": "Field", onchange: () => onfield(fields.value) });
  const sidebar = iconButton("sidebar", "Hierarchy", () => togglePanel("tree"), { class: "icon-button only-narrow", "aria-keyshortcuts": "/" });
  const follow = iconButton("follow", "Follow changes (f)", onfollow, {
    class: "icon-button not-phone",
    "aria-pressed": "false",
    "aria-keyshortcuts": "f",
  });
  const share = iconButton("link", "Copy a link to this view (c)", () => copyText(location.href), {
    class: "icon-button not-phone",
    "aria-keyshortcuts": "c",
  });
  const save = iconButton("download", "Download (x)", ondownload, { "aria-keyshortcuts": "x" });
  const theme = iconButton("theme", "Dark or light (t)", () => switchTheme(), { "aria-keyshortcuts": "t" });
  const help = iconButton("help", "Keys (?)", onhelp, { class: "icon-button not-phone", "aria-keyshortcuts": "?" });
  const panels = iconButton("sliders", "Panels (i)", () => togglePanel("inspector"), { "aria-keyshortcuts": "i" });
  const buttons = h("div", { class: "header-buttons" }, save, follow, share, shareButton(() => path), theme, forget(), help, panels);
  host.append(sidebar, brand(onopen), crumbs, fields, decodings, views, buttons);
  let shown = "";
  let path = "";

  /** @param {Place} place */
  function update(place) {
    if (JSON.stringify(place) === shown) return;
    shown = JSON.stringify(place);
    ({ path } = place);
    const names = place.path.split("/").filter(Boolean);
    const paths = names.map((_, i) => names.slice(0, i + 1).join("/"));
    crumbs.replaceChildren(...paths.map((path) => crumb(path, path === place.path, onopen)));
    follow.setAttribute("aria-pressed", String(place.follow));
    showViews(place);
    showFields(place);
    showDecodings(place);
  }

  function showDecodings({ decode = "" }) {
    decodings.hidden = !decode;
    const button = ([name, text, title]) => {
      const other = name === decode && isNarrow(); // where only one shows, it is for both
      const onclick = () => ondecode((name === "cf") === other ? "none" : "");
      return h("button", { type: "button", title, "aria-pressed": String(name === decode), onclick }, text);
    };
    decodings.replaceChildren(...DECODINGS.map(button));
  }

  function showViews({ available, view }) {
    const button = (name) => ({
      "aria-pressed": String(name === view),
      "data-show": name,
      onclick: () => onview(name),
    });
    views.hidden = available.length < 2;
    views.replaceChildren(
      ...available.map((name) => h("button", { type: "button", ...button(name) }, VIEW_NAMES[name])),
    );
  }

  function showFields({ fields: names = [], field }) {
    fields.hidden = names.length < 2;
    fields.replaceChildren(...names.map((name) => h("option", { value: name, selected: name === field }, name)));
  }
  return { update };
}

/** Visible while there is a token. */
function forget() {
  const button = iconButton("key", "Forget token", forgetToken);
  const show = () => (button.hidden = !heldToken());
  document.addEventListener("tokenchange", show);
  show();
  return button;
}

function brand(onopen) {
  const mark = h("span", { class: "mark", "aria-hidden": "true" }, icon("mark"));
  return h(
    "a",
    {
      class: "brand",
      href: pageAddress(""),
      "aria-label": "Hyperslab: all stores",
      onclick: (event) => (event.preventDefault(), onopen("")),
    },
    mark,
    h("span", { class: "brand-name" }, "Hyperslab"),
  );
}

function crumb(path, last, onopen) {
  const follow = (event) => {
    event.preventDefault();
    onopen(path);
  };
  const link = h(
    "a",
    { href: pageAddress(path), "aria-current": last ? "page" : null, onclick: follow },
    lastName(path),
  );
  return h("span", { class: "crumb" }, h("span", { class: "crumb-slash", "aria-hidden": "true" }, "/"), link);
}

/** Show or hide the tree or the inspector: over the data on narrow pages, else beside it. */
export function togglePanel(name, wanted) {
  const { body } = document;
  const open = wanted ?? !isOpen(name);
  body.classList.toggle(`${name}-open`, open);
  body.classList.toggle(`${name}-closed`, !open);
  const other = name === "tree" ? "inspector" : "tree";
  if (open && isNarrow()) body.classList.remove(`${other}-open`);
}

/** On narrow pages, a click on the data or Escape hides the tree. */
export function closeTreeOutside(stage) {
  const close = () => isNarrow() && isOpen("tree") && togglePanel("tree", false);
  stage.addEventListener("pointerdown", close, { capture: true });
  document.addEventListener("keydown", (event) => event.key === "Escape" && close());
}

export const isNarrow = () => matchMedia("(max-width: 860px)").matches;

function isOpen(name) {
  const { classList } = document.body;
  return isNarrow() ? classList.contains(`${name}-open`) : !classList.contains(`${name}-closed`);
}

/** Switch between themes, and store the choice. */
export function switchTheme() {
  const root = document.documentElement;
  const dark =
    (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("hyperslab-theme", root.dataset.theme);
  } catch {
    // Storage may be disabled: the choice then lasts until the page is closed.
  }
  document.dispatchEvent(new Event("themechange"));
}
