#!/usr/bin/env bash
# Versions: zarr 3.4.2, tensorstore 0.1.86, numpy 2.4.6.
# Expected: a missing chunk of a Zarr v3 array of `structured` records, stored with `bytes` in big-endian order, reads
#   alike in both: the registry says that the base64 of a legacy fill value is in the byte order of that codec, so (7, 1).
# Seen: TensorStore reads 7; zarr-python takes the same bytes for little-endian and reads 1792. The stored chunk beside it
#   reads as 7 in both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q zarr==3.4.2 tensorstore==0.1.86 numpy==2.4.6
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import base64, json, pathlib, sys
import tensorstore, zarr

node = pathlib.Path("a")
(node / "c").mkdir(parents=True)
seven = (7).to_bytes(2, "big") + b"\1"
(node / "c" / "0").write_bytes(seven)
(node / "zarr.json").write_text(json.dumps({
    "zarr_format": 3, "node_type": "array", "shape": [2], "attributes": {},
    "data_type": {"name": "structured", "configuration": {"fields": [["n", "int16"], ["flag", "uint8"]]}},
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": base64.b64encode(seven).decode(),
    "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
}))
spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{node.resolve()}/"}, "field": "n"}
seen = {
    "tensorstore": tensorstore.open(spec).result().read().result().tolist(),
    "zarr": zarr.open_array(str(node), mode="r")[:]["n"].tolist(),
}
print(seen)
sys.exit(seen != {"tensorstore": [7, 7], "zarr": [7, 1792]})
PYTHON
