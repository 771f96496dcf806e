/** Decoded values: units, flags and dates, from the attributes. */

import { dtypeOf } from "./arrays.js";
import { formatValue } from "./format.js";

/**
 * @typedef {object} Meaning annotation of a value
 * @property {string} [unit]
 * @property {{meaning: string, value: number, mask: number|null}[]} [flags]
 * @property {boolean} [dates] values are ISO text of dates
 */

/** Whether decoded values differ from stored ones. @param {any} document node document */
export const isPacked = (document) => Boolean(document.decoded?.cf && document.decoded.changes);

/**
 * The parameter `decode=cf`, or nothing: decoded by default if the attributes request it, unless the user chose stored
 * values. Dates as text cannot be plotted.
 * @param {any} document @param {{decode?: string}} state @param {string} [view] @returns {"cf"|""}
 */
export function decodeOf(document, state, view = "") {
  if (!isPacked(document) || state.decode === "none") return "";
  return view === "plot" && document.decoded.dtype.startsWith("<U") ? "" : "cf";
}

/** The dtype of the requested values. */
export const shownDtype = (document, field, decode) => (decode ? document.decoded.dtype : dtypeOf(document, field));

/** The unit of values or of a field; none for packed numbers and dates. */
export function unitOf(document, field = "", decode = "") {
  const { decoded, attributes } = document;
  if (decode ? decoded.calendar : decoded?.packed) return "";
  const unit = attributes?.units ?? attributes?.unit ?? "";
  if (typeof unit === "string") return unit;
  return typeof unit?.[field] === "string" ? unit[field] : "";
}

/** @param {any} document @param {string} field @param {string} decode @returns {Meaning} */
export const meaningOf = (document, field, decode) => ({
  unit: unitOf(document, field, decode),
  flags: document.decoded?.flags ?? [],
  dates: /^.M8/.test(shownDtype(document, field, decode)) || Boolean(decode && document.decoded.calendar),
});

/** ISO text without midnight, and without zero seconds and fractions. */
export const dateText = (iso) =>
  iso
    .replace(/(\.\d*?)0+$/, "$1")
    .replace(/\.$/, "")
    .replace(/T00:00:00$/, "")
    .replace(/(T\d\d:\d\d):00$/, "$1")
    .replace("T", " ");

/** A value with its annotation. @param {any} value @param {Meaning} meaning */
export function say(value, { unit = "", flags = [], dates = false }) {
  if (dates && typeof value === "string") return dateText(value);
  const text = formatValue(value);
  if (/^Na[NT]$/.test(text)) return text;
  return `${text} ${wordsOf(flags, value) || unit}`.trim();
}

/** The meanings of a flag, or of all bits that are set. */
function wordsOf(flags, value) {
  if (typeof value !== "bigint" && !Number.isFinite(value)) return "";
  const bits = BigInt(typeof value === "bigint" ? value : Math.trunc(value));
  const holds = ({ value: wanted, mask }) =>
    mask === null ? Number(value) === wanted : (bits & BigInt(mask)) === BigInt(wanted);
  return flags.filter(holds).map(({ meaning }) => meaning).join(", ");
}
