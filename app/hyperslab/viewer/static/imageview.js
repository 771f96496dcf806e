/** Image view: picture with overlays, sliders and panels. */

import { absolute, download, url } from "./api.js";
import { createChannels } from "./channels.js";
import { createColorBars } from "./colorbar.js";
import { createColormaps } from "./colormaps.js";
import { createComponent } from "./component.js";
import { createDock } from "./dock.js";
import { debounce, h, iconButton, setIcon, toast } from "./dom.js";
import { Picture, sampledNote } from "./image.js";
import { createLabels } from "./labels.js";
import { createMargins } from "./margins.js";
import { createMarks } from "./marks.js";
import { createMeasure } from "./measure.js";
import { createOrientation } from "./orientation.js";
import { lastName } from "./nodes.js";
import { createOverlay } from "./overlay.js";
import { createPicks } from "./picks.js";
import { createPlanes } from "./planes.js";
import { createProbe, imageAt } from "./probe.js";
import { createScaleBar } from "./scalebar.js";
import { savePicture, snapshot } from "./snapshot.js";
import { neuroglancerLink } from "./snippets.js";
import { frameOf, selectText, tileQuery } from "./tilequery.js";
import { throttle } from "./timing.js";
import { heldToken } from "./token.js";

const LARGEST = 2048; // pixels along the longer side of a picture that is saved

const DOUBLE_CLICK = 300; // ms in which a click may become a double one

const SHOW_EVERY = 60; // ms between frames asked for while a slider moves

/**
 * @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store
 * @param {{onsight: () => void, onfail: (address: string) => void, onproblem: (problem: Error) => void}} events
 */
