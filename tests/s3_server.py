"""moto's S3 server as a process of its own: ``python tests/s3_server.py`` prints its port and serves until stdin ends.

moto knows ``If-Match`` and ``If-None-Match`` on puts, but compares first and stores later: two threads may both win.
Around moto's own application stands one lock a path, which makes a request on it atomic, as on S3. The same layer
speaks enough of Google's dialect (generations) for ``gs://`` stores.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from moto.core import serialize
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

_AWS_AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
)

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class AtomicPaths:
    """Requests on one path, one at a time; generations as on Google Cloud Storage."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._generations: dict[str, int] = {}
        self._next = itertools.count(1_000)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        _translate_google(environ)
        path = environ["PATH_INFO"]
        with self._locks[path]:
            wanted = environ.get("HTTP_X_GOOG_IF_GENERATION_MATCH")
            if wanted is not None and int(wanted) != self._generations.get(path, 0):
                start_response("412 Precondition Failed", [("Content-Length", "0")])
                return []
            return list(self._application(environ, self._with_generation(environ, path, start_response)))

    def _with_generation(self, environ: Environ, path: str, start_response: StartResponse) -> StartResponse:
        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            if status.startswith("200") and environ["REQUEST_METHOD"] == "PUT":
                self._generations[path] = next(self._next)
            if status.startswith("204") and environ["REQUEST_METHOD"] == "DELETE":
                self._generations.pop(path, None)
            if path in self._generations:
                headers.append(("x-goog-generation", str(self._generations[path])))
            return start_response(status, headers, *rest)

        return start


def _translate_google(environ: Environ) -> None:
    """Google's client escapes ``-`` and ``/`` too, which moto takes for parts of names, and signs in another way."""
    path, mark, query = environ["RAW_URI"].partition("?")
    if "%2D" in path.split("/")[1]:
        environ["RAW_URI"] = environ["REQUEST_URI"] = quote(unquote(path)) + mark + query
        environ["HTTP_AUTHORIZATION"] = _AWS_AUTHORIZATION


def _exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def _parse_time(time: Any) -> datetime:
    """A time of a listing; moto takes them for times in any form, and guesses."""
    return datetime.fromisoformat(time) if isinstance(time, str) else time


def main() -> None:
    """Serve on a free port of 127.0.0.1."""
    serialize.parse_to_aware_datetime = _parse_time  # type: ignore[attr-defined]
    application = AtomicPaths(create_backend_app("s3"))  # moto would look through its services at each request
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    print(server.server_address[1], flush=True)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
