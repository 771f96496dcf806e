"""Commands on a running service: ``get``, ``put``, ``info``, ``tree`` and ``stream``.

Interrupted downloads are resumed: a JSON file next to the partial file holds the URL and the ETag of its body.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
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

_PIPE: Final = Path("-")  # stdin or stdout, as with other tools
_FORMATS: Final = {".npy": "npy", ".csv": "csv", ".json": "json", ".raw": "raw", ".bin": "raw"}


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

    An interrupted download goes on when it is started again. Behind a link to a file it is the file that is replaced.
    A device or a pipe is no file that could be: it gets the bytes as they come, and nothing is resumed later; so does
    stdout, ``-``. ``select`` and ``field`` may stand in the URL instead; a URL of the viewer page stands for the plane
    that it shows. Raises `BadSelection`, `BadParameter` (also for a suffix of another form, and an output that cannot
    be written), `ArrayChanged` where the values change again and again, and what the server raised.
    """
    wire.parse_selection(with_query(url, "select", select) or "")  # before anything is asked for
    piped = _is_pipe(output)
    suffix, folder = output.suffix.lower(), Path(os.path.realpath(output)).parent
    if output.is_dir():
        raise BadParameter(name="output", value=str(output), expected="a file, and this is a folder")
    if not piped and not os.access(folder, os.W_OK | os.X_OK):
        expected = f"a file in a folder that is there and can be written to, which {folder} is not"
        raise BadParameter(name="output", value=str(output), expected=expected)
    if form is None and suffix and suffix not in _FORMATS and not piped:
        expected = f"a name that ends in {', '.join(_FORMATS)}, or a format beside it: these can be written"
        raise BadParameter(name="output", value=str(output), expected=expected)
    query = {"field": with_query(url, "field", field), "decode": with_query(url, "decode", None)}
    with closing(open_session(1, None, None, token)) as session:
        address, chosen = _chosen(session, url, select)
        form = form or _FORMATS.get(suffix, "npy")
        request = Request("GET", address.url("slice", select=chosen, **query, format=form))
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

    ``select`` and ``field`` may stand in the URL instead, as for `download`. Raises `BadSelection`, `BadParameter`,
    `BadBody` for a file that cannot be read as npy or does not fit, and what the server raised.
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
            address, chosen = _chosen(session, url, select)
        with RemoteArray(address.url("metadata"), field=field, token=token, progress=progress) as array:
            array.oindex[wire.parse_selection(chosen or "")] = values
    except (TypeError, ValueError, OverflowError) as error:
        raise BadBody(reason=f"{source}: {error}") from error


def describe(
    url: str, *, token: str | None = None, transport: Transport | None = None, place: str | None = None
) -> str:
    """Description of a node for people: the facts of an array, or the tree of a group.

    ``place`` is where it lies, if that is not the URL.
    """
    address = Address.parse(url)
    with closing(open_session(1, None, transport, token)) as session:
        members, _ = read_document(session, address)
        if members["kind"] == "array":
            known = array_facts(members, url=place or address.url("metadata"))
            width = max(map(len, known))
            lines = [f"{name:{width}}  {value}" for name, value in known.items()]
        else:
            tree = RemoteGroup.from_parts(session, address, members).tree()
            lines = [str(tree), *([] if tree.branches else ["no arrays and no groups"])]
        if attributes := members.get("attributes"):
            lines += ["attributes", *json.dumps(attributes, indent=2, ensure_ascii=False).splitlines()[1:-1]]
        return "\n".join(lines)


def draw_tree(url: str, *, level: int | None, token: str | None = None, transport: Transport | None = None) -> str:
    """The groups and arrays below a group, at most ``level`` deep."""
    with RemoteGroup(url, token=token, transport=transport) as group:
        return str(group.tree(level))


def page_url(url: str) -> str:
    """Where the viewer page shows a node, given any of its URLs; one of the page stays as it is."""
    address = Address.parse(url)
    below = f"view/{quote(address.path)}" if address.path else ""
    return url if "/view/" in url else f"{address.base}/{below}"


# --- the selection that a URL of the viewer page shows ---------------------------------------------------------------


