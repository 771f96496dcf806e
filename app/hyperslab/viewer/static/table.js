/** Table view, by page: rows and columns of an array, or fields of records. */

import { values } from "./api.js";
import { meaningOf, say, unitOf } from "./decoded.js";
import { clamp, h, iconButton } from "./dom.js";

const ROWS = 50;
const COLUMNS = 24;

/**
 * The last two axes are rows and columns, a structured dtype's fields are the columns of its last axis; the other
 * axes stand where the sliders stand.
 * @param {any} node node document
 * @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @param {() => Record<string, number>} positions of the other axes, by name
 * @param {{decode: "cf"|"", plane: string[]}} info `plane`: rows and columns
 * @param {(problem: Error) => void} onproblem
 */
export function createTable(node, store, positions, { decode, plane }, onproblem) {
  const layout = layoutOf(node, plane);
  const meaning = { ...meaningOf(node, "", decode), unit: "" }; // units stand in the heads
  const told = (value) => say(value, meaning);
  const table = h("table", {});
  const pager = h("div", { class: "pager" });
  const scroll = h(
    "div",
    { class: "table-scroll", tabindex: 0, role: "region", "aria-label": `Values of ${node.path}` },
    table,
  );
  const element = h("div", { class: "values", "data-view": "values", "aria-busy": "true" }, scroll, pager);
  let turn = 0;

  async function load() {
    const mine = ++turn;
    const window = windowOf(layout, store.get());
    const select = selection(layout, window, positions());
    element.setAttribute("aria-busy", "true");
    try {
      const answer = await values(node.path, select, { field: store.get().field, decode });
      if (mine !== turn) return;
      show(answer, window);
      element.setAttribute("aria-busy", "false");
    } catch (problem) {
      if (mine !== turn) return;
      element.setAttribute("aria-busy", "false");
      onproblem(problem);
    }
  }

  function show(answer, window) {
    element.classList.toggle("single", layout.rank === 0);
    pager.replaceChildren(...pagers(layout, window, store));
    if (layout.rank === 0) return void table.replaceChildren(single(answer, told, unitOf(node, "", decode)));
    const { titles, rows } = grid(answer, layout, window, store.get().field);
    const units = layout.structured ? titles.map((title) => unitOf(node, title)) : [];
    if (layout.columnAxis < 0 && !layout.structured) units[0] = unitOf(node, "", decode);
    const head = h(
      "tr",
      {},
      h("th", { scope: "col", class: "corner" }, layout.rowName),
      titles.map(headOf(rows, units)),
    );
    const row = (cells, i) => h("tr", {}, h("th", { scope: "row" }, String(window.row + i)), cells.map((value) => cell(value, told)));
    const [top, body] = [h("thead", {}, head), h("tbody", {}, rows.map(row))];
    table.replaceChildren(top, body);
    scroll.scrollTop = 0;
  }

  /** @param {import("./state.js").State} state @param {import("./state.js").State|null} before */
  function update(state, before) {
    if (before && ["row", "column", "field", "at"].some((name) => state[name] !== before[name])) void load();
  }
  const turnPage = (by) => {
    const { row } = windowOf(layout, store.get());
    store.update({ row: clamp(row + by * ROWS, 0, Math.max(0, Math.floor((layout.rows - 1) / ROWS) * ROWS)) }, "row");
  };
  void load();
  return { element, update, select: () => selection(layout, windowOf(layout, store.get()), positions()), turnPage };
}

function layoutOf(node, plane) {
  const rank = node.shape.length;
  const structured = Array.isArray(node.dtype);
  const flat = rank <= 1 || (structured && rank === 1);
  const names = node.dimension_names ?? node.shape.map(() => null);
  const name = (axis) => names[axis] ?? `d${axis}`;
  const all = node.shape.map((_, axis) => name(axis));
  const [down, across] = plane.map((wanted) => all.indexOf(wanted));
  const known = down >= 0 && across >= 0 && down !== across; // else the last two
  const rowAxis = rank === 0 ? -1 : flat ? 0 : known ? down : rank - 2;
  const columnAxis = flat ? -1 : known ? across : rank - 1;
  return {
    rank,
    structured,
    names: all,
    rowAxis,
    columnAxis,
    rows: rank === 0 ? 1 : node.shape[rowAxis],
    columns: flat ? 1 : node.shape[columnAxis],
    rowName: rank === 0 ? "" : all[rowAxis],
    fields: structured ? node.dtype.map(([field]) => field) : [],
  };
}

