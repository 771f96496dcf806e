/** Form for a token. Requests with a response of 401 wait for it, and are repeated. */

import { h } from "./dom.js";
import { heldToken, keepToken } from "./token.js";

const VISIBLE_ASCII = /^[\x21-\x7e]+$/; // what a header can carry
const REFUSED = "The service rejected this token.";

/** @type {Promise<void>|null} the open form, for which all requests wait */
let asking = null;

/**
 * Resolves when there is another token than the refused one.
 * @param {string} refused "" if none was sent
 * @param {(token: string) => Promise<boolean>} accepts checks a token with the service
 */
export function signIn(refused, accepts) {
  if (heldToken() !== refused) return Promise.resolve(); // it was given while that request was under way
  asking ??= ask(refused, accepts).finally(() => (asking = null));
  return asking;
}

async function ask(refused, accepts) {
  const form = createForm();
  if (refused) form.fail(REFUSED);
  form.open();
  keepToken(await firstAccepted(form, accepts));
  form.close();
  if (!refused) return;
  location.reload(); // parts of the page have failed with the old token
  await new Promise(() => {});
}

async function firstAccepted(form, accepts) {
  for (;;) {
    const token = await form.submitted();
    try {
      if (VISIBLE_ASCII.test(token) && (await accepts(token))) return token;
      form.fail(REFUSED);
    } catch (problem) {
      form.fail(problem.message);
    }
  }
}

function createForm() {
  const hint = h(
    "p",
    { class: "hint", id: "token-hint" },
    "The operator of the service has one for you. It is stored until this tab is closed.",
  );
  const error = h("p", { class: "field-error", id: "token-error", role: "alert" });
  const input = h("input", {
    type: "password",
    id: "token",
    required: true,
    autocomplete: "off",
    "aria-describedby": "token-error token-hint",
  });
  const button = h("button", { type: "submit", class: "button" }, "Continue");
  const form = h(
    "form",
    { class: "dialog-body token-form" },
    h("h2", { id: "token-title" }, "This service asks for a token"),
    hint,
    h("label", { for: "token" }, "Token"),
    input,
    error,
    button,
  );
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "token-title" }, form);
  let open = false;

  /** There is nothing behind the form to go back to. */
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.addEventListener("close", () => open && dialog.showModal());
  input.addEventListener("input", () => say(""));

  function say(text) {
    error.textContent = text;
    if (text) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }

  /** @returns {Promise<string>} what is sent next */
  function submitted() {
    button.disabled = false;
    return new Promise((resolve) => {
      const send = (event) => {
        event.preventDefault();
        button.disabled = true;
        resolve(input.value.trim());
      };
      form.addEventListener("submit", send, { once: true });
    });
  }

  return {
    submitted,
    open: () => {
      open = true;
      document.body.append(dialog);
      dialog.showModal();
      input.focus();
    },
    fail: (text) => {
      say(text);
      input.select();
    },
    close: () => {
      open = false;
      dialog.close();
      dialog.remove();
    },
  };
}
