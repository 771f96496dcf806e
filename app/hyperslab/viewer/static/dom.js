/** Helpers to create and change elements. */

/** Where the service is mounted ("" or "/prefix"). */
export const ROOT = document.querySelector('meta[name="hyperslab-root"]').content;
const STATIC = document.querySelector('meta[name="hyperslab-static"]').content;

/**
 * Make an element. Properties that start with "on" are listeners, `class`, `data-*`, `aria-*` and `role` become
 * attributes, everything else is set as a property where the element has it.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node|string|number|null|undefined|false|Array<any>)} children
 * @returns {HTMLElement & Record<string, any>}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) set(element, name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function set(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name in element && !name.startsWith("aria")) element[name] = value;
  else element.setAttribute(name, value === true ? "" : value);
}

/**
 * An icon of the sprite, hidden from screen readers: its button has the name.
 * @param {string} name
 */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `${STATIC}/icons.svg#${name}`);
  svg.append(use);
  return svg;
}

/** Show another icon in an element made by `icon`. */
export function setIcon(svg, name) {
  svg.firstChild.setAttribute("href", `${STATIC}/icons.svg#${name}`);
}

/**
 * A button with an icon and an accessible name.
 * @param {string} name icon
 * @param {string} label what it does
 * @param {(event: Event) => void} onclick
 * @param {Record<string, any>} [props]
 */
export function iconButton(name, label, onclick, props = {}) {
  return h(
    "button",
    { type: "button", class: "icon-button", title: label, "aria-label": label, onclick, ...props },
    icon(name),
  );
}

/**
 * Debounce: call `fn` once calls have paused for `ms`; `.cancel()` drops a pending call.
 * @template {any[]} A
 * @param {number} ms
 * @param {(...args: A) => void} fn
 */
export function debounce(ms, fn) {
  let timer = 0;
  const later = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => fn(...args), ms);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** @param {number} value @param {number} low @param {number} high */
export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** A temporary message at the edge of the page. */
export function toast(text) {
  const box = h("div", { class: "toast" }, text);
  document.getElementById("toasts").replaceChildren(box);
  setTimeout(() => box.remove(), 2600);
}

/** Copy text to the clipboard, also without https. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "visually-hidden", value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast("Copied");
}

/**
 * Follow a drag that begins on `element` with the primary button, a finger or a pen.
 * @param {HTMLElement|SVGElement} element
 * @param {(event: PointerEvent) => void} move called for the press and for every move
 * @param {(event: PointerEvent) => void} [end]
 */
export function onDrag(element, move, end) {
  element.addEventListener("pointerdown", (down) => {
    if (down.button !== 0) return;
    down.preventDefault();
    element.setPointerCapture(down.pointerId);
    move(down);
    const drag = new AbortController();
    const stop = (event) => {
      drag.abort();
      end?.(event);
    };
    for (const [type, heard] of [["pointermove", move], ["pointerup", stop], ["pointercancel", stop]]) {
      element.addEventListener(type, heard, { signal: drag.signal });
    }
  });
}
