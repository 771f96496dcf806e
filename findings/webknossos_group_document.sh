#!/usr/bin/env bash
# Versions: webknossos 4.3.3, zarr 3.4.2.
# Expected: a dataset that webknossos writes as Zarr v2 is a hierarchy of Zarr v2: `zarr_format` of `.zgroup` is the integer
#   2 (storage specification, "Hierarchies").
# Seen: `.zgroup` holds "2" as text, so that zarr-python refuses the group, though its arrays can be opened.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q webknossos==4.3.3 zarr==3.4.2
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import json, pathlib, sys
import webknossos
import zarr

dataset = webknossos.Dataset("dataset", voxel_size=(1, 1, 1))
box = webknossos.BoundingBox((0, 0, 0), (32, 32, 32))
layer = dataset.add_layer("color", "color", dtype="uint8", data_format="zarr", bounding_box=box)
layer.add_mag(1)
documents = {str(path): json.loads(path.read_text()) for path in sorted(pathlib.Path("dataset").rglob(".zgroup"))}
try:
    zarr.open_group("dataset", mode="r", zarr_format=2)
    opened = "opened"
except Exception as error:
    opened = type(error).__name__
array = zarr.open_array("dataset/color/1", mode="r", zarr_format=2)
print(documents, opened, array.shape)
sys.exit(not documents or any(each != {"zarr_format": "2"} for each in documents.values()) or opened == "opened")
PYTHON
