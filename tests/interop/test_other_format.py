"""``/zarr2`` and ``/zarr3``: every node read as the format that it is not stored in, from the bytes that are stored."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import xarray
import yaozarrs
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from numcodecs import BZ2, LZ4, Delta, Zlib
from xarray.backends.zarr import FillValueCoder
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

from hyperslab.storage import StoreConfig
from tests.api.support import Served, serving
from tests.documents import CRC32C, LITTLE, named, sharding, zarr_json, zarray
from tests.js.test_clients import programs, run
from tests.server import ServerFactory
from tests.tools import zarr2_python

__all__ = ["programs"]

pytestmark = pytest.mark.filterwarnings("ignore")

AXES = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
VALUES = np.arange(64 * 48, dtype="u2").reshape(64, 48)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("formats")
    with serving(StoreConfig(name="data", url=str(folder), durability="rename")) as found:
        yield found, folder


def image(folder: Path, zarr_format: Any) -> None:
    """A pyramid of two levels with a label image, as OME-Zarr 0.4 or, in shards, 0.5."""
    group = zarr.open_group(folder, mode="w", zarr_format=zarr_format)
    for name, parent in (("image", group), ("cells", group.create_group("labels").create_group("cells"))):
        datasets: list[Any] = []
        for level in range(2):
            values = VALUES[:: 1 << level, :: 1 << level]
            layout: dict[str, Any] = {"compressors": Zlib(1)}
            if zarr_format == 3:
                layout = {"compressors": GzipCodec(), "shards": (32, 24), "dimension_names": ["y", "x"]}
            parent.create_array(str(level), data=values, chunks=(16, 12), **layout)
            scale = {"type": "scale", "scale": [0.5 * 2**level] * 2}
            datasets.append({"path": str(level), "coordinateTransformations": [scale]})
        block: dict[str, Any] = {"multiscales": [{"name": name, "axes": AXES, "datasets": datasets}]}
        if name == "cells":
            block["image-label"] = {"colors": [{"label-value": 1, "rgba": [255, 0, 0, 255]}]}
        else:
            window = {"min": 0, "max": 9, "start": 0, "end": 9}
            block["omero"] = {"channels": [{"color": "FF0000", "window": window, "label": "a", "active": True}]}
        told(parent, block, zarr_format)
    told(group["labels"], {"labels": ["cells"]}, zarr_format)


def told(group: Any, block: dict[str, Any], zarr_format: int) -> None:
    """Attributes where, and with the versions that, this format of OME-Zarr has them."""
    if zarr_format == 3:
        group.attrs["ome"] = {"version": "0.5", **block}
        return
    for part in (*block.get("multiscales", []), *[block[name] for name in ("image-label",) if name in block]):
        part["version"] = "0.4"
    group.attrs.update(block)


def opened(served: Served, zarr_format: Any, path: str) -> Any:
    """By zarr-python 3 and by TensorStore, which see the same."""
    url = f"{served.http.base_url}/zarr{zarr_format}/data/{path}"
    found: Any = zarr.open_array(url, mode="r", zarr_format=zarr_format)[...]
    spec = {"driver": "zarr" if zarr_format == 2 else "zarr3", "kvstore": {"driver": "http", "base_url": f"{url}/"}}
    try:
        other = ts.open(spec, read=True).result().read().result()
    except ValueError:  # a codec or data type that it does not have, in whatever format
        return found
    if found.dtype.kind not in "SV":  # of which it sees the bytes, along an axis of their own
        np.testing.assert_array_equal(other, found)
    return found


@settings(max_examples=25)
@given(draw=st.data())
def test_arrays_of_v3_are_arrays_of_v2(data: tuple[Served, Path], draw: DataObject) -> None:
    served, folder = data
    record: Any = [("a", "i4"), ("b", "f8")]
    kinds = ["bool", "i1", "u2", "i4", "f4", "f8", "c8", "M8[s]", "U3", "S4", "V5", record]
    dtype = np.dtype(draw.draw(st.sampled_from(kinds)))
    rank = draw.draw(st.integers(1, 3))
    inner = tuple(draw.draw(st.integers(1, 3)) for _ in range(rank))
    counts = tuple(draw.draw(st.integers(1, 3)) for _ in range(rank))
    shape = tuple(draw.draw(st.integers(1, 9)) for _ in range(rank))
    order = [*range(rank)][:: draw.draw(st.sampled_from([1, -1]))]
    endian = BytesCodec(endian=draw.draw(st.sampled_from(["little", "big"])))
    after: list[Any] = draw.draw(
        st.sampled_from([[], [ZstdCodec(level=1)], [GzipCodec(level=1)], [BloscCodec(cname="lz4")]])
    )
    chain: list[Any] = [TransposeCodec(order=order), endian, *after]
    is_sharded = dtype.kind != "V" and draw.draw(st.booleans())  # zarr-python cannot write these in shards
    location: Any = draw.draw(st.sampled_from(["start", "end"]))
    if is_sharded:
        chain = [ShardingCodec(chunk_shape=inner, codecs=chain, index_location=location)]
    shards = tuple(size * count for size, count in zip(inner, counts, strict=True)) if is_sharded else inner
    encoding: Any = draw.draw(st.sampled_from([("default", "/"), ("default", "."), ("v2", "/"), ("v2", ".")]))
    raw = np.random.default_rng(rank).integers(1, 100, (*shape, dtype.itemsize), np.uint8)
    values: Any = raw[..., 0].astype(dtype) if dtype.kind in "bU" else np.ascontiguousarray(raw).view(dtype)[..., 0]
    array: Any = zarr.create(
        store=str(folder / "a"), shape=shape, dtype=dtype, chunks=shards, codecs=chain, zarr_format=3, overwrite=True,
        chunk_key_encoding=encoding,
    )  # fmt: skip
    part = tuple(slice(0, draw.draw(st.integers(0, size))) for size in shape)
    array[part] = values[part]

    np.testing.assert_array_equal(opened(served, 2, "a"), zarr.open_array(str(folder / "a"), mode="r")[...])

    document = served.http.get("/zarr2/data/a/.zarray").json()
    separator = document["dimension_separator"]
    assert separator == (encoding[1] if encoding[0] == "v2" else ".")
    for coords in itertools.product(*[range(-(-size // chunk)) for size, chunk in zip(shape, inner, strict=True)]):
        at = tuple(coord // count for coord, count in zip(coords, counts, strict=True)) if is_sharded else coords
        path = folder / "a" / array.metadata.encode_chunk_key(at)
        stored = path.read_bytes() if path.exists() else None
        if stored is not None and is_sharded:
            local = [coord % count for coord, count in zip(coords, counts, strict=True)]
            stored = piece(stored, int(np.ravel_multi_index(local, counts)), int(np.prod(counts)), location)
        names = served.http.get(f"/zarr2/data/a/{separator.join(map(str, coords))}")
        named = served.http.get(f"/v1/chunk/data/a/{'.'.join(map(str, coords))}?format=stored")
        assert [names.content, named.content] == [stored] * 2 if stored is not None else names.status_code == 404
        assert names.status_code == named.status_code


def piece(shard: bytes, number: int, count: int, location: str) -> bytes | None:
    """A chunk of a shard whose index is in C order, as [Zarr v3, "Sharding codec"] has it."""
    index = shard[: 16 * count] if location == "start" else shard[-16 * count - 4 : -4]
    offset, nbytes = np.frombuffer(index, "<u8").reshape(-1, 2)[number].tolist()
    return None if offset == 2**64 - 1 else shard[offset : offset + nbytes]


@settings(max_examples=25)
@given(draw=st.data())
def test_arrays_of_v2_are_arrays_of_v3(data: tuple[Served, Path], draw: DataObject) -> None:
    served, folder = data
    kinds = ["bool", "i1", ">u2", "<i4", ">f4", "f8", "c16", "M8[10us]", "<U3", ">U3", "S4", "V5", "T"]
    kind = draw.draw(st.sampled_from(kinds))
    rank = draw.draw(st.integers(0, 3))
    shape = tuple(draw.draw(st.integers(1, 9)) for _ in range(rank))
    chunks = tuple(draw.draw(st.integers(1, 4)) for _ in range(rank))
    values: Any = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 50
    values = values.astype(str if kind == "T" else kind)
    filters: Any = [Delta(dtype="<i4")] if kind == "<i4" and draw.draw(st.booleans()) else "auto"
    array: Any = zarr.create_array(
        str(folder / "b"),
        shape=shape,
        chunks=chunks,
        dtype=str if kind == "T" else values.dtype,
        zarr_format=2,
        overwrite=True,
        order=draw.draw(st.sampled_from("CF")),
        filters=filters,
        compressors=draw.draw(st.sampled_from([None, "auto", Zlib(1), BZ2(1), LZ4()])),
        chunk_key_encoding={"name": "v2", "separator": draw.draw(st.sampled_from("./"))},
        attributes={"_ARRAY_DIMENSIONS": [f"d{axis}" for axis in range(rank)], "unit": "mm"},
    )
    array[...] = values

    np.testing.assert_array_equal(opened(served, 3, "b"), values)
    document = served.http.get("/zarr3/data/b/zarr.json").json()
    has_missing = values.dtype.kind in "biufc"  # xarray reads none of others
    missing = {"_FillValue": FillValueCoder.encode(array.fill_value, values.dtype)} if has_missing else {}
    assert (document["dimension_names"], document["attributes"]) == (
        [f"d{axis}" for axis in range(rank)],
        {"unit": "mm", **missing},
    )
    keys = [path.relative_to(folder).as_posix() for path in (folder / "b").rglob("[0-9]*") if path.is_file()]
    assert [served.http.get(f"/zarr3/data/{key}").content for key in keys] == [(folder / k).read_bytes() for k in keys]


DOCUMENT: dict[str, Any] = zarr_json([8], [8], "float32")
RECTILINEAR = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[3, 5]]}}
V2: dict[str, Any] = zarray([8], [8])


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({**DOCUMENT, "codecs": [LITTLE, CRC32C]}, "crc32c"),
        ({**DOCUMENT, "codecs": [sharding([4], [LITTLE, CRC32C])]}, "crc32c"),
        ({**DOCUMENT, "codecs": [sharding([4], [sharding([2])])]}, "further shards"),
        ({**DOCUMENT, "codecs": [sharding([4]), named("gzip", level=1)]}, "whole"),
        ({**DOCUMENT, "data_type": "uint4", "codecs": [{"name": "bytes"}]}, "uint4"),
        ({**DOCUMENT, "fill_value": "0x7fc00001"}, "NaN"),
        ({**DOCUMENT, "codecs": [{"name": "scale_offset"}, *DOCUMENT["codecs"]]}, "scale_offset"),
        ({**DOCUMENT, "codecs": [{"name": "unheard of"}]}, "unheard of"),
        ({**DOCUMENT, "chunk_grid": RECTILINEAR}, "one shape"),
        ({**V2, "dtype": [["a", "<i4", [2]]], "fill_value": None}, "subarrays"),
        ({**V2, "compressor": {"id": "base64"}}, "base64"),
        ({**V2, "dtype": "|O", "filters": [{"id": "json2"}], "fill_value": None}, "json2"),
        ({**V2, "compressor": {"id": "pickle"}}, "pickle"),
    ],
)
def test_what_has_no_form_in_the_other_format_says_why(
    data: tuple[Served, Path], document: dict[str, Any], why: str
) -> None:
    served, folder = data
    given_format, other = (3, 2) if document["zarr_format"] == 3 else (2, 3)
    names = {2: ".zarray", 3: "zarr.json"}
    (folder / "odd").mkdir(exist_ok=True)
    for name in names.values():
        (folder / "odd" / name).unlink(missing_ok=True)
    (folder / "odd" / names[given_format]).write_text(json.dumps(document))

    answers = [served.http.get(f"/zarr{other}/data/odd/{key}") for key in (names[other], "0")]

    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(404, "form-not-found")}
    assert why in answers[0].json()["detail"]
    stored = served.http.get(f"/zarr{given_format}/data/odd/{names[given_format]}")
    assert stored.json() == document
    described = served.http.get("/v1/metadata/data/odd")
    if described.status_code == 200:
        assert f"zarr{other}" not in described.json()["links"]
        assert f"zarr{given_format}" in described.json()["links"]


@pytest.mark.parametrize("shards", [None, (4,)])
@pytest.mark.parametrize(
    ("data_type", "values"), [("string", ["a", "béé", "", "d"]), ("variable_length_bytes", [b"a", b"\0z", b"", b"d"])]
)
def test_texts_and_bytes_of_any_length_are_objects_in_v2(
    data: tuple[Served, Path], data_type: str, values: list[Any], shards: Any
) -> None:
    """As the packages write them that have always stored names so."""
    served, folder = data
    path = f"any-{data_type}-{shards is None}"
    stored = zarr.create_array(folder / path, shape=(5,), chunks=(2,), shards=shards, dtype=data_type)
    stored[:4] = np.array(values, object)

    read = zarr.open_array(f"{served.url}/zarr2/data/{path}", mode="r", zarr_format=2)[:]

    assert np.asarray(read).tolist() == [*values, values[2]]
    document = served.http.get(f"/zarr2/data/{path}/.zarray").json()
    assert (document["dtype"], document["filters"][0]["id"][:5]) == ("|O", "vlen-")
    assert f"{path}/.zarray" in served.http.get("/zarr2/data/.zmetadata").json()["metadata"]


def test_chunks_of_images_have_slashes_in_v2_and_both_spellings_are_keys(data: tuple[Served, Path]) -> None:
    served, folder = data
    image(folder / "slashes", 3)
    zarr.create_array(folder / "plain", shape=(4, 4), chunks=(2, 2), dtype="i4")[:] = 1

    separators = [
        served.http.get(f"/zarr2/data/{path}/.zarray").json()["dimension_separator"]
        for path in ("slashes/0", "slashes/1", "slashes/labels/cells/0", "plain")
    ]

    assert separators == ["/", "/", "/", "."]
    for path in ("slashes/0", "plain"):
        slashes, dots = (served.http.get(f"/zarr2/data/{path}/{key}") for key in ("1/1", "1.1"))
        assert slashes.content == dots.content
        assert slashes.status_code == dots.status_code == 200


@pytest.mark.parametrize(
    "key", ["zarr2/data/i/0/1.1", "zarr2/data/i/0/.zarray", "zarr3/data/j/0/1.1", "zarr3/data/j/zarr.json"]
)
def test_the_rules_of_keys_hold_on_both(data: tuple[Served, Path], key: str) -> None:
    served, folder = data
    image(folder / "i", 3)
    image(folder / "j", 2)
    origin = {"Origin": "https://viewer.example"}
    whole = served.http.get(f"/{key}", headers=origin)
    size, tag = len(whole.content), whole.headers["etag"]

    def get(method: str = "GET", **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return served.http.request(method, f"/{key}", headers=origin | named)

    assert whole.status_code == 200
    assert tag.startswith('"')
    assert "content-encoding" not in whole.headers
    assert get("HEAD").headers["content-length"] == str(size)
    for text, expected in (("5-9", slice(5, 10)), ("-7", slice(-7, None)), ("3-", slice(3, None))):
        part = get(Range=f"bytes={text}")
        assert (part.status_code, part.content) == (206, whole.content[expected])
    assert get(Range="bytes=0-1,4-5").status_code == 206
    assert get(Range=f"bytes={size}-").status_code == 416
    assert (get(If_None_Match=tag).status_code, get(If_Match='"x"').status_code) == (304, 412)
    assert get(Range="bytes=0-1", If_Range='"x"').status_code == 200
    refused = get("PUT")
    assert (refused.status_code, refused.json()["code"]) == (403, "foreign-origin")  # as for every write of a page
    answers = [whole, refused, get("HEAD"), get(If_None_Match=tag), get(If_Match='"x"')]
    assert {answer.headers["access-control-allow-origin"] for answer in answers} == {"*"}


def test_a_replayed_chunk_follows_the_shard_and_the_document(data: tuple[Served, Path]) -> None:
    served, folder = data
    image(folder / "k", 3)
    first = [served.http.get("/zarr2/data/k/0/0.0").content for _ in range(3)]
    array: Any = zarr.open_array(str(folder / "k" / "0"), mode="r+")
    array[20, 20] = 7  # another chunk of the same shard

    second = served.http.get("/zarr2/data/k/0/0.0")
    (folder / "k" / "0" / "zarr.json").unlink()

    assert len({*first, second.content}) == 1
    assert served.http.get("/zarr2/data/k/0/0.0").status_code == 404


def test_a_group_opens_though_zarr_python_does_not_know_all_of_its_arrays(
    tmp_path: Path, server: ServerFactory
) -> None:
    image(tmp_path / "i", 3)
    time = {"name": "numpy.datetime64", "configuration": {"unit": "generic", "scale_factor": 1}}
    changes: dict[str, Any] = {
        "a": {"data_type": "bfloat16"},
        "b": {"chunk_grid": RECTILINEAR},
        "c": {},
        "d": {"data_type": time, "fill_value": 5},
        "e": {"consolidated_metadata": None},
    }
    for name, change in changes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "zarr.json").write_text(json.dumps({**DOCUMENT, **change}))
    url = server({"data": tmp_path}).url

    for face in (2, 3):
        members = zarr.open_group(f"{url}/zarr{face}/data", mode="r").members(max_depth=1)
        assert {name for name, _ in members} == {"c", "e", "i", "i/0", "i/1", "i/labels"}
        assert zarr.open_array(f"{url}/zarr{face}/data/e", mode="r").shape == (8,)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_image_is_valid_ome_zarr_of_either_version(tmp_path: Path, server: ServerFactory, zarr_format: int) -> None:
    image(tmp_path / "i", zarr_format)
    url = server({"data": tmp_path}).url

    for face in (2, 3):
        found = [yaozarrs.validate_zarr_store(f"{url}/zarr{face}/data/i{inner}") for inner in ("", "/labels/cells")]
        assert len(found) == 2
        group: Any = zarr.open_group(f"{url}/zarr{face}/data", mode="r", zarr_format=face)
        names = {name for name, _ in group.members(max_depth=None)}
        assert names == {"i", "i/0", "i/1", "i/labels", "i/labels/cells", "i/labels/cells/0", "i/labels/cells/1"}
        np.testing.assert_array_equal(group["i/0"][...], VALUES)
        if face == zarr_format:
            continue
        attributes = dict(group["i"].attrs)
        image_label = dict(group["i/labels/cells"].attrs)
        if face == 3:
            assert attributes.keys() == image_label.keys() == {"ome"}
        else:
            assert attributes.keys() == {"multiscales", "omero"}
            assert image_label["image-label"]["version"] == attributes["multiscales"][0]["version"] == "0.4"


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_a_dataset_of_xarray_is_the_same_in_both(
    data: tuple[Served, Path], zarr_format: Any, *, consolidated: bool
) -> None:
    served, folder = data
    days = np.array(["2020-01-01", "2020-01-02"], "M8[ns]")
    values = {
        "t": (("time", "x"), np.array([[0, np.nan, 2], [3, 4, 5]])),
        "f4": (("x",), np.array([0, -1.5, np.nan], "f4"), {}, {"_FillValue": -9999.0}),
        "packed": (("x",), np.array([280.0, np.nan, 281]), {}, {"dtype": "i2", "scale_factor": 0.5, "add_offset": 280.0,
                                                               "_FillValue": -32768}),
        "unsigned": (("x",), np.array([0, 200, np.nan]), {}, {"dtype": "i1", "_Unsigned": "true", "_FillValue": -1}),
        "count": (("x",), np.array([0, 1, 2], "u4")),
        "missing": (("x",), np.array([0, 1, np.nan]), {}, {"dtype": "i8", "_FillValue": 2**62}),
        "complex": (("x",), np.array([0, 1j, 2]), {}, {"_FillValue": 1 + 1j}),
        "flag": (("x",), np.array([True, False, True])),
        "bool": (("x",), np.array([0, 1, 0], "i1"), {"dtype": "bool"}),
        "name": (("x",), np.array(["a", "", "c"])),
        "text": (("x",), np.array(["a", "", "c"], object)),
        "s": ((), 3.5),
        "crs": ((), 7),
        **{f"zéro, +{n}": ((), np.zeros((), kind)) for n, kind in enumerate(("i8", "?", "f4", ">i4", "c8", "U3"))},
    }  # fmt: skip
    dataset = xarray.Dataset(values, coords={"time": days})
    dataset["f4"].encoding |= {"chunks": (2,), "shards": (2,)} if zarr_format == 3 else {}
    dataset.to_zarr(folder / f"x{zarr_format}", zarr_format=zarr_format, consolidated=False, mode="w")
    with xarray.open_zarr(folder / f"x{zarr_format}", consolidated=False) as found:
        expected = found.load()

    for face in (2, 3):
        url = f"{served.http.base_url}/zarr{face}/data/x{zarr_format}"
        with xarray.open_zarr(url, consolidated=consolidated and face != zarr_format, zarr_format=face) as found:
            xarray.testing.assert_equal(found.load(), expected)
            assert found["packed"].encoding["_FillValue"] == -32768


def test_chunks_that_are_not_stored_keep_an_array_of_v3_from_v2_unless_its_fill_value_is_the_missing_one(
    data: tuple[Served, Path],
) -> None:
    served, folder = data
    root: Any = zarr.open_group(folder / "sparse", mode="w", zarr_format=3)
    missing = {"_FillValue": FillValueCoder.encode(-9.0, np.dtype("f4"))}
    axes = [{"name": name, "type": "space"} for name in "yx"]
    scale = [{"type": "scale", "scale": [1.0, 1.0]}]
    image = {
        "version": "0.5",
        "multiscales": [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": scale}]}],
    }
    root.create_group("image", attributes={"ome": image})
    for name, fill, attributes in (
        ("zero", 0, {}), ("other", 0, missing), ("same", -9, missing), ("nan", np.nan, {}), ("image/0", 0, {}),
        ("unnamed", 0, {}),
    ):  # fmt: skip
        array: Any = root.create_array(
            name, shape=(4, 4), chunks=(2, 2), shards=(4, 2), dtype="f4", fill_value=fill, attributes=attributes,
            dimension_names=None if name == "unnamed" else ("y", "x"),
        )  # fmt: skip
        array[:2] = 5  # half of each shard

    def status(name: str, document: str = ".zarray") -> int:
        return served.http.get(f"/zarr2/data/sparse/{name}/{document}").status_code

    found = [name for name in ("zero", "other", "same", "nan", "image/0", "unnamed") if status(name) == 200]
    assert found == ["same", "nan", "image/0", "unnamed"]
    refused = served.http.get("/zarr2/data/sparse/zero/.zattrs")
    assert (refused.status_code, refused.json()["code"]) == (404, "form-not-found")
    assert "missing values" in refused.json()["reason"]
    listed = served.http.get("/zarr2/data/sparse/.zmetadata").json()["metadata"]
    assert {key[: -len("/.zarray")] for key in listed if key.endswith(".zarray")} == {*found}
    assert [listed[f"{name}/.zarray"]["fill_value"] for name in found] == [-9.0, "NaN", 0.0, 0.0]
    assert "_FillValue" not in listed["same/.zattrs"]

    root["zero"][2:] = 5
    root["other"][2:] = 5

    assert [
        served.http.get(f"/zarr2/data/sparse/{name}/.zarray").json()["fill_value"] for name in ("zero", "other")
    ] == [
        None,
        -9.0,
    ]


def test_those_who_know_one_format_alone_read_the_other(tmp_path: Path, programs: Path, server: ServerFactory) -> None:
    image(tmp_path / "stores" / "two", 2)
    image(tmp_path / "stores" / "three", 3)
    url = server({"data": tmp_path / "stores"}).url
    program = f"""
import json, zarr
group = zarr.open_consolidated({url + "/zarr2/data"!r})
listed = zarr.open_group(zarr.storage.FSStore({url + "/zarr2/data"!r}, mode="r"), mode="r")
found = group["three/0"]
print(json.dumps([found[...].tolist(), found.attrs["_ARRAY_DIMENSIONS"], sorted(listed["three"])]))
"""
    done = subprocess.run([zarr2_python(), "-c", program], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == [VALUES.tolist(), ["y", "x"], ["0", "1", "labels"]]
    flat = VALUES.ravel().tolist()
    assert run(programs, "zarrjs.cjs", url, "zarr2/data/three/0") == {"shape": [64, 48], "data": flat}
    found = run(programs, "zarrita3.mjs", f"{url}/zarr3/data/two", "0")
    assert found == {"names": ["y", "x"], "ome": "0.5", "shape": [64, 48], "data": flat}
