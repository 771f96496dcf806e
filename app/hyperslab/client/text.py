"""Human-readable output: descriptions of nodes, trees and progress bars."""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from hyperslab import wire

Progress = bool | Callable[[int, int], None]
"""True for a bar on stderr, or a function of the bytes done and in all, called from any thread."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Printable tree of a group."""

    label: str
    branches: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.label, *self._lines("")])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _lines(self, indent: str) -> Iterator[str]:
        for i, branch in enumerate(self.branches):
            last = i == len(self.branches) - 1
            yield f"{indent}{'└── ' if last else '├── '}{branch.label}"
            yield from branch._lines(indent + ("    " if last else "│   "))


def array_facts(members: Mapping[str, Any], **known: Any) -> dict[str, Any]:
    """Facts about an array from its node document, overridden by ``known``; without None values."""
    names = members.get("dimension_names")
    filters = members.get("filters") or ()
    dtype, *size = dtype_and_size(members)
    facts: Mapping[str, Any] = {
        "array": members.get("path"),
        "field": None,
        "shape": tuple(members["shape"]),
        "dimensions": names and ", ".join(name or "?" for name in names),
        "dtype": dtype if size else f"{dtype}, whose values need ml_dtypes",
        "chunks": tuple(members["chunks"]),
        "shards": members.get("shards") and tuple(members["shards"]),
        "size": size[0] if size else None,
        "order": members.get("order", "C"),
        "fill value": members.get("fill_value"),
        "compressor": codec_text(members.get("compressor")),
        "filters": ", ".join(codec_text(codec) for codec in filters) or None,
        "url": None,
        **known,
    }
    return {name: value for name, value in facts.items() if value is not None}


def group_as_html(
    path: str, url: str, attributes: Mapping[str, Any], children: Sequence[tuple[str, str]], limit: int
) -> str:
    """HTML tables of a group's attributes, and of names and kinds of at most ``limit`` children."""
    listed = dict(children[:limit]) | ({"…": "and more"} if len(children) > limit else {})
    texts = {name: json.dumps(value, ensure_ascii=False) for name, value in attributes.items()}
    short = {name: text if len(text) <= 200 else f"{text[:200]}…" for name, text in texts.items()}
    sections = {"attributes": short, "children": listed}
    tables = [
        f"<details open><summary>{title}</summary>{table(rows)}</details>" for title, rows in sections.items() if rows
    ]
    return "".join([table({"group": path, "url": url}), *tables])


def table(rows: Mapping[str, Any]) -> str:
    """An HTML table of two columns."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{cells}</table>"


def dtype_and_size(members: Mapping[str, Any]) -> tuple[str, ...]:
    """An array's dtype in numpy's notation and the size of its values; without ml_dtypes, Zarr's name of its dtypes."""
    try:
        dtype = wire.dtype_from_json(members["dtype"])
    except (ImportError, ValueError):
        return (json.dumps(members["dtype"]).strip('"'),)
    return str(dtype), size_text(prod(members["shape"]) * dtype.itemsize)


def size_text(nbytes: int) -> str:
    """A number of bytes with a unit, such as ``32.0 MiB``."""
    if nbytes < 1024:
        return f"{nbytes} B"
    power = min((nbytes.bit_length() - 1) // 10, 5)
    return f"{nbytes / 1024**power:.1f} {'KMGTP'[power - 1]}iB"


def codec_text(codec: Mapping[str, Any] | None) -> str:
    """A codec's configuration, such as ``blosc(cname=lz4, clevel=5)``."""
    if codec is None:
        return "none"
    parameters = ", ".join(f"{name}={value}" for name, value in codec.items() if name != "id")
    return f"{codec.get('id')}({parameters})" if parameters else str(codec.get("id"))


@contextmanager
def report(progress: Progress, total: int | None, title: str) -> Iterator[Callable[..., None]]:
    """Progress of a transfer of ``total`` bytes (None if unknown).

    Yields a callback for new bytes (negative to repeat some) and for an increase of the total. Raises `ImportError` if
    a progress bar needs tqdm and that is not installed.
    """
    if progress is False or total == 0:
        yield lambda *_: None
        return
    lock, done, expected = threading.Lock(), 0, total or 0
    with ExitStack() as stack:
        if progress is True:
            try:
                from tqdm import tqdm
            except ImportError as error:
                advice = "pip install 'hyperslab[cli]', or pass a function as progress="
                raise ImportError(f"a progress bar needs tqdm: {advice}") from error
            units: Any = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
            bar = stack.enter_context(tqdm(total=total, desc=title, leave=False, **units))

        def advance(count: int, more: int = 0) -> None:
            nonlocal done, expected
            with lock:
                done, expected = done + count, expected + more
                if progress is True:
                    bar.update(count)
                elif callable(progress):
                    progress(done, expected)

        yield advance
