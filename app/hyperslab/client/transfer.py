"""Client commands: ``get``, ``put``, ``info``, ``tree`` and ``stream``.

Interrupted downloads are resumable: a JSON file next to the partial file has the URL and ETag of its body.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np

from hyperslab import wire
from hyperslab.client.address import Address, with_query
from hyperslab.client.array import RemoteArray
from hyperslab.client.body import RESTARTS, Body, BodyChanged
from hyperslab.client.group import RemoteGroup
from hyperslab.client.indexing import AnyArray
from hyperslab.client.node import open_session, read_document
from hyperslab.client.session import Request, Session
from hyperslab.client.stream import RemoteStream, StreamedArray
from hyperslab.client.text import Progress, array_facts, report
from hyperslab.client.transport import Response, Transport
from hyperslab.errors import (
    ArrayChanged,
    BadBody,
    BadParameter,
    NotRepresentable,
    RangeNotSatisfiable,
    RemoteProblem,
)
from hyperslab.wire.streams import ArraySettings, Dimension, PyramidSettings, StreamSettings

_PIPE: Final = Path("-")  # stdin or stdout
_FORMATS: Final = {".npy": "npy", ".csv": "csv", ".json": "json", ".raw": "raw", ".bin": "raw"} | dict.fromkeys(
    (".tif", ".tiff"), "tiff"
)


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
    """Download a selection into a file, as npy, raw, csv, json or tiff, by ``form`` or else the file's suffix.

    An interrupted download is resumed by the next call. Links to files are followed. Pipes, devices and stdout (``-``)
    are written directly, without resumption. ``select`` and ``field`` default to those of the URL; a URL of the viewer
    page selects the displayed plane. Raises `BadSelection`, `BadParameter` (also for an unknown suffix or an output
    that cannot be written), `ArrayChanged` if the values keep changing, and the server's errors.
    """
    wire.parse_selection(with_query(url, "select", select) or "")  # before any request
    piped = _is_pipe(output)
    suffix, folder = output.suffix.lower(), Path(os.path.realpath(output)).parent
    if output.is_dir():
        raise BadParameter(name="output", value=str(output), expected="a file, and this is a folder")
    if not piped and not os.access(folder, os.W_OK | os.X_OK):
        expected = f"a file in a folder that is there and can be written to, which {folder} is not"
        raise BadParameter(name="output", value=str(output), expected=expected)
    if form is None and suffix and suffix not in _FORMATS and not piped:
        expected = f"a name that ends in {', '.join(_FORMATS)}, or an explicit format"
        raise BadParameter(name="output", value=str(output), expected=expected)
    query = {"field": with_query(url, "field", field), "decode": with_query(url, "decode", None)}
    with closing(open_session(1, None, None, token)) as session:
        address, selection = _resolve(session, url, select)
        form = form or _FORMATS.get(suffix, "npy")
        request = Request("GET", address.url("slice", select=selection, **query, format=form))
        if piped:
            _write_to_pipe(session, request, output, progress)
        else:
            _write_to_file(session, request, Path(os.path.realpath(output)), progress)


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

    ``select`` and ``field`` as for `download`. Raises `BadSelection`, `BadParameter`, `BadBody` for a file that is not
    npy or does not fit, and the server's errors.
    """
    text = with_query(url, "select", select)
    wire.parse_selection(text or "")
    field = with_query(url, "field", field)
    if create and (text or field):
        raise BadParameter(name="create", value=True, expected="no selection and no field: the file is the whole array")
    values = _load(source)
    try:
        if create:
            address = Address.parse(url)
            with RemoteGroup(f"{address.base}/v1/metadata", token=token, progress=progress) as root:
                root.create_array(address.path, data=values)
            return
        with closing(open_session(1, None, None, token)) as session:
            address, selection = _resolve(session, url, select)
        with RemoteArray(address.url("metadata"), field=field, token=token, progress=progress) as array:
            array.oindex[wire.parse_selection(selection or "")] = values
    except (TypeError, ValueError, OverflowError) as error:
        raise BadBody(reason=f"{source}: {error}") from error


