/** Keyboard shortcuts, and the dialog that lists them. */

import { h, iconButton } from "./dom.js";

export const KEYS = [
  ["← ↑ → ↓", "Move"],
  ["+  −", "Zoom in and out"],
  ["0", "Fit"],
  ["[  ]", "Previous / next slice"],
  ["space", "Play, stop"],
  ["p", "Next plane"],
  ["1 … 9", "Channel on or off"],
  ["l", "Labels on or off"],
  ["s", "Plot the cell under the pointer along another axis"],
  ["b", "Box: drag; twice: what is visible"],
  ["k", "Line: drag; twice: across what is visible"],
  ["m", "Colour maps"],
  ["n", "Invert light and dark"],
  ["r", "Reset channels and limits"],
  ["u", "Smooth pixels or squares"],
  ["x", "Download"],
  ["c", "Copy a link"],
  ["f", "Follow changes"],
  ["d", "Decoded or stored values"],
  ["g", "Members as cards or as a table"],
  ["q", "Filter the table"],
  ["v", "Next view: image, planes, values, plot"],
  ["/", "Filter the tree"],
  ["i", "Panels on or off"],
  ["t", "Dark or light"],
  ["?", "This list"],
];

const STEP = 0.15; // share of what is visible

const MOVES = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };

/**
 * @typedef {object} Actions
 * @property {(x: number, y: number) => void} move @property {(factor: number) => void} zoom
 * @property {() => void} home @property {(by: number) => void} step @property {() => void} play
 * @property {() => void} plane @property {(place: number) => void} channel @property {() => void} labels
 * @property {() => void} series @property {() => void} area @property {() => void} line @property {() => void} smooth
 * @property {() => void} download @property {() => void} view @property {() => void} filter @property {() => void} panels
 * @property {() => void} theme @property {() => void} help
 *
 * @param {Actions} actions
 */
export function listen(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    const action = actionFor(event, actions);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

/** Presses a button of the page. @param {string} selector */
const pressed = (selector) => () => document.querySelector(selector)?.click();

function isTyping(target) {
  if (target.closest?.("dialog")) return true;
  if (target.tagName === "INPUT") return target.type !== "button";
  if (target.tagName === "SELECT") return true;
  return target.tagName === "TEXTAREA" || target.isContentEditable;
}

function actionFor({ key, target }, actions) {
  if (MOVES[key]) return () => actions.move(...MOVES[key]);
  if (/^[1-9]$/.test(key)) return () => actions.channel(Number(key) - 1);
  if (key === " ") return ["BUTTON", "SUMMARY", "A"].includes(target.tagName) ? null : actions.play;
  return {
    "+": () => actions.zoom(1.4),
    "=": () => actions.zoom(1.4),
    "-": () => actions.zoom(1 / 1.4),
    0: actions.home,
    "[": () => actions.step(-1),
    "]": () => actions.step(1),
    p: actions.plane,
    s: actions.series,
    b: actions.area,
    k: actions.line,
    u: actions.smooth,
    x: actions.download,
    m: pressed(".colormap-button"),
    n: pressed("[data-key=n]"),
    r: pressed("[data-key=r]"),
    c: pressed("[data-key=c]"),
    f: pressed("[data-key=f]"),
    g: pressed("[data-key=g]"),
    q: () => document.querySelector("[data-key=q]")?.focus(),
    d: pressed(".decodings [aria-pressed=false]"),
    l: actions.labels,
    v: actions.view,
    "/": actions.filter,
    i: actions.panels,
    t: actions.theme,
    "?": actions.help,
  }[key];
}

/** The dialog with the shortcuts. */
export function createHelp() {
  const close = iconButton("close", "Close", () => dialog.close());
  const rows = KEYS.map(([keys, what]) =>
    h(
      "div",
      { class: "help-row" },
      h(
        "dt",
        {},
        keys.split("  ").map((key) => h("kbd", {}, key)),
      ),
      h("dd", {}, what),
    ),
  );
  const dialog = h(
    "dialog",
    { class: "dialog", "aria-label": "Keys", onclick: (event) => event.target === dialog && dialog.close() },
    h(
      "div",
      { class: "dialog-body" },
      h("div", { class: "dialog-head" }, h("h2", {}, "Keys"), close),
      h("dl", { class: "help" }, rows),
      h("p", { class: "hint" }, "Everything on the screen is in the address: a copied link brings it back."),
    ),
  );
  document.body.append(dialog);
  return { toggle: () => (dialog.open ? dialog.close() : dialog.showModal()) };
}
