/** Throttling of calls. */

/**
 * Call `fn` at once, and then at most every `ms` with the newest arguments; `.waiting()` tells of a call that is still to
 * come, and `.cancel()` forgets it.
 * @template {any[]} A
 * @param {number} ms
 * @param {(...args: A) => void} fn
 */
export function throttle(ms, fn) {
  let timer = 0;
  let newest = null;
  const fire = () => {
    timer = 0;
    if (newest === null) return;
    const args = newest;
    newest = null;
    timer = setTimeout(fire, ms);
    fn(...args);
  };
  const limited = (...args) => {
    newest = args;
    if (!timer) fire();
  };
  limited.waiting = () => newest !== null;
  limited.cancel = () => (newest = null);
  return limited;
}