def describe(
    url: str, *, token: str | None = None, transport: Transport | None = None, place: str | None = None
) -> str:
    """Description of a node: the facts of an array, or the tree of a group. ``place`` is shown instead of the URL."""
    address = Address.parse(url)
    with closing(open_session(1, None, transport, token)) as session:
        members, _ = read_document(session, address)
        if members["kind"] == "array":
            facts = array_facts(members, url=place or address.url("metadata"))
            width = max(map(len, facts))
            lines = [f"{name:{width}}  {value}" for name, value in facts.items()]
        else:
            tree = RemoteGroup.from_parts(session, address, members).tree()
            lines = [str(tree), *([] if tree.branches else ["no arrays and no groups"])]
        if attributes := members.get("attributes"):
            lines += ["attributes", *json.dumps(attributes, indent=2, ensure_ascii=False).splitlines()[1:-1]]
        return "\n".join(lines)


def page_url(url: str) -> str:
    """The URL of a node's viewer page, from any URL of the node; one of the page is unchanged."""
    address = Address.parse(url)
    below = f"view/{quote(address.path)}" if address.path else ""
    return url if "/view/" in url else f"{address.base}/{below}"


def signed_link(url: str, *, allow: Sequence[str], expires: str, token: str | None = None) -> str:
    """A link to a node, from any URL of the node, that needs no token until it ends. Raises the server's errors."""
    address, parts = Address.parse(url), urlsplit(url)
    body = json.dumps({"path": address.path, "allow": [*allow], "expires": expires}).encode()
    with closing(open_session(1, None, None, token)) as session:
        headers = {"Content-Type": wire.JSON}
        made, _ = session.read_json(Request("POST", f"{address.base}/v1/link", headers, body, safe=True))
    origin, base = f"{parts.scheme}://{parts.netloc}", urlsplit(address.base).path
    prefix = f"{origin}{urlsplit(made['prefix']).path}"
    return prefix + url.removeprefix(origin)[len(base) :]


# --- viewer URLs -----------------------------------------------------------------------------------------------------


def _resolve(session: Session, url: str, select: str) -> tuple[Address, str | None]:
    """Array and selection of a URL: the explicit selection, or for a viewer page the displayed plane or range.

    An image of several levels resolves to the finest one. Raises the server's errors.
    """
    address, explicit = Address.parse(url), with_query(url, "select", select)
    parts = urlsplit(url)
    state = parse_qs(parts.query)
    if explicit or not re.search(r"/view(/|$)", parts.path) or not state.keys() - {"field", "select"}:
        return address, explicit
    if ends := re.fullmatch(r"([0-9]+),([0-9]+)", state.get("range", [""])[-1]):
        return address, f"{ends[1]}:{int(ends[2]) + 1}"
    query = {name: state[name][-1] for name in ("axes", "field") if name in state}
    try:
        info, _ = session.read_json(Request("GET", address.child("info.json").url("tile", **query)))
    except NotRepresentable:
        return address, None
    if info["images"]:
        raise BadParameter(name="url", value=url, expected="one picture: this is a mosaic of several")
    image = Address(address.base, info["levels"][0]["path"])
    return image, ",".join(_position(axis["name"], info, state) for axis in info["axes"])


def _position(name: str, info: Mapping[str, Any], state: Mapping[str, list[str]]) -> str:
    if name == info["channel_axis"]:
        channels = state.get("c", [])
        return ":" if not channels else channels[0] if len(channels) == 1 else f"[{','.join(channels)}]"
    if name in info["plane"]:
        return ":"
    parameters = ("view", "off", "overlay", "smooth", "box", "range", "row", "column", "c")
    own = [] if name in parameters else state.get(name, [])  # axes with such names use isel=name:position
    listed = (text for parameter in ("sel", "isel") for text in state.get(parameter, ()))
    escaped = [text.rpartition(":")[2] for text in listed if text.rpartition(":")[0] == name]
    return [str(info["selection"].get(name, 0)), *own, *escaped][-1]


# --- files and pipes -------------------------------------------------------------------------------------------------


def _is_pipe(output: Path) -> bool:
    """Whether the output is a pipe, a device, or an open file, none of which can be replaced."""
    if output == _PIPE or (output.exists() and not output.is_file() and not output.is_dir()):
        return True
    open_files = r"/dev|/proc/[^/]+(/task/[^/]+)?/fd"  # such as /dev/stdout
    return output.is_symlink() and bool(re.fullmatch(open_files, os.path.realpath(output.parent)))


