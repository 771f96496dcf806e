/** OpenSeadragon: options, tile sources, and completion of images. */

import { url } from "./api.js";
import { authorization, heldToken } from "./token.js";

/**
 * @typedef {object} Frame
 * @property {string} path @property {string} query
 * @property {number} width @property {number} height in pixels of the picture
 * @property {[number, number]} scale pixels of the picture per cell, along rows and columns
 * @property {[boolean, boolean]} flip whether rows and columns run backwards
 * @property {number} tileSize @property {number} minzoom @property {number} maxzoom
 * @property {boolean} [gaps] transparent pixels have no value
 * @property {boolean} blank draw nothing (no channel is on)
 * @property {{x: number, y: number, width: number}} [place] position relative to a picture at 0, 0 of width 1
 */

const KEPT_TILES = 600;
const REQUESTS_AT_ONCE = 6; // what a browser opens per host over HTTP/1.1

/** Resolves when OpenSeadragon is loaded, which only pictures need. */
export function library() {
  if (window.OpenSeadragon) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const script = document.getElementById("openseadragon");
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => reject(new Error("OpenSeadragon could not be loaded")));
  });
}

/** @param {Frame} frame */
export function tileSource(frame) {
  return {
    width: frame.width,
    height: frame.height,
    tileSize: frame.tileSize,
    tileOverlap: 0,
    minLevel: frame.minzoom,
    maxLevel: frame.maxzoom,
    getTileUrl: (z, x, y) => url("tile", frame.path, `/${z}/${x}/${y}.png${frame.query && `?${frame.query}`}`),
    hasTransparency: () => true,
  };
}

/**
 * OpenSeadragon adds an inline style sheet, which our content policy forbids, unless it finds its mark in the page: here
 * on an element of no language, which styles nothing. `viewer.css` has the rule.
 */
function withoutInlineStyle() {
  const mark = document.createElementNS(null, "style");
  mark.setAttribute("data-openseadragon-mobile-css", "true");
  document.head.append(mark);
}

/**
 * The visible part, without rotation. OpenSeadragon's own calculation takes less than a ten-billionth of the width for
 * zero, and would visit all tiles of a very wide picture.
 */
function withExactIntersections({ Rect }) {
  Rect.prototype.intersection = function ({ x, y, width, height }) {
    const [left, top] = [Math.max(this.x, x), Math.max(this.y, y)];
    const across = Math.min(this.x + this.width, x + width) - left;
    const down = Math.min(this.y + this.height, y + height) - top;
    return across < 0 || down < 0 ? null : new Rect(left, top, across, down);
  };
}

/** Whether WebGL runs on a GPU: a canvas is several times as fast as emulation. */
function hasGraphicsProcessor() {
  const context = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  if (context === null) return false;
  const names = context.getExtension("WEBGL_debug_renderer_info");
  const renderer = names ? context.getParameter(names.UNMASKED_RENDERER_WEBGL) : "";
  context.getExtension("WEBGL_lose_context")?.loseContext();
  return !/swiftshader|llvmpipe|softpipe|basic render/i.test(renderer);
}

/** Options to load tiles: by images, or with a token by Ajax. */
export const tileRequests = () => ({ loadTilesWithAjax: Boolean(heldToken()), ajaxHeaders: authorization() });

/** @param {HTMLElement} element */
export function openViewer(element) {
  const { OpenSeadragon } = window;
  withoutInlineStyle();
  withExactIntersections(OpenSeadragon);
  return new OpenSeadragon.Viewer({
    element,
    drawer: hasGraphicsProcessor() ? ["webgl", "canvas"] : ["canvas"],
    drawerOptions: { webgl: { unpackWithPremultipliedAlpha: true } }, // else colours of invisible pixels show
    showNavigationControl: false,
    tabIndex: -1, // the element around it has the name and takes the focus
    subPixelRoundingForTransparency: OpenSeadragon.SUBPIXEL_ROUNDING_OCCURRENCES.ALWAYS,
    imageLoaderLimit: REQUESTS_AT_ONCE,
    maxImageCacheCount: KEPT_TILES,
    tileRetryMax: 0,
    animationTime: 0.35,
    springStiffness: 9,
    maxZoomPixelRatio: 40,
    minZoomImageRatio: 0.5,
    visibilityRatio: 0.3,
    preserveViewport: true,
    immediateRender: true,
    blendTime: 0,
    gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true, flickEnabled: false },
    gestureSettingsTouch: { clickToZoom: false, dblClickToZoom: true },
  });
}

/** Resolves when all visible tiles are loaded or have failed. */
export function loaded(item) {
  if (item.getFullyLoaded()) return Promise.resolve();
  return new Promise((resolve) => {
    const handler = ({ fullyLoaded }) => {
      if (!fullyLoaded) return;
      item.removeHandler("fully-loaded-change", handler);
      resolve();
    };
    item.addHandler("fully-loaded-change", handler);
  });
}
