#!/usr/bin/env bash
# Versions: obstore 0.12.1.
# Expected: a store that is rooted at a folder lists paths below that folder, as `get` and `put` take them, and as its
#   stores of folders and buckets with a prefix do. The hrefs of a WebDAV answer are absolute paths (RFC 4918 §8.3).
# Seen: `HTTPStore.from_url("http://host/a/b")` lists paths from the root of the host ("a/b/key"), and `get` of one of them
#   looks for "a/b/a/b/key"; the folder itself is among the folders in it. zarr-python's `ObjectStore` over it then finds
#   no members and no chunks, and says nothing. A store that is rooted at the host is listed right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q obstore==0.12.1
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import http.server, sys, threading
from obstore.store import HTTPStore

FILE = "<D:getcontentlength>5</D:getcontentlength><D:resourcetype/>"
FOLDER = "<D:resourcetype><D:collection/></D:resourcetype>"


class WebDav(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PROPFIND(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        date = "<D:getlastmodified>Thu, 01 Oct 2026 00:00:00 GMT</D:getlastmodified>"
        entries = "".join(
            f"<D:response><D:href>{href}</D:href><D:propstat><D:prop>{date}{kind}</D:prop>"
            "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            for href, kind in (("/a/b/", FOLDER), ("/a/b/key", FILE))
        )
        self.answer(207, f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{entries}</D:multistatus>'.encode())

    def do_GET(self):
        self.answer(200, b"value") if self.path == "/a/b/key" else self.answer(404, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Oct 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def opened(path):
    return HTTPStore.from_url(f"http://127.0.0.1:{server.server_port}{path}", client_options={"allow_http": True})


def got(store, path):
    try:
        return bytes(store.get(path).bytes())
    except FileNotFoundError as error:
        return type(error).__name__


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), WebDav)
threading.Thread(target=server.serve_forever, daemon=True).start()
store = opened("/a/b")
listed = [entry["path"] for page in store.list() for entry in page]
seen = {"key": got(store, "key"), "listed": listed, "listed and got": [got(store, path) for path in listed],
        "folders": list(store.list_with_delimiter()["common_prefixes"])}
print(seen)
expected = {"key": b"value", "listed": ["a/b/key"], "listed and got": ["FileNotFoundError"], "folders": ["a/b"]}
sys.exit(seen != expected)
PYTHON
