"""Content-Digest of a body that arrives in pieces."""

from __future__ import annotations

import base64
import hashlib

import pytest

from hyperslab.api.upload import ContentDigest
from hyperslab.errors import BadParameter, DigestMismatch


@pytest.mark.parametrize(
    "header",
    [
        "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:",
        "crc32c=:Q3lHIA==:",
        "unixsum=:AAAA:, crc32c=:Q3lHIA==:",
        "sha=:AAAA:",
    ],
)
def test_digests_made_elsewhere_are_checked_and_unknown_ones_are_not(header: str) -> None:
    """sha-256 of RFC 9530, appendix D; crc32c of the same text by another implementation."""
    digest = ContentDigest(header)
    digest.update(b'{"hello": "world"}')

    digest.check()


def test_another_body_is_refused_with_both_digests() -> None:
    sent = base64.b64encode(hashlib.sha256(b"sent").digest()).decode()
    digest = ContentDigest(f"sha-256=:{sent}:")
    digest.update(b"arrived")

    with pytest.raises(DigestMismatch) as caught:
        digest.check()

    assert (caught.value.algorithm, caught.value.expected) == ("sha-256", sent)


@pytest.mark.parametrize(
    "header", ["sha-256", "sha-256=abc", "sha-256=:?:", "sha-256=:A:", "=:AAAA:", "sha-256=:AAAA: x"]
)
def test_a_header_that_cannot_be_read_is_refused(header: str) -> None:
    with pytest.raises(BadParameter):
        ContentDigest(header)
