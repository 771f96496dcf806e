// node zarrjs.cjs URL PATH: reads an array with zarr.js; with a third argument, fills it with that number first.
const { openArray } = require("zarr");

const [url, path, value] = process.argv.slice(2);

async function main() {
  const array = await openArray({ store: url, path, mode: value === undefined ? "r" : "r+" });
  if (value !== undefined) await array.set(null, Number(value));
  const { data, shape } = await array.get();
  console.log(JSON.stringify({ shape, data: data.flat(Infinity).flatMap((row) => Array.from(row)) }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
