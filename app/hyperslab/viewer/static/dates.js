/** Values of `datetime64`: text and axis ticks. */

import { niceBelow } from "./format.js";

const SECOND = 1000; // milliseconds, as those of Date
const DAY = 86400 * SECOND;
const YEAR = 365.2425 * DAY;
const [MINUTE, HOUR] = [60 * SECOND, 3600 * SECOND];
const SHORT = { s: SECOND, ms: 1, us: 1e-3, ns: 1e-6, ps: 1e-9, fs: 1e-12, as: 1e-15 };
const UNITS = { W: 7 * DAY, D: DAY, h: HOUR, m: MINUTE, ...SHORT };
const MONTHS = { M: 1, Y: 12 };
const SIXTIETHS = [1, 2, 5, 10, 15, 30];
const STEPS = [
  ...SIXTIETHS.map((n) => n * SECOND),
  ...SIXTIETHS.map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
  ...[1, 2, 5, 10].map((n) => n * DAY),
];
const CALENDAR = [1, 3, 6]; // months, before it is years

/**
 * @typedef {object} Dates interpretation of values as dates
 * @property {(value: number, apart?: number) => string} text in the precision for values at a distance
 * @property {(low: number, high: number, about: number) => number[]} ticks
 */

/**
 * The interpretation of a dtype; null if it is not datetime64.
 * @param {string} dtype `<M8[ns]`, `<M8[25s]`
 * @returns {Dates|null}
 */
export function datesOf(dtype) {
  const found = /^[<>|]?M8\[(\d*)(\w+)\]$/.exec(dtype);
  if (!found) return null;
  const count = Number(found[1] || 1);
  const clock = MONTHS[found[2]] ? byMonths(count * MONTHS[found[2]]) : byTime(count * UNITS[found[2]]);
  return {
    text: (value, apart = 1) => written(clock.time(value), clock.whole ?? Math.max(apart || 1, 1) * clock.unit),
    ticks: (low, high, about) => timesOfTicks(clock.time(low), clock.time(high), about).map(clock.value),
  };
}

/** Units of fixed length, in milliseconds. */
const byTime = (unit) => ({ unit, time: (value) => value * unit, value: (time) => time / unit });

/** Units of months, starting on the first day. */
const byMonths = (unit) => ({
  whole: DAY,
  time: (value) => Date.UTC(1970, Math.floor(value * unit), 1) + ((value * unit) % 1) * 30 * DAY,
  value: (time) => monthsOf(time) / unit,
});

const monthsOf = (time) => (new Date(time).getUTCFullYear() - 1970) * 12 + new Date(time).getUTCMonth();

/** Text in the precision that distinguishes times so many milliseconds apart. */
function written(time, apart) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return Number.isNaN(time) ? "NaT" : `${Math.round(1970 + time / YEAR)}`;
  const text = date.toISOString();
  const day = text.indexOf("T");
  if (apart >= DAY) return text.slice(0, day);
  const digits = apart >= 60e3 ? 5 : apart >= SECOND ? 8 : 12;
  return text
    .slice(0, day + 1 + digits)
    .replace("T", " ")
    .replace(/\.000$/, "");
}

/** 1, 2 or 5 times a power of ten: hardly ever below the value. */
const niceAbout = (value) => niceBelow(value * 1.99);

function timesOfTicks(low, high, about) {
  const least = (high - low) / about;
  const fixed = STEPS.find((step) => step >= least);
  if (least < SECOND) return regular(low, high, Math.max(niceAbout(least), 1));
  if (fixed) return regular(low, high, fixed);
  const years = Math.max(1, niceAbout(least / YEAR));
  return calendar(low, high, CALENDAR.find((months) => (months * YEAR) / 12 >= least) ?? 12 * years);
}

function regular(low, high, step) {
  const start = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step) - start + 1) }, (_, i) => (start + i) * step);
}

/** First days of months at a distance, counted from 1970. */
function calendar(low, high, months) {
  const start = Math.ceil(monthsOf(low) / months);
  const last = Math.floor(monthsOf(high) / months);
  const count = Math.max(0, last - start + 1);
  const times = Array.from({ length: count }, (_, i) => Date.UTC(1970, (start + i) * months, 1));
  return times.filter((time) => time >= low && time <= high);
}
