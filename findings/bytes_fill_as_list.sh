#!/usr/bin/env bash
# Versions: zarr 3.4.2, numpy 2.4.6.
# Expected: an array of the registered Zarr v3 data type `bytes` opens with either registered form of its fill value: a
#   list of the numbers of the bytes, [1, 2, 3], or base64, "AQID".
# Seen: base64 opens, and gives these bytes; the list is a TypeError when the array is opened.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q zarr==3.4.2 numpy==2.4.6
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import json, pathlib, sys
import zarr


def opened(name, fill):
    node = pathlib.Path(name)
    node.mkdir()
    (node / "zarr.json").write_text(json.dumps({
        "zarr_format": 3, "node_type": "array", "shape": [1], "attributes": {}, "data_type": "bytes",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": fill, "codecs": [{"name": "vlen-bytes"}],
    }))
    try:
        return zarr.open_array(name, mode="r")[:].tolist()
    except Exception as error:
        return type(error).__name__


seen = {"base64": opened("base64", "AQID"), "list": opened("list", [1, 2, 3])}
print(seen)
sys.exit(seen != {"base64": [b"\x01\x02\x03"], "list": "TypeError"})
PYTHON
