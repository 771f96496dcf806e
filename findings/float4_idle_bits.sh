#!/usr/bin/env bash
# Versions: tensorstore 0.1.86, ml_dtypes 0.6.0, numpy 2.4.6.
# Expected: a byte 0xf5 of a Zarr v3 array of `float4_e2m1fn` is 3.0: the registry says that the upper four bits of the
#   byte are ignored. `int4`, with the same rule, gives 5.
# Seen: int4 gives 5, but float4 gives -3.0, in TensorStore and in ml_dtypes: one of the idle bits becomes the sign.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tensorstore==0.1.86 ml_dtypes==0.6.0 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import json, pathlib, sys
import ml_dtypes, numpy, tensorstore


def read(data_type):
    node = pathlib.Path(data_type)
    (node / "c").mkdir(parents=True)
    (node / "c" / "0").write_bytes(b"\xf5\x05")
    (node / "zarr.json").write_text(json.dumps({
        "zarr_format": 3, "node_type": "array", "shape": [2], "attributes": {}, "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}],
    }))
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{node.resolve()}/"}}
    return [float(number) for number in tensorstore.open(spec).result().read().result()]


seen = {
    "tensorstore int4": read("int4"),
    "tensorstore float4": read("float4_e2m1fn"),
    "ml_dtypes float4": numpy.array([0xF5, 5], "u1").view(ml_dtypes.float4_e2m1fn).astype("f8").tolist(),
}
print(seen)
wrong = [-3.0, 3.0]
sys.exit(seen != {"tensorstore int4": [5.0, 5.0], "tensorstore float4": wrong, "ml_dtypes float4": wrong})
PYTHON
