/** A histogram with two handles for the window: drag them, or move them with the arrow keys. */

import { clamp, h, onDrag } from "./dom.js";
import { formatNumber, rounded } from "./format.js";

const HEIGHT = 44;
const WIDTH = 256; // drawing units; the page stretches them

/**
 * @typedef {{counts: number[], edges: number[]}} Counts
 * @param {{label: string, integer: boolean, onchange: (window: [number, number]) => void}} options
 */
export function createHistogram({ label, integer, onchange }) {
  const canvas = h("canvas", { width: WIDTH * 2, height: HEIGHT * 2, "aria-hidden": "true" });
  const low = handle("low", 0);
  const high = handle("high", 1);
  const shade = h("div", { class: "histogram-window" });
  const element = h("div", { class: "histogram" }, canvas, shade, low, high);
  let range = [0, 1];
  let window = [0, 1];
  /** @type {Counts|null} */
  let counts = null;

  function handle(name, side) {
    const knob = h("div", {
      class: `histogram-handle ${name}`,
      role: "slider",
      tabindex: 0,
      "aria-label": `${label}: ${side ? "upper" : "lower"} limit, handle`,
      onkeydown: (event) => onKey(event, side),
    });
    onDrag(knob, (event) => {
      knob.focus();
      const { left, width } = element.getBoundingClientRect();
      place(side, range[0] + ((event.clientX - left) / width) * (range[1] - range[0]));
    });
    return knob;
  }

  function onKey(event, side) {
    const step = (range[1] - range[0]) / (event.shiftKey ? 20 : 200);
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    place(side, window[side] + by * (integer ? Math.max(1, Math.round(step)) : step));
  }

  function place(side, value) {
    const gap = integer ? 1 : (range[1] - range[0]) / 1000;
    const free = side === 0 ? clamp(value, range[0], window[1] - gap) : clamp(value, window[0] + gap, range[1]);
    const exact = integer ? Math.round(free) : rounded(free, range, 5);
    const next = side === 0 ? [exact, window[1]] : [window[0], exact];
    if (next[0] < next[1]) onchange(next);
  }

  /** @param {[number, number]} newWindow */
  function setWindow(newWindow) {
    window = newWindow;
    layout();
  }

  /** @param {Counts} newCounts */
  function setCounts(newCounts) {
    counts = newCounts;
    draw();
    layout();
  }

  function layout() {
    const edges = counts?.edges ?? window;
    range = [Math.min(edges[0], window[0]), Math.max(edges.at(-1), window[1])];
    const percent = (value) => ((value - range[0]) / (range[1] - range[0] || 1)) * 100;
    const [left, right] = window.map(percent);
    low.style.left = `${left}%`;
    high.style.left = `${right}%`;
    shade.style.left = `${left}%`;
    shade.style.width = `${right - left}%`;
    [low, high].forEach((knob, side) => {
      knob.setAttribute("aria-valuemin", formatNumber(range[0]));
      knob.setAttribute("aria-valuemax", formatNumber(range[1]));
      knob.setAttribute("aria-valuenow", formatNumber(window[side]));
    });
    draw();
  }

  function draw() {
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (!counts) return;
    context.fillStyle = getComputedStyle(element).getPropertyValue("--bars") || "#888";
    const tallness = (count) => count ** 0.35; // rare values stay visible beside common ones
    const peak = tallness(Math.max(...counts.counts, 1));
    const x = (value) => ((value - range[0]) / (range[1] - range[0] || 1)) * canvas.width;
    counts.counts.forEach((count, i) => {
      const tall = (tallness(count) / peak) * canvas.height;
      const left = x(counts.edges[i]);
      context.fillRect(left, canvas.height - tall, Math.max(x(counts.edges[i + 1]) - left, 1), tall);
    });
  }

  return { element, setWindow, setCounts, redraw: draw };
}
