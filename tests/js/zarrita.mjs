// node zarrita.mjs URL PATH: reads an array, and a part of it, with zarrita; prints JSON.
import * as zarr from "zarrita";

const [url, path] = process.argv.slice(2);
const root = await zarr.withConsolidatedMetadata(new zarr.FetchStore(url), { format: "v2" });
const array = await zarr.open.v2(zarr.root(root).resolve(path), { kind: "array" });
const whole = await zarr.get(array);
const part = await zarr.get(array, [zarr.slice(1, 3), null, 0]);
const plain = ({ shape, data }) => ({ shape, data: Array.from(data, Number) });
console.log(JSON.stringify({
  attributes: array.attrs,
  contents: root.contents().map((node) => node.path).sort(),
  whole: plain(whole),
  part: plain(part),
}));
