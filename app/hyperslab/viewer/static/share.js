/** A signed link to the node in view, for those who have no token. */

import { post } from "./api.js";
import { copyText, iconButton, ROOT, toast } from "./dom.js";
import { heldToken } from "./token.js";

const LASTS = "7d";

/**
 * A button that copies a link to this view which needs no token and ends after a week; visible while there is a token.
 * @param {() => string} path of the node in view
 */
export function shareButton(path) {
  const button = iconButton("external", "Share", () => share(path()).catch((problem) => toast(problem.message)), {
    class: "icon-button not-phone",
  });
  const show = () => (button.hidden = !heldToken());
  document.addEventListener("tokenchange", show);
  show();
  return button;
}

async function share(path) {
  const { prefix } = await post("link", { path, allow: ["read"], expires: LASTS });
  const { pathname, search, hash } = location;
  await copyText(prefix + pathname.slice(ROOT.length) + search + hash);
}
