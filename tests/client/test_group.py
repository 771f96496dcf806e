from __future__ import annotations

import datetime
import json
import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.dtype

from hyperslab import RemoteGroup, errors
from hyperslab.client.definition import define_array
from tests.client.proxy import Proxy, problem
from tests.faults import LoseAnswer, Status
from tests.server import running_server

PLANE = np.arange(12, dtype="<u2").reshape(3, 4)


@pytest.fixture
def group(proxy: Proxy) -> RemoteGroup:
    """``store`` with the arrays ``a`` and ``deep/b`` and the groups ``deep`` and ``empty``."""
    proxy.root.create_group("store/deep", attributes={"unit": "mm"})
    proxy.root.create_group("store/empty")
    proxy.add("store/a", PLANE, (2, 2))
    proxy.add("store/deep/b", PLANE + 1, (2, 2))
    return RemoteGroup(f"{proxy.url}/v1/metadata/store")


def test_a_missing_name_suggests_those_like_it(proxy: Proxy) -> None:
    proxy.root.create_group("store/deep")
    proxy.add("store/deep/brain", PLANE, (2, 2))
    for where, name, similar in (
        ("store", "dep", "deep"),
        ("store", "deep/Brian", "deep/brain"),
        ("", "stor/deep/brain", "store/deep/brain"),
    ):
        group = RemoteGroup(f"{proxy.url}/v1/metadata/{where}")

        with pytest.raises(KeyError, match=f"{name!r}: did you mean {similar!r}") as caught:
            group[name]

        assert isinstance(caught.value.__cause__, errors.NodeNotFound)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        asked = len(proxy.calls)
        assert group.get(name) is None
        assert len(proxy.calls) == asked + 1  # who has a default needs no suggestions


def test_a_list_of_the_names_fetches_them_once(proxy: Proxy, group: RemoteGroup) -> None:
    for names in (lambda: list(group), lambda: list(group.keys()), lambda: sorted(group), lambda: [*group]):
        asked = len(proxy.calls)
        assert names() == ["a", "deep", "empty"]
        assert len(proxy.calls) == asked + 1

    begun = iter(group)
    assert next(begun) == "a"
    proxy.root.create_group("store/later")
    assert len(group) == 4
    assert list(begun) == ["deep", "empty"]  # as they were when it began
    assert list(group) == ["a", "deep", "empty", "later"]


def test_names_are_completed_and_shown_in_notebooks(proxy: Proxy, group: RemoteGroup) -> None:
    group.attrs["title"] = "<b>" * 200
    records = group.create_array("records", 2, [("x", "i4"), ("y", "f8")])
    page = group._repr_html_()

    assert group._ipython_key_completions_() == ["a", "deep", "empty", "records"]
    assert records._ipython_key_completions_() == ["x", "y"]
    assert group.open_array("a")._ipython_key_completions_() == []
    assert re.findall(r"<th[^>]*>(\w+)</th><td[^>]*>(array|group)</td>", page) == list(group.children())
    assert "<b>" not in page
    assert len(page) < 2000
    for i in range(51):
        proxy.root.create_group(f"store/many/{i:02}")
    assert "and more" in group.open_group("many")._repr_html_()


def test_what_can_be_no_name_is_a_missing_key_and_never_sent(proxy: Proxy, group: RemoteGroup) -> None:
    before = len(proxy.calls)
    no_names: list[Any] = ["", "/", "\\", "..", ".", "a/../b", "deep/..", "\ud800", 5, None]
    for name in no_names:
        assert name not in group
        assert group.get(name, 5) == 5
        for use in (group.__getitem__, group.open_array, group.__delitem__, partial(group.delete, recursive=True)):
            with pytest.raises(KeyError):
                use(name)
        with pytest.raises(errors.BadPath):
            group.create_array(name, 5, "i4", mode="replace")
        with pytest.raises(errors.BadPath):
            group.create_group(name, mode="replace")
    assert len(proxy.calls) == before


def test_a_name_that_the_server_refuses_is_a_missing_key(proxy: Proxy, group: RemoteGroup) -> None:
    refusal = json.dumps({"code": "bad-path", "path": "a?b", "reason": "no"}).encode()
    proxy.fail(Status(400, refusal), route="metadata", times=2)

    assert "a\nb" not in group
    with pytest.raises(KeyError):
        group["a\nb"]


