"""moto's S3 server as a process of its own: ``python tests/s3_server.py`` prints its port and serves until stdin ends.

moto knows ``If-Match`` and ``If-None-Match`` on puts, but compares first and stores later: two threads may both win.
Here its answers are made by one thread, so that each request is atomic, as on S3. Without Flask and with connections
that are kept, a request takes a quarter of the processor time that it takes of moto's own server. The same layer speaks
enough of Google's dialect (generations) for ``gs://`` stores.
"""

from __future__ import annotations

import io
import itertools
import os
import socket
import sys
import threading
from typing import Any
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

import uvicorn
from moto.core.request import Request
from moto.s3.responses import S3Response
from starlette.types import Receive, Scope, Send

_AWS_AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
)

Environ = dict[str, Any]


class _Request(Request):
    from_wsgi_server = True  # headers come as they were sent


class Buckets:
    """An ASGI application that asks moto; generations as on Google Cloud Storage."""

    def __init__(self) -> None:
        self._generations: dict[str, int] = {}
        self._next = itertools.count(1_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """moto waits for nothing, so that requests have an order."""
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message.get("more_body", False)
        status, headers, content = self._answer(_environ(scope, bytes(body)))
        content = content.encode() if isinstance(content, str) else content
        said = {name.lower(): str(value) for name, value in headers.items()}
        if scope["method"] != "HEAD":
            said["content-length"] = str(len(content))
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in said.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": content})

    def _answer(self, environ: Environ) -> tuple[int, dict[str, Any], bytes | str]:
        _translate_google(environ)
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        wanted = environ.get("HTTP_X_GOOG_IF_GENERATION_MATCH")
        if wanted is not None and int(wanted) != self._generations.get(path, 0):
            return 412, {}, b""
        request = _Request(environ)
        answer = S3Response.key_dispatch if path.count("/") > 1 + path.endswith("/") else S3Response.ambiguous_dispatch
        status, headers, content = answer(request, request.raw_url, dict(request.headers))
        if (method, status) == ("PUT", 200):
            self._generations[path] = next(self._next)
        if (method, status) == ("DELETE", 204):
            self._generations.pop(path, None)
        if path in self._generations:
            headers["x-goog-generation"] = self._generations[path]
        return status, headers, content


def _environ(scope: Scope, body: bytes) -> Environ:
    query = scope["query_string"].decode("latin-1")
    url = scope["raw_path"].decode("latin-1") + ("?" + query if query else "")
    host, port = scope["server"]
    environ = {
        "REQUEST_METHOD": scope["method"],
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": query,
        "RAW_URI": url,
        "REQUEST_URI": url,
        "SCRIPT_NAME": "",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
    }
    for name, value in scope["headers"]:
        key = name.decode("latin-1").upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value.decode("latin-1")
    return environ


def _translate_google(environ: Environ) -> None:
    """Google's client escapes ``-`` and ``/`` too, which moto takes for parts of names, and signs in another way."""
    path, mark, query = environ["RAW_URI"].partition("?")
    if "%2D" in path.split("/")[1]:
        environ["RAW_URI"] = environ["REQUEST_URI"] = quote(unquote(path)) + mark + query
        environ["HTTP_AUTHORIZATION"] = _AWS_AUTHORIZATION


_serialized = S3Response.serialized


def _listed(response: S3Response, found: Any) -> Any:
    """An answer's document; of listings without moto's serializer, which takes some 0.2 ms a key."""
    if response.data.get("Action") != "ListObjectsV2" or not isinstance(found.result, dict):
        return _serialized(response, found)
    return 200, {}, '<?xml version="1.0" encoding="utf-8"?>' + _xml("ListBucketResult", found.result)


def _xml(name: str, value: Any) -> str:
    if isinstance(value, list):
        return "".join(_xml(name, each) for each in value)
    if isinstance(value, dict):
        return f"<{name}>{''.join(_xml(*member) for member in value.items())}</{name}>"
    return f"<{name}>{escape(str(value).lower() if isinstance(value, bool) else str(value))}</{name}>"


def _exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Serve on a free port of 127.0.0.1."""
    S3Response.serialized = _listed  # type: ignore[assignment, method-assign]
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    config = uvicorn.Config(
        Buckets(), interface="asgi3", lifespan="off", access_log=False, log_level="error", timeout_keep_alive=600
    )
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
