"""Other Zarr libraries as oracles: TensorStore and zarr-python 3 here, zarr-python 2 in its own Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import tensorstore
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from tests.tools import zarr2_python

_ZARR2_PROGRAM = """
import json, sys, warnings
import numpy, zarr
warnings.simplefilter("ignore")
answers = []
for document, read in json.load(sys.stdin):
    store = zarr.storage.MemoryStore({".zarray": json.dumps(document).encode()})
    try:
        array = zarr.open_array(store, mode="r")
        items = numpy.asarray(array[...]) if read else None
        plain = None if items is None else items.tolist() if items.dtype.hasobject else items.tobytes().hex()
        answers.append({"shape": array.shape, "chunks": array.chunks, "order": array.order, "items": plain})
    except Exception as error:
        answers.append({"error": repr(error)})
json.dump(answers, sys.stdout)
"""


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


def zarr3_open(document: Mapping[str, Any], chunks: Mapping[str, bytes] | None = None) -> zarr.Array[Any]:
    """The array that zarr-python 3 opens from a ``.zarray`` and chunks."""
    store = MemoryStore()
    buffer = default_buffer_prototype().buffer
    for key, value in {".zarray": json.dumps(document).encode(), **(chunks or {})}.items():
        sync(store.set(key, buffer.from_bytes(value)))
    return zarr.open_array(store, mode="r", zarr_format=2)


def zarr2_open(documents: Sequence[tuple[Mapping[str, Any], bool]]) -> list[dict[str, Any]]:
    """What zarr-python 2 opens from each ``.zarray``, and all its items where that is asked for.

    Each answer has ``shape``, ``chunks``, ``order`` and ``items`` (bytes in hex, or a list of objects), or ``error``.
    """
    done = subprocess.run(
        [str(zarr2_python()), "-c", _ZARR2_PROGRAM],
        input=json.dumps(list(documents)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers
