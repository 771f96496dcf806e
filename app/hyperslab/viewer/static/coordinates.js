/**
 * Coordinates of axes, as xarray and CF keep them: a one-dimensional array named like the axis, beside the data or in
 * the nearest group above that has one.
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
  const wanted = new Map(names.map((name, axis) => [name, document.shape[axis]]).filter(([name]) => name));
  const found = {};
  try {
    for (let group = parentOf(document.path); group && wanted.size; group = parentOf(group)) {
      const { children } = await metadata(group, { limit: SIBLINGS });
      const there = children.filter((child) => child.kind === "array" && wanted.has(child.name));
      const pairs = await Promise.all(
        there.map(async ({ name }) => {
          const axis = { path: join(group, name), size: wanted.get(name) };
          return [name, axis.path !== document.path || document.decoded?.calendar ? await placesOf(axis) : null];
        }),
      );
      for (const [name, place] of pairs) {
        wanted.delete(name);
        if (place) found[name] = place;
      }
    }
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem; // the data shows without coordinates as well
  }
  return found;
}

const parentOf = (path) => path.slice(0, Math.max(path.lastIndexOf("/"), 0));

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
