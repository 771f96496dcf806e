/**
 * Coordinates of axes, as xarray and CF keep them: a one-dimensional array beside the data, named like the axis.
 * "days since 2023-01-01" becomes a date, degrees get their side.
 */

import { metadata, numbers, Problem } from "./api.js";
import { formatNumber, unitSign } from "./format.js";
import { describe, join } from "./nodes.js";

const LONGEST = 1 << 16;
const SIBLINGS = 200;

/**
 * For each axis that has coordinates, what to say for an index.
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
    const found = wanted.filter(({ name, path }) => there.has(name) && path !== document.path);
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
  if (!fits || !/^[<>|]?[iuf]/.test(document.dtype)) return null;
  const values = await numbers(path, ":");
  const format = formatFor(String(document.attributes?.units ?? ""), values);
  return (index) => format(values[index]);
}

const SECONDS = { second: 1, minute: 60, hour: 3600, day: 86400 };

function formatFor(units, values) {
  const time = /^(second|minute|hour|day)s? since (\d{4}-\d\d?-\d\d?)(?:[T ]([\d:.]+))?/.exec(units);
  if (time) return dateFormat(SECONDS[time[1]], Date.parse(`${time[2]}T${time[3] ?? "00:00:00"}Z`), values);
  if (/^degrees?_?(north|N)$/.test(units))
    return (value) => `${formatNumber(Math.abs(value))}° ${value < 0 ? "S" : "N"}`;
  if (/^degrees?_?(east|E)$/.test(units))
    return (value) => `${formatNumber(Math.abs(value))}° ${value < 0 ? "W" : "E"}`;
  return (value) => `${formatNumber(value)} ${unitSign(units)}`.trim();
}

/** Dates, with the time of day where any of them needs it. */
function dateFormat(step, origin, values) {
  const at = (value) => new Date(origin + value * step * 1000);
  const daily = values.every((value) => (value * step) % 86400 === 0);
  return (value) =>
    Number.isNaN(at(value).getTime())
      ? ""
      : at(value)
          .toISOString()
          .slice(0, daily ? 10 : 16)
          .replace("T", " ");
}
