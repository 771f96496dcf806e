/** Lines to copy that read exactly what is on the screen, in several languages. */

import { absolute, encodePath, url } from "./api.js";
import { copyText, h, icon, iconButton, ROOT } from "./dom.js";
import { metresIn, secondsIn } from "./format.js";
import { lastName } from "./nodes.js";
import { channelsOf, planeOf, positionsOf } from "./tilequery.js";

/**
 * @typedef {object} Sight what is visible
 * @property {string} path of the array
 * @property {string} select numpy text, "" is everything
 * @property {string} field "" is the whole record
 */

const base = () => `${location.origin}${ROOT}`;
const python = (select) => select || "...";

/** @param {Sight} sight @returns {Record<string, string>} title to text */
export function snippetsFor({ path, select, field }) {
  const query = new URLSearchParams({ ...(select && { select }), ...(field && { field }), format: "npy" });
  const slice = absolute(url("slice", path, `?${query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":")}`));
  const picked = field ? `a[${JSON.stringify(field)}][${python(select)}]` : `a[${python(select)}]`;
  const outer = /\[/.test(select); // a list inside a selection is orthogonal indexing
  const zarrPicked = outer ? picked.replace(/^a(\[".*"\])?\[/, "a$1.oindex[") : picked;
  return {
    curl: `curl -o slab.npy '${slice.replaceAll("[", "%5B").replaceAll("]", "%5D")}'`,
    Python: `from hyperslab import RemoteArray\n\na = RemoteArray("${absolute(url("metadata", path))}")\nslab = ${outer ? zarrPicked : picked}`,
    zarr: `import zarr\n\na = zarr.open_array("${base()}/zarr/${encodePath(path)}", mode="r", zarr_format=2)\nslab = ${zarrPicked}`,
    numpy: `import io, urllib.request\nimport numpy as np\n\nbody = urllib.request.urlopen("${slice}").read()\nslab = np.load(io.BytesIO(body))`,
  };
}

/** Lines that open a group. @param {string} path "" is all that is served @returns {Record<string, string>} */
export function groupSnippets(path) {
  const address = absolute(url("metadata", path));
  const zarr = `${base()}/zarr/${encodePath(path)}`;
  const remote = `from hyperslab import RemoteGroup\n\ng = RemoteGroup("${address}")\nprint(list(g))`;
  if (!path) return { curl: `curl '${address}'`, Python: remote };
  return {
    curl: `curl '${address}'`,
    Python: remote,
    zarr: `import zarr\n\ng = zarr.open_group("${zarr}", mode="r", zarr_format=2)`,
    xarray: `import xarray\n\nd = xarray.open_zarr("${zarr}")`,
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
  const source = (path) => `${base()}/zarr/${encodePath(path)}/|zarr2:`;
  const type = info.kind === "labels" ? "segmentation" : "image";
  const picture = { type, source: source(info.path), name: info.name, ...shaderControls(state, info) };
  const labels = state.overlay && {
    type: "segmentation",
    source: source(state.overlay),
    name: lastName(state.overlay),
  };
  const scene = {
    dimensions: Object.fromEntries(axes.map((axis) => [axis.name, dimension(axis)])),
    position: order.map((name) => at[name] + 0.5),
    layers: labels ? [picture, labels] : [picture],
    layout: "xy",
  };
  return `https://neuroglancer-demo.appspot.com/#!${encodeURIComponent(JSON.stringify(scene))}`;
}

/** Size of one step in a base unit, as neuroglancer wants it. */
function dimension({ scale, unit }) {
  if (metresIn(unit) !== null) return [(scale ?? 1) * metresIn(unit), "m"];
  return secondsIn(unit) === null ? [1, ""] : [(scale ?? 1) * secondsIn(unit), "s"];
}

function shaderControls(state, info) {
  const active = channelsOf(state, info).filter((channel) => channel.active);
  if (info.kind === "labels" || info.channel_axis || active.length !== 1) return {};
  return { shaderControls: { normalized: { range: active[0].window } } };
}

/** The panel: one tab per language, a copy button, links to other viewers. */
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

  /** @param {Record<string, string>} newTexts @param {{title: string, href: string, external?: boolean}[]} [others] */
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
      ...others.map(({ title, href, external = true }) =>
        h(
          "a",
          { href, class: "link", ...(external && { target: "_blank", rel: "noopener" }) },
          title,
          icon(external ? "external" : "download"),
        ),
      ),
    );
  }
  return { element, update };
}
