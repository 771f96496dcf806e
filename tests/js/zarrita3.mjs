// node zarrita3.mjs URL PATH: reads an array as Zarr v3 and nothing else, and the attributes of its group; prints JSON.
import * as zarr from "zarrita";

const [url, path] = process.argv.slice(2);
const root = zarr.root(new zarr.FetchStore(url));
const group = await zarr.open.v3(root, { kind: "group" });
const array = await zarr.open.v3(root.resolve(path), { kind: "array" });
const { shape, data } = await zarr.get(array);
console.log(JSON.stringify({ names: array.dimensionNames, ome: group.attrs.ome?.version, shape, data: Array.from(data, Number) }));
