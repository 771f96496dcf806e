/** Code snippets that read the displayed data, in several languages. */

import { absolute, encodePath, url } from "./api.js";
import { copyText, h, icon, iconButton, ROOT } from "./dom.js";
import { metresIn, secondsIn } from "./format.js";
import { lastName } from "./nodes.js";
import { channelsOf, planeOf, positionsOf } from "./tilequery.js";
import { heldToken } from "./token.js";

/**
 * @typedef {object} Sight what is visible
 * @property {string} path of the array @property {string} [name] of the node that is seen, for files
 * @property {string} select numpy text, "" is everything
 * @property {string} field "" is the whole record
 * @property {string} [decode] "cf": values as their attributes mean them
 * @property {number} rank of the array: the selection goes on along the axes of a field's subarray
 * @property {boolean} [objects] the values are of any length, and have no npy file
 */

const base = () => `${location.origin}${ROOT}`;
const python = (select) => select || "...";
/** Quoted for a shell. */
const quoted = (text) => `'${text.replaceAll("'", "%27")}'`;

/** Lines that save a file. @param {Sight} sight @param {string} form @returns {Record<string, string>} title to text */
export function fileSnippets({ path, name: stem = lastName(path), select, field, decode = "" }, form) {
  const token = tokenParts();
  const given = { ...(select && { select }), ...(field && { field }), ...(decode && { decode }) };
  const plain = (query) => query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  const address = absolute(url("slice", path, `?${plain(new URLSearchParams({ ...given, format: form }))}`));
  const node = absolute(url("metadata", path, decode && `?decode=${decode}`));
  const name = `${stem}.${form}`;
  const request = token.headers ? `urllib.request.Request("${address}"${token.python})` : `"${address}"`;
  const file = form === "npy" ? `slab = np.load("${name}")` : form === "tiff" ? `slab = tifffile.imread("${name}")` : "";
  const library = form === "npy" ? "import numpy as np\n" : form === "tiff" ? "import tifffile\n" : "";
  return {
    curl: `curl ${token.curl}-o ${quoted(name)} ${quoted(address.replaceAll("[", "%5B").replaceAll("]", "%5D"))}`,
    Python: `${token.imports}import shutil, urllib.request\n${library}\n${token.headers}with urllib.request.urlopen(${request}) as body, open("${name}", "wb") as file:\n    shutil.copyfileobj(body, file)\n${file}`.trim(),
    "hyperslab get": `hyperslab get ${quoted(node)} ${select && `--select ${quoted(select)} `}${field && `--field ${quoted(field)} `}${token.curl && "--token $TOKEN "}-o ${quoted(name)}`,
  };
}

/**
 * What the lines say where a token is needed: they take it from the environment variable TOKEN, for copied lines get
 * around.
 */
function tokenParts() {
  if (!heldToken()) return { curl: "", imports: "", headers: "", python: "", fsspec: "" };
  return {
    curl: '-H "Authorization: Bearer $TOKEN" ',
    imports: "import os\n",
    headers: 'headers = {"Authorization": f"Bearer {os.environ[\'TOKEN\']}"}\n',
    python: ", headers=headers",
    fsspec: ', storage_options={"client_kwargs": {"headers": headers}}',
  };
}