def _write_to_pipe(session: Session, request: Request, output: Path, progress: Progress) -> None:
    def open_pipe(_: str | None) -> BinaryIO:
        if output != _PIPE:
            return output.open("ab" if output.is_file() else "wb")  # append to an open file
        if sys.stdout is None:  # closed by the parent; its descriptor may be reused by a socket
            raise OSError(errno.EBADF, "stdout is closed")
        return open(sys.stdout.fileno(), "wb", closefd=False)

    try:
        _copy(session, request, open_pipe, title=output.name, progress=progress)
    except BodyChanged as error:
        raise _array_changed(request, "others") from error


def _write_to_file(session: Session, request: Request, target: Path, progress: Progress) -> None:
    """Download a body into a file, resuming the partial file of an earlier attempt if the body is unchanged."""
    data, origin = target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.part.json")
    for _ in range(RESTARTS):
        start = _partial_file(data, origin, request.url)

        def open_part(etag: str | None, mode: str = "ab" if start[0] else "wb") -> Any:
            origin.write_text(json.dumps({"url": request.url, "etag": etag}), encoding="utf-8")
            return data.open(mode)

        try:
            _copy(session, request, open_part, start=start, title=target.name, progress=progress)
        except (BodyChanged, RangeNotSatisfiable) as error:
            is_complete = isinstance(error, RangeNotSatisfiable) and error.size == start[0]
            origin.unlink(missing_ok=True)
            if not is_complete:
                continue
        data.replace(target)
        origin.unlink(missing_ok=True)
        return
    raise _array_changed(request, "others at every attempt")


