/** What is visible of a picture: its place in cells, in pixels and on the screen, and how it is moved. */

import { clamp } from "./dom.js";

const SLACK = 1e-6; // of a cell: sizes in pixels of the picture are rounded

const BEYOND = 100; // times a picture's size: wider than anything that can be seen at once

export class Sight {
  /** @param {HTMLElement} element @param {any} viewer OpenSeadragon.Viewer */
  constructor(element, viewer) {
    this.element = element;
    this.viewer = viewer;
    /** the frame that is displayed (OpenSeadragon.TiledImage) */
    this.shown = null;
    /** @type {import("./osd.js").Frame|null} the newest frame that was asked for */
    this.wanted = null;
  }

  get scale() {
    return this.shown ? this.shown.viewportToImageZoom(this.viewer.viewport.getZoom(true)) : 1;
  }

  /** Resize the viewport now: OpenSeadragon measures a new element only with the next drawing, too late for the first view. */
  measure() {
    const { clientWidth, clientHeight } = this.element;
    const { viewport } = this.viewer;
    if (clientWidth && clientHeight) viewport.resize(new window.OpenSeadragon.Point(clientWidth, clientHeight));
  }

  /** Maximum visible width in pixels of the picture, beyond which the coarsest level would need too many tiles. */
  #widest() {
    const { minzoom, maxzoom } = this.wanted;
    return minzoom ? this.viewer.viewport.getContainerSize().x * 2 ** (maxzoom - minzoom) : Infinity;
  }

  /** Whether the picture is too large to show whole. */
  isTooWide() {
    const { x, y } = this.viewer.viewport.getContainerSize();
    return Math.max(this.wanted.width, (this.wanted.height * x) / y) > this.#widest();
  }

  /** The first view: a box in cells, or the initial one. @param {[number, number, number]|null} box */
  begin(box) {
    this.viewer.viewport.minZoomLevel = this.isTooWide() ? this.wanted.width / this.#widest() : 0;
    if (box) this.goTo(box);
    else this.home(true);
  }

  /** Initial view of a picture that is too large to show whole: its centre at full resolution. */
  #middle() {
    const { width, height } = this.wanted;
    return this.#boundsOf([width / 2, height / 2, this.viewer.viewport.getContainerSize().x]);
  }

  /** Array position, in cells, of a position in the picture. */
  #cellAt(x, y) {
    const { flip, scale, width, height } = this.wanted;
    return [(flip[1] ? width - x : x) / scale[1], (flip[0] ? height - y : y) / scale[0]];
  }

  /** Picture position of an array position. */
  #pixelAt(column, row) {
    const { flip, scale, width, height } = this.wanted;
    const [x, y] = [column * scale[1], row * scale[0]];
    return [flip[1] ? width - x : x, flip[0] ? height - y : y];
  }

  /** Screen position, relative to the element, of an array position. */
  screenAt(column, row) {
    return this.shown.imageToViewerElementCoordinates(new window.OpenSeadragon.Point(...this.#pixelAt(column, row)));
  }

  /** The box in cells that is visible once the view has come to rest: centre x, y and width. @returns {[number, number, number]|null} */
  box() {
    if (!this.shown) return null;
    const rect = this.shown.viewportToImageRectangle(this.viewer.viewport.getBounds(false));
    return [...this.#cellAt(rect.x + rect.width / 2, rect.y + rect.height / 2), rect.width / this.wanted.scale[1]];
  }

  /** Visible whole cells as half-open ranges. @returns {{x: [number, number], y: [number, number]}} */
  visible() {
    const rect = this.shown.viewportToImageRectangle(this.viewer.viewport.getBounds(false));
    const corners = [this.#cellAt(rect.x, rect.y), this.#cellAt(rect.x + rect.width, rect.y + rect.height)];
    const sizes = [this.wanted.width / this.wanted.scale[1], this.wanted.height / this.wanted.scale[0]];
    const [x, y] = sizes.map(Math.round).map((size, side) => {
      const [start, stop] = corners.map((corner) => corner[side]).toSorted((a, b) => a - b);
      const low = clamp(Math.floor(start + SLACK), 0, size - 1);
      return [low, clamp(Math.ceil(stop - SLACK), low + 1, size)];
    });
    return { x, y };
  }

  /** Visible whole pixels of the picture: left, top, width and height. */
  region() {
    const { width, height } = this.wanted;
    const rect = this.shown.viewportToImageRectangle(this.viewer.viewport.getBounds(false));
    const [left, top] = [clamp(Math.floor(rect.x), 0, width - 1), clamp(Math.floor(rect.y), 0, height - 1)];
    const [right, bottom] = [Math.ceil(rect.x + rect.width - SLACK), Math.ceil(rect.y + rect.height - SLACK)];
    return [left, top, clamp(right, left + 1, width) - left, clamp(bottom, top + 1, height) - top];
  }

  /** @param {[number, number, number]} box in cells */
  goTo([column, row, cells]) {
    const { viewport } = this.viewer;
    const { width: across, height: down, scale } = this.wanted;
    const [x, y] = this.#pixelAt(column, row);
    const visible = clamp(cells * scale[1], 1, Math.min(this.#widest(), BEYOND * (across + down)));
    const centre = [clamp(x, -visible, across + visible), clamp(y, -visible, down + visible)];
    viewport.fitBounds(this.#boundsOf([...centre, visible]), true);
    viewport.applyConstraints(true); // an address may name a place where there is no picture
  }

  #boundsOf([x, y, width]) {
    const size = this.viewer.viewport.getContainerSize();
    const height = (width * size.y) / size.x;
    const rect = new window.OpenSeadragon.Rect(x - width / 2, y - height / 2, width, height);
    return this.shown.imageToViewportRectangle(rect);
  }

  home(immediately = false) {
    const { viewport } = this.viewer;
    if (this.shown && this.isTooWide()) viewport.fitBounds(this.#middle(), true); // the way there would miss it by some cells
    else if (this.shown) viewport.fitBounds(this.shown.getBounds(), immediately); // labels may reach beyond it
  }

  /** Whether the view is the initial one, once it has come to rest. */
  atHome() {
    const { viewport } = this.viewer;
    if (!this.shown) return true;
    const home = this.isTooWide() ? this.#middle() : this.shown.getBounds();
    const [now, middle] = [viewport.getBounds(false), home.getCenter()];
    // cells of 2⁵³ are smaller than what sums of such numbers are off
    const near = (a, b) => Math.abs(a - b) < now.width / 500 + 32 * Number.EPSILON * Math.abs(b);
    const { x, y } = now.getCenter();
    return near(x, middle.x) && near(y, middle.y) && near(now.width, Math.max(home.width, home.height * now.getAspectRatio()));
  }

  zoomBy(factor) {
    this.viewer.viewport.zoomBy(factor);
    this.viewer.viewport.applyConstraints();
  }

  /** Pan by a share of the visible part. */
  panBy(x, y) {
    const bounds = this.viewer.viewport.getBounds();
    this.viewer.viewport.panBy(new window.OpenSeadragon.Point(x * bounds.width, y * bounds.height));
    this.viewer.viewport.applyConstraints();
  }

  /** Cell under a point of the page, null outside. @returns {{x: number, y: number}|null} */
  pixelAt(clientX, clientY) {
    if (!this.shown) return null;
    const frame = this.element.getBoundingClientRect();
    const point = new window.OpenSeadragon.Point(clientX - frame.left, clientY - frame.top);
    const { x, y } = this.shown.viewerElementToImageCoordinates(point);
    const { width, height, scale } = this.wanted;
    if (x < 0 || y < 0 || x >= width || y >= height) return null;
    const sizes = [Math.round(width / scale[1]), Math.round(height / scale[0])];
    const [column, row] = this.#cellAt(x, y).map((place, side) => clamp(Math.floor(place), 0, sizes[side] - 1));
    return { x: column, y: row };
  }
}
