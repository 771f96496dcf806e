"""Options of the HTTP layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hyperslab.access import Principal, Rule

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity provider. ``groups``: rules by the values of ``claim``."""

    issuer: str
    audience: str
    groups: Mapping[str, Rule]
    claim: str = "groups"


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Options; sizes in bytes. ``max_response_bytes`` None: raw and npy responses, streamed in bounded memory, have no
    limit.

    ``request_threads``: number of requests that may block on stores at once, and of writes in addition;
    ``queue_seconds``: maximum wait for a share of memory, or of a write for a thread; ``idle_seconds``: maximum idle
    time of a client that holds memory. ``tokens``: who has each, by its digest, beside those of ``tokens_file``, which
    ``read_tokens_file`` reads. Tokens and ``allowed_hosts``: see `access`; ``metrics_folder``: see `metrics`.
    """

    cors_origins: Sequence[str] = ("*",)
    allowed_hosts: Sequence[str] = ()
    read_tokens: Sequence[str] = ()
    write_tokens: Sequence[str] = ()
    tokens: Mapping[bytes, Principal] = field(default_factory=dict)
    tokens_file: Path | None = None
    read_tokens_file: Callable[[Path], Mapping[bytes, Principal]] = lambda _: {}
    anonymous: Rule | None = None
    identity: Identity | None = None
    link_keys: Mapping[str, str] = field(default_factory=dict)
    max_response_bytes: int | None = None
    max_json_bytes: int = 16 * MIB
    max_csv_bytes: int = 64 * MIB
    max_tiff_bytes: int = 256 * MIB
    max_upload_bytes: int = 256 * MIB
    max_tile_bytes: int = 256 * MIB
    tile_cache_bytes: int = 64 * MIB
    max_points: int = 1_000_000
    max_listed: int = 1000
    answer_cache_bytes: int = 32 * MIB
    immutable_seconds: int = 86_400
    request_threads: int = 32
    queue_seconds: float = 10.0
    idle_seconds: float = 300.0
    metrics_folder: Path | None = None
    documentation_url: str | None = None

    @property
    def has_rules(self) -> bool:
        """Whether what is allowed is more than one group of readers and one of writers."""
        return bool(self.tokens) or any((self.tokens_file, self.anonymous, self.identity))

    @property
    def is_private(self) -> bool:
        """Whether some reads need a token."""
        return bool(self.read_tokens) or self.has_rules
