/** Requests to the service. Failures are a `Problem` with the contents of the problem document. */

import { h, ROOT } from "./dom.js";
import { signIn } from "./signin.js";
import { authorization, heldToken } from "./token.js";

/** Whether the page was opened through a signed link, which no token replaces. */
const BEHIND_LINK = /\/link\/[^/]+$/.test(ROOT);
const DOWNLOAD_STARTS = 10_000; // ms after which a browser has begun to save what it was given

/** A failed request, described by the service. */
export class Problem extends Error {
  /** @param {{title: string, detail?: string, status: number, code: string}} facts */
  constructor({ title, detail, status, code }) {
    super(detail || title);
    this.title = title;
    this.status = status;
    this.code = code;
  }
}

/** @param {string} path @returns {string} the path with every segment percent-encoded */
export const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");

/**
 * The address of an API route for a node.
 * @param {"metadata"|"slice"|"tile"|"plan"|"points"|"changes"} route
 * @param {string} path
 * @param {string} [rest] what follows the path, with its slash or question mark
 */
export const url = (route, path, rest = "") => `${ROOT}/v1/${route}/${encodePath(path)}${rest}`;

/** The absolute address, for copying. */
export const absolute = (address) => new URL(address, location.origin).href;

/**
 * A successful response; after 401 the user is asked for a token, and the request is repeated.
 * @param {string} address @param {AbortSignal} [signal] @param {any} [body] JSON that is posted
 * @returns {Promise<Response>}
 */