/** @param {Sight} sight @returns {Record<string, string>} title to text */
export function snippetsFor({ path, select, field, rank, decode = "", objects = false }) {
  const format = objects ? "json" : "npy";
  const given = { ...(select && { select }), ...(field && { field }), ...(decode && { decode }) };
  const query = new URLSearchParams({ ...given, format });
  const slice = absolute(url("slice", path, `?${query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":")}`));
  const picked = field ? `a[${JSON.stringify(field)}][${python(select)}]` : `a[${python(select)}]`;
  const outer = /\[/.test(select); // a list inside a selection is orthogonal indexing
  const remotePicked = outer ? picked.replace(/^a(\[".*"\])?\[/, "a$1.oindex[") : picked;
  const token = tokenParts();
  const request = token.headers ? `urllib.request.Request("${slice}"${token.python})` : `"${slice}"`;
  return {
    curl: `curl ${token.curl}-o slab.${format} ${quoted(slice.replaceAll("[", "%5B").replaceAll("]", "%5D"))}`,
    Python: `${token.imports}from hyperslab import RemoteArray\n\n${token.headers}a = RemoteArray("${absolute(url("metadata", path))}"${decode && `, decode="${decode}"`}${token.python})\nslab = ${remotePicked}`,
    zarr: `${token.imports}import zarr\n\n${token.headers}a = zarr.open_array("${base()}/zarr/${encodePath(path)}", mode="r"${token.fsspec})\nslab = ${zarrPicked(select, field, rank)}${decode && "  # as stored: xarray decodes it"}`,
    numpy: `import ${objects ? "json" : "io"}, ${token.headers && "os, "}urllib.request\nimport numpy as np\n\n${token.headers}body = urllib.request.urlopen(${request}).read()\nslab = ${objects ? "np.array(json.loads(body), dtype=object)" : "np.load(io.BytesIO(body))"}`,
  };
}

/** Selection of a field and its subarray after reading: zarr-python reads whole records. */
function zarrPicked(select, field, rank) {
  const items = select.match(/(\[[^\]]*\]|[^,[])+/g) ?? []; // commas within a list separate no axes
  const [own, inner] = [items.slice(0, rank).join(","), items.slice(rank).join(",")];
  const picked = `a${/\[/.test(own) ? ".oindex" : ""}[${python(own)}]`;
  return picked + (field && `[${JSON.stringify(field)}]`) + (inner && `[..., ${inner}]`);
}

/** Snippets that open a group. @param {string} path "" for the root @returns {Record<string, string>} */
export function groupSnippets(path) {
  const address = absolute(url("metadata", path));
  const zarr = `${base()}/zarr/${encodePath(path)}`;
  const token = tokenParts();
  const curl = `curl ${token.curl}${quoted(address)}`;
  const remote = `${token.imports}from hyperslab import RemoteGroup\n\n${token.headers}g = RemoteGroup("${address}"${token.python})\nprint(list(g))`;
  if (!path) return { curl, Python: remote };
  return {
    curl,
    Python: remote,
    zarr: `${token.imports}import zarr\n\n${token.headers}g = zarr.open_group("${base()}/zarr3/${encodePath(path)}", mode="r"${token.fsspec})`,
    xarray: `${token.imports}import xarray\n\n${token.headers}d = xarray.open_zarr("${zarr}"${token.fsspec})`,
  };
}

/**
 * A neuroglancer address with the node as its layer, seen as here: the horizontal axis first, then the vertical one.
 * @returns {string}
 */
export function neuroglancerLink(state, info, centre) {
  const [vertical, horizontal] = planeOf(state, info);
  const at = { ...positionsOf(state, info), [vertical]: centre.y, [horizontal]: centre.x };
  const order = [horizontal, vertical, ...Object.keys(positionsOf(state, info)).reverse()];
  const axes = order.map((name) => info.axes.find((axis) => axis.name === name));
  const middle = info.kind === "array" ? 0.5 : 0; // OME-Zarr has whole numbers in the middle of items
  const source = (path) => `${base()}/zarr/${encodePath(path)}/|zarr:`;
  const type = info.kind === "labels" ? "segmentation" : "image";
  const picture = { type, source: source(info.path), name: info.name, ...shaderControls(state, info) };
  const labels = state.overlay && {
    type: "segmentation",
    source: source(state.overlay),
    name: lastName(state.overlay),
  };
  const scene = {
    dimensions: Object.fromEntries(axes.map((axis) => [axis.name, dimension(axis)])),
    position: order.map((name) => at[name] + middle),
    layers: labels ? [picture, labels] : [picture],
    layout: "xy",
  };
  return `https://neuroglancer-demo.appspot.com/#!${encodeURIComponent(JSON.stringify(scene))}`;
}

/** Size of a step in a base unit, for neuroglancer. */
function dimension({ scale, unit }) {
  if (metresIn(unit) !== null) return [(scale ?? 1) * metresIn(unit), "m"];
  return secondsIn(unit) === null ? [1, ""] : [(scale ?? 1) * secondsIn(unit), "s"];
}

function shaderControls(state, info) {
  const active = channelsOf(state, info).filter((channel) => channel.active);
  if (info.kind === "labels" || info.channel_axis || info.decode || active.length !== 1) return {};
  return { shaderControls: { normalized: { range: active[0].window } } };
}

/** Panel with a tab per language, a copy button and links to other viewers. */
export function createSnippets() {
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Language" });
  const code = h("code", {});
  const copy = iconButton("copy", "Copy", () => copyText(code.textContent));
  const links = h("div", { class: "links" });
  const element = h(
    "div",
    { class: "snippets" },
    tabs,
    h("div", { class: "code" }, h("pre", { tabindex: 0, "aria-label": "Code" }, code), copy),
    links,
  );
  let chosen = "curl";
  let texts = {};

  function choose(name) {
    chosen = name;
    for (const tab of tabs.children) tab.setAttribute("aria-selected", String(tab.textContent === name));
    code.textContent = texts[name] ?? "";
  }

  /** @param {Record<string, string>} newTexts @param {{title: string, href: string, external?: boolean, onclick?: (event: Event) => void}[]} [others] */
  function update(newTexts, others = []) {
    texts = newTexts;
    const names = Object.keys(texts);
    if ([...tabs.children].map((tab) => tab.textContent).join() !== names.join()) {
      tabs.replaceChildren(
        ...names.map((name) => h("button", { type: "button", role: "tab", onclick: () => choose(name) }, name)),
      );
    }
    choose(chosen in texts ? chosen : names[0]);
    links.replaceChildren(
      ...others.map(({ title, href, external = true, onclick }) =>
        h(
          "a",
          { href, class: "link", onclick, ...(external && { target: "_blank", rel: "noopener" }) },
          title,
          icon(external ? "external" : "download"),
        ),
      ),
    );
  }
  return { element, update };
}
