#!/usr/bin/env bash
# Versions: icechunk 2.3.0, zarr 3.4.2, numpy 2.5.5.
# Expected: the location of a virtual chunk is a URL, whose query belongs to what it names (RFC 3986 §3.4): the bytes are
#   those of that URL, or the location is refused.
# Seen: `set_virtual_ref` takes `http://host/values?part=2`, and a read asks for `/values`. What lies there is another
#   resource; where it is long enough, its bytes are the chunk, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q icechunk==2.3.0 zarr==3.4.2 numpy==2.5.5
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import http.server, sys, threading
import icechunk, zarr

asked = []


class Parts(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        asked.append(self.path)
        body = b"\2\2\2\2" if self.path == "/values?part=2" else b"\1\1\1\1"
        first, last = map(int, self.headers.get("Range", "bytes=0-3").partition("=")[2].split("-"))
        body = body[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/4")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Oct 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Parts)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/"
config = icechunk.RepositoryConfig.default()
store = icechunk.http_store(opts={"allow_http": "true"})
config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(url, store))
access = {url: None}
repository = icechunk.Repository.create(
    icechunk.in_memory_storage(), config=config, authorize_virtual_chunk_access=access
)
session = repository.writable_session("main")
group = zarr.open_group(session.store, mode="w")
array = group.create_array("a", shape=(4,), chunks=(4,), dtype="u1", compressors=None)
session.store.set_virtual_ref("a/c/0", f"{url}values?part=2", offset=0, length=4)
seen = {"values": array[...].tolist(), "asked for": sorted({*asked})}
print(seen)
sys.exit(seen != {"values": [1, 1, 1, 1], "asked for": ["/values"]})
PYTHON