def test_arrays_and_groups_are_told_apart(group: RemoteGroup) -> None:
    assert [(name, array.shape) for name, array in group.arrays()] == [("a", (3, 4))]
    assert [name for name, _ in group.groups()] == ["deep", "empty"]
    with pytest.raises(errors.WrongKind):
        group.open_array("deep")
    with pytest.raises(errors.WrongKind):
        group.open_group("a")
    with pytest.raises(errors.WrongKind):
        RemoteGroup(f"{group.url}/a")


def test_long_listings_come_in_pages(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperslab.client.group.PAGE", 3)
    for i in range(10):
        proxy.add(f"store/a{i}", PLANE, (2, 2))

    names = [name for name, _ in RemoteGroup(proxy.url).open_group("store").children()]

    assert names == [f"a{i}" for i in range(10)]
    assert len([call for call in proxy.calls_of("metadata") if call.query.get("limit") == "3"]) == 4


def test_the_root_is_the_group_of_all_stores(proxy: Proxy, group: RemoteGroup) -> None:
    root = RemoteGroup(proxy.url + "/")

    assert list(root) == ["store"]
    assert repr(root) == f"<RemoteGroup / at {proxy.url}/v1/metadata/>"
    assert root["store"].path == group.path


def test_a_tree_prints_as_one(group: RemoteGroup) -> None:
    tree = group.tree()

    assert str(tree).splitlines() == [
        "store/",
        "├── a (3, 4) uint16, 24 B",
        "├── deep/",
        "│   └── b (3, 4) uint16, 24 B",
        "└── empty/",
    ]
    assert tree._repr_html_().startswith("<pre>store/")
    assert str(group.tree(level=1)).splitlines()[2:] == ["├── deep/", "└── empty/"]


def test_an_array_is_created_as_defined(proxy: Proxy, group: RemoteGroup) -> None:
    array = group.create_array(
        "new/x",
        (6, np.int64(8)),  # type: ignore[arg-type]
        ">f4",
        chunks=(3, 4),
        fill_value=np.nan,
        compressor=None,
        attributes={"unit": "K"},
        dimension_names=("y", "x"),
    )

    assert (array.path, array.shape, array.chunks, array.dtype) == ("store/new/x", (6, 8), (3, 4), np.dtype(">f4"))
    assert np.isnan(array.fill_value)
    assert array.attrs["unit"] == "K"
    assert array.dimension_names == ("y", "x")
    (call,) = proxy.calls_of("metadata", "PUT")
    assert call.query["mode"] == "create"


ZSTD = {"id": "zstd", "level": 3}


@pytest.mark.parametrize(
    ("codec", "stored"), [("bz2", {"id": "bz2"}), (ZSTD, ZSTD), (numcodecs.BZ2(4), {"id": "bz2", "level": 4})]
)
def test_a_codec_is_a_name_a_configuration_or_an_object(codec: Any, stored: dict[str, Any]) -> None:
    definition = define_array(None, 5, "i4", {"compressor": codec, "filters": [codec]})

    assert (definition["compressor"], definition["filters"]) == (stored, [stored])


def test_a_member_that_is_left_out_is_the_servers_choice_and_none_is_none(proxy: Proxy, group: RemoteGroup) -> None:
    group.create_array("left_out", 5, "i4")
    group.create_array("none", 5, "i4", compressor=None, filters=None, fill_value=None)
    with pytest.raises(TypeError, match="compresor"):
        group.create_array("new", 5, "i4", compresor=None)  # type: ignore[call-arg]

    first, second = (json.loads(call.body) for call in proxy.calls_of("metadata", "PUT"))
    assert first.keys() == {"kind", "shape", "dtype"}
    assert second == {**first, "compressor": None, "filters": None, "fill_value": None}


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ([("x", "f4")], [["x", "<f4"]]),
        ([("s", "S3"), ("x", float)], [["s", "|S3"], ["x", "<f8"]]),
        ([("x", "<f4", 2)], [["x", "<f4", [2]]]),
        ([("x", "3f4"), ("n", [("a", ">i2", (1, 2))])], [["x", "<f4", [3]], ["n", [["a", ">i2", [1, 2]]]]]),
        ([("x", "int4"), ("y", "bfloat16", (2,))], [["x", "int4"], ["y", "bfloat16", [2]]]),
        ([["a", "<i2"], ["", "|V2"], ["b", "<f8", [2]]], [["a", "<i2"], ["", "|V2"], ["b", "<f8", [2]]]),
        ("float8_e5m2", "float8_e5m2"),
        (np.dtype("<M8[ns]"), "<M8[ns]"),
        (bool, "|b1"),
    ],
)
def test_dtypes_are_spelled_as_numpy_does_or_as_zarr_does(spelled: Any, expected: Any) -> None:
    assert define_array(None, 5, spelled, {})["dtype"] == expected


