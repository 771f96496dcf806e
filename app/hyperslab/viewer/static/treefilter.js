/** Filter of the tree: of loaded nodes at once, of others by a search of the service. */

import { search } from "./api.js";
import { debounce, h } from "./dom.js";

const PAUSE = 250; // ms without a key before the service is asked
const MAX_FOUND = 500; // nodes that a search brings into the tree

/** Whether a text matches the name of a node, not only its parents. @param {string} path @param {string} text */
export function isNamed(path, text) {
  const lower = path.toLowerCase();
  const at = lower.lastIndexOf(text);
  return at >= 0 && at + text.length > lower.lastIndexOf("/") + 1;
}

/**
 * @param {object} tree
 * @param {(text: string) => boolean} tree.narrow shows what has a text in its path, and says whether there is any
 * @param {(path: string, kind: string, told?: string) => void} tree.add brings in a node that is not loaded; `told`: the
 *   attribute by which it was found
 * @param {() => void} tree.forget takes away what was brought in
 */
export function createFilter({ narrow, add, forget }) {
  const input = h("input", {
    type: "search",
    placeholder: "Filter: name, or units:K",
    title: "Text in names and attributes, or an attribute as name:value",
    "aria-label": "Filter the tree by name or attributes",
    oninput: () => changed(),
  });
  const note = h("p", { class: "hint tree-hint", role: "status", hidden: true });
  let asked = new AbortController();

  const text = () => input.value.trim().toLowerCase();

  function say(words) {
    note.textContent = words;
    note.hidden = !words;
  }

  function changed() {
    asked.abort();
    later.cancel();
    if (!text()) forget();
    narrow(text());
    say(text() && "Searching…");
    if (text()) later(text());
  }

  const later = debounce(PAUSE, async (wanted) => {
    const { signal } = (asked = new AbortController());
    try {
      const words = await follow(wanted, signal);
      if (!signal.aborted) say(words);
    } catch (problem) {
      if (!signal.aborted) say(problem.message);
    }
  });

  /** Add all matches of the service, page by page. @returns {Promise<string>} a message */
  async function follow(wanted, signal) {
    const problems = [];
    let [cursor, found, any] = [null, 0, false];
    do {
      const page = await search(wanted, cursor, signal);
      if (signal.aborted) return "";
      const named = page.matches.filter(({ path, attribute }) => attribute || isNamed(path, wanted)); // what lies in one shows as that is opened
      for (const { path, kind, attribute } of named.slice(0, MAX_FOUND - found)) {
        add(path, kind, attribute && `${attribute.name}: ${attribute.value}`);
      }
      found += named.length;
      problems.push(...page.problems);
      any = narrow(wanted);
      cursor = page.next_cursor;
    } while (cursor && found < MAX_FOUND);
    if (cursor || found > MAX_FOUND) return `The first ${MAX_FOUND} are shown: type more of the name.`;
    if (problems.length) return `Not everything could be searched: ${problems[0]}`;
    return any ? "" : "No match.";
  }

  return { input, note, text };
}
