"""What web pages may change: those of the service itself and of origins that the operator has named, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest

from hyperslab.api.options import ApiOptions
from tests.api.support import writable, write_array

EVIL = "https://evil.example"
NAMED = "https://viewer.example"
CHANGES = [
    ("POST", "/v1/append/data/a", bytes(4)),
    ("POST", "/v1/points/data/a?values=1", b'{"coordinates": [[0]], "values": [1]}'),
    ("PUT", "/v1/slice/data/a?select=:4", b"\1" * 16),
    ("PUT", "/v1/metadata/data/b", b'{"kind": "group"}'),
    ("PATCH", "/v1/metadata/data/a", b'{"attributes": {"a": 1}}'),
    ("DELETE", "/v1/chunk/data/a/0", b""),
    ("PUT", "/zarr/data/a/0", bytes(16)),
    ("DELETE", "/v1/metadata/data/a", b""),
]
READS = [("GET", "/v1/slice/data/a", b""), ("POST", "/v1/points/data/a", b'{"coordinates": [[0]]}')]


@contextmanager
def serving(folder: Path, options: ApiOptions | None = None) -> Iterator[httpx.Client]:
    write_array(folder, "a", np.arange(4, dtype="<i4"), (4,), compressors=None)
    with writable(folder, options) as client:
        yield client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with serving(tmp_path) as found:
        yield found


def refused(answer: httpx.Response) -> str | None:
    """The code of a refusal; None where there was none."""
    return None if answer.is_success else f"{answer.status_code} {answer.json()['code']}"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_a_foreign_page_changes_nothing_and_may_read(client: httpx.Client, headers: dict[str, str]) -> None:
    assert {refused(client.request(m, t, content=b, headers=headers)) for m, t, b in CHANGES} == {"403 foreign-origin"}
    assert {refused(client.request(m, t, content=b, headers=headers)) for m, t, b in READS} == {None}
    assert np.frombuffer(client.get("/v1/slice/data/a").content, "<i4").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "{own}"},
        {"Origin": "{own}", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://public.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Host": "localhost:8000", "Origin": "http://localhost:8000"},
        {"Host": "127.0.0.1", "Origin": "http://127.0.0.1:80"},
        {"Host": "127.1.2.3:8000"},
        {"Host": "[::1]:8000", "Origin": "http://[::1]:8000"},
        {"Host": "lab.localhost:8000"},
        {"Host": "hyperslab:8000"},
    ],
    ids=str,
)
def test_pages_of_our_own_and_programs_may(client: httpx.Client, headers: dict[str, str]) -> None:
    sent = {name: value.format(own=str(client.base_url).rstrip("/")) for name, value in headers.items()}
    assert [refused(client.request(m, t, content=b, headers=sent)) for m, t, b in CHANGES] == [None] * len(CHANGES)


def test_origins_that_are_named_may_and_a_star_names_none(tmp_path: Path) -> None:
    with serving(tmp_path, ApiOptions(cors_origins=("*", NAMED, "null"))) as client:
        put = partial(client.put, "/v1/slice/data/a", content=bytes(16))
        tried = [put(headers={"Origin": origin}) for origin in (NAMED, "null", EVIL)]
        across = {"Origin": NAMED, "Sec-Fetch-Site": "cross-site"}

        assert [refused(answer) for answer in tried] == [None, None, "403 foreign-origin"]
        assert refused(put(headers=across)) is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.net"])
def test_a_name_that_a_stranger_points_at_this_machine_changes_nothing(client: httpx.Client, host: str) -> None:
    """To a browser its page is of the same origin (DNS rebinding)."""
    headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}

    assert {refused(client.request(m, t, content=b, headers=headers)) for m, t, b in CHANGES} == {"403 foreign-host"}
    assert {refused(client.request(m, t, content=b, headers=headers)) for m, t, b in READS} == {None}


@pytest.mark.parametrize(
    ("options", "host", "code"),
    [
        (ApiOptions(allowed_hosts=("arrays.example",)), "Arrays.example:443", None),
        (ApiOptions(allowed_hosts=("arrays.example",)), "evil.example", "403 foreign-host"),
        (ApiOptions(allowed_hosts=("*",)), "evil.example", None),
        (ApiOptions(write_tokens=("secret",)), "arrays.example", None),
    ],
    ids=["named", "another", "all", "with a token"],
)
def test_a_proxys_name_is_named_or_a_token_needed(
    tmp_path: Path, options: ApiOptions, host: str, code: str | None
) -> None:
    headers = {"Host": host, "Origin": f"https://{host.lower().removesuffix(':443')}", "Authorization": "Bearer secret"}
    with serving(tmp_path, options) as client:
        assert refused(client.put("/v1/slice/data/a", content=bytes(16), headers=headers)) == code
