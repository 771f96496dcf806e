"""Python client: remote arrays with numpy's indexing, groups and streams. Does not import the server."""

from __future__ import annotations

from hyperslab.client.array import RemoteArray
from hyperslab.client.group import RemoteGroup
from hyperslab.client.stream import RemoteStream
from hyperslab.client.transport import HTTPTransport, Response, Transport

__all__ = ["HTTPTransport", "RemoteArray", "RemoteGroup", "RemoteStream", "Response", "Transport"]
