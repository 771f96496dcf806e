#!/usr/bin/env bash
# Versions: zarr 3.4.2, fsspec 2026.9.0, aiohttp 3.x, xarray 2026.9.0, Python's own http.server.
# Expected: a group on a web server has the members that it has in its folder: index pages link to them by URL, in which
#   letters beyond ASCII and blanks are percent-encoded (RFC 3986 §2.1), and the name is what is decoded from it.
# Seen: fsspec's HTTP file system takes the links for the names, and zarr-python those for the names of members: the array
#   `größe` is listed as `gr%C3%B6%C3%9Fe`, and xarray's variable is called so, without a word. Each opens under both names.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q zarr==3.4.2 fsspec==2026.9.0 aiohttp xarray==2026.9.0
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import functools, http.server, sys, threading
import numpy, xarray, zarr


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


xarray.Dataset({"größe": ("x", numpy.arange(3.0) + 1)}).to_zarr("data", zarr_format=3, consolidated=False)
handler = functools.partial(Quiet, directory="data")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
group = zarr.open_group(url, mode="r")
seen = {
    "in the folder": [*zarr.open_group("data", mode="r").keys()],
    "over HTTP": [*group.keys()],
    "xarray": [*xarray.open_zarr(url, consolidated=False)],
    "by its name": group["größe"][...].tolist(),
}
print(seen)
encoded = ["gr%C3%B6%C3%9Fe"]
expected = {"in the folder": ["größe"], "over HTTP": encoded, "xarray": encoded, "by its name": [1.0, 2.0, 3.0]}
sys.exit(seen != expected)
PYTHON
