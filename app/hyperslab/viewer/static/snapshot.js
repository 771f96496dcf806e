/** Files that the page makes: text, plots, and a picture of the view as it is, with its overlay, colour bar and scale. */

import { h } from "./dom.js";
import { formatNumber } from "./format.js";

const BAR = 66; // pixels from one colour bar to the next

const FORGOTTEN = 10_000; // ms after which a browser has begun to save what it was given

/** @param {Blob} blob @param {string} name */
export function saveBlob(blob, name) {
  const href = URL.createObjectURL(blob);
  h("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), FORGOTTEN);
}

/** @param {string} text @param {string} name @param {string} type */
export const saveText = (text, name, type) => saveBlob(new Blob([text], { type }), name);

/** @param {HTMLCanvasElement} canvas @param {string} name */
export const savePicture = (canvas, name) => canvas.toBlob((blob) => saveBlob(blob, name), "image/png");

/**
 * The picture as it is on the screen.
 * @param {import("./image.js").Picture} picture
 * @param {{bars: {band: HTMLCanvasElement, name: string, window: [number, number], ticks: number[]}[], scale: HTMLElement, marks: SVGElement}} over
 * @returns {HTMLCanvasElement}
 */
export function snapshot(picture, { bars, scale, marks }) {
  const drawn = picture.viewer.drawer.canvas;
  const { clientWidth: width, clientHeight: height } = picture.element;
  const ratio = drawn.width / width || 1;
  const canvas = h("canvas", { width: drawn.width, height: drawn.height });
  const context = canvas.getContext("2d");
  const style = getComputedStyle(picture.element);
  context.fillStyle = style.getPropertyValue("--stage");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(drawn, 0, 0);
  context.scale(ratio, ratio);
  context.font = `600 12px ${style.fontFamily}`;
  for (const mark of marks.children) outline(context, mark);
  drawScale(context, style, scale, width, height);
  bars.toReversed().forEach((bar, i) => drawBar(context, style, bar, width, height - i * BAR));
  return canvas;
}

function plate(context, style, x, y, width, height) {
  context.fillStyle = style.getPropertyValue("--chip");
  context.fillRect(x, y, width, height);
  context.fillStyle = style.getPropertyValue("--text");
}

function drawScale(context, style, scale, width, height) {
  const [bar, text] = [scale.querySelector(".scalebar-bar"), scale.querySelector(".scalebar-text").textContent];
  const length = bar.getBoundingClientRect().width;
  const wide = Math.max(length, context.measureText(text).width) + 20;
  plate(context, style, width - wide - 12, height - 48, wide, 36);
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  context.fillText(text, width - wide / 2 - 12, height - 30);
  context.fillRect(width - wide / 2 - 12 - length / 2, height - 22, length, 3);
}

function drawBar(context, style, { band, name, window: [low, high], ticks }, width, height) {
  const [left, top, long] = [width - 252, height - 122, 220];
  plate(context, style, left - 20, top - 6, long + 40, 62);
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  context.fillText(name, left, top + 10);
  context.drawImage(band, left, top + 18, long, 12);
  context.textAlign = "center";
  for (const value of ticks) context.fillText(formatNumber(value), left + ((value - low) / (high - low)) * long, top + 46);
}

function outline(context, mark) {
  const of = (name) => Number(mark.getAttribute(name));
  context.strokeStyle = getComputedStyle(mark).stroke;
  context.lineWidth = 2;
  context.beginPath();
  if (mark.tagName === "circle") context.arc(of("cx"), of("cy"), of("r"), 0, 2 * Math.PI);
  else if (mark.tagName === "rect") context.rect(of("x"), of("y"), of("width"), of("height"));
  else context.moveTo(of("x1"), of("y1")), context.lineTo(of("x2"), of("y2"));
  context.stroke();
}