def _chosen(session: Session, url: str, select: str) -> tuple[Address, str | None]:
    """Array and selection text of a URL: the explicit selection, or what the viewer page shows.

    The page shows a whole plane at its positions, or the range of a plot. A picture of several resolutions stands for
    its largest array. Any other URL, and what has no plane, is the node itself. Raises what the server raises.
    """
    address, given = Address.parse(url), with_query(url, "select", select)
    parts = urlsplit(url)
    state = parse_qs(parts.query)
    if given or not re.search(r"/view(/|$)", parts.path) or not state.keys() - {"field", "select"}:
        return address, given
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
    own = [] if name in parameters else state.get(name, [])  # an axis with such a name stands in sel=name:position
    escaped = [text.rpartition(":")[2] for text in state.get("sel", ()) if text.rpartition(":")[0] == name]
    return [str(info["selection"].get(name, 0)), *own, *escaped][-1]


# --- files and pipes -------------------------------------------------------------------------------------------------


def _is_pipe(output: Path) -> bool:
    """Whether the output is a stream that cannot be replaced: a pipe, a device, or an open file."""
    if output == _PIPE or (output.exists() and not output.is_file() and not output.is_dir()):
        return True
    open_files = r"/dev|/proc/[^/]+(/task/[^/]+)?/fd"  # folders of links, such as /dev/stdout
    return output.is_symlink() and bool(re.fullmatch(open_files, os.path.realpath(output.parent)))


def _write_to_pipe(session: Session, request: Request, output: Path, progress: Progress) -> None:
    def open_pipe(_: str | None) -> BinaryIO:
        if output != _PIPE:
            return output.open("ab" if output.is_file() else "wb")  # append to an open file
        if sys.stdout is None:  # closed by the parent; its number may be reused by a socket
            raise OSError(errno.EBADF, "stdout is closed")
        return open(sys.stdout.fileno(), "wb", closefd=False)

    try:
        _copy(session, request, open_pipe, title=output.name, progress=progress)
    except BodyChanged as error:
        raise _changed(request, "others") from error


def _write_to_file(session: Session, request: Request, target: Path, progress: Progress) -> None:
    """GET a body into a file; the part that an earlier attempt left is resumed where the body is still the same."""
    data, origin = target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.part.json")
    for _ in range(RESTARTS):
        begun = _begun(data, origin, request.url)

        def open_part(etag: str | None, mode: str = "ab" if begun[0] else "wb") -> Any:
            origin.write_text(json.dumps({"url": request.url, "etag": etag}), encoding="utf-8")
            return data.open(mode)

        try:
            _copy(session, request, open_part, begun=begun, title=target.name, progress=progress)
        except (BodyChanged, RangeNotSatisfiable) as error:
            whole = isinstance(error, RangeNotSatisfiable) and error.size == begun[0]
            origin.unlink(missing_ok=True)
            if not whole:
                continue
        data.replace(target)
        origin.unlink(missing_ok=True)
        return
    raise _changed(request, "others at every attempt")


