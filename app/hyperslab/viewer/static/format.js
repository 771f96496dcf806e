/** Formatting of numbers, shapes and units. */

/** @param {number} bytes */
export function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let power = 0;
  while (bytes >= 1024 && power < units.length - 1) {
    bytes /= 1024;
    power += 1;
  }
  return `${power && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[power]}`;
}

/** "1 item", "2 items". @param {number} count @param {string} noun */
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** @param {number[]} shape */
export const formatShape = (shape) => (shape.length ? shape.join(" × ") : "one value");

const SIMPLE = {
  b: "bool",
  i: "int",
  u: "uint",
  f: "float",
  c: "complex",
  M: "datetime",
  m: "timedelta",
  S: "bytes",
  U: "str",
  V: "raw",
  O: "object",
};

/** `uint16` for `<u2`, "3 fields" for a structured dtype. */
export function formatDtype(dtype) {
  if (Array.isArray(dtype)) return dtype.length === 1 ? "1 field" : `${dtype.length} fields`;
  const match = /^[<>|]?([biufcMmSUVO])(\d*)(\[.*\])?$/.exec(dtype);
  if (!match) return dtype;
  const [, kind, size, unit] = match;
  if ("iufc".includes(kind)) return `${SIMPLE[kind]}${Number(size) * 8}`;
  if ("Mm".includes(kind)) return `${SIMPLE[kind]}64${unit ?? ""}`;
  return "SUV".includes(kind) ? `${SIMPLE[kind]}[${size}]` : SIMPLE[kind];
}

/** `blosc (lz4, level 5)` for a codec of either format, `sharding_indexed (bytes, zstd)` with what is in it, "none" for null. */
export function formatCodec(codec) {
  if (!codec) return "none";
  const { codecs, cname, clevel, level } = codec.configuration ?? codec;
  const parts = [cname, clevel ?? level].filter((part) => part !== undefined && part !== null);
  const words = codecs?.map(formatCodec) ?? parts.map((part) => (typeof part === "number" ? `level ${part}` : part));
  const name = codec.id ?? codec.name ?? codec;
  return words.length ? `${name} (${words.join(", ")})` : name;
}

/** A value of an array: integers with all their digits, other numbers with at most seven, null as it is. */
export function formatValue(value) {
  if (value === null || value === undefined) return "NaN";
  if (typeof value === "number") return formatNumber(value);
  if (Array.isArray(value)) return `[${value.map(formatValue).join(", ")}]`;
  if (typeof value === "object") return JSON.stringify(value, (_, inner) => plain(inner));
  return String(value);
}

/** JSON with `bigint` as numbers. */
const plain = (value) => (typeof value === "bigint" ? String(value) : value);

/** @param {number} value */
export function formatNumber(value) {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const size = Math.abs(value);
  return size >= 1e7 || size < 1e-4 ? value.toExponential(3).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(6)));
}

/** 1, 2 or 5 times a power of ten, the largest that is not above `value`. */
export function niceBelow(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const lead = [5, 2, 1].find((n) => n * power <= value * (1 + 1e-9)) ?? 1;
  return lead * power;
}

const METRES = {
  angstrom: 1e-10,
  picometer: 1e-12,
  nanometer: 1e-9,
  micrometer: 1e-6,
  millimeter: 1e-3,
  centimeter: 1e-2,
  decimeter: 1e-1,
  meter: 1,
  kilometer: 1e3,
  nm: 1e-9,
  um: 1e-6,
  µm: 1e-6,
  mm: 1e-3,
  cm: 1e-2,
  m: 1,
  km: 1e3,
  micron: 1e-6,
  inch: 0.0254,
  foot: 0.3048,
  yard: 0.9144,
  mile: 1609.344,
};
const LENGTHS = [
  [1e3, "km"],
  [1, "m"],
  [1e-3, "mm"],
  [1e-6, "µm"],
  [1e-9, "nm"],
  [1e-12, "pm"],
];
const SHORT = {
  second: "s",
  millisecond: "ms",
  microsecond: "µs",
  nanosecond: "ns",
  minute: "min",
  hour: "h",
  day: "d",
  degree: "°",
  degrees: "°",
};

/** @param {string|null|undefined} unit @returns {number|null} metres in one unit, null where it is not a length */
export const metresIn = (unit) => METRES[unit] ?? null;

const SECONDS = {
  second: 1,
  millisecond: 1e-3,
  microsecond: 1e-6,
  nanosecond: 1e-9,
  minute: 60,
  hour: 3600,
  day: 86400,
};

/** @param {string|null|undefined} unit @returns {number|null} seconds in one unit, null where it is not a time */
export const secondsIn = (unit) => SECONDS[unit] ?? null;

/** A length in metres with the unit that keeps it between 1 and 1000. */
export function formatLength(metres) {
  const [size, name] = LENGTHS.find(([step]) => metres >= step * (1 - 1e-9)) ?? LENGTHS.at(-1);
  return `${Number((metres / size).toPrecision(4))} ${name}`;
}

/** A value with so many digits, or more to distinguish values between two others. @returns {number} */
export function rounded(value, [low, high], digits) {
  const alike = Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low))) || 0;
  return Number(value.toPrecision(Math.min(digits + Math.max(alike, 0), 17)));
}

/** The symbol of a unit. */
export const unitSign = (unit) =>
  /^degrees?_?(north|east|N|E)$/.test(unit ?? "") ? "°" : LENGTHS.find(([size]) => size === METRES[unit])?.[1] ?? SHORT[unit] ?? unit ?? "";

/** The position of an index: its coordinate, or in units; "" without either. */
export function positionOn(axis, index) {
  if (axis.place) return axis.place(index);
  if (!axis.unit) return "";
  return `${formatNumber(Number((index * (axis.scale ?? 1)).toPrecision(6)))} ${unitSign(axis.unit)}`;
}