export function createImageView(store, events) {
  const canvas = h("div", { class: "picture", role: "img", tabindex: 0, "data-testid": "picture" });
  const loading = h("div", { class: "loading-bar", hidden: true });
  const scaleBar = createScaleBar();
  const margins = createMargins();
  /**
   * `labels`: the name of those that are drawn, and what to ask for the one under a cell.
   * @type {{state: import("./state.js").State, info: import("./tilequery.js").TileInfo|null, labels: {name: string, ask: Function}|null}}
   */
  const context = { state: store.get(), info: null, labels: null };
  const probe = createProbe(() => context);
  const picture = new Picture(canvas, {
    onMove: () => moved(),
    onResize: () => queueMicrotask(() => store.get().box ?? picture.home(true)), // after OpenSeadragon's own zooming
    onLoad: (busy) => {
      tellBusy();
      loading.hidden = !busy;
      if (!busy) afterFrame();
    },
    onFail: events.onfail,
    onPart: () => toast("Only a part is shown: the whole is too large to draw without smaller levels"),
  });
  /** Resolves when the requested frame is displayed. */
  const quiet = () => new Promise((resolve) => setTimeout(resolve)).then(() => picture.settled());
  const dock = createDock(store, picture);
  const planes = createPlanes(store);
  const orientation = createOrientation(store);
  const component = createComponent(store);
  const channels = createChannels(store, quiet);
  const colormaps = createColormaps(store, channels.invert);
  const overlay = createOverlay(store);
  const labels = createLabels();
  const colorBars = createColorBars(store);
  const measure = createMeasure(store);
  const marks = createMarks(picture, {
    area: (area) => store.update({ area, line: null }, "area"),
    line: (line) => store.update({ line, area: null, points: [] }, "line"),
    ended: () => picks.tell(),
  });
  const smooth = iconButton("pixels", "Smooth pixels (u)", () => store.update({ smooth: !store.get().smooth }, "smooth"), { "aria-keyshortcuts": "u" });
  const picks = createPicks(store, picture, marks, () => context.info);
  const tools = h(
    "div",
    { class: "tools", role: "toolbar", "aria-label": "View" },
    iconButton("plus", "Zoom in (+)", () => picture.zoomBy(1.5), { "aria-keyshortcuts": "+" }),
    iconButton("minus", "Zoom out (−)", () => picture.zoomBy(1 / 1.5), { "aria-keyshortcuts": "−" }),
    iconButton("fit", "Fit (0)", () => home(), { "aria-keyshortcuts": "0" }),
    smooth,
    picks.buttons,
  );
  const nothing = h("div", { class: "nothing-seen", role: "status", hidden: true }, h("span", {}, "No values here"));
  const sampled = sampledNote();
  const frame = h(
    "div",
    { class: "picture-frame" },
    canvas,
    loading,
    planes.element,
    tools,
    probe.element,
    scaleBar.element,
    colorBars.element,
    marks.element,
    margins.element,
    nothing,
    sampled,
  );
  const element = h("div", { class: "image-view", "data-view": "image", "aria-busy": "true" }, frame, measure.element, dock.element);

  const show = throttle(SHOW_EVERY, (wanted, box) => {
    picture.show(wanted, box);
    void layLabels();
  });

  /** Set as soon as another frame is needed, before its request. */
  const tellBusy = () => element.setAttribute("aria-busy", String(picture.busy || show.waiting()));

  /** Report labels that cannot be drawn, once, and in their panel. */
  async function layLabels() {
    const { state, info } = context;
    context.labels = null;
    const chosen = info.labels?.find(({ path }) => path === state.overlay);
    const [frame, reason] = chosen
      ? await labels.frameOf(chosen.path, state, info).then((found) => [found, ""], (error) => [null, error.message])
      : [null, ""];
    if (context.info !== info || context.state !== state) return;
    context.labels = frame && { name: chosen.name, ask: frame.ask };
    picture.overlay(frame, state.opacity);
    probe.refresh();
    if (overlay.say(reason) && reason) events.onproblem(new Error(`The labels ${chosen.name} are not drawn: ${reason}`));
  }

  /** Preload neighbours once the frame is displayed. */
  function afterFrame() {
    const { state, info } = context;
    if (!info) return;
    picture.prefetch(dock.neighbours(state).map((at) => frameOf({ ...state, at }, info)));
    scaleBar.update(state, info, picture.scale);
    margins.update(info, picture);
    marks.update();
    events.onsight();
    tellNothing();
  }

  /** After the picture was drawn, in the next animation frame. */
  const tellNothing = debounce(250, () =>
    requestAnimationFrame(() => (nothing.hidden = !picture.wanted?.gaps || !picture.showsNothing())),
  );

  /** Open an image of a plate or a well by a click. */
  picture.viewer.addHandler("canvas-click", ({ quick, originalEvent }) => {
    const place = quick && picture.pixelAt(originalEvent.clientX, originalEvent.clientY);
    const image = place && context.info?.images && imageAt(place, context.info);
    if (image) events.onopen(image.path);
    else if (place) plotSoon(place);
  });
  const plotSoon = debounce(DOUBLE_CLICK, picks.plot);
  picture.viewer.addHandler("canvas-double-click", plotSoon.cancel); // which zooms

  let own = null; // the last box that came from the picture itself
  let sought = ""; // the box where the view comes to rest: tiles that come late change nothing of it

  const remember = debounce(100, () => {
    const box = picture.atHome() ? null : picture.box();
    own = box;
    if (String(box) !== String(store.get().box)) store.update({ box }, "follow");
    events.onsight();
  });

  function moved() {
    if (!context.info || element.hidden) return;
    scaleBar.update(context.state, context.info, picture.scale);
    margins.update(context.info, picture);
    marks.update();
    sampled.hidden = !picture.isSampled(context.info.sampled_below);
    tellNothing();
    const box = String(picture.atHome() ? null : picture.box());
    if (box !== sought) remember();
    sought = box;
  }

  function home() {
    store.update({ box: null }, "home");
    picture.home();
  }

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} info @param {import("./state.js").State|null} before */
  function update(state, info, before) {
    const opened = context.info !== info;
    Object.assign(context, { state, info });
    canvas.setAttribute("aria-label", `Picture of ${info.path}`);
    planes.update(state, info);
    orientation.update(state, info);
    component.update(state, info);
    dock.update(state, info);
    const drawsLabels = info.kind === "labels";
    if (!drawsLabels) channels.update(state, info);
    if (!drawsLabels) colormaps.update(state, info);
    colorBars.update(state, info);
    measure.update(state, info);
    for (const button of picks.buttons) button.hidden = Boolean(info.images); // of a mosaic, each image has its own
    marks.update(state);
    overlay.update(state, info);
    smooth.setAttribute("aria-pressed", String(state.smooth));
    setIcon(smooth.firstChild, state.smooth ? "smooth" : "pixels");
    picture.setSmooth(state.smooth);
    if (opened) probe.forget();
    show(frameOf(state, info), state.box);
    tellBusy();
    if (!opened && before && before.box !== state.box && state.box !== own) follow(state.box);
  }

  function follow(box) {
    if (box) picture.goTo(box);
    else picture.home();
  }

  const point = throttle(30, (event) => {
    picks.point(picture.pixelAt(event.clientX, event.clientY));
    probe.show(picks.cell());
  });
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerup", (event) => event.pointerType !== "mouse" && point(event)); // a tap
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "mouse") return; // a finger has left: what it has pointed at is read now
    point.cancel();
    picks.point(null);
    probe.show(null);
  });

  /** The visible selection, for snippets. */
  function sight() {
    const { state, info } = context;
    return {
      path: info.levels[0].path,
      name: lastName(info.path),
      select: selectText(state, info, picture.visible()),
      field: state.field,
      decode: info.decode,
      rank: info.levels[0].shape.length,
      box: state.area && selectText(state, info, { x: [state.area[0], state.area[2]], y: [state.area[1], state.area[3]] }),
    };
  }

  /** Save the view as it is. */
  const savePng = () =>
    requestAnimationFrame(() => {
      const over = { bars: colorBars.facts(), scale: scaleBar.element, marks: marks.element };
      savePicture(snapshot(picture, over), `${context.info.name}.png`);
    });

  function corner() {
    if (picture.shown === null) return null;
    const { x, y } = picture.visible();
    return { row: y[0], column: x[0] };
  }

  function links() {
    const { state, info } = context;
    const box = picture.visible();
    const centre = { x: (box.x[0] + box.x[1]) >> 1, y: (box.y[0] + box.y[1]) >> 1 };
    const query = tileQuery(state, info);
    const part = `/${picture.region().join()}/!${LARGEST},${LARGEST}/0/default.png`;
    const png = { title: "Picture as PNG", href: absolute(url("tile", `iiif/${info.path}`, `${part}${query && `?${query}`}`)) };
    if (heldToken()) return [{ ...png, external: false, onclick: save(png.href, `${info.name}.png`) }];
    return [{ title: "Open in neuroglancer", href: neuroglancerLink(state, info, centre) }, png];
  }

  /** Download with a token, which links do not send. */
  const save = (address, name) => (event) => {
    event.preventDefault();
    download(address, name).catch((problem) => toast(problem.message));
  };

  function panels(info) {
    if (info.kind === "labels") return [{ title: "Display", body: [orientation.element] }];
    const display = {
      title: info.channel_axis ? "Channels" : "Display",
      body: [channels.element, colormaps.element, component.element, orientation.element],
      action: channels.reset,
    };
    return info.labels?.length ? [display, { title: "Labels", body: [overlay.element] }] : [display];
  }

  /** Set the coordinates of the axes. */
  function named() {
    dock.refresh();
    probe.refresh();
    measure.redraw();
  }

  function hide() {
    dock.stop();
    show.cancel();
    remember.cancel();
    plotSoon.cancel();
    picks.stop();
    tellNothing.cancel();
    nothing.hidden = true;
    context.info = null;
    labels.forget();
    picture.clear();
  }
  return {
    element,
    update,
    sight,
    corner,
    links,
    panels,
    hide,
    home,
    picture,
    dock,
    channels,
    planes,
    overlay,
    named,
    quiet,
    picks,
    savePng,
    smooth,
    redraw: () => (channels.redraw(), measure.redraw()),
    ready: () => picture.shown !== null,
  };
}
