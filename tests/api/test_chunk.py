"""``/v1/chunk``: decoded and cut at the edge, or exactly as stored."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.api.support import running


def test_stored_bytes_are_those_of_their_key(client: httpx.Client) -> None:
    stored, key = client.get("/v1/chunk/data/cube/0.0.0?format=stored"), client.get("/zarr/data/cube/0.0.0")
    missing = client.get("/v1/chunk/data/sparse/0.0?format=stored")

    assert (stored.content, stored.headers["etag"]) == (key.content, key.headers["etag"])
    assert (missing.status_code, missing.json()["code"], missing.json()["key"]) == (
        404,
        "chunk-not-found",
        "sparse/0.0",
    )


def test_stored_bytes_pass_through_and_no_codec_sees_them(example_store: Path, tmp_path: Path) -> None:
    rubbish = b"this decodes to nothing"
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / ".zarray").write_bytes((example_store / "cube" / ".zarray").read_bytes())
    (folder / "0.0.0").write_bytes(rubbish)

    with running(tmp_path) as found:
        stored = httpx.get(f"{found.url}/v1/chunk/data/a/0.0.0?format=stored")
        decoded = httpx.get(f"{found.url}/v1/chunk/data/a/0.0.0")

    assert (stored.status_code, stored.content) == (200, rubbish)
    assert (decoded.status_code, decoded.json()["code"]) == (502, "chunk-corrupt")
