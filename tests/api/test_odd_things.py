"""Odd things beside data: links, pipes, names that are none. Each is named where it stands, and hides no neighbour."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab.cli import run
from tests.api.support import DEFINITION, problem, serving

OUT = "a symbolic link leads out of the store; serve its target as a store of its own"


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def _array(path: Path) -> None:
    plain = path.parent / "plain"  # zarr-python would make other names of odd ones
    values: Any = np.arange(4)
    zarr.save_array(str(plain), values, zarr_format=2)
    plain.rename(path)


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


ODD: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a link out": (
        "x.zarr",
        lambda path: path.symlink_to(path.parents[path.parent.name == "folder"].parent / "outside" / "x.zarr"),
        OUT,
    ),
    "a link to nothing": ("x.zarr", _link("nowhere"), "a symbolic link leads to nothing"),
    "a circle": ("x", _link("x"), "a symbolic link cannot be followed: Too many levels of symbolic links"),
    "a link to above": ("x", _link("."), "a symbolic link leads to a folder above it"),
    "a pipe": ("x", os.mkfifo, "it is a pipe"),
    "a socket": ("x", _socket, "it is a socket"),
    "a backslash": ("x\\y", _array, "a backslash is in its name"),
    "a control character": ("x\ny", _array, "the control character '\\n' is in its name"),
    "another encoding": (os.fsdecode(b"x\xe9"), _array, "its name is not UTF-8"),
}


@pytest.mark.parametrize("where", ["", "folder/"])
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_thing_is_named_where_it_stands_and_hides_no_neighbour(tmp_path: Path, kind: str, where: str) -> None:
    name, make, reason = ODD[kind]
    root = tmp_path / "root"
    zarr.open_group(str(root), mode="w", zarr_format=2)
    _array(root / "a")
    _array(tmp_path / "outside" / "x.zarr")
    (root / where).mkdir(exist_ok=True)
    make(root / f"{where}{name}")
    named = f"{where}{name}".encode("utf-8", "backslashreplace").decode()

    with serving(root) as data:
        group = data.http.get("/v1/metadata/data").json()
        found = data.http.get("/v1/metadata/data?search=a").json()
        consolidated = data.http.get("/zarr/data/.zmetadata").json()
        refused = data.http.delete("/v1/metadata/data")
        assert (root / where / name).is_symlink() or (root / where / name).exists()
        removed = data.http.delete("/v1/metadata/data?recursive=true")

    assert group["problems"] == [f"{named!r} is not served: {reason}"]
    assert str(tmp_path) not in str(group)
    assert [child["name"] for child in group["children"]] == ["a"]
    assert [match["path"] for match in found["matches"]] == ["data/a"]
    assert found["problems"] == group["problems"]
    assert ".zarray" in str([*consolidated["metadata"]])
    assert problem(refused) == (409, "node-exists")
    assert not (root / "a").exists()
    assert (tmp_path / "outside" / "x.zarr" / ".zarray").exists()
    if (kind, where) != ("a link to above", ""):  # which leads to a node, and goes with it
        assert removed.json()["kept"]["count"] >= 1
        assert (root / where / name).is_symlink() or (root / where / name).exists()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_file_whose_link_leads_to_nothing_is_no_absence(tmp_path: Path, zarr_format: Any) -> None:
    """As git-annex has it until the file is fetched: neither fill values nor lost attributes, in silence."""
    values, chunk = np.arange(1, 5), "0" if zarr_format == 2 else "c/0"
    for name in ("a", "b"):
        zarr.save_array(str(tmp_path / name), values, zarr_format=zarr_format)
        (tmp_path / name / ".zattrs").write_text('{"scale_factor": 2}')
    missing = [tmp_path / "a" / chunk, *([tmp_path / "b" / ".zattrs"] if zarr_format == 2 else [])]
    for path in missing:
        path.unlink()
        path.symlink_to("not-fetched")

    with serving(tmp_path) as data:
        targets = ["/v1/slice/data/a", "/v1/chunk/data/a/0", f"/zarr/data/a/{chunk}", "/v1/slice/data/b?decode=cf"]
        for target in targets[: 3 + (zarr_format == 2)]:
            answer = data.http.get(target)
            is_decoded = target.endswith("cf")
            assert problem(answer) == (502, "bad-metadata" if is_decoded else "store-failed"), target
            assert "a symbolic link leads to nothing" in answer.json()["detail"]
        assert problem(data.http.put("/v1/slice/data/a?select=0", json=5)) == (502, "store-failed")
        assert [child["name"] for child in data.http.get("/v1/metadata/data").json()["children"]] == ["a", "b"]
    assert all(path.is_symlink() for path in missing)


def test_check_counts_what_is_not_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _array(tmp_path / "root" / "a")
    for name in ("b", "c"):
        (tmp_path / "root" / name).symlink_to(tmp_path)
    config = tmp_path / "hyperslab.toml"
    config.write_text(f'stores.data = "{tmp_path / "root"}"')

    assert run(["check", "--config", str(config)]) == 0
    assert f"store 'data': skipped 2: {OUT} (b, c)" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["a link out", "a pipe"])
@pytest.mark.parametrize("name", ["g/sub/.zattrs", "g/sub/in/.zarray", "g/sub/zarr.json", "g/.zmetadata", ".zmetadata"])
def test_an_odd_document_blocks_neither_its_neighbours_nor_their_deletion(tmp_path: Path, kind: str, name: str) -> None:
    odd = tmp_path / name
    with serving(tmp_path) as data:
        for path in ("a", "sub/in", "z"):
            data.http.put(f"/v1/metadata/data/g/{path}", json=DEFINITION).raise_for_status()
        odd.unlink(missing_ok=True)
        ODD[kind][1](odd)

        group, made = (data.http.get(url).json() for url in ("/v1/metadata/data/g", "/zarr3/data/g/zarr.json"))
        grown = data.http.patch("/v1/metadata/data/g/z", json={"shape": [9]})
        removed = data.http.delete("/v1/metadata/data/g?recursive=true")

    assert [child["name"] for child in group["children"]] == ["a", "sub", "z"]
    assert made["consolidated_metadata"]["metadata"].keys() >= {"a", "z"}
    assert grown.status_code == 200
    kept = removed.json()["kept"]["keys"] if removed.status_code == 200 else []
    assert [str(path.relative_to(tmp_path)) for path in (tmp_path / "g").rglob("*") if not path.is_dir()] == kept
    assert kept in ([], [name])


def _holds(data: bytes, size: int | None = None) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(data)
        os.truncate(path, size or len(data))

    return make


UNREADABLE: dict[str, Callable[[Path], None]] = {
    "nothing": _holds(b""),
    "no text": _holds(b'{"caf\xe9": 2}'),
    "a long number": _holds(b'{"n": ' + b"9" * 5000 + b"}"),
    "too deep": _holds(b"[" * 100_000),
    "too large": _holds(b"", 65 << 20),
    "a link out": lambda path: path.symlink_to("/etc/hostname"),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize("name", [".zgroup", ".zattrs", ".zmetadata", "zarr.json"])
@pytest.mark.parametrize("where", ["", "g/"])
def test_an_unreadable_document_of_a_group_is_reported_and_hides_nothing_below(
    tmp_path: Path, where: str, name: str, kind: str
) -> None:
    zarr_format: Any = 3 if name == "zarr.json" else 2
    for path in ("", "g", "g/sub"):
        zarr.open_group(str(tmp_path / path), mode="w", zarr_format=zarr_format)
    values: Any = np.arange(4)
    for path in ("a", "g/b", "g/sub/in"):
        zarr.save_array(str(tmp_path / path), values, zarr_format=zarr_format)
    (tmp_path / where / name).unlink(missing_ok=True)
    UNREADABLE[kind](tmp_path / where / name)

    with serving(tmp_path) as data:
        root = data.http.get("/v1/metadata/data").json()
        group = data.http.get("/v1/metadata/data/g").json()
        match = data.http.get("/v1/metadata/data?search=sub/in").json()["matches"]
        page = data.http.get(f"/zarr/data/{where}", headers={"Accept": "text/html"})
        made = {f: data.http.get(f"/zarr{f}/data/{'zarr.json' if f == 3 else '.zmetadata'}") for f in (2, 3)}
        removed = data.http.delete("/v1/metadata/data/g?recursive=true")

    problems = (group if where else root)["problems"]
    assert [line for line in problems if f"{where}{name}" in line and "sys." not in line] == problems != []
    assert [child["name"] for child in root["children"]] == ["a", "g"]
    assert [child["name"] for child in group["children"]] == ["b", "sub"]
    assert [found["path"] for found in match] == ["data/g/sub/in"]
    assert page.status_code == 200
    if where or name == ".zgroup":
        assert made[2].json()["metadata"].keys() >= {"a/.zarray", "g/.zgroup", "g/b/.zarray", "g/sub/in/.zarray"}
        below = made[3].json()["consolidated_metadata"]["metadata"].keys()
        assert below == {"a", "g", "g/b", "g/sub", "g/sub/in"}
    assert removed.status_code in (200, 204)
    assert not [path for path in tmp_path.rglob("g/*") if not path.is_dir()]
