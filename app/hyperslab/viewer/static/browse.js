/** The page of a group: its children as cards, with small pictures of those that can be drawn. */

import { metadata, url } from "./api.js";
import { h, icon, setIcon } from "./dom.js";
import { describe, hasThumbnail, iconOf, join, lastName, summary } from "./nodes.js";
import { pageAddress } from "./state.js";

const PAGE = 60;
const THUMBNAIL = 320;

/**
 * @param {any} group node document with its first children
 * @param {(path: string) => void} onopen
 * @returns {HTMLElement}
 */
export function createBrowse(group, onopen) {
  const grid = h("ul", { class: "cards" });
  const seen = new IntersectionObserver((entries) => entries.filter((e) => e.isIntersecting).forEach((e) => fill(e.target)), { rootMargin: "200px" });
  const waiting = new Map();

  function fill(element) {
    seen.unobserve(element);
    waiting.get(element)();
  }

  function add(children) {
    for (const child of children) {
      const card = createCard(join(group.path, child.name), child, onopen);
      waiting.set(card.element, card.fill);
      grid.append(card.element);
      seen.observe(card.element);
    }
  }

  add(group.children ?? []);
  const count = group.children?.length ?? 0;
  return h(
    "div",
    { class: "browse", "data-view": "browse" },
    h("div", { class: "browse-head" }, h("h1", {}, group.path ? lastName(group.path) : "Arrays served here"), h("p", { class: "hint" }, introduction(group, count))),
    count ? grid : emptyState(group),
    more(group, add),
  );
}

function introduction(group, count) {
  if (!group.path) return "Pick a store to look into it, slice it, or copy the lines that read it from your own code.";
  const title = group.attributes?.title ?? group.attributes?.description;
  const text = count === 1 ? "1 member" : `${count}${group.next_cursor ? "+" : ""} members`;
  return title ? `${title} · ${text}` : text;
}

function emptyState(group) {
  const text = group.path ? "This group has no members yet." : "No stores are served. Start the service with a path or a URL of a Zarr store.";
  return h("div", { class: "empty" }, icon("group"), h("p", {}, text));
}

function more(group, add) {
  if (!group.next_cursor) return null;
  let cursor = group.next_cursor;
  const button = h("button", { type: "button", class: "button", onclick: async () => {
    button.disabled = true;
    const page = await metadata(group.path, { cursor, limit: PAGE });
    add(page.children);
    cursor = page.next_cursor;
    button.disabled = false;
    button.hidden = !cursor;
  } }, "Show more");
  return h("div", { class: "browse-more" }, button);
}

function createCard(path, child, onopen) {
  const sign = icon(child.kind === "group" ? "group" : "array");
  const picture = h("div", { class: "card-picture" }, sign);
  const about = h("span", { class: "card-about" }, child.kind);
  const follow = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    onopen(path);
  };
  const element = h("li", {}, h("a", { class: "card", href: pageAddress(path), onclick: follow }, picture, h("span", { class: "card-name" }, child.name), about));

  async function fill() {
    try {
      const document = await describe(path);
      about.textContent = summary(document);
      setIcon(sign, iconOf(document));
      if (hasThumbnail(document)) showThumbnail(picture, path);
    } catch (problem) {
      setIcon(sign, "warning");
      about.textContent = problem.message;
    }
  }
  return { element, fill };
}

function showThumbnail(picture, path) {
  const image = h("img", { alt: "", decoding: "async", src: url("tile", path, `/thumbnail.png?size=${THUMBNAIL}`) });
  image.addEventListener("load", () => picture.replaceChildren(image), { once: true });
}
