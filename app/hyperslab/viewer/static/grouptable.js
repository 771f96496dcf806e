/** Members of a group as a table, sorted and filtered by the service, a page at a time. */

import { members } from "./api.js";
import { debounce, h, icon, toast } from "./dom.js";
import { counted, formatBytes, formatDtype, formatShape, formatValue } from "./format.js";
import { iconOf, join } from "./nodes.js";
import { pageAddress } from "./state.js";

const PAUSE = 250; // ms without a key before the service is asked
const ATTRIBUTES = ["long_name", "title"];

/** Column of the service, its title and the text of a row. @type {[string, string, (row: any) => string][]} */
const COLUMNS = [
  ["kind", "Kind", (row) => row.kind],
  ["shape", "Shape", (row) => (row.shape ? formatShape(row.shape) : "")],
  ["dtype", "Data type", (row) => (row.dtype ? formatDtype(row.dtype) : "")],
  ["nbytes", "Size", (row) => (row.nbytes === null ? "" : formatBytes(row.nbytes))],
  ["chunks", "Chunks", (row) => (row.chunks ? formatShape(row.chunks) : "")],
  ["units", "Units", (row) => row.units ?? ""],
  ...ATTRIBUTES.map((name) => [name, { long_name: "Long name", title: "Title" }[name], (row) => textOf(row.attributes?.[name])]),
];
const NUMBERS = new Set(["shape", "nbytes", "chunks"]);

const textOf = (value) => (value === undefined || value === null ? "" : typeof value === "string" ? value : formatValue(value));

/**
 * @param {any} group node document
 * @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @param {(path: string) => void} onopen
 * @param {any} [first] the first page, where it is known
 */
export function createGroupTable(group, store, onopen, first = null) {
  const filter = h("input", {
    type: "search",
    placeholder: "Filter: name, or units:K",
    "aria-label": "Filter the members by name or attributes",
    "aria-keyshortcuts": "q",
    oninput: () => later(filter.value.trim()),
  });
  const note = h("p", { class: "hint", role: "status" });
  const heads = [["name", "Name"], ...COLUMNS].map(head);
  const body = h("tbody", {});
  const table = h("table", { "data-testid": "members" }, h("thead", {}, h("tr", {}, heads.map(({ element }) => element))), body);
  const scroll = h("div", { class: "members", tabindex: 0, role: "region", "aria-label": "Table of members" }, table);
  const more = h("button", { type: "button", class: "button", hidden: true, onclick: () => void load(cursor) }, "Show more");
  const element = h("div", {}, scroll, h("div", { class: "browse-more" }, more));
  const later = debounce(PAUSE, (text) => store.update({ filter: text }, "filter"));
  let cursor = null;
  let asked = "";
  let turn = 0; // of the newest request: what older ones bring is of another list

  function head([name, title]) {
    const sign = h("span", { "aria-hidden": "true" });
    const button = h("button", { type: "button", "data-sort": name, onclick: () => sort(name) }, title, sign);
    return { name, sign, element: h("th", { scope: "col" }, button) };
  }

  /** By another column, or the other way around. */
  function sort(name) {
    const { sort: now } = store.get();
    const own = now || "name";
    store.update({ sort: own === name ? `-${name}` : name === "name" ? "" : name }, "sort");
  }

  const question = ({ sort: by, filter: text }) => JSON.stringify([by, text]);

  /** @param {import("./state.js").State} state */
  function update(state) {
    if (filter.value.trim() !== state.filter && document.activeElement !== filter) filter.value = state.filter;
    const by = (state.sort || "name").replace(/^-/, "");
    for (const { name, sign, element: cell } of heads) {
      const down = state.sort.startsWith("-");
      sign.textContent = name === by ? (down ? "↓" : "↑") : "";
      if (name === by) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    if (question(state) !== asked) void load(null);
  }

  async function load(after) {
    const state = store.get();
    const mine = ++turn;
    asked = question(state);
    more.disabled = true;
    scroll.setAttribute("aria-busy", "true");
    try {
      let page = first && !after && !state.sort && !state.filter ? first : await members(group.path, { ...state, cursor: after });
      while (!page.children.length && page.next_cursor && mine === turn) {
        page = await members(group.path, { ...state, cursor: page.next_cursor }); // its time was up
      }
      if (mine !== turn) return;
      if (!after) body.replaceChildren();
      body.append(...page.children.map(rowOf));
      cursor = page.next_cursor;
      const shown = body.children.length;
      const known = page.count === undefined ? (cursor ? `${shown}+ rows` : counted(shown, "row")) : counted(page.count, "row");
      note.textContent = [shown || cursor ? known : "Nothing matches.", ...(page.problems ?? [])].join(" · ");
    } catch (problem) {
      if (mine !== turn) return;
      toast(problem.message);
    }
    scroll.setAttribute("aria-busy", "false");
    more.disabled = false;
    more.hidden = !cursor;
  }

  function rowOf(row) {
    const path = join(group.path, row.name);
    const follow = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      onopen(path);
    };
    const sign = row.problem ? "warning" : row.kind === "group" ? "group" : iconOf({ attributes: {}, ...row });
    const link = h("a", { href: pageAddress(path), onclick: follow, title: row.problem ?? path }, row.name);
    const cells = COLUMNS.map(([name, , text]) => {
      const told = text(row);
      return h("td", { class: NUMBERS.has(name) ? "number" : "", title: told.length > 40 ? told : undefined }, told);
    });
    const trouble = row.problem && h("td", { class: "problem", colSpan: COLUMNS.length }, row.problem);
    return h("tr", {}, h("th", { scope: "row" }, h("span", { class: "member-name" }, icon(sign), link)), trouble || cells);
  }

  return { element, tools: [filter, note], update };
}