def _partial_file(data: Path, origin: Path, url: str) -> tuple[int, str | None]:
    """Size of the partial file and ETag of its body; (0, None) if it is of another URL."""
    try:
        document = json.loads(origin.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return 0, None
    match document:
        case {"url": str(source), "etag": str(etag)} if source == url and data.exists():
            return data.stat().st_size, etag
    return 0, None


def _copy(
    session: Session,
    request: Request,
    open_file: Callable[[str | None], AbstractContextManager[BinaryIO]],
    *,
    start: tuple[int, str | None] = (0, None),
    title: str,
    progress: Progress,
) -> None:
    """Copy a body, from a start, into the file that ``open_file`` opens for its ETag.

    The request comes first: opening a pipe may block until there is a reader.
    """
    body = Body(session, request, check=_check, start=start)
    try:
        remaining = body.open()
        with open_file(body.etag) as file, report(progress, start[0] + remaining, title) as advance:
            body.on_bytes = advance
            advance(start[0])
            buffer = memoryview(bytearray(min(1 << 20, remaining)))
            while remaining:
                count = body.read(buffer[: min(len(buffer), remaining)])
                file.write(buffer[:count])
                remaining -= count
    finally:
        body.close()


def _check(response: Response) -> None:
    """Raises `RemoteProblem` for a response without array values, such as a sign-in page."""
    if wire.ARRAY_SHAPE not in response.headers:
        media_type = response.headers.get("Content-Type", "an answer without a type")
        raise RemoteProblem(status=response.status, detail=f"expected values of an array, found {media_type}")


def _array_changed(request: Request, found: str) -> ArrayChanged:
    return ArrayChanged(path=request.url, member="values", expected="the same bytes", found=found)


def _load(source: Path) -> AnyArray:
    try:
        if source != _PIPE and source.is_file():
            values = np.load(source, mmap_mode="r", allow_pickle=False)
        else:  # a pipe, which numpy cannot map or seek
            with nullcontext(sys.stdin.buffer) if source == _PIPE else source.open("rb") as file:
                values = np.load(io.BytesIO(file.read()), allow_pickle=False)
    except (ValueError, EOFError) as error:  # numpy takes any unknown file for a pickle
        reason: object = "objects, or no array" if "allow_pickle" in str(error) else error
        raise BadBody(reason=f"{source} is not an npy file: {reason}") from error
    if not isinstance(values, np.ndarray):
        values.close()
        raise BadBody(reason=f"{source} is an npz archive: expected one array, as npy")
    return values


# --- streams ---------------------------------------------------------------------------------------------------------


def send_frames(
    url: str,
    source: Path,
    *,
    settings: Path | None = None,
    key: str | None = None,
    resume: bool = False,
    token: str | None = None,
    progress: Progress = False,
) -> dict[str, Any]:
    """Send frames as a new stream, and return its last state: of a folder of ``.npy`` and TIFF files in order of name,
    of one such file, or raw frames of a pipe (``-``: stdin).

    ``settings``: a JSON file; by default an image with a pyramid, of the first frame's shape and dtype. ``resume``
    continues an interrupted stream after its last frame. Raises `BadParameter` for a source without frames, `BadBody`
    for an unreadable file or frames of another shape or dtype, and the server's errors.
    """
    files = [] if source == _PIPE or source.is_fifo() else _frame_files(source)
    document: dict[str, Any] | StreamSettings | None = None
    if settings is not None:
        try:
            document = json.loads(settings.read_text(encoding="utf-8"))
        except ValueError as error:
            raise BadParameter(name="settings", value=str(settings), expected=f"a JSON file ({error})") from error
    elif not resume:
        if not files:
            raise BadParameter(name="settings", value=None, expected="a file that says what the frames of a pipe are")
        document = _image_settings(_load_frames(files[0], says_axes=False))
    if_exists: Any = "resume" if resume else "error"
    with RemoteStream(url, document, if_exists=if_exists, token=token, progress=progress) as stream:
        array = stream.array(key)
        frames = chain.from_iterable(map(_load_frames, files)) if files else _read_frames(source, array)
        try:
            for frame in islice(frames, array.appended, None):
                stream.append(frame, key)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadBody(reason=f"{source}: {error}") from error
        return stream.finish()


def _frame_files(source: Path) -> list[Path]:
    """Files with frames in natural order of their names."""
    if source.is_file():
        return [source]
    suffixes = (".npy", ".tif", ".tiff")
    files = [path for path in source.iterdir() if path.suffix.lower() in suffixes] if source.is_dir() else []
    if not files:
        expected = "a folder with .npy or TIFF files, one such file, or - for stdin"
        raise BadParameter(name="source", value=str(source), expected=expected)

    def number_or_text(path: Path) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", path.name)]

    return sorted(files, key=number_or_text)


def _load_frames(path: Path, *, says_axes: bool = True) -> AnyArray:
    """Frames of a file as ``(frames, lines, columns)``; raises `BadBody`, also for a TIFF with axes or pixel sizes of
    its own unless ``says_axes``: somebody says what they are."""
    axes, own = "", False
    try:
        if path.suffix.lower() == ".npy":
            values: AnyArray = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            from tifffile import TiffFile

            with TiffFile(path) as file:
                own = bool(file.is_ome or file.is_imagej or set("CZ") & set(file.series[0].axes))
                values, axes = file.series[0].asarray(), file.series[0].axes
    except ImportError as error:
        raise BadBody(reason=f"{path}: TIFF files need tifffile: pip install 'hyperslab[cli]'") from error
    except (ValueError, EOFError) as error:
        raise BadBody(reason=f"{path} cannot be read: {error}") from error
    if values.ndim < 2 or "S" in axes:  # tifffile's axis of colour samples
        described = f"axes {axes}" if axes else f"shape {values.shape}"
        raise BadBody(reason=str(path), expected="a frame, or a stack of frames, of single numbers", found=described)
    if own and not says_axes:
        lost = f"{path} says axes ({axes}) and sizes, which a stream of frames in time would lose"
        raise BadBody(reason=f"{lost}: hyperslab convert keeps them, or --settings says them")
    return values.reshape(-1, *values.shape[-2:])


def _read_frames(source: Path, array: StreamedArray) -> Iterator[AnyArray]:
    """Raw frames of a pipe; raises `BadBody` for a partial last one."""
    nbytes = array.frame_nbytes
    with nullcontext(sys.stdin.buffer) if source == _PIPE else source.open("rb") as file:
        while data := file.read(nbytes):  # buffered, so that only the end is shorter
            if len(data) < nbytes:
                raise BadBody(reason="the last frame is not whole", expected=f"{nbytes} bytes", found=str(len(data)))
            yield np.frombuffer(data, array.dtype).reshape(array.frame_shape)


def _image_settings(frames: AnyArray) -> StreamSettings:
    """Settings of an image with a pyramid, in chunks of about 4 MiB."""
    height, width = frames.shape[-2:]
    rows = (4 << 20) // (min(height, 512) * min(width, 512) * frames.dtype.itemsize)
    dimensions = (
        Dimension(name="t", type="time", size=None, chunk=max(1, min(rows, 100))),
        Dimension(name="y", type="space", size=height, chunk=512),
        Dimension(name="x", type="space", size=width, chunk=512),
    )
    pyramid = PyramidSettings(method="mean" if frames.dtype.kind in "iuf" else "nearest")
    array = ArraySettings(dtype=wire.dtype_to_json(frames.dtype), dimensions=dimensions, pyramid=pyramid)
    return StreamSettings(arrays=(array,))
