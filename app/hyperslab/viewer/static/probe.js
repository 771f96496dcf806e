/** Value and coordinates at the cursor, from small blocks of the array. */

import { values } from "./api.js";
import { say } from "./decoded.js";
import { formatValue, positionOn } from "./format.js";
import { activeIndices, blockAt, planeOf, positionsOf, selectText } from "./tilequery.js";
import { h } from "./dom.js";

const KEPT = 200;

/** @param {() => {state: import("./state.js").State, info: import("./tilequery.js").TileInfo, labels: {name: string, ask: Function}|null}} context */
export function createProbe(context) {
  const where = h("span", { class: "probe-where" });
  const what = h("output", { class: "probe-what" });
  const element = h("div", { class: "probe", hidden: true, "data-testid": "probe" }, where, what);
  /** @type {Map<string, Promise<any>>} */
  const blocks = new Map();
  let latest = 0;
  let last = null;

  function block(path, select, field, decode) {
    const key = `${path}?${select}?${field}?${decode}`;
    if (!blocks.has(key)) {
      if (blocks.size >= KEPT) blocks.delete(blocks.keys().next().value);
      blocks.set(key, values(path, select, { field, decode }));
      blocks.get(key).catch(() => blocks.delete(key));
    }
    return blocks.get(key);
  }

  /** @param {{x: number, y: number}|null} pixel */
  async function show(pixel) {
    const turn = ++latest;
    last = pixel;
    what.setAttribute("aria-busy", "true");
    element.hidden = pixel === null;
    if (pixel === null) return;
    const { state, info, labels } = context();
    if (info.images) return showPlace(pixel, info);
    where.textContent = coordinates(pixel, state, info);
    const { path, select, pick } = question(pixel, state, info);
    const value = block(path, select, state.field, info.decode).then(
      (answer) => named(pick(answer), state, info),
      (problem) => [problem.message],
    );
    const said = (await Promise.all([value, labelAt(pixel, labels)])).flat();
    if (turn !== latest) return;
    what.replaceChildren(...said);
    what.setAttribute("aria-busy", "false");
  }

  /** The number of the label that is drawn there. */
  async function labelAt(pixel, labels) {
    const asked = labels?.ask(pixel);
    if (!asked) return [];
    const id = await block(asked.path, asked.select).then(
      (answer) => formatValue(asked.pick(answer)),
      (problem) => problem.message,
    );
    return [h("span", { class: "probe-channel", "data-testid": "probe-label" }, h("i", {}, labels.name), id)];
  }

  /** In a mosaic: the image that is there, and the place in it. */
  function showPlace({ x, y }, info) {
    const image = imageAt({ x, y }, info);
    where.textContent = image ? `y ${y - image.y}  x ${x - image.x}` : "";
    what.replaceChildren(image ? image.path.slice(info.path.length + 1) : "no image here");
    what.setAttribute("aria-busy", "false");
  }

  return { element, show, refresh: () => void show(last), forget: () => blocks.clear() };
}

/** The image of a mosaic at a position. */
export const imageAt = ({ x, y }, info) =>
  info.images.find((one) => x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + one.height);

function coordinates({ x, y }, state, info) {
  const [vertical, horizontal] = planeOf(state, info);
  const at = { ...positionsOf(state, info), [vertical]: y, [horizontal]: x };
  return info.axes
    .filter((axis) => axis.name in at)
    .map((axis) => {
      const place = positionOn(axis, at[axis.name]);
      return `${axis.name} ${at[axis.name]}${place && ` (${place})`}`;
    })
    .join("  ");
}

/** The block with a pixel, and the pixel's offset in it. */
function question({ x, y }, state, info) {
  const [vertical, horizontal] = planeOf(state, info);
  const size = (name) => info.axes.find((axis) => axis.name === name).size;
  const box = { x: blockAt(x, size(horizontal)), y: blockAt(y, size(vertical)) };
  const order = info.axes
    .map((axis) => axis.name)
    .filter((name) => name === info.channel_axis || name === vertical || name === horizontal);
  const channels = activeIndices(state, info);
  const kept = order.filter((name) => !isInteger(name));
  function isInteger(name) {
    if (name === info.channel_axis) return channels.length === 1;
    const [start, stop] = name === horizontal ? box.x : box.y;
    return stop - start === 1;
  }
  function pick(nested, depth = 0) {
    if (depth === kept.length) return nested;
    if (kept[depth] === info.channel_axis) return nested.map((inner) => pick(inner, depth + 1));
    return pick(nested[kept[depth] === horizontal ? x - box.x[0] : y - box.y[0]], depth + 1);
  }
  return { path: info.levels[0].path, select: selectText(state, info, box, channels), pick };
}

function named(answer, state, info) {
  const channels = activeIndices(state, info);
  if (!info.channel_axis || channels.length < 2 || !Array.isArray(answer))
    return [say(answer, info.meaning)];
  return channels.slice(0, 6).map((index, i) => {
    const channel = info.channels.find((c) => c.index === index);
    return h("span", { class: "probe-channel" }, h("i", {}, channel?.label || `c${index}`), formatValue(answer[i]));
  });
}
