#!/usr/bin/env bash
# Versions: tensorstore 0.1.86.
# Expected: a codec in the schema of an open is a constraint: an array in plain chunks is refused where the schema says
#   `sharding_indexed`, as it is where the schema says gzip, and where `metadata` says `sharding_indexed`.
# Seen: the schema with `sharding_indexed` opens the array in plain chunks; the other two are refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tensorstore==0.1.86
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import sys
import tensorstore

ARRAY = {"driver": "zarr3", "kvstore": {"driver": "file", "path": "plain"}}
SHARDS = [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 2]}}]
GZIP = [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 5}}]


def opened(**constraints):
    try:
        return str(tensorstore.open({**ARRAY, **constraints}, open=True).result().schema.codec)
    except ValueError as error:
        return str(error).partition(":")[0]


tensorstore.open(ARRAY, create=True, dtype="uint8", shape=[8, 8]).result()
seen = [
    opened(schema={"codec": {"driver": "zarr3", "codecs": SHARDS}}),
    opened(schema={"codec": {"driver": "zarr3", "codecs": GZIP}}),
    opened(metadata={"codecs": SHARDS}),
]
print(seen)
plain = "CodecSpec({'codecs': [{'name': 'bytes'}], 'driver': 'zarr3'})"
sys.exit(seen != [plain, "FAILED_PRECONDITION", "FAILED_PRECONDITION"])
PYTHON
