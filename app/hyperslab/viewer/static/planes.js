/** Control for the two displayed axes. */

import { h } from "./dom.js";
import { planeLabel, planeOf, planesOf } from "./tilequery.js";

/** @param {{get: () => import("./state.js").State, update: (patch: object, kind?: string) => void}} store */
export function createPlanes(store) {
  const element = h("div", { class: "segmented planes", "aria-keyshortcuts": "p", role: "group", "aria-label": "Plane" });
  /** @type {[string, string]|null} the node's, once it is known */
  let own = null;
  let planes = [];

  /** Another plane is another picture: the part that was visible means nothing in it. */
  const choose = (plane) => {
    const changed = { plane: plane.join() === own?.join() ? null : plane, box: null, flip: null, aspect: null };
    store.update(changed, "plane");
  };

  function rebuild() {
    element.hidden = planes.length < 2;
    element.replaceChildren(
      ...planes.map((plane) =>
        h("button", { type: "button", "data-plane": plane.join(), onclick: () => choose(plane) }, planeLabel(plane)),
      ),
    );
  }

  /** @param {import("./state.js").State} state @param {import("./tilequery.js").TileInfo} info */
  function update(state, info) {
    if (!state.plane) own = info.plane;
    const next = planesOf({ ...info, plane: own ?? info.plane });
    if (next.join(";") !== planes.join(";")) {
      planes = next;
      rebuild();
    }
    const now = planeOf(state, info).join();
    for (const button of element.children) button.setAttribute("aria-pressed", String(button.dataset.plane === now));
  }

  /** The next plane of the list. */
  function cycle() {
    const at = planes.findIndex((plane) => plane.join() === (store.get().plane ?? own)?.join());
    if (planes.length > 1) choose(planes[(at + 1) % planes.length]);
  }
  return { element, update, cycle };
}