export async function get(address, signal, body) {
  const token = heldToken();
  const response = await reach(address, token, signal, body);
  if (response.status === 401 && !BEHIND_LINK) {
    await signIn(token, accepts);
    return get(address, signal, body);
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

/** What the service answers to a JSON document. @param {string} route @param {object} body */
export async function post(route, body) {
  const headers = { ...authorization(), "Content-Type": "application/json" };
  const response = await fetch(`${ROOT}/v1/${route}`, { method: "POST", headers, body: JSON.stringify(body) });
  if (!response.ok) throw await problemOf(response);
  return response.json();
}

/** Whether a token permits reading. @param {string} token */
const accepts = async (token) => (await reach(url("metadata", "", "?limit=1"), token)).status !== 401;

async function reach(address, token, signal, body) {
  const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  try {
    return await fetch(address, { signal, ...sent, headers: { ...authorization(token), ...type } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({
      title: "The service cannot be reached",
      detail: "No response. Is the service running?",
      status: 0,
      code: "unreachable",
    });
  }
}

async function problemOf(response) {
  const facts = await response.json().catch(() => ({}));
  return new Problem({
    title: facts.title ?? `HTTP ${response.status}`,
    detail: facts.detail,
    status: response.status,
    code: facts.code ?? "http",
  });
}

/**
 * The address of a picture for an element: its own, or with a token an object URL of a copy, since elements send no
 * headers. Release it by `URL.revokeObjectURL`.
 * @param {string} address
 */
export async function pictureAddress(address) {
  return heldToken() ? URL.createObjectURL(await (await get(address)).blob()) : address;
}

/** Download an address as a file. @param {string} address @param {string} name */
export async function download(address, name) {
  const href = await pictureAddress(address);
  h("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), DOWNLOAD_STARTS);
}

/** The JSON that answers a question with a body. @param {string} address @param {any} body */
export const ask = async (address, body) => parseExactly(await (await get(address, undefined, body)).text());

const getJson = async (address, signal) => (await get(address, signal)).json();

/**
 * The node document, see docs/reference/http.md; a group has its first children.
 * @param {string} path
 * @param {{cursor?: string|null, limit?: number, signal?: AbortSignal}} [options]
 */
export function metadata(path, { cursor, limit, signal } = {}) {
  const query = new URLSearchParams({ decode: "cf" });
  if (limit) query.set("limit", String(limit));
  if (cursor) query.set("cursor", cursor);
  return getJson(url("metadata", path, `?${query}`), signal);
}

/**
 * A page of the table of a group: rows as `children`, with `next_cursor`, `problems`, and `count` where it is known.
 * @param {string} path @param {{sort?: string, filter?: string, cursor?: string|null}} wanted
 */
export function members(path, { sort, filter, cursor }) {
  const given = { table: "true", ...(sort && { sort }), ...(filter && { filter }), ...(cursor && { cursor }) };
  return getJson(url("metadata", path, `?${new URLSearchParams(given)}`));
}

/**
 * Nodes of all stores whose path or attributes have a text: a page of `matches`, with `next_cursor` and `problems`.
 * @param {string} text @param {string|null} cursor @param {AbortSignal} [signal]
 */
export const search = (text, cursor, signal) =>
  getJson(url("metadata", "", `?${new URLSearchParams({ search: text, ...(cursor && { cursor }) })}`), signal);

/** The `info.json` of a node: axes, levels, channels, windows. */
export const tileInfo = (path, query, signal) =>
  getJson(url("tile", path, `/info.json${query && `?${query}`}`), signal);

/** @returns {Promise<any>} counts per bin */
export const histogram = (path, query, signal) => getJson(url("tile", path, `/histogram.json?${query}`), signal);

const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g; // texts, so that digits in them are passed over
const LONG_INTEGER = /^-?\d{16,}$/;
const MARK = "\u0000integer "; // no text of a store begins like this

/** Parse JSON, with long integers as `bigint`. @param {string} text */
export function parseExactly(text) {
  const marked = text.replace(TOKENS, (token) => (LONG_INTEGER.test(token) ? JSON.stringify(MARK + token) : token));
  if (marked.length === text.length) return JSON.parse(text);
  const isLong = (value) => typeof value === "string" && value.startsWith(MARK);
  return JSON.parse(marked, (_, value) => (isLong(value) ? BigInt(value.slice(MARK.length)) : value));
}

/**
 * Values as nested lists; integers of more than 15 digits as `bigint`.
 * @param {string} path
 * @param {string} select numpy text
 * @param {{field?: string, decode?: string, dtype?: string, signal?: AbortSignal}} [options]
 */
export async function values(path, select, { field, decode, dtype, signal } = {}) {
  const query = new URLSearchParams({ select, format: "json" });
  for (const [name, value] of Object.entries({ field, decode, dtype })) if (value) query.set(name, value);
  return parseExactly(await (await get(url("slice", path, `?${query}`), signal)).text());
}

// prettier-ignore
const TYPED = {
  b1: Uint8Array, u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array, i4: Int32Array,
  f4: Float32Array, f8: Float64Array, i8: BigInt64Array, u8: BigUint64Array,
};
const NOT_A_TIME = -(2n ** 63n);

/**
 * Numbers as a typed array in C order, in a dtype that JavaScript has.
 * @param {string} path
 * @param {string} select numpy text
 * `bins`: minimum, maximum and mean of so many bins instead of the values.
 * @param {{field?: string, decode?: string, bins?: number, signal?: AbortSignal}} [options]
 * @returns {Promise<Uint8Array|Int8Array|Uint16Array|Int16Array|Uint32Array|Int32Array|Float32Array|Float64Array>}
 */
export async function numbers(path, select, { field, decode, bins, signal } = {}) {
  const query = new URLSearchParams({ select, format: "raw", dtype: "safe" });
  const more = { field, decode, ...(bins && { reduce: "minmax", bins }) };
  for (const [name, value] of Object.entries(more)) if (value) query.set(name, String(value));
  const response = await get(url("slice", path, `?${query}`), signal);
  const dtype = JSON.parse(response.headers.get("Array-Dtype"));
  const Typed = TYPED[dtype.slice(1)];
  if (!Typed) {
    const facts = {
      title: "These values cannot be plotted",
      detail: `Their dtype is ${dtype}.`,
      status: 0,
      code: "page",
    };
    throw new Problem(facts);
  }
  const items = new Typed(await response.arrayBuffer());
  return Typed === BigInt64Array || Typed === BigUint64Array ? Float64Array.from(items, asNumber) : items;
}

const asNumber = (integer) => (integer === NOT_A_TIME ? Number.NaN : Number(integer));
