/**
 * Picture: OpenSeadragon with the service's tiles. A new frame loads hidden and replaces the current one when all visible
 * tiles are complete, without flicker; neighbouring frames are preloaded.
 */

import { h } from "./dom.js";
import { loaded, openViewer, tileRequests, tileSource } from "./osd.js";
import { Sight } from "./sight.js";

/** @typedef {import("./osd.js").Frame} Frame */

const CRISP = 1.5; // screen pixels per pixel from which on pixels may be seen as squares

const SAMPLE = 256; // pixels along each side, in which something is looked for

const EDGE = 2; // screen pixels from the end of the picture to that of its frame: tiles are drawn a pixel too far

const OUTSIDE = 20; // pixels beyond the edge of the screen: whatever lies there is not seen

const GIVEN_UP = "Image load aborted."; // how OpenSeadragon says that it no longer wants a tile

const geometry = (frame) => [frame.path, frame.width, frame.height, frame.flip, frame.tileSize].join();
const keyOf = (frame) => `${frame.path}?${frame.query}`;

/** What is said where `Picture.isSampled`. */
export const sampledNote = () =>
  h("div", { class: "sampled", role: "status", hidden: true }, "Single cells are shown, not means: zoom in to see all");

export class Picture extends Sight {
  /**
   * @param {HTMLElement} element
   * @param {{onMove: () => void, onResize: () => void, onLoad: (loading: boolean) => void, onFail: (address: string) => void, onPart: () => void}} events
   */
  constructor(element, events) {
    super(element, openViewer(element));
    this.events = events;
    this.bounds = h("div", { class: "picture-bounds", hidden: true });
    element.prepend(this.bounds);
    this.viewer.innerTracker.keyDownHandler = null; // the page has its own keys
    this.viewer.innerTracker.keyHandler = null;
    this.viewer.addHandler("update-viewport", () => {
      this.#applySmooth();
      this.#frame();
      events.onMove();
    });
    this.viewer.addHandler("after-resize", () => events.onResize());
    this.viewer.addHandler("tile-load-failed", (event) => this.#failed(event));
    /** @type {Map<string, any>} frames in the world (OpenSeadragon.TiledImage) by key */
    this.frames = new Map();
    this.generation = 0; // counts pictures: what was asked for an older one is dropped when it comes
    this.busy = false;
    this.labels = null;
    this.smooth = false;
    element.dataset.failedTiles = "0";
  }

  /** Show a frame; while one is loading, only the newest request is queued. @param {Frame} frame */
  show(frame, box = null) {
    const again = this.wanted !== null && geometry(this.wanted) === geometry(frame);
    this.wanted = frame;
    if (!again) this.#restart(box);
    if (!this.busy) this.#next();
  }

  /** Resolves when the newest frame is displayed. */
  settled() {
    if (!this.busy) return Promise.resolve();
    return new Promise((resolve) =>
      this.element.addEventListener("frame", () => resolve(this.settled()), { once: true }),
    );
  }

  /** Preload neighbouring frames and drop all others. @param {Frame[]} neighbours */
  prefetch(neighbours) {
    const keep = new Set([keyOf(this.wanted), ...neighbours.map(keyOf)]);
    for (const [key, item] of this.frames) {
      if (!keep.has(key) && item !== this.shown) this.#drop(key, item);
    }
    neighbours.filter((frame) => !this.frames.has(keyOf(frame))).forEach((frame) => void this.#load(frame));
  }

  #restart(box) {
    this.generation += 1;
    for (const [key, item] of this.frames) this.#drop(key, item);
    if (this.labels) this.viewer.world.removeItem(this.labels);
    this.labels = null;
    this.labelKey = "";
    this.element.dataset.labels = "none";
    this.shown = null;
    this.bounds.hidden = true;
    this.busy = false;
    this.pendingBox = box;
    this.fresh = true;
  }

  async #next() {
    const frame = this.wanted;
    if (this.fresh) this.measure();
    this.busy = true;
    this.events.onLoad(true);
    const item = this.frames.get(keyOf(frame)) ?? (await this.#load(frame));
    if (item === null) return;
    if (this.fresh) this.#place(item);
    await loaded(item);
    if (!this.viewer.world || this.viewer.world.getIndexOfItem(item) < 0) return; // the node has changed meanwhile
    this.#swap(item, frame);
    this.busy = false;
    if (this.wanted !== frame) return void this.#next();
    this.events.onLoad(false);
    this.element.dispatchEvent(new Event("frame"));
  }

  /** Add a frame to the world; the first is drawn while it loads, later ones when they are complete. */
  #load(frame) {
    const { generation } = this;
    const first = this.shown === null;
    return new Promise((resolve) => {
      this.viewer.addTiledImage({
        tileSource: tileSource(frame),
        ...tileRequests(),
        index: 0,
        opacity: first && !frame.blank ? 1 : 0,
        preload: true,
        zombieCache: true,
        success: ({ item }) => {
          const stale = generation !== this.generation;
          if (stale) this.viewer.world.removeItem(item);
          else this.frames.set(keyOf(frame), item);
          resolve(stale ? null : item);
        },
        error: () => resolve(null),
      });
    });
  }

