/** Dialog that saves what is displayed, a chosen box or the whole array as a file, and says how to do the same elsewhere. */

import { absolute, download, get, url } from "./api.js";
import { h, iconButton, toast } from "./dom.js";
import { counted, formatBytes } from "./format.js";
import { lastName } from "./nodes.js";
import { createSnippets, fileSnippets } from "./snippets.js";
import { saveBlob } from "./snapshot.js";
import { heldToken } from "./token.js";

const FORMATS = { npy: "npy", csv: "CSV", json: "JSON", raw: "raw", tiff: "TIFF", png: "PNG" };
const HINTS = {
  npy: "NumPy's own file",
  csv: "Text of one or two axes",
  json: "Nested lists",
  raw: "The bytes in C order",
  tiff: "OME-TIFF with axes, sizes and channels, for ImageJ, napari and QuPath",
  png: "The picture as it is on the screen",
};
const IN_MEMORY = 512 << 20; // bytes that the page holds; more is left to the browser

/**
 * @typedef {import("./snippets.js").Sight & {box?: string, whole: string}} Source `box`: selection of a chosen box
 *
 * @param {() => {sight: Source|null, png: (() => void)|null}} current
 */
export function createDownload(current) {
  const parts = h("select", { "aria-label": "Part", onchange: () => void show() });
  const formats = h("div", { class: "segmented", role: "group", "aria-label": "Format" });
  const hint = h("p", { class: "hint" });
  const size = h("p", { class: "download-size", role: "status", "data-testid": "download-size" });
  const bar = h("progress", { hidden: true, max: 1, "aria-label": "Progress" });
  const save = h("button", { type: "button", class: "button", onclick: () => void start() }, "Save");
  const cancel = h("button", { type: "button", class: "button", hidden: true, onclick: () => running?.abort() }, "Cancel");
  const snippets = createSnippets();
  const dialog = h(
    "dialog",
    { class: "dialog download", "aria-label": "Download", onclick: (event) => event.target === dialog && dialog.close() },
    h(
      "div",
      { class: "dialog-body" },
      h("div", { class: "dialog-head" }, h("h2", {}, "Download"), iconButton("close", "Close", () => dialog.close())),
      h("label", { class: "field-row" }, h("span", {}, "Part"), parts),
      formats,
      hint,
      size,
      h("div", { class: "download-actions" }, bar, cancel, save),
      snippets.element,
    ),
  );
  dialog.addEventListener("close", () => {
    running?.abort();
    dialog.remove();
  });
  let form = "npy";
  let source = null;
  let png = null;
  let asked = 0;
  /** @type {AbortController|null} */
  let running = null;

  function open() {
    if (dialog.open) return void dialog.close();
    ({ sight: source, png } = current());
    if (!source && !png) return void toast("There is nothing to download here");
    const choices = source ? [["shown", "What is displayed"], source.box && ["box", "The chosen box"], ["whole", "The whole array"]] : [];
    parts.replaceChildren(...choices.filter(Boolean).map(([value, text]) => h("option", { value }, text)));
    const offered = Object.keys(FORMATS).filter((name) => (name === "png" ? png : source && !(source.objects && /npy|tiff/.test(name))));
    if (!offered.includes(form)) [form] = offered;
    formats.replaceChildren(
      ...offered.map((name) => h("button", { type: "button", "data-format": name, onclick: () => choose(name) }, FORMATS[name])),
    );
    choose(form);
    document.body.append(dialog);
    dialog.showModal();
  }

  function choose(name) {
    form = name;
    for (const button of formats.children) button.setAttribute("aria-pressed", String(button.dataset.format === name));
    void show();
  }

  const select = () => ({ box: source.box, whole: source.whole })[parts.value] ?? source.select;

  function query() {
    const { field, decode } = source;
    const given = { ...(select() && { select: select() }), ...(field && { field }), ...(decode && { decode }) };
    return new URLSearchParams({ ...given, format: form });
  }

  /** The size, before anything is read. */
  async function show() {
    const mine = ++asked;
    running?.abort(); // it was of another choice
    hint.textContent = HINTS[form];
    parts.parentElement.hidden = snippets.element.hidden = form === "png";
    save.disabled = form !== "png";
    size.textContent = "";
    if (form === "png") return;
    snippets.update(fileSnippets({ ...source, select: select() }, form));
    size.textContent = "…";
    try {
      const plan = await (await get(url("plan", source.path, `?${query()}`))).json();
      if (mine !== asked) return;
      const fits = plan.limit === null || plan.nbytes <= plan.limit;
      const text = `${plan.shape.join(" × ") || "one value"} · ${formatBytes(plan.nbytes)} · ${counted(plan.chunks.touched, "chunk")}`;
      size.textContent = fits ? text : `${text}: more than the ${formatBytes(plan.limit)} of one file. It fits in ${counted(plan.boxes.length, "part")}.`;
      size.dataset.bytes = String(plan.nbytes);
      save.disabled = !fits;
    } catch (problem) {
      if (mine === asked) size.textContent = problem.message;
    }
  }

  async function start() {
    if (form === "png") return void (png(), dialog.close());
    const address = url("slice", source.path, `?${query()}`);
    const name = `${source.name ?? lastName(source.path)}.${form}`;
    if (Number(size.dataset.bytes) > IN_MEMORY && !heldToken()) return void download(absolute(address), name);
    running = new AbortController();
    [bar.hidden, cancel.hidden, save.disabled] = [false, false, true];
    bar.value = 0;
    try {
      const response = await get(address, running.signal);
      saveBlob(await received(response, Number(size.dataset.bytes)), name);
    } catch (problem) {
      if (problem.name !== "AbortError") size.textContent = problem.message;
    }
    running = null;
    [bar.hidden, cancel.hidden, save.disabled] = [true, true, false];
  }

  /** The body, with its progress. @param {Response} response @param {number} nbytes about how long it is */
  async function received(response, nbytes) {
    const total = Number(response.headers.get("Content-Length")) || nbytes || 1;
    const [reader, pieces] = [response.body.getReader(), []];
    let done = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      pieces.push(part.value);
      done += part.value.length;
      bar.value = Math.min(done / total, 1);
    }
    return new Blob(pieces, { type: response.headers.get("Content-Type") });
  }

  return { open };
}
