/**
 * The bearer token of a service that asks for one. It is kept for this tab and no longer, goes into the header of
 * requests and nowhere else: addresses end up in histories, logs and copied links.
 */

const KEY = "hyperslab-token";

/** The token where storage is forbidden or full: it then lasts as long as the page. */
let remembered = "";

/** @returns {string} "" where there is none */
export function heldToken() {
  try {
    return sessionStorage.getItem(KEY) ?? remembered;
  } catch {
    return remembered;
  }
}

/** @param {string} token */
export function keepToken(token) {
  remembered = token;
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // `remembered` stands in for it.
  }
  document.dispatchEvent(new Event("tokenchange"));
}

/** Forget the token and everything that was read with it: the page begins again. */
export function forgetToken() {
  remembered = "";
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // `remembered` stood in for it.
  }
  location.reload();
}

/** Headers of a request; none where no token is held. @returns {Record<string, string>} */
export const authorization = (token = heldToken()) => (token ? { Authorization: `Bearer ${token}` } : {});
