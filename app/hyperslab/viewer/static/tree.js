/** Tree of stores, groups and arrays, loaded on expansion, by pages of children. */

import { metadata } from "./api.js";
import { h, icon, setIcon } from "./dom.js";
import { describe, iconOf, join, meaning, summary } from "./nodes.js";
import { pageAddress } from "./state.js";
import { createFilter, isNamed } from "./treefilter.js";

const PAGE = 100;

const parentOf = (path) => path.slice(0, Math.max(path.lastIndexOf("/"), 0));

/**
 * @param {HTMLElement} host
 * @param {(path: string) => void} onopen
 */
export function createTree(host, onopen) {
  const filter = createFilter({ narrow, add, forget });
  const root = h("ul", { class: "tree", role: "tree", "aria-label": "Hierarchy" });
  host.append(h("div", { class: "sidebar-head" }, filter.input), h("div", { class: "tree-scroll" }, root), filter.note);
  /** @type {Map<string, ReturnType<typeof treeItem>>} */
  const items = new Map();
  const seen = new IntersectionObserver((entries) =>
    entries.filter((e) => e.isIntersecting).forEach((e) => detail(e.target)),
  );
  let current = "";
  let narrowed = "";

  function treeItem(path, name, kind, level) {
    const chevron = h(
      "span",
      { class: "tree-chevron", onclick: (event) => (event.preventDefault(), event.stopPropagation(), toggle(path)) },
      icon("chevron"),
    );
    const sign = icon(kind === "group" ? "group" : "array");
    const about = h("span", { class: "tree-about", "aria-hidden": "true" }); // the name is what an item is called
    const link = h(
      "a",
      { class: "tree-row", href: pageAddress(path), tabindex: -1, onclick: (event) => follow(event, path) },
      chevron,
      sign,
      h("span", { class: "tree-name" }, name),
      about,
    );
    link.style.setProperty("--level", String(level));
    const children = kind === "group" ? h("ul", { role: "group", hidden: true }) : null;
    const row = h("div", { role: "treeitem", "aria-level": level + 1 }, link);
    const element = h("li", { role: "none", "data-path": path }, row, children);
    if (children) row.setAttribute("aria-expanded", "false");
    else chevron.classList.add("leaf");
    seen.observe(element);
    const item = { path, level, element, row, link, sign, about, children, loaded: null, open: false, found: false, told: "", summary: "" };
    items.set(path, item);
    return item;
  }

  function follow(event, path) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    onopen(path);
  }

  function detail(element) {
    seen.unobserve(element);
    const item = items.get(element.dataset.path);
    if (!item) return; // forgotten meanwhile
    describe(item.path).then(
      (document) => {
        setIcon(item.sign, iconOf(document));
        item.summary = document.kind === "array" ? summary(document) : meaning(document);
        item.about.textContent = item.told || item.summary;
        item.link.title = `${item.path}\n${summary(document)}`;
      },
      (problem) => {
        setIcon(item.sign, "warning");
        item.link.title = problem.message;
      },
    );
  }

  /** Append a page of children. */
  async function load(path, list, level, cursor = null) {
    const waiting = h("li", { class: "tree-note", role: "none" }, "Loading…");
    waiting.style.setProperty("--level", String(level));
    list.append(waiting);
    try {
      const document = await metadata(path, { limit: PAGE, cursor });
      if (!document.children.length && document.next_cursor) {
        waiting.remove(); // the time of a page was up: the search goes on
        await load(path, list, level, document.next_cursor);
        return;
      }
      const found = document.children.map(({ name, kind }) => listed(join(path, name), name, kind, level).element);
      waiting.replaceWith(...found, ...rest(path, list, level, document.next_cursor));
      for (const item of items.values()) if (item.found && item.element.parentElement === list) place(item, list);
      if (!list.children.length) list.append(h("li", { class: "tree-note", role: "none" }, "empty"));
      narrow(filter.text());
    } catch (problem) {
      waiting.textContent = problem.message;
      waiting.classList.add("error");
    }
  }

  /** The item of a child, which a search may have added before. */
  function listed(path, name, kind, level) {
    const item = items.get(path) ?? treeItem(path, name, kind, level);
    item.found = false;
    return item;
  }

  /** Insert a found node in order of name. */
  function place(item, list) {
    const behind = ({ dataset: { path } }) => path === undefined || path > item.path;
    list.insertBefore(item.element, [...list.children].find(behind) ?? null);
  }

  /** Add a found node with the groups above it. */
  function add(path, kind, told = "") {
    const names = path.split("/");
    let list = root;
    for (const [level, name] of names.entries()) {
      const at = names.slice(0, level + 1).join("/");
      if (!items.has(at)) {
        const item = treeItem(at, name, level < names.length - 1 ? "group" : kind, level);
        item.found = true;
        place(item, list);
      }
      if (at === path) items.get(at).told = told;
      list = items.get(at).children;
      if (!list) return; // it has become something else
    }
  }

  /** Remove added nodes, except those above the open node. */
  function forget() {
    const gone = new Set();
    for (const { path, found, element } of [...items.values()]) {
      const leads = path === current || current.startsWith(`${path}/`);
      if (!gone.has(parentOf(path)) && (!found || leads)) continue;
      gone.add(path);
      seen.unobserve(element);
      element.remove();
      items.delete(path);
    }
  }

  function rest(path, list, level, cursor) {
    if (!cursor) return [];
    const more = h(
      "button",
      { type: "button", class: "text-button", onclick: () => (entry.remove(), load(path, list, level, cursor)) },
      "Show more",
    );
    const entry = h("li", { class: "tree-note", role: "none" }, h("div", { role: "treeitem", "aria-level": level + 1 }, more));
    entry.style.setProperty("--level", String(level));
    return [entry];
  }

  function expand(item) {
    if (!item.children) return Promise.resolve();
    item.open = true;
    unfold(item, true);
    item.loaded ??= load(item.path, item.children, item.level + 1);
    return item.loaded;
  }

  function collapse(item) {
    item.open = false;
    unfold(item, false);
  }

  function unfold(item, wanted) {
    item.children.hidden = !wanted;
    item.row.setAttribute("aria-expanded", String(wanted));
  }

  function toggle(path) {
    const item = items.get(path);
    if (item.children?.hidden === false) collapse(item);
    else void expand(item);
  }

  /**
   * Mark a node and open what leads to it.
   * @param {string} path
   * @param {{expand?: boolean}} [options] whether to show its children too
   */
  async function select(path, { expand: deeper = false } = {}) {
    current = path;
    await loadedRoot;
    const names = path.split("/").filter(Boolean);
    for (let depth = 1; depth <= names.length; depth += 1) {
      const item = items.get(names.slice(0, depth).join("/"));
      if (!item) break;
      if (depth < names.length || deeper) await expand(item);
    }
    if (path !== current) return;
    for (const item of items.values()) mark(item, item.path === path);
    const focusable = items.get(path) ?? items.values().next().value;
    if (focusable) focusable.link.tabIndex = 0;
    items.get(path)?.element.querySelector(".tree-row").scrollIntoView({ block: "nearest" });
  }

  function mark(item, chosen) {
    item.row.setAttribute("aria-selected", String(chosen));
    if (chosen) item.link.setAttribute("aria-current", "page");
    else item.link.removeAttribute("aria-current");
    item.link.tabIndex = -1;
  }

  /** Show nodes with a text in their path, and expand groups above nodes with it in their name. */
  function narrow(text) {
    const [shown, leading] = [new Set(), new Set()];
    for (const item of items.values()) {
      const { path } = item;
      if (text !== narrowed) item.told = ""; // that was of another text
      item.about.textContent = item.told || item.summary;
      if (!path.toLowerCase().includes(text) && !item.told) continue;
      shown.add(path);
      for (let above = parentOf(path); above; above = parentOf(above)) {
        shown.add(above);
        if (text && (item.told || isNamed(path, text))) leading.add(above);
      }
    }
    narrowed = text;
    for (const item of items.values()) {
      item.element.classList.toggle("filtered", !shown.has(item.path));
      if (item.children) unfold(item, item.open || leading.has(item.path));
    }
    return shown.size > 0;
  }

  root.addEventListener("keydown", (event) => {
    const rows = [...root.querySelectorAll(".tree-row")].filter((row) => row.offsetParent !== null);
    const at = rows.indexOf(document.activeElement);
    const item = items.get(document.activeElement.closest("[data-path]")?.dataset.path);
    const goTo = (row) => row?.focus();
    const actions = {
      ArrowDown: () => goTo(rows[at + 1]),
      ArrowUp: () => goTo(rows[at - 1]),
      Home: () => goTo(rows[0]),
      End: () => goTo(rows.at(-1)),
      ArrowRight: () => (item?.children?.hidden ? void expand(item) : goTo(rows[at + 1])),
      ArrowLeft: () =>
        item?.children?.hidden === false
          ? collapse(item)
          : goTo(item?.element.parentElement.closest("[data-path]")?.querySelector(".tree-row")),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  });

  const loadedRoot = load("", root, 0).then(async () => {
    if (items.size === 1) await expand(items.values().next().value);
  });
  return { select, focus: () => filter.input.focus() };
}