def test_a_shape_that_is_not_made_of_integers_is_refused(proxy: Proxy, group: RemoteGroup) -> None:
    array = group.create_array("new", 5, "i4")
    shapes: list[Any] = [3.7, (3.7,), "7", "12", b"12", ("7",), (np.float64(3),), {"a": 1}.values]
    for shape in shapes:
        with pytest.raises(TypeError):
            array.resize(shape)
        with pytest.raises(TypeError):
            group.create_array("other", shape, "i4")
    with pytest.raises(TypeError):
        group.create_array("other", (None,), "i4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape and a dtype"):
        group.create_array("other", 5)
    assert not proxy.calls_of("metadata", "PATCH")
    assert len(proxy.calls_of("metadata", "PUT")) == 1


def test_data_that_do_not_fit_replace_nothing(proxy: Proxy, group: RemoteGroup) -> None:
    cases: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"data": np.zeros((2, 3)), "shape": (3, 2)}, ValueError),
        ({"data": [1.5], "dtype": "i4"}, TypeError),
        ({"data": np.array([300]), "dtype": "u1"}, OverflowError),
        ({"data": ["abcd"], "dtype": "U3"}, OverflowError),
        ({"data": np.fromiter([[1.5]], object), "filters": [{"id": "vlen-array", "dtype": "<i4"}]}, TypeError),
        ({"data": np.array([{1, 2}], object), "filters": [{"id": "msgpack2"}]}, TypeError),
    ]
    for members, error in cases:
        with pytest.raises(error):
            group.create_array("a", mode="replace", **members)
    assert not proxy.calls_of("metadata", "PUT")
    assert np.array_equal(proxy.values("store/a"), PLANE)


@pytest.mark.parametrize("dtype", [np.str_, "S", [("x", str)]])
def test_text_without_a_length_is_refused_with_what_can_be_done(dtype: Any) -> None:
    with pytest.raises(ValueError, match="dtype=str"):
        define_array(None, 3, dtype, {})


def test_what_exists_is_opened_or_replaced_by_mode_or_the_servers_exception(group: RemoteGroup) -> None:
    with pytest.raises(errors.NodeExists) as caught:
        group.create_group("deep")
    opened = group.create_array("a", (3, 4), "<u2", mode="open")
    replaced = group.create_group("deep", mode="replace", attributes={"a": 1})

    assert (caught.value.path, caught.value.kind) == ("store/deep", "group")
    assert np.array_equal(opened[...], PLANE)
    assert not list(replaced)
    assert replaced.attrs == {"a": 1}


def test_a_deletion_whose_answer_is_lost_has_deleted_and_one_that_was_refused_has_not(
    proxy: Proxy, group: RemoteGroup
) -> None:
    proxy.fail(LoseAnswer(), route="metadata", method="DELETE")

    del group["a"]

    assert "store/a" not in proxy.root
    assert len(proxy.calls_of("metadata", "DELETE")) == 2
    busy = problem(503, errors.Overloaded(reason="many at once"), {"Retry-After": "0"})
    proxy.fail(busy, route="metadata", method="DELETE")
    with pytest.raises(KeyError):
        del group["none"]
    unsure = problem(502, errors.StoreError(store="store", key="", reason="no answer"), {"Retry-After": "0"})
    proxy.fail(unsure, route="metadata", method="DELETE")
    del group["none"]  # the first request may have deleted it


def test_a_readers_token_that_writes_is_forbidden(tmp_path: Path) -> None:
    store = {"store": {"url": str(tmp_path), "writable": True}}
    with running_server(store, read_tokens=["r"], write_tokens=["w"]) as server:
        url = f"{server.url}/v1/metadata/store"
        RemoteGroup(url, headers={"Authorization": "Bearer w"}).create_array("a", 3, "i4")
        reader = RemoteGroup(url, headers={"Authorization": "Bearer r"})

        with pytest.raises(errors.WriteForbidden):
            reader.create_group("b")
        with pytest.raises(errors.Forbidden):
            reader.open_array("a").append([1])
        assert reader.open_array("a")[...].tolist() == [0, 0, 0]


