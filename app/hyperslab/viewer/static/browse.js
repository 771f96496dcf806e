/** Group view: members as cards with thumbnails, or as a table where there are many, or none has a picture. */

import { members, metadata } from "./api.js";
import { createCard } from "./cards.js";
import { h, icon, toast } from "./dom.js";
import { counted } from "./format.js";
import { createGroupTable } from "./grouptable.js";
import { hasThumbnail, join, lastName, meaning } from "./nodes.js";

const PAGE = 60;
const FEW = 12; // members that are cards, whatever they are
const MANY = 200; // members that are a table, whatever they are

/**
 * @param {any} group node document with its first children
 * @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @param {(path: string) => void} onopen
 */
export function createBrowse(group, store, onopen) {
  const body = h("div", {});
  const element = h("div", { class: "browse", "data-view": "browse" }, body);
  const only = !group.path && group.children.length === 1 ? group.children[0] : null;
  /** @type {any} the group whose members are shown */
  let shown = null;
  let first = null;
  let suits = "";
  let kind = "";
  let table = null;

  async function open() {
    const inner = only?.kind === "group" ? await metadata(only.name, { limit: PAGE }).catch(() => null) : null;
    const found = inner ?? group;
    const { children, next_cursor: more } = found;
    if (!group.path || (children.length <= FEW && !more)) suits = "cards";
    else if (children.length > MANY || more) suits = "table";
    else {
      first = await members(found.path, {}).catch(() => null);
      const drawn = first?.children.some((row) => row.kind === "array" && row.shape && hasThumbnail({ attributes: {}, ...row }));
      suits = !first || drawn || first.children.some((row) => row.kind === "group") ? "cards" : "table";
    }
    shown = found;
    update(store.get());
  }

  /** @param {import("./state.js").State} state */
  function update(state) {
    if (!shown) return;
    const wanted = state.list || suits;
    if (wanted !== kind) {
      kind = wanted;
      table = kind === "table" ? createGroupTable(shown, store, onopen, first) : null;
      body.replaceChildren(...page());
    }
    table?.update(state);
  }

  /** Heading, members and a link to further ones. */
  function page() {
    const welcome = !group.path;
    const list = kind === "cards" ? createCards(shown, onopen) : null;
    const title = welcome && !shown.path ? "Arrays served here" : lastName(shown.path);
    const count = shown.children.length;
    const choices = [["cards", "Cards"], ["table", "Table"]].map(([name, text]) =>
      h("button", { type: "button", "aria-pressed": String(name === kind), "aria-keyshortcuts": name === kind ? null : "g", onclick: () => choose(name) }, text),
    );
    const tools = count || shown.next_cursor
      ? h("div", { class: "browse-tools" }, h("div", { class: "segmented", role: "group", "aria-label": "Members as" }, choices), table?.tools)
      : null;
    const head = h("div", { class: "browse-head" }, h("h1", {}, title), h("p", { class: "hint" }, introduction(shown, count)), tools);
    if (table) return [head, table.element];
    return [head, count || shown.next_cursor ? list.element : emptyState(shown), list.more];
  }

  const choose = (name) => store.update({ list: name === suits ? "" : name }, "list");

  void open();
  return { element, update };
}

function introduction(group, count) {
  const noun = group.path ? "member" : "store";
  const text = group.next_cursor ? `${count}+ ${noun}s` : counted(count, noun);
  const parts = new Set([group.attributes?.title, meaning(group), text]);
  return [...parts].filter((part) => typeof part === "string" && part).join(" · ");
}

function emptyState(group) {
  const text = group.path
    ? (group.problems?.[0] ?? "This group is empty.")
    : "No stores are served. Start the service with the path or the URL of a Zarr store.";
  return h("div", { class: "empty" }, icon("group"), h("p", {}, text));
}

/** Cards that load when they become visible. */
function createCards(group, onopen) {
  const element = h("ul", { class: "cards" });
  const waiting = new Map();
  const seen = new IntersectionObserver(
    (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => fill(e.target)),
    { rootMargin: "200px" },
  );
  let cursor = group.next_cursor;

  function fill(card) {
    seen.unobserve(card);
    waiting.get(card)();
    waiting.delete(card);
  }

  function add(children) {
    for (const child of children) {
      const card = createCard(join(group.path, child.name), child, onopen);
      waiting.set(card.element, card.fill);
      element.append(card.element);
      seen.observe(card.element);
    }
  }

  async function next(button) {
    button.disabled = true;
    try {
      let added = 0;
      while (cursor && !added) {
        const following = await metadata(group.path, { cursor, limit: PAGE }); // empty where its time was up
        add(following.children);
        added = following.children.length;
        cursor = following.next_cursor;
      }
      if (!element.children.length) element.replaceWith(emptyState(group));
    } catch (problem) {
      toast(problem.message);
    }
    button.disabled = false;
    button.hidden = !cursor;
  }

  add(group.children);
  const button = h("button", { type: "button", class: "button", onclick: () => void next(button) }, "Show more");
  if (cursor && !group.children.length) void next(button);
  return { element, more: cursor ? h("div", { class: "browse-more" }, button) : "" };
}