def _begun(data: Path, origin: Path, url: str) -> tuple[int, str | None]:
    """Size of the partial file and ETag of its body; (0, None) if it is of another URL."""
    try:
        known = json.loads(origin.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return 0, None
    match known:
        case {"url": str(begun), "etag": str(etag)} if begun == url and data.exists():
            return data.stat().st_size, etag
    return 0, None


def _copy(
    session: Session,
    request: Request,
    open_file: Callable[[str | None], AbstractContextManager[BinaryIO]],
    *,
    begun: tuple[int, str | None] = (0, None),
    title: str,
    progress: Progress,
) -> None:
    """Copy a body, or its rest, into the file that ``open_file`` gives for its ETag.

    The body comes first: where the request is refused, nobody has to wait for a pipe's reader.
    """
    body = Body(session, request, check=_check, begun=begun)
    try:
        remaining = body.open()
        with open_file(body.etag) as file, report(progress, begun[0] + remaining, title) as advance:
            body.on_bytes = advance
            advance(begun[0])
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
        found = response.headers.get("Content-Type", "an answer without a type")
        raise RemoteProblem(status=response.status, detail=f"expected values of an array, found {found}")


def _changed(request: Request, found: str) -> ArrayChanged:
    return ArrayChanged(path=request.url, member="values", expected="the same bytes", found=found)


def _load(source: Path) -> AnyArray:
    try:
        if source != _PIPE and source.is_file():
            values = np.load(source, mmap_mode="r", allow_pickle=False)
        else:  # a pipe, which numpy could neither map nor look into twice
            with nullcontext(sys.stdin.buffer) if source == _PIPE else source.open("rb") as file:
                values = np.load(io.BytesIO(file.read()), allow_pickle=False)
    except (ValueError, EOFError) as error:  # of which numpy says that it may be code, whatever it is
        reason: object = "objects, or no array" if "allow_pickle" in str(error) else error
        raise BadBody(reason=f"{source} is not an npy file: {reason}") from error
    if not isinstance(values, np.ndarray):
        values.close()
        raise BadBody(reason=f"{source} is an npz archive: expected one array, as npy")
    return values


# --- frames of an instrument -----------------------------------------------------------------------------------------


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
    """Stream the frames of a folder of ``.npy`` and TIFF files in order of their names, of one such file, or raw frames
    of a pipe (``-``: stdin); returns the last state.

    ``settings``: a JSON file; by default an image with a pyramid, of the first frame's size and dtype. ``resume``: skip
    the frames that an earlier run has stored. Raises `BadParameter` for a source without frames, `BadBody` for a file
    that cannot be read or does not fit the array, and what the server raised.
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
        document = _image_settings(_load_frames(files[0]))
    if_exists: Any = "resume" if resume else "error"
    with RemoteStream(url, document, if_exists=if_exists, token=token, progress=progress) as stream:
        array = stream.array(key)
        frames = chain.from_iterable(map(_load_frames, files)) if files else _piped_frames(source, array)
        try:
            for frame in islice(frames, array.appended, None):
                stream.append(frame, key)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadBody(reason=f"{source}: {error}") from error
        return stream.finish()


def _frame_files(source: Path) -> list[Path]:
    """Files with frames, sorted by name, with numbers in names as numbers."""
    if source.is_file():
        return [source]
    suffixes = (".npy", ".tif", ".tiff")
    found = [path for path in source.iterdir() if path.suffix.lower() in suffixes] if source.is_dir() else []
    if not found:
        expected = "a folder with .npy or TIFF files, one such file, or - for stdin"
        raise BadParameter(name="source", value=str(source), expected=expected)

    def number_or_text(path: Path) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", path.name)]

    return sorted(found, key=number_or_text)


def _load_frames(path: Path) -> AnyArray:
    """Frames of a file, as (frame, line, column)."""
    axes = ""
    try:
        if path.suffix.lower() == ".npy":
            values: AnyArray = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            from tifffile import TiffFile

            with TiffFile(path) as file:
                values, axes = file.series[0].asarray(), file.series[0].axes
    except ImportError as error:
        raise BadBody(reason=f"{path}: TIFF files need tifffile: pip install 'hyperslab[cli]'") from error
    except (ValueError, EOFError) as error:
        raise BadBody(reason=f"{path} cannot be read: {error}") from error
    if values.ndim < 2 or "S" in axes:  # samples of a colour
        found = f"axes {axes}" if axes else f"shape {values.shape}"
        raise BadBody(reason=str(path), expected="a frame, or a stack of frames, of single numbers", found=found)
    return values.reshape(-1, *values.shape[-2:])


def _piped_frames(source: Path, array: StreamedArray) -> Iterator[AnyArray]:
    """Frames of raw bytes, in the dtype of the array. Raises `BadBody` for a partial last frame."""
    nbytes = array.frame_nbytes
    with nullcontext(sys.stdin.buffer) if source == _PIPE else source.open("rb") as file:
        while data := file.read(nbytes):
            while len(data) < nbytes and (more := file.read(nbytes - len(data))):
                data += more
            if len(data) < nbytes:
                raise BadBody(reason="the last frame is not whole", expected=f"{nbytes} bytes", found=str(len(data)))
            yield np.frombuffer(data, array.dtype).reshape(array.frame_shape)


def _image_settings(frames: AnyArray) -> StreamSettings:
    """An image with a pyramid, in chunks of about 4 MiB."""
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
