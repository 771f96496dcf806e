/** Card of a node: thumbnail, name and a line of description. */

import { numbers, pictureAddress, url, values } from "./api.js";
import { decodeOf, meaningOf, say } from "./decoded.js";
import { h, icon, setIcon } from "./dom.js";
import { formatValue } from "./format.js";
import { describe, hasThumbnail, iconOf, summary, viewsOf } from "./nodes.js";
import { drawSpark } from "./plotdraw.js";
import { pageAddress } from "./state.js";

const THUMBNAIL = 320;
const SPARK_POINTS = 600;
const SPARK_BYTES = 8 << 20; // of arrays above this no small plot is drawn: every chunk would have to be read
const NAMED = 4;

/**
 * @param {string} path
 * @param {{name: string, kind: string}} child
 * @param {(path: string) => void} onopen
 * @returns {{element: HTMLElement, fill: () => Promise<void>}}
 */
export function createCard(path, child, onopen) {
  const sign = icon(child.kind === "group" ? "group" : "array");
  const picture = h("div", { class: "card-picture" }, sign);
  const about = h("span", { class: "card-about" }, child.kind);
  const follow = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    onopen(path);
  };
  const link = h(
    "a",
    { class: "card", href: pageAddress(path), onclick: follow },
    picture,
    h("span", { class: "card-name" }, child.name),
    about,
  );

  async function fill() {
    try {
      const document = await describe(path);
      about.textContent = summary(document);
      about.title = about.textContent;
      setIcon(sign, iconOf(document));
      await show(picture, document);
    } catch (problem) {
      setIcon(sign, "warning");
      link.title = problem.message;
    }
  }
  return { element: h("li", {}, link), fill };
}

async function show(picture, document) {
  const { kind, shape, dtype, children } = document;
  if (hasThumbnail(document)) await showThumbnail(picture, document);
  else if (kind === "group") showMembers(picture, children, document.next_cursor !== null);
  else if (viewsOf(document)[0] === "plot") await showSpark(picture, document);
  else if (Array.isArray(dtype))
    showNames(
      picture,
      dtype.map(([name]) => name),
      "column",
    );
  else if (shape.length === 0) picture.replaceChildren(h("span", { class: "card-value" }, await valueOf(document)));
  else if (shape.length === 1 && shape[0] > 0)
    showNames(picture, (await values(document.path, `:${NAMED + 1}`)).map(formatValue), "quote");
}

async function valueOf(document) {
  const decode = decodeOf(document, {});
  return say(await values(document.path, "", { decode }), meaningOf(document, "", decode));
}

async function showThumbnail(picture, document) {
  const decode = decodeOf(document, {});
  const query = `size=${THUMBNAIL}&flip=auto&aspect=auto${decode && `&decode=${decode}`}`;
  const src = await pictureAddress(url("tile", document.path, `/thumbnail.png?${query}`));
  const image = h("img", { alt: "", decoding: "async", src });
  image.addEventListener("load", () => (picture.replaceChildren(image), URL.revokeObjectURL(src)), { once: true });
}

function showMembers(picture, children, more) {
  if (!children.length) return;
  const names = children.map(({ name }) => name);
  showNames(picture, more ? [...names, "…"] : names, (i) => (children[i].kind === "group" ? "group" : "array"));
}

/** A few names with an icon each. @param {string|((i: number) => string)} sign name of the icon */
function showNames(picture, names, sign) {
  const iconAt = (i) => icon(typeof sign === "string" ? sign : sign(i));
  const shown = names.slice(0, NAMED).map((name, i) => h("li", {}, iconAt(i), h("span", {}, name)));
  const rest = names.length > NAMED ? h("li", { class: "hint" }, "…") : null;
  picture.replaceChildren(h("ul", { class: "card-members" }, shown, rest));
}

async function showSpark(picture, document) {
  if (document.nbytes > SPARK_BYTES) return;
  const long = document.shape.indexOf(Math.max(...document.shape));
  const select = document.shape.map((_, axis) => (axis === long ? ":" : "0")).join(","); // the first of several lines
  const bins = await numbers(document.path, select, { decode: decodeOf(document, {}, "plot"), bins: SPARK_POINTS });
  const points = bins.filter((_, i) => i % 3 < 2); // the least and the largest of each: no peak is lost
  const canvas = h("canvas", { width: 480, height: 264 });
  picture.replaceChildren(canvas);
  drawSpark(canvas, points);
}
