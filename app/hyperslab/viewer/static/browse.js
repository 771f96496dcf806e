/** Group view: children as cards with thumbnails. */

import { metadata } from "./api.js";
import { createCard } from "./cards.js";
import { h, icon, toast } from "./dom.js";
import { counted } from "./format.js";
import { join, lastName, meaning } from "./nodes.js";

const PAGE = 60;

/**
 * @param {any} group node document with its first children
 * @param {(path: string) => void} onopen
 * @returns {HTMLElement}
 */
export function createBrowse(group, onopen) {
  const body = h("div", {});
  const element = h("div", { class: "browse", "data-view": "browse" }, body);
  const only = !group.path && group.children.length === 1 ? group.children[0] : null;
  if (only?.kind === "group")
    metadata(only.name, { limit: PAGE }).then(
      (store) => body.replaceChildren(...page(store, onopen, true)),
      () => body.replaceChildren(...page(group, onopen)),
    );
  else body.replaceChildren(...page(group, onopen));
  return element;
}

/** Heading, cards and a link to further children. @param {boolean} [welcome] the root of the service */
function page(group, onopen, welcome = !group.path) {
  const list = createCards(group, onopen);
  const title = welcome && !group.path ? "Arrays served here" : lastName(group.path);
  const count = group.children.length;
  return [
    h("div", { class: "browse-head" }, h("h1", {}, title), h("p", { class: "hint" }, introduction(group, count))),
    count || group.next_cursor ? list.element : emptyState(group),
    list.more,
  ];
}

function introduction(group, count) {
  const noun = group.path ? "member" : "store";
  const text = group.next_cursor ? `${count}+ ${noun}s` : counted(count, noun);
  const parts = new Set([group.attributes?.title, meaning(group), text]);
  return [...parts].filter((part) => typeof part === "string" && part).join(" · ");
}

function emptyState(group) {
  const text = group.path
    ? "This group is empty."
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
