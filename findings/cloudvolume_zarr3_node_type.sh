#!/usr/bin/env bash
# Versions: cloud-volume 12.15.2, zarr 3.4.2, numpy 2.5.5.
# Expected: `CloudVolume("zarr3://…", info=…).commit_info()` writes the documents of a Zarr v3 image: a group, and an array
#   in it for each level, whose `node_type` is `array` (Zarr v3 core specification, "Array metadata").
# Seen: the array says `"node_type": "group"`, and the group has `shape`, `data_type` and `codecs` of an array. zarr-python
#   opens neither, since a group has no such members.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q cloud-volume==12.15.2 zarr==3.4.2 numpy==2.5.5
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import json, pathlib, sys
import zarr
from cloudvolume import CloudVolume

info = CloudVolume.create_new_info(
    num_channels=1, layer_type="image", data_type="uint8", encoding="raw", resolution=[4, 4, 40],
    voxel_offset=[0, 0, 0], volume_size=[32, 32, 8], chunk_size=[16, 16, 4],
)
image = pathlib.Path("image").absolute()
CloudVolume(f"zarr3://file://{image}", info=info).commit_info()


def opened(path):
    try:
        return type(zarr.open(path, mode="r")).__name__
    except Exception as error:
        return type(error).__name__


def summary(path):
    document = json.loads((path / "zarr.json").read_text())
    return document["node_type"], document.get("shape"), opened(path)


seen = {"group": summary(image), "level": summary(image / "0")}
print(seen)
sys.exit(seen != {name: ("group", [8, 32, 32], "MetadataValidationError") for name in seen})
PYTHON