  #place(item) {
    this.fresh = false;
    this.shown = item;
    this.begin(this.pendingBox);
    if (this.isTooWide()) this.events.onPart();
  }

  #swap(item, frame) {
    item.setOpacity(frame.blank ? 0 : 1);
    if (this.shown !== item) this.shown?.setOpacity(0);
    this.shown = item;
    this.bounds.classList.toggle("gaps", frame.gaps);
    this.#frame();
    for (const [key, other] of this.frames) {
      if (other !== item && other.getOpacity() > 0) this.#drop(key, other);
    }
  }

  /** Border of the picture, and background where it has no values. */
  #frame() {
    this.bounds.hidden = !this.shown;
    if (!this.shown) return;
    const { Point } = window.OpenSeadragon;
    const { x: width, y: height } = this.shown.getContentSize();
    const { clientWidth, clientHeight } = this.element;
    const [start, end] = [new Point(0, 0), new Point(width, height)].map((corner) =>
      this.shown.imageToViewerElementCoordinates(corner),
    );
    const [left, top] = [start.x, start.y].map((place) => Math.max(Math.floor(place) - 1, -OUTSIDE));
    const [right, bottom] = [Math.min(end.x, clientWidth + OUTSIDE), Math.min(end.y, clientHeight + OUTSIDE)];
    const places = { left, top, width: Math.ceil(right) + EDGE - left, height: Math.ceil(bottom) + EDGE - top };
    for (const [name, place] of Object.entries(places)) this.bounds.style[name] = `${place}px`;
  }

  /** Whether pixels of what is drawn are single cells instead of means. @param {number} below zooms that are so */
  isSampled(below) {
    return Boolean(this.shown?.lastDrawn.some(({ tile }) => tile.level < below));
  }

  /** Whether the visible part is complete and empty. */
  showsNothing() {
    if (!this.shown || this.busy || !this.shown.getFullyLoaded() || this.element.dataset.failedTiles !== "0") return false;
    const sample = h("canvas", { width: SAMPLE, height: SAMPLE }).getContext("2d");
    sample.drawImage(this.viewer.drawer.canvas, 0, 0, SAMPLE, SAMPLE);
    return sample.getImageData(0, 0, SAMPLE, SAMPLE).data.every((part, i) => i % 4 !== 3 || part === 0);
  }

  #drop(key, item) {
    this.frames.delete(key);
    this.viewer.world.removeItem(item);
  }

  /** Labels over the picture; null removes them. @param {Frame|null} frame @param {number} opacity */
  overlay(frame, opacity) {
    const key = frame ? keyOf(frame) : "";
    this.labelOpacity = opacity;
    if (key === this.labelKey) return void this.labels?.setOpacity(opacity);
    this.labelKey = key;
    const old = this.labels;
    this.labels = null;
    this.element.dataset.labels = frame ? "loading" : "none";
    if (!frame) return void (old && this.viewer.world.removeItem(old));
    this.viewer.addTiledImage({
      tileSource: tileSource(frame),
      ...tileRequests(),
      ...frame.place,
      opacity: 0,
      preload: true,
      success: ({ item }) => this.#showLabels(item, key, old),
    });
  }

  async #showLabels(item, key, old) {
    const world = this.viewer.world;
    if (key !== this.labelKey) return void world.removeItem(item);
    await loaded(item);
    if (old && world.getIndexOfItem(old) >= 0) world.removeItem(old);
    if (key !== this.labelKey) return void world.removeItem(item);
    this.labels = item;
    item.setOpacity(this.labelOpacity);
    this.element.dataset.labels = "shown";
  }

  /** Interpolate magnified pixels, or draw them as squares. */
  setSmooth(smooth) {
    this.smooth = smooth;
    this.#applySmooth();
  }

  /** Downscaled pictures are always interpolated, to avoid aliasing. */
  #applySmooth() {
    const smooth = this.smooth || this.scale < CRISP;
    if (smooth === this.smoothed) return;
    this.smoothed = smooth;
    this.viewer.drawer.setImageSmoothingEnabled(smooth);
    this.viewer.forceRedraw();
  }

  /** Destroy the view. */
  clear() {
    this.#restart(null);
    this.wanted = null;
  }

  #failed({ tile, tiledImage, message }) {
    const givenUp = message === GIVEN_UP && tile.exists;
    if (this.viewer.world.getIndexOfItem(tiledImage) < 0 || givenUp) return;
    this.element.dataset.failedTiles = String(Number(this.element.dataset.failedTiles) + 1);
    this.events.onFail(tile.getUrl());
  }
}