function windowOf(layout, state) {
  const row = clamp(state.row, 0, Math.max(layout.rows - 1, 0));
  const column = clamp(state.column, 0, Math.max(layout.columns - 1, 0));
  return { row, rows: Math.min(ROWS, layout.rows - row), column, columns: Math.min(COLUMNS, layout.columns - column) };
}

function selection(layout, window, at) {
  return layout.names
    .map((name, axis) => {
      if (axis === layout.rowAxis) return `${window.row}:${window.row + window.rows}`;
      if (axis === layout.columnAxis) return `${window.column}:${window.column + window.columns}`;
      return String(at[name] ?? 0);
    })
    .join(",");
}

/** Transposed to rows first. */
const turned = (answer, { rowAxis, columnAxis }) =>
  rowAxis < columnAxis ? answer : answer[0].map((_, row) => answer.map((column) => column[row]));

/** Titles and cells of the response. */
function grid(answer, layout, window, field) {
  if (layout.columnAxis >= 0) {
    return { titles: Array.from({ length: window.columns }, (_, i) => String(window.column + i)), rows: turned(answer, layout) };
  }
  if (layout.structured && !field) {
    const record = (item) => (Array.isArray(item) ? item : layout.fields.map((name) => item[name]));
    return { titles: layout.fields, rows: answer.map(record) };
  }
  return { titles: [field || "value"], rows: answer.map((value) => [value]) };
}

/** Alignment of a column's title, as of its values. */
function headOf(rows, units) {
  return (name, i) => h("th", { scope: "col", class: kindOf(rows[0]?.[i]) }, units[i] ? `${name} (${units[i]})` : name);
}

function cell(value, told) {
  const text = told(value);
  return h("td", { class: kindOf(value), title: text.length > 40 ? text : undefined }, text);
}

/** Whether a value is aligned like a number, also NaN and Infinity. */
function kindOf(value) {
  const number = typeof value === "number" || typeof value === "bigint" || value === null || /^(NaN|-?Infinity)$/.test(value);
  return number ? "number" : typeof value;
}

function single(value, told, unit) {
  const sign = unit && h("span", { class: "single-unit" }, unit);
  return h("tbody", {}, h("tr", {}, h("td", { class: "single-value" }, told(value), sign)));
}

function pagers(layout, window, store) {
  const result = [];
  if (layout.rows > ROWS)
    result.push(pagerPart("Rows", window.row, window.rows, layout.rows, ROWS, (row) => store.update({ row }, "row")));
  if (layout.columns > COLUMNS)
    result.push(
      pagerPart("Columns", window.column, window.columns, layout.columns, COLUMNS, (column) =>
        store.update({ column }, "column"),
      ),
    );
  return result;
}

function pagerPart(name, first, count, total, step, go) {
  const last = Math.floor((total - 1) / step) * step;
  const button = (sign, label, target, disabled) => iconButton(sign, label, () => go(target), { disabled });
  return h(
    "div",
    { class: "pager-part", role: "group", "aria-label": name },
    button("first", `First ${name.toLowerCase()}`, 0, first === 0),
    button("previous", `Previous ${name.toLowerCase()}`, Math.max(first - step, 0), first === 0),
    h(
      "span",
      {},
      `${name} ${first.toLocaleString("en")}–${(first + count - 1).toLocaleString("en")} of ${total.toLocaleString("en")}`,
    ),
    button("next", `Next ${name.toLowerCase()}`, Math.min(first + step, last), first + count >= total),
    button("last", `Last ${name.toLowerCase()}`, last, first + count >= total),
  );
}
