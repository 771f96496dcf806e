/** Properties of an array from its node document. */

/** Names of numeric fields; empty if the dtype is not structured. @returns {string[]} */
export function numericFields(document) {
  if (!Array.isArray(document.dtype)) return [];
  const numeric = ([, type]) => typeof type === "string" && !/^[<>|]?[OSUV]/.test(type);
  return document.dtype.filter(numeric).map(([name]) => name);
}

/** The dtype of the values, or of those of a field. @returns {string} */
export function dtypeOf({ dtype }, field = "") {
  return String(Array.isArray(dtype) ? dtype.find(([name]) => name === field)?.[1] : dtype);
}

/** Whether values, or those of a field, are objects of any length. */
export const hasObjects = ({ dtype }, field = "") =>
  /^[<>|]?O$/.test(dtypeOf({ dtype }, field)) || (Array.isArray(dtype) && !field && dtype.some(isObject));

const isObject = ([, type]) => (Array.isArray(type) ? type.some(isObject) : /^[<>|]?O$/.test(type));

/** The displayed plane for a table, with the first active channel. */
export function tableInfo(info) {
  const { channel_axis: axis, selection, channels } = info;
  const drawn = channels.find(({ active }) => active)?.index ?? 0;
  return { ...info, channel_axis: null, selection: axis ? { ...selection, [axis]: drawn } : selection };
}

/** Axes with sizes, names and units from attributes; the last two are the plane. */
export function plainInfo(document, decode = "") {
  const shape = document.shape ?? [];
  const names = shape.map((_, axis) => document.dimension_names?.[axis] ?? `d${axis}`);
  const axes = shape.map((size, axis) => ({ name: names[axis], type: null, unit: null, size, scale: 1, translation: null }));
  return {
    path: document.path,
    decode,
    axes,
    plane: names.slice(-2),
    selection: {},
    channel_axis: null,
    channels: [],
    labels: [],
    problems: [],
  };
}
