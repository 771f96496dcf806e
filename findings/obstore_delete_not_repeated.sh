#!/usr/bin/env bash
# Versions: obstore 0.12.1.
# Expected: `delete` of one key is repeated like any other request when the connection is reset, as `retry_config` asks for:
#   to delete a key twice is harmless, and S3 has an idempotent DELETE for it.
# Seen: on S3 `delete` sends POST ?delete even for one key, and that is not repeated: the first reset is the error, whatever
#   `retry_config` says. GET and PUT of the same key are repeated, and so is the POST after a 500.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q obstore==0.12.1
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import http.server, socket, struct, sys, threading
from collections import Counter
from datetime import timedelta
from obstore.store import S3Store

DELETED = b'<?xml version="1.0"?><DeleteResult><Deleted><Key>key</Key></Deleted></DeleteResult>'


class Store(http.server.BaseHTTPRequestHandler):
    """Fails the first request of each method: by a reset, or with a 500."""

    protocol_version = "HTTP/1.1"

    def handle_any(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        count[self.command] += 1
        if count[self.command] == 1 and fault == "reset":
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        status = 500 if count[self.command] == 1 else 200
        body = DELETED if self.command == "POST" else b"value" if self.command == "GET" else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Oct 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = handle_any

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
threading.Thread(target=server.serve_forever, daemon=True).start()
store = S3Store(
    "bucket", endpoint=f"http://127.0.0.1:{server.server_port}", access_key_id="a", secret_access_key="a",
    region="us-east-1", client_options={"allow_http": True},
    retry_config={"max_retries": 3, "backoff": {"init_backoff": timedelta(milliseconds=10),
                  "max_backoff": timedelta(milliseconds=50), "base": 2}, "retry_timeout": timedelta(seconds=20)},
)
seen = {}
for fault in ("reset", "500"):
    for name, call in (("get", lambda: store.get("key").bytes()), ("put", lambda: store.put("key", b"value")),
                       ("delete", lambda: store.delete("key"))):
        count = Counter()
        try:
            call()
            outcome = "done"
        except Exception as error:
            outcome = type(error).__name__
        seen[fault, name] = outcome, dict(count)
print(seen)
sys.exit(seen != {
    ("reset", "get"): ("done", {"GET": 2}), ("reset", "put"): ("done", {"PUT": 2}),
    ("reset", "delete"): ("GenericError", {"POST": 1}),
    ("500", "get"): ("done", {"GET": 2}), ("500", "put"): ("done", {"PUT": 2}),
    ("500", "delete"): ("done", {"POST": 2}),
})
PYTHON