def test_attributes_are_written_by_one_patch(proxy: Proxy, group: RemoteGroup) -> None:
    array = group.open_array("a")

    array.attrs.update(sample="7", scale=[1, 2])
    array.attrs["nested"] = {"a": 1, "b": {"c": 2}}
    array.attrs["nested"] = {"b": {"d": 3}}
    del array.attrs["sample"]

    assert proxy.node("store/a").attrs == {"scale": [1, 2], "nested": {"b": {"d": 3}}}
    assert array.attrs == proxy.node("store/a").attrs
    assert len(proxy.calls_of("metadata", "PATCH")) == 4
    assert array.attrs.asdict() == dict(array.attrs)
    assert repr(array.attrs) == repr(dict(array.attrs))
    array.attrs.clear()
    assert len(array.attrs) == 0


def test_numpys_scalars_and_arrays_among_attributes_are_numbers_and_lists(proxy: Proxy, group: RemoteGroup) -> None:
    given = {"a": np.int64(3), "b": np.float32(0.5), "c": np.True_, "d": np.arange(2), "e": {"f": [np.uint8(1)]}}

    group.attrs.update(given)
    array = group.create_array("new", (2,), "<u1", attributes=given)

    assert group.attrs == array.attrs == {"a": 3, "b": 0.5, "c": True, "d": [0, 1], "e": {"f": [1]}}
    with pytest.raises(TypeError, match="objects of type complex have no form in JSON"):
        group.attrs["x"] = 1j
    assert proxy.root["store"].attrs == group.attrs


def test_attributes_of_others_are_kept(proxy: Proxy, group: RemoteGroup) -> None:
    array = group.open_array("a")
    proxy.node("store/a").attrs.update({"theirs": 1})

    array.attrs["ours"] = 2

    assert array.attrs == {"theirs": 1, "ours": 2}


def test_an_attribute_that_a_merge_patch_cannot_store_or_that_is_not_there_is_refused(group: RemoteGroup) -> None:
    values: list[Any] = [None, {"a": {"b": None}}]
    for value in values:
        with pytest.raises(ValueError, match="cannot store None"):
            group.attrs["x"] = value
    with pytest.raises(KeyError):
        group.attrs["none"]
    with pytest.raises(KeyError):
        del group.attrs["none"]


def test_a_group_is_pickled_and_closed(group: RemoteGroup) -> None:
    with pickle.loads(pickle.dumps(group)) as copy:
        assert list(copy) == list(group)
    assert copy.url == group.url


def test_arrays_of_zarr_v3_are_made_with_shards_and_groups_hand_on_their_format(group: RemoteGroup) -> None:
    root = group.create_group("new")
    v3 = root.create_group("v3", zarr_format=3)
    values = np.arange(64, dtype=">u2").reshape(8, 8)
    array = v3.create_array("x", data=values, chunks=(2, 2), shards=(4, 4), dimension_names=["y", None])
    assert (array.info["zarr_format"], array.info["shards"]) == (3, [4, 4])
    assert array.info["dimension_names"] == ["y", None]
    np.testing.assert_array_equal(array[...], values)
    text = v3.create_array("text", data=np.array(["a", "bcd"], object), codecs=["vlen-utf8", "zstd"])
    assert text[1] == "bcd"
    record = np.array([(1, 2.5)], [("a", ">i4"), ("b", ">f8")])
    made = v3.create_array("r", shape=2, dtype=record.dtype, fill_value=record[0], zarr_format=3)
    assert made[0].item() == (1, 2.5)
    assert v3.create_group("inner").info["zarr_format"] == 3
    assert root.create_array("v2", shape=1, dtype="i4").info["zarr_format"] == 2


PARSED: list[Any] = [
    *("i4", ">u2", "half", "?", "U10", "M8[ns]", "m8[10s]", "str", "string", str, float, np.int16, np.dtype("S5")),
    *(np.dtype("c16"), np.dtypes.StringDType(), [("x", "i4"), ("y", "U3")], [["x", "<i4"]]),
]
OF_V2: list[Any] = [
    {"name": "<M8[10s]", "object_codec_id": None},
    {"name": "|O", "object_codec_id": "vlen-utf8"},
    {"name": [["x", "<i4"]], "object_codec_id": None},
]
OF_V3: list[Any] = [
    {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 10}},
    {"name": "fixed_length_utf32", "configuration": {"length_bytes": 40}},
    *("bytes", "variable_length_bytes", "float32"),
]


