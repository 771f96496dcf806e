/**
 * Coordinates of axes, as xarray and CF keep them: a one-dimensional array beside the data, named like the axis.
 * The service decodes them ("days since 2023-01-01" becomes a date); degrees get a direction.
 */

import { metadata, numbers, Problem, values } from "./api.js";
import { dateText, decodeOf, shownDtype, unitOf } from "./decoded.js";
import { formatNumber, unitSign } from "./format.js";
import { describe, join } from "./nodes.js";

const LONGEST = 1 << 16;
const SIBLINGS = 200;

/**
 * Functions from indices to coordinate labels, by axis.
 * @param {any} document node document of an array
 * @returns {Promise<Record<string, (index: number) => string>>}
 */
export async function coordinatesOf(document) {
  const names = document.kind === "array" ? (document.dimension_names ?? []) : [];
  const parent = document.path.slice(0, Math.max(document.path.lastIndexOf("/"), 0));
  if (!parent || !names.some(Boolean)) return {};
  try {
    const { children } = await metadata(parent, { limit: SIBLINGS });
    const there = new Set(children.filter((child) => child.kind === "array").map((child) => child.name));
    const wanted = names.map((name, axis) => ({ name, size: document.shape[axis], path: join(parent, name ?? "") }));
    const found = wanted.filter(({ name, path }) => there.has(name) && (path !== document.path || document.decoded?.calendar));
    const pairs = await Promise.all(found.map(async (axis) => [axis.name, await placesOf(axis)]));
    return Object.fromEntries(pairs.filter(([, place]) => place !== null));
  } catch (problem) {
    if (problem instanceof Problem) return {}; // the data shows without coordinates as well
    throw problem;
  }
}

async function placesOf({ path, size }) {
  const document = await describe(path);
  const fits = document.shape?.length === 1 && document.shape[0] === size && size <= LONGEST;
  if (!fits || !/^[<>|]?[iufM]/.test(document.dtype)) return null;
  const decode = decodeOf(document, {});
  const dtype = shownDtype(document, "", decode);
  if (/^.?[MU]/.test(dtype)) return datesOf(document, decode, dtype);
  const places = await numbers(path, ":", { decode });
  const format = formatFor(unitOf(document, "", decode));
  return (index) => format(places[index]);
}

/** Dates from the service, in microseconds if necessary; with the time of day if any is not midnight. */
async function datesOf({ path }, decode, dtype) {
  const texts = await values(path, ":", { decode, dtype: decode && dtype[1] === "M" ? "<M8[us]" : "" });
  const dates = texts.map((text) => dateText(String(text)));
  const daily = !dates.some((date) => date.includes(" "));
  return (index) => (daily || !/^.?\d+-\d+-\d+$/.test(dates[index]) ? dates[index] : `${dates[index]} 00:00`);
}

function formatFor(units) {
  if (/^degrees?_?(north|N)$/.test(units))
    return (value) => `${formatNumber(Math.abs(value))}° ${value < 0 ? "S" : "N"}`;
  if (/^degrees?_?(east|E)$/.test(units))
    return (value) => `${formatNumber(Math.abs(value))}° ${value < 0 ? "W" : "E"}`;
  return (value) => `${formatNumber(value)} ${unitSign(units)}`.trim();
}
