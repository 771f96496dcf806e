/** The four views of a node, with functions to show, update and remove them. */

import { hasObjects } from "./arrays.js";
import { createBrowse } from "./browse.js";
import { createDock } from "./dock.js";
import { h, icon, ROOT } from "./dom.js";
import { formatShape } from "./format.js";
import { createImageView } from "./imageview.js";
import { createPlot } from "./plot.js";
import { groupSnippets, snippetsFor } from "./snippets.js";
import { createTable } from "./table.js";
import { positionsOf } from "./tilequery.js";
import { heldToken } from "./token.js";
import { createVolume } from "./volume.js";

/**
 * @typedef {object} Shown
 * @property {HTMLElement[]} elements what stands on the stage
 * @property {(state: import("./state.js").State, before: import("./state.js").State|null) => void} update
 * @property {() => Record<string, string>|null} texts lines to copy for what is visible, null while nothing is
 * @property {() => {title: string, href: string}[]} [links]
 * @property {import("./inspector.js").Panel[]} [panels]
 * @property {Partial<import("./keys.js").Actions>} actions what the keys do
 * @property {() => {row: number, column: number}|null} [corner] first visible row and column
 * @property {() => import("./download.js").Source|null} [source] what can be downloaded
 * @property {() => void} [png] saves a picture of the view
 * @property {() => void} [named] coordinates of the axes have become known
 * @property {() => void} [themed] the colours of the page have changed
 * @property {() => void} [close]
 * @property {() => Promise<void>} [settled] resolves when what was asked for is on the screen
 *
 * @typedef {object} Context
 * @property {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @property {(path: string) => void} open
 * @property {() => void} onsight what is visible has changed
 * @property {(problem: Error) => void} onproblem
 * @property {(address: string) => void} ontile a tile failed
 */

/** Snippets for the visible selection; none for mosaics. */
const sightOf = (info, sight) => (info.images ? groupSnippets(info.path) : snippetsFor(sight()));

/** @param {Context} context */
export function createViews(context) {
  /** @type {ReturnType<typeof createImageView>|null} reused, as its graphics context is expensive */
  let imageView = null;

  /** @param {any} document @param {any} info @returns {Shown} */
  function image(document, info) {
    imageView ??= createImageView(context.store, {
      onsight: context.onsight,
      onfail: context.ontile,
      onopen: context.open,
      onproblem: context.onproblem,
    });
    const { element, dock, planes, channels, overlay, picture, home, picks } = imageView;
    return {
      elements: [element],
      update: (state, before) => imageView.update(state, info, before),
      texts: () => (imageView.ready() ? sightOf(info, imageView.sight) : null),
      links: imageView.links,
      panels: imageView.panels(info),
      corner: imageView.corner,
      named: imageView.named,
      themed: imageView.redraw,
      source: () => (info.images || !imageView.ready() ? null : { ...imageView.sight(), whole: "" }),
      png: imageView.savePng,
      close: imageView.hide,
      settled: imageView.quiet,
      actions: {
        move: (x, y) => picture.panBy(x, y),
        zoom: (factor) => picture.zoomBy(factor),
        home,
        step: dock.step,
        play: () => dock.toggle(),
        plane: planes.cycle,
        channel: channels.toggle,
        labels: overlay.toggle,
        series: picks.plotHere,
        area: () => picks.draw("area"),
        line: () => picks.draw("line"),
        smooth: () => imageView.smooth.click(),
      },
    };
  }

  /** @returns {Shown} */
  function planes(document, info) {
    const made = createVolume(document, info, context.store, context);
    return {
      elements: [made.element],
      update: made.update,
      texts: () => (made.ready() ? snippetsFor(made.sight()) : null),
      source: () => ({ ...made.sight(), whole: "" }),
      panels: made.panels,
      named: made.named,
      themed: made.redraw,
      close: made.close,
      settled: made.settled,
      actions: { zoom: made.zoom, home: made.home, step: made.step, play: made.play, channel: made.channel, plane: made.plane },
    };
  }

  /** @returns {Shown} */
  function plot(document, info, { field }) {
    const made = createPlot({ document, info, field }, context.store, context.onproblem);
    const sight = () => ({ path: document.path, select: made.select(), field, rank: document.shape.length, decode: info.decode });
    return {
      elements: [made.element],
      update: made.update,
      texts: () => snippetsFor(sight()),
      source: () => ({ ...sight(), whole: "" }),
      png: made.savePng,
      named: made.named,
      themed: made.redraw,
      close: made.close,
      actions: {
        move: (x) => made.move(x),
        zoom: (factor) => made.zoom(1 / factor),
        home: made.home,
        step: (by) => made.move(by),
      },
    };
  }

  /** @returns {Shown} */
  function values(document, info) {
    if (document.shape.includes(0)) return empty(document);
    const { store, onproblem } = context;
    const table = createTable(document, store, () => positionsOf(store.get(), info), info, onproblem);
    const dock = createDock(store, { settled: () => Promise.resolve() });
    const sight = () => {
      const { field } = store.get();
      const { decode } = info;
      const objects = hasObjects(document, field);
      return { decode, path: document.path, select: table.select(), field, rank: document.shape.length, objects };
    };
    return {
      elements: [table.element, dock.element],
      update: (state, before) => {
        dock.update(state, info);
        table.update(state, before);
      },
      texts: () => snippetsFor(sight()),
      source: () => ({ ...sight(), whole: "" }),
      named: dock.refresh,
      close: dock.stop,
      actions: { step: dock.step, play: () => dock.toggle(), move: (x, y) => y && table.turnPage(Math.sign(y)) },
    };
  }

  /** @returns {Shown} */
  function empty(document) {
    const size = h("p", {}, `This array is empty: its shape is ${formatShape(document.shape)}.`);
    return {
      elements: [h("div", { class: "empty", "data-view": "values" }, icon("array"), size)],
      update: () => {},
      texts: () =>
        snippetsFor({ path: document.path, select: "", field: "", rank: 0, objects: hasObjects(document, "") }),
      actions: {},
    };
  }

  /** @returns {Shown} */
  function browse(group) {
    const made = createBrowse(group, context.store, context.open);
    return {
      elements: [made.element],
      update: made.update,
      texts: () => groupSnippets(group.path),
      links: () => (heldToken() ? [] : [{ title: "HTTP API", href: `${ROOT}/docs`, external: false }]),
      actions: {},
    };
  }

  return { image, planes, plot, values, browse };
}
