/**
 * The bearer token of a service that asks for one. It is kept for this tab and no longer, goes into the header of
 * requests and nowhere else: addresses end up in histories, logs and copied links.
 */

const KEY = "hyperslab-token";

/** The token if storage is disabled or full, until the page is closed. */
let remembered = "";

/** @returns {string} "" without one */
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

/** Remove the token and all data read with it, by a reload of the page. */
export function forgetToken() {
  remembered = "";
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // `remembered` stood in for it.
  }
  location.reload();
}

/** Headers of a request with the token, if there is one. @returns {Record<string, string>} */
export const authorization = (token = heldToken()) => (token ? { Authorization: `Bearer ${token}` } : {});
