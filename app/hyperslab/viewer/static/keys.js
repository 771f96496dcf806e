/** Keyboard shortcuts, and the dialog that lists them. */

import { h, iconButton } from "./dom.js";

export const KEYS = [
  ["← ↑ → ↓", "Move"],
  ["+  −", "Zoom in and out"],
  ["0", "Fit"],
  ["[  ]", "Previous / next slice"],
  ["j", "Type an index"],
  ["Space", "Play, stop"],
  ["p", "Next plane"],
  ["z", "Square pixels, or the size of cells"],
  ["1 … 9", "Channel on or off"],
  ["l", "Labels on or off"],
  ["s", "Plot the cell under the pointer along another axis"],
  ["b", "Box: drag; twice: what is visible"],
  ["k", "Line: drag; twice: across what is visible"],
  ["m", "Colour maps"],
  ["w", "Reverse the colour map"],
  ["n", "Invert light and dark"],
  ["a", "Limits from the data"],
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
  ["h  o  e", "To the header, the data, the panels; then Tab"],
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
 * @property {() => void} download @property {() => void} view @property {() => void} filter @property {(open?: boolean) => void} panels
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

/** Also of a panel that is folded, or where there is no room for the button. */
const isOffered = (element) => !element.disabled && !element.closest("[hidden]");

/** Press the button of a key, or go to its field. */
function press(key) {
  const control = [...document.querySelectorAll(`[aria-keyshortcuts="${key}"]`)].find(isOffered);
  if (control?.matches("input, select")) control.focus();
  else if (control?.matches(".decodings")) control.querySelector("[aria-pressed=false]").click();
  else control?.click();
}

/** Go to the first control of a part of the page. @param {string} id */
function enter(id) {
  const controls = document.querySelectorAll(`#${id} :is(a, button, input, select, summary, [tabindex="0"])`);
  [...controls].find((element) => element.checkVisibility() && !element.disabled)?.focus();
}

const MOVED_BY_ARROWS = ["range", "color"];

function isTyping(target) {
  if (target.closest?.("dialog")) return true;
  if (target.tagName === "INPUT") return !["button", ...MOVED_BY_ARROWS].includes(target.type);
  if (target.tagName === "SELECT") return true;
  return target.tagName === "TEXTAREA" || target.isContentEditable;
}

function actionFor({ key, target }, actions) {
  if (MOVED_BY_ARROWS.includes(target.type) && (MOVES[key] || key === " ")) return null;
  if (MOVES[key]) return () => actions.move(...MOVES[key]);
  if (/^[1-9]$/.test(key)) return () => actions.channel(Number(key) - 1);
  if (key === " ") return ["BUTTON", "SUMMARY", "A"].includes(target.tagName) ? null : actions.play;
  const own = {
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
    l: actions.labels,
    v: actions.view,
    "/": actions.filter,
    i: actions.panels,
    t: actions.theme,
    "?": actions.help,
    h: () => enter("header"),
    o: () => enter("stage"),
    e: () => (actions.panels(true), enter("inspector")),
  };
  return own[key] ?? (/^[a-z]$/.test(key) ? () => press(key) : null);
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
    { class: "dialog keys", "aria-label": "Keys", onclick: (event) => event.target === dialog && dialog.close() },
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
