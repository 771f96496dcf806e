"""Other Zarr libraries as oracles: TensorStore and zarr-python 3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tensorstore
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore


def tensorstore_open(document: Mapping[str, Any], chunks: Mapping[str, bytes] | None = None, **spec: Any) -> Any:
    """The array that TensorStore opens from a ``.zarray`` and chunks; raises `ValueError` where it does not."""
    context = tensorstore.Context()
    store = tensorstore.KvStore.open({"driver": "memory"}, context=context).result()
    for key, value in {".zarray": json.dumps(document).encode(), **(chunks or {})}.items():
        store.write(key, value).result()
    return tensorstore.open(
        {"driver": "zarr", "kvstore": {"driver": "memory"}, **spec}, context=context, open=True
    ).result()


def tensorstore_created(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The ``.zarray`` that TensorStore writes for a new array; raises `ValueError` where it refuses."""
    context = tensorstore.Context()
    whole = {"driver": "zarr", "kvstore": {"driver": "memory"}, **spec}
    tensorstore.open(whole, context=context, create=True, open=False).result()
    store = tensorstore.KvStore.open({"driver": "memory"}, context=context).result()
    document: dict[str, Any] = json.loads(store.read(".zarray").result().value)
    return document


def zarr3_open(document: Mapping[str, Any]) -> zarr.Array[Any]:
    """The array that zarr-python 3 opens from a ``.zarray``."""
    store = MemoryStore()
    sync(store.set(".zarray", default_buffer_prototype().buffer.from_bytes(json.dumps(document).encode())))
    return zarr.open_array(store, mode="r", zarr_format=2)
