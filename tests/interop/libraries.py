"""The three libraries, each as something that writes the arrays of jobs into a folder, and reads them from there."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numcodecs
import numpy as np
import tensorstore
import zarr
from zarr.dtype import VariableLengthBytes, VariableLengthUTF8

from hyperslab import wire
from tests.interop.jobs import CHUNKS, SHAPE, Array, Job
from tests.tools import zarr2_python


class Library(Protocol):
    """``folder`` may be a URL where arrays are read."""

    def write(self, folder: Path, jobs: Sequence[Job]) -> None: ...

    def read(self, folder: Path | str, jobs: Sequence[Job]) -> dict[str, Any]:
        """The values by name of the job."""
        ...

    def describe(self, folder: Path | str, jobs: Sequence[Job]) -> dict[str, Described]:
        """What the library understands of the metadata."""
        ...


@dataclass(frozen=True, slots=True)
class Described:
    """``fill``: the bytes of one item, None where it is null; ``compressor`` and ``filters`` by their ids."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    order: str
    fill: bytes | None
    compressor: str | None
    filters: tuple[str, ...]


class Zarr3:
    def write(self, folder: Path, jobs: Sequence[Job]) -> None:
        for job in jobs:
            compressor = None if job.compressor is None else numcodecs.get_codec(dict(job.compressor))
            array = zarr.create_array(
                folder / job.name,
                shape=SHAPE,
                chunks=CHUNKS,
                dtype=_zarr3_dtype(job),
                compressors=compressor,
                filters=_filters_of_zarr3(job),
                order=job.order,  # type: ignore[arg-type]
                chunk_key_encoding={"name": "v2", "separator": job.separator},
                fill_value=None if job.dtype == "|O" else np.zeros((), wire.dtype_from_json(job.dtype))[()],
                zarr_format=2,
            )
            array[...] = job.values

    def read(self, folder: Path | str, jobs: Sequence[Job]) -> dict[str, Any]:
        return {job.name: zarr.open_array(f"{folder}/{job.name}", mode="r", zarr_format=2)[...] for job in jobs}

    def describe(self, folder: Path | str, jobs: Sequence[Job]) -> dict[str, Described]:
        return {job.name: self._describe(f"{folder}/{job.name}") for job in jobs}

    def _describe(self, path: str) -> Described:
        array = zarr.open_array(path, mode="r", zarr_format=2)
        document = array.metadata.to_dict()
        fill = None if array.fill_value is None else np.asarray(array.fill_value, array.dtype).tobytes()
        compressor: Any = document["compressor"]
        filters: Any = document["filters"] or ()
        ids = tuple(codec["id"] for codec in filters)
        return Described(array.shape, array.chunks, array.order, fill, compressor and compressor["id"], ids)


def _filters_of_zarr3(job: Job) -> Any:
    """The object codec follows from the dtype there."""
    if job.dtype == "|O":
        return "auto"
    return [numcodecs.get_codec(dict(config)) for config in job.filters] or None


def _zarr3_dtype(job: Job) -> Any:
    if job.dtype != "|O":
        return wire.dtype_from_json(job.dtype)
    return VariableLengthUTF8() if job.filters[0]["id"] == "vlen-utf8" else VariableLengthBytes()


class TensorStore:
    def write(self, folder: Path, jobs: Sequence[Job]) -> None:
        for job in jobs:
            values = job.values
            for field in _fields(job):
                self._open(f"{folder}/{job.name}", field, job).write(
                    values if field is None else values[field]
                ).result()

    def read(self, folder: Path | str, jobs: Sequence[Job]) -> dict[str, Any]:
        return {job.name: self._read(f"{folder}/{job.name}", job) for job in jobs}

    def describe(self, folder: Path | str, jobs: Sequence[Job]) -> dict[str, Described]:
        return {job.name: self._describe(f"{folder}/{job.name}", job) for job in jobs}

    def _describe(self, path: str, job: Job) -> Described:
        array = self._open(path, _fields(job)[0])
        metadata = array.spec().to_json()["metadata"]
        fill = _stored(metadata["fill_value"], array, job.dtype)
        compressor = metadata["compressor"] and metadata["compressor"]["id"]
        return Described(tuple(metadata["shape"]), tuple(metadata["chunks"]), metadata["order"], fill, compressor, ())

    def _read(self, path: str, job: Job) -> Array:
        fields = _fields(job)
        if fields == [None]:
            found: Array = self._open(path, None).read().result()
            return found
        out = np.zeros(SHAPE, wire.dtype_from_json(job.dtype))
        for field in fields:
            out[field] = self._open(path, field).read().result()
        return out

    def _open(self, path: str, field: str | None, job: Job | None = None) -> Any:
        is_url = path.startswith("http:")
        kvstore = {"driver": "http", "base_url": f"{path}/"} if is_url else {"driver": "file", "path": f"{path}/"}
        spec: dict[str, Any] = {"driver": "zarr", "kvstore": kvstore}
        if field is not None:
            spec["field"] = field
        if job is not None:
            spec["metadata"] = {**job.document, "shape": SHAPE, "chunks": CHUNKS, "fill_value": None}
        return tensorstore.open(spec, open=True, create=job is not None).result()


