/** Subscription to the changes of a node and of nodes below it. */

import { get, url } from "./api.js";

const AGAIN = 1000; // ms before a connection that was cut is made again

/**
 * Follows one node at a time. `onchange` is called with the id of the newest change when its last call has ended, so
 * that a page which is slower than the changes leaves some out.
 * @param {(id: string) => Promise<void>} onchange
 */
export function createFollower(onchange) {
  let path = null;
  let connection = new AbortController();
  let newest = "";
  let telling = false;

  async function tell(id) {
    newest = id;
    if (telling) return;
    telling = true;
    for (let told = ""; newest && newest !== told; ) {
      told = newest;
      await onchange(told);
    }
    telling = false;
  }

  async function follow(wanted, signal) {
    let since = "";
    while (!signal.aborted) {
      try {
        const address = url("changes", wanted, since && `?${new URLSearchParams({ since })}`);
        for await (const id of idsOf(await get(address, signal))) {
          if (id !== since) void tell(id); // also the first: the node may have changed since it was loaded
          since = id;
        }
      } catch {
        // The service or the store is unavailable: try again.
      }
      if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }

  /** @param {string|null} wanted null to stop */
  function watch(wanted) {
    if (wanted === path) return;
    connection.abort();
    connection = new AbortController();
    path = wanted;
    newest = "";
    if (wanted !== null) void follow(wanted, connection.signal);
  }
  return { watch };
}

/** Ids of server-sent events; `EventSource` cannot send a token. @param {Response} response */
async function* idsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines) if (line.startsWith("id: ")) yield line.slice("id: ".length);
  }
}
