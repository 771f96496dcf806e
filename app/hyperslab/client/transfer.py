"""What the command line does with a running service: ``get``, ``put``, ``info`` and ``tree``."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from hyperslab import wire
from hyperslab.client.address import Address, with_query
from hyperslab.client.array import RemoteArray, facts
from hyperslab.client.download import check_output, download_file, form_of
from hyperslab.client.group import RemoteGroup, open_node
from hyperslab.client.indexing import AnyArray
from hyperslab.client.node import open_session, read_document
from hyperslab.client.pagestate import page_selection
from hyperslab.client.session import Request, Session
from hyperslab.client.text import Progress, array_facts
from hyperslab.client.transport import Transport
from hyperslab.errors import BadBody, BadParameter

STDIN: Final = Path("-")


def download(
    url: str,
    output: Path,
    *,
    select: str = "",
    field: str | None = None,
    form: str | None = None,
    token: str | None = None,
    progress: Progress,
) -> None:
    """Download a selection into a file, as npy, raw, csv or json: in the ``form`` that is asked for, or by the file's
    suffix.

    An interrupted download goes on when it is started again. ``select`` and ``field`` may stand in the URL instead; a
    URL of the viewer page stands for the plane that it shows. Raises `BadSelection`, `BadParameter` (also for a suffix
    of another form) and what the server raised.
    """
    wire.parse_selection(with_query(url, "select", select) or "")  # before anything is asked for
    check_output(output)
    form = form or form_of(output)
    query = {"field": with_query(url, "field", field), "decode": with_query(url, "decode", None), "format": form}
    with closing(open_session(1, None, None, token)) as session:
        address, chosen = _chosen(session, url, select)
        request = Request("GET", address.url("slice", select=chosen, **query))
        download_file(session, request, output, progress=progress)


def upload(
    source: Path,
    url: str,
    *,
    select: str = "",
    field: str | None = None,
    create: bool = False,
    token: str | None = None,
    progress: Progress,
) -> None:
    """Write an npy file into a selection of an array, or ``create`` the array with the shape and dtype of the file.

    ``select`` and ``field`` may stand in the URL instead, as for `download`. Raises `BadSelection`, `BadParameter`,
    `BadBody` for a file that cannot be read as npy or does not fit, and what the server raised.
    """
    text = with_query(url, "select", select)
    wire.parse_selection(text or "")
    if create and (text or with_query(url, "field", field)):
        raise BadParameter(name="create", value=True, expected="no selection and no field: the file is the whole array")
    values = _load(source)
    try:
        if create:
            address = Address.parse(url)
            with RemoteGroup(f"{address.base}/v1/metadata", token=token, progress=progress) as root:
                root.create_array(address.path, data=values)
            return
        with closing(open_session(1, None, None, token)) as session:
            address, chosen = _chosen(session, url, select)
        field = with_query(url, "field", field)
        with RemoteArray(address.url("metadata"), field=field, token=token, progress=progress) as array:
            array.oindex[wire.parse_selection(chosen or "")] = values
    except (TypeError, ValueError, OverflowError) as error:
        raise BadBody(reason=f"{source}: {error}") from error


def describe(
    url: str, *, token: str | None = None, transport: Transport | None = None, place: str | None = None
) -> str:
    """A node for people: what is known of an array, or what is below a group.

    ``place`` is where it lies, if that is not the URL.
    """
    address = Address.parse(url)
    with closing(open_session(1, None, transport, token)) as session:
        members, etag = read_document(session, address)
        place = place or address.url("metadata")
        try:
            node = open_node(session, address, members, etag)
        except ModuleNotFoundError:
            lines = _fact_lines(array_facts(members, url=place))
        else:
            lines = _tree_lines(node) if isinstance(node, RemoteGroup) else _fact_lines(facts(node) | {"url": place})
        return "\n".join([*lines, *_attribute_lines(members.get("attributes") or {})])


def draw_tree(url: str, *, level: int | None, token: str | None = None, transport: Transport | None = None) -> str:
    """The groups and arrays below a group, at most ``level`` deep."""
    with RemoteGroup(url, token=token, transport=transport) as group:
        return str(group.tree(level))


def page_url(url: str) -> str:
    """Where the viewer page shows a node, given any of its URLs; one of the page stays as it is."""
    address = Address.parse(url)
    return (
        url if "/view/" in url else f"{address.base}/view/{quote(address.path)}" if address.path else f"{address.base}/"
    )


def _chosen(session: Session, url: str, select: str) -> tuple[Address, str | None]:
    """The array that a URL means, and the selection: what is given, or what the URL shows."""
    given = with_query(url, "select", select)
    address, shown = (Address.parse(url), None) if given else page_selection(session, url)
    return address, given or shown


def _load(source: Path) -> AnyArray:
    try:
        mapped = source != STDIN and source.is_file()
        values = np.load(source, mmap_mode="r", allow_pickle=False) if mapped else _receive(source)
    except (ValueError, EOFError) as error:  # of which numpy says that it may be code, whatever it is
        reason: object = "objects, or no array" if "allow_pickle" in str(error) else error
        raise BadBody(reason=f"{source} is not an npy file: {reason}") from error
    if not isinstance(values, np.ndarray):
        values.close()
        raise BadBody(reason=f"{source} is an npz archive: expected one array, as npy")
    return values


def _receive(source: Path) -> AnyArray:
    """What comes out of a pipe, which numpy could neither map nor look into twice."""
    with nullcontext(sys.stdin.buffer) if source == STDIN else source.open("rb") as file:
        values: AnyArray = np.load(io.BytesIO(file.read()), allow_pickle=False)
        return values


def _tree_lines(group: RemoteGroup) -> list[str]:
    drawn = group.tree()
    return [str(drawn), *([] if drawn.branches else ["no arrays and no groups"])]


def _fact_lines(known: Mapping[str, Any]) -> list[str]:
    width = max(map(len, known))
    return [f"{name:{width}}  {value}" for name, value in known.items()]


def _attribute_lines(attributes: Mapping[str, Any]) -> list[str]:
    if not attributes:
        return []
    return ["attributes", *json.dumps(attributes, indent=2, ensure_ascii=False).splitlines()[1:-1]]
