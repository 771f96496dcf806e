"""From a refused request to the exception that the server raised."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hyperslab.client.transport import Response
from hyperslab.errors import HyperslabError, RemoteProblem, from_facts

_SNIPPET = 500  # characters of a body that is no problem document


def read_problem(response: Response) -> HyperslabError:
    """Read and close ``response``: the error class of its ``code``, or `RemoteProblem`."""
    try:
        body = response.read()
    finally:
        response.close()
    document = _parse(body)
    known = from_facts(str(document.get("code")), document)
    return known or RemoteProblem(status=response.status, detail=_describe(response, document, body))


def _parse(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:  # a proxy's HTML, or nothing at all
        return {}
    return document if isinstance(document, dict) else {}


def _describe(response: Response, document: Mapping[str, Any], body: bytes) -> str:
    location = response.headers.get("Location")
    if 300 <= response.status < 400 and location:
        return f"redirected to {location}: use that address"
    detail = document.get("detail") or document.get("title")
    return str(detail or body[:_SNIPPET].decode("utf-8", "replace").strip() or "(no explanation)")