def _stored(fill: Any, array: Any, dtype: Any) -> bytes | None:
    """The bytes of one item: of records they stand in the document, all else is in native byte order there."""
    if fill is None:
        return None
    if isinstance(dtype, list):
        return base64.b64decode(fill)
    return np.asarray(array.fill_value).astype(wire.dtype_from_json(dtype)).tobytes()


def _fields(job: Job) -> list[Any]:
    return [field[0] for field in job.dtype] if isinstance(job.dtype, list) else [None]


_ZARR2_PROGRAM = """
import json, pickle, sys, traceback, warnings
import numcodecs, numpy, zarr
warnings.simplefilter("ignore")

def write(path, job):
    codecs = [numcodecs.get_codec(dict(config)) for config in job["filters"]]
    compressor = job["compressor"] and numcodecs.get_codec(dict(job["compressor"]))
    values = job["values"]
    dtype = object if values.dtype.hasobject else job["dtype"] or values.dtype
    first = {"object_codec": codecs.pop(0)} if dtype is object else {}
    array = zarr.open_array(
        path, mode="w", shape=job["shape"], chunks=job["chunks"], dtype=dtype, compressor=compressor,
        filters=codecs or None, order=job["order"], dimension_separator=job["separator"], fill_value=None, **first)
    array[...] = values if values.dtype.names is None else values.view(array.dtype)  # padding has a name there

def read(path, job):
    store = zarr.storage.FSStore(path, mode="r") if path.startswith("http") else path
    return numpy.asarray(zarr.open_array(store, mode="r")[...])

def describe(path, job):
    array = zarr.open_array(zarr.storage.FSStore(path, mode="r") if path.startswith("http") else path, mode="r")
    fill = None if array.fill_value is None else numpy.asarray(array.fill_value, array.dtype).tobytes()
    compressor = array.compressor and array.compressor.codec_id
    filters = tuple(codec.codec_id for codec in array.filters or ())
    return array.shape, array.chunks, array.order, fill, compressor, filters

for line in sys.stdin:
    asked, answered = json.loads(line)
    with open(asked, "rb") as file:
        action, folder, jobs = pickle.load(file)
    try:
        do = {"write": write, "read": read, "describe": describe}[action]
        answer = {job["name"]: do(folder + "/" + job["name"], job) for job in jobs}
    except Exception:
        answer = traceback.format_exc()
    with open(answered, "wb") as file:
        pickle.dump(answer, file)
    print("done", flush=True)
"""


@dataclass(frozen=True, slots=True)
class Zarr2:
    """In a Python of its own, which has no ml_dtypes; ``scratch`` is a folder for what goes there and back."""

    process: subprocess.Popen[str]
    scratch: Path

    def write(self, folder: Path, jobs: Sequence[Job]) -> None:
        self._run("write", str(folder), [{**_plain(job), "values": job.values} for job in jobs])

    def read(self, folder: Path | str, jobs: Sequence[Job]) -> dict[str, Any]:
        return self._run("read", str(folder), [_plain(job) for job in jobs])

    def describe(self, folder: Path | str, jobs: Sequence[Job]) -> dict[str, Described]:
        found = self._run("describe", str(folder), [_plain(job) for job in jobs])
        return {name: Described(*members) for name, members in found.items()}

    def _run(self, action: str, folder: str, jobs: list[dict[str, Any]]) -> dict[str, Any]:
        asked, answered = self.scratch / "asked.pickle", self.scratch / "answered.pickle"
        asked.write_bytes(pickle.dumps((action, folder, jobs), protocol=5))
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(asked), str(answered)]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", "zarr-python 2 has died"
        found: Any = pickle.loads(answered.read_bytes())
        assert isinstance(found, dict), found
        return found


@contextmanager
def zarr2(scratch: Path) -> Iterator[Zarr2]:
    """zarr-python 2, which takes a moment to start, for many calls."""
    command = [str(zarr2_python()), "-c", _ZARR2_PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Zarr2(process, scratch)
        process.communicate(timeout=30)


def _plain(job: Job) -> dict[str, Any]:
    return {
        "name": job.name,
        "dtype": job.dtype if isinstance(job.dtype, str) else None,
        "compressor": job.compressor,
        "filters": job.filters,
        "order": job.order,
        "separator": job.separator,
        "shape": SHAPE,
        "chunks": CHUNKS,
    }
