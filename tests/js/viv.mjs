// node viv.mjs URL SELECTION: the levels of an OME-Zarr image as viv loads them, with one plane of each; prints JSON.
import { loadOmeZarr } from "@vivjs/loaders";

const [url, selection] = process.argv.slice(2);
const { data: levels } = await loadOmeZarr(url, { type: "multiscales" });
const read = async (level) => {
  const { data } = await level.getRaster({ selection: JSON.parse(selection) });
  return { labels: level.labels, shape: level.shape, data: Array.from(data) };
};
console.log(JSON.stringify(await Promise.all(levels.map(read))));
