"""Content-Digest (RFC 9530): does the body that arrived equal the one that was sent?"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Any, Final

import google_crc32c

from hyperslab.errors import BadParameter, DigestMismatch
from hyperslab.wire import CONTENT_DIGEST

_MEMBER: Final = re.compile(r"\s*([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/=]*):\s*(?:,|$)")


class _Crc32c:
    """CRC-32C with the methods of hashlib's hashes."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes | memoryview) -> None:
        self._value = google_crc32c.extend(self._value, bytes(data))  # of bytes, bytes() makes no copy

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


_HASHES: Final[dict[str, Any]] = {"sha-512": hashlib.sha512, "sha-256": hashlib.sha256, "crc32c": _Crc32c}


class ContentDigest:
    """The digests that a client has sent with a body, fed with the body as it arrives."""

    def __init__(self, expected: dict[str, bytes]) -> None:
        self._expected = expected
        self._hashes: dict[str, Any] = {name: _HASHES[name]() for name in expected}

    @classmethod
    def parse(cls, header: str | None) -> ContentDigest:
        """From the header's value, None where it was not sent; algorithms that we do not know are left unchecked.

        Raises `BadParameter`.
        """
        expected, position = {}, 0
        while header is not None and position < len(header):
            match = _MEMBER.match(header, position)
            if match is None:
                raise BadParameter(CONTENT_DIGEST, header, "algorithm=:base64:, and a comma between several")
            try:
                digest = base64.b64decode(match[2], validate=True)
            except binascii.Error as error:
                raise BadParameter(CONTENT_DIGEST, match[2], "base64 between the colons") from error
            if match[1] in _HASHES:
                expected[match[1]] = digest
            position = match.end()
        return cls(expected)

    def update(self, data: bytes | memoryview) -> None:
        for each in self._hashes.values():
            each.update(data)

    def check(self) -> None:
        """Raise `DigestMismatch` unless all that was fed has the digests that were sent."""
        for name, sent in self._expected.items():
            found = self._hashes[name].digest()
            if found != sent:
                raise DigestMismatch(name, base64.b64encode(sent).decode(), base64.b64encode(found).decode())