@pytest.mark.parametrize(
    ("zarr_format", "form"),
    [*((f, form) for form in PARSED for f in (2, 3)), *((2, f) for f in OF_V2), *((3, f) for f in OF_V3)],
)
def test_dtypes_are_what_zarr_python_takes(group: RemoteGroup, zarr_format: Any, form: Any) -> None:
    parsed = zarr.dtype.parse_dtype(form, zarr_format=zarr_format)
    array = group.create_array("typed", 2, form, zarr_format=zarr_format)
    group.create_array("typed", 2, data_type=form, zarr_format=zarr_format, mode="open")
    group.create_array("typed", 2, parsed, zarr_format=zarr_format, mode="open")

    document = array.info
    stored = document["data_type"] if zarr_format == 3 else document["dtype"]
    codec = (document["filters"] or [{"id": None}])[0]["id"] if stored == "|O" else None
    stored = stored if zarr_format == 3 else {"name": stored, "object_codec_id": codec}
    found = type(parsed).from_json(json.loads(json.dumps(stored)), zarr_format=zarr_format)
    assert str(found) == (str(parsed) if zarr_format == 2 else str(parsed).replace("big", "little"))
    assert array.dtype == (object if parsed.to_native_dtype().hasobject else parsed.to_native_dtype())


@pytest.mark.parametrize("form", [np.dtypes.Int32DType, zarr.dtype.Int32])
def test_the_class_of_a_dtype_is_that_dtype(group: RemoteGroup, form: Any) -> None:
    assert group.create_array("typed", 2, form, zarr_format=3).dtype == np.dtype("i4")


@pytest.mark.parametrize("form", [datetime.datetime, dict])
def test_a_class_that_numpy_does_not_know_is_no_text(group: RemoteGroup, form: Any) -> None:
    with pytest.raises(TypeError, match="numpy has no such type"):
        group.create_array("typed", 2, form, zarr_format=3)


def test_aligned_records_are_stored_without_padding_in_zarr_v3(group: RemoteGroup) -> None:
    inner = np.dtype([("c", "u1"), ("d", "f4")], align=True)
    records = np.array([(1, 2.5, (3, 4.5))], np.dtype([("a", "i1"), ("b", ">f8"), ("e", inner)], align=True))
    array = group.create_array("aligned", data=records, fill_value=records[0], zarr_format=3)
    array.resize(2)
    assert array.dtype.itemsize == 1 + 8 + 1 + 4
    assert array[...].tolist() == records.tolist() * 2


def test_text_of_any_length_is_written_from_numpys_strings(group: RemoteGroup) -> None:
    texts = np.array(["one", "", "thirty-three"], np.dtypes.StringDType())
    for zarr_format in (2, 3):
        array = group.create_array(f"texts{zarr_format}", data=texts, zarr_format=zarr_format)
        assert array[...].tolist() == texts.tolist()
        array[1] = texts[2]
        array[:1] = texts[1:2]
        assert array[...].tolist() == ["", "thirty-three", "thirty-three"]
    fixed = group.create_array("fixed", 3, "U12")
    fixed[...] = texts
    assert fixed[...].tolist() == texts.tolist()
    with pytest.raises(OverflowError):
        fixed[...] = np.array(["thirteen cats"] * 3, np.dtypes.StringDType())
    with pytest.raises(ValueError, match="data_type"):
        group.create_array("both", 3, "i4", data_type="i4")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_fill_value_of_a_record_may_be_a_mapping(group: RemoteGroup, zarr_format: Any) -> None:
    dtype = np.dtype([("x", "<i2"), ("y", "<f4"), ("s", "S3")])
    fill = {"x": np.int64(7), "y": np.nan, "s": b"ab"}
    array = group.create_array("records", 2, dtype, fill_value=fill, zarr_format=zarr_format)
    assert array[...].tobytes() == np.array([(7, np.nan, b"ab")] * 2, dtype).tobytes()
    group.create_array("records", 2, dtype, fill_value={**fill, "y": "NaN"}, zarr_format=zarr_format, mode="open")
    for wrong in ({"x": 7}, {**fill, "x": 1.5}, {**fill, "x": 70_000}, {**fill, "s": b"abcd"}):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            group.create_array("wrong", 2, dtype, fill_value=wrong, zarr_format=zarr_format)
