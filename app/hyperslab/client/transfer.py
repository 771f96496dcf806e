"""What the command line does with a running service: ``get``, ``put`` and ``info``."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.address import Address, with_query
from hyperslab.client.array import RemoteArray
from hyperslab.client.description import facts, facts_without_dtype
from hyperslab.client.download import FORMATS, check_output, download_file
from hyperslab.client.group import RemoteGroup, open_node
from hyperslab.client.indexing import AnyArray
from hyperslab.client.node import open_session, read_document
from hyperslab.client.progress import Progress
from hyperslab.client.session import Request
from hyperslab.errors import BadBody


def download(
    url: str, output: Path, *, select: str = "", field: str | None = None, token: str | None = None, progress: Progress
) -> None:
    """Download a selection into a file: npy, or raw, csv or json by the file's suffix.

    An interrupted download goes on when it is started again. ``select`` and ``field`` may stand in the URL instead.
    Raises `BadSelection`, `BadParameter` and what the server raised.
    """
    chosen = with_query(url, "select", select)
    wire.parse_selection(chosen or "")  # before anything is asked for
    check_output(output)
    address = Address.parse(url)
    form = FORMATS.get(output.suffix.lower(), "npy")
    query = {"select": chosen, "field": with_query(url, "field", field), "format": form}
    session = open_session(1, None, None, token)
    try:
        download_file(session, Request("GET", address.url("slice", **query)), output, progress=progress)
    finally:
        session.close()


def upload(
    source: Path, url: str, *, select: str = "", field: str | None = None, token: str | None = None, progress: Progress
) -> None:
    """Write an npy file into a selection of an array; ``select`` and ``field`` may stand in the URL instead.

    Raises `BadSelection`, `BadParameter`, `BadBody` for a file that cannot be read as npy or does not fit, and what the
    server raised.
    """
    key = wire.parse_selection(with_query(url, "select", select) or "")
    values = _load(source)
    with RemoteArray(url, field=field, token=token, progress=progress) as array:
        try:
            array.oindex[key] = values
        except (TypeError, ValueError, OverflowError) as error:
            raise BadBody(reason=f"{source}: {error}") from error


def describe(url: str, *, token: str | None = None) -> str:
    """A node for people: what is known of an array, or what is below a group."""
    address = Address.parse(url)
    session = open_session(1, None, None, token)
    try:
        members, etag = read_document(session, address)
        try:
            node = open_node(session, address, members, etag)
        except ModuleNotFoundError:
            lines = _fact_lines(facts_without_dtype(members, address.url("metadata")))
        else:
            lines = [str(node.tree())] if isinstance(node, RemoteGroup) else _fact_lines(facts(node))
        return "\n".join([*lines, *_attribute_lines(members.get("attributes") or {})])
    finally:
        session.close()


def _load(source: Path) -> AnyArray:
    try:
        values = np.load(source, mmap_mode="r", allow_pickle=False) if source.is_file() else _receive(source)
    except (ValueError, EOFError) as error:  # of which numpy says that it may be code, whatever it is
        reason: object = "objects, or no array" if "allow_pickle" in str(error) else error
        raise BadBody(reason=f"{source} is not an npy file: {reason}") from error
    if not isinstance(values, np.ndarray):
        values.close()
        raise BadBody(reason=f"{source} is an npz archive: expected one array, as npy")
    return values


def _receive(source: Path) -> AnyArray:
    """What comes out of a pipe, which numpy could neither map nor look into twice."""
    with source.open("rb") as file:
        values: AnyArray = np.load(io.BytesIO(file.read()), allow_pickle=False)
        return values


def _fact_lines(known: Mapping[str, Any]) -> list[str]:
    width = max(map(len, known))
    return [f"{name:{width}}  {value}" for name, value in known.items()]


def _attribute_lines(attributes: Mapping[str, Any]) -> list[str]:
    if not attributes:
        return []
    return ["attributes", *json.dumps(attributes, indent=2, ensure_ascii=False).splitlines()[1:-1]]
