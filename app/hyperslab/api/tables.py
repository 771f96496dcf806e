"""Values as CSV: a number a line for one axis, a row a line for two, a headed column for each field of records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.encoders import encode_numbers, is_numeric, json_items
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import NotRepresentable
from hyperslab.wire import dtype_to_json, field_names

QUOTE: Final = '"'
_SPECIAL = re.compile(r'[",\r\n]')
_ROWS_AT_ONCE = 4096


def check_table(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise `NotRepresentable` for what no table holds; ``shape`` is that of the answer."""
    most = 1 if dtype.names is not None else 2
    if len(shape) > most:
        reason = f"a table has {most} axis of records" if dtype.names is not None else "a table has at most 2 axes"
        raise NotRepresentable(dtype_to_json(dtype), "csv", f"{reason}, these are {len(shape)}")


def encode_csv(values: NDArray[Any]) -> bytes:
    """Lines that end in a line feed, in UTF-8. Raises `NotRepresentable`."""
    check_table(values.shape, values.dtype)
    if values.dtype.names is not None:
        return _encode_records(values.reshape(values.size))
    if is_numeric(values.dtype):
        return _encode_numbers(values)
    table = values.reshape(values.size, 1) if values.ndim < 2 else values
    return _encode_rows([], list(table.T))


def _encode_numbers(values: NDArray[Any]) -> bytes:
    """The JSON of numbers is a table but for its brackets."""
    if not values.size:
        return b""
    text = encode_numbers(values).replace(b'"', b"")
    if values.ndim == 2:
        return text[2:-2].replace(b"],[", b"\n") + b"\n"
    return text.strip(b"[]").replace(b",", b"\n") + b"\n"


def _encode_records(records: NDArray[Any]) -> bytes:
    columns = list(_columns("", records))
    return _encode_rows([title for title, _ in columns], [column for _, column in columns])


def _columns(title: str, values: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """One column for each number: nested fields are ``a.b``, items of subarrays ``a[0,1]``."""
    if values.ndim > 1:
        for index in np.ndindex(values.shape[1:]):
            yield from _columns(f"{title}[{','.join(map(str, index))}]", values[(slice(None), *index)])
    elif values.dtype.names is not None:
        for name in field_names(values.dtype):
            yield from _columns(f"{title}.{name}" if title else name, values[name])
    else:
        yield title, values


def _encode_rows(header: list[str], columns: list[NDArray[Any]]) -> bytes:
    lines = [_line(header)] if header else []
    for start in range(0, len(columns[0]) if columns else 0, _ROWS_AT_ONCE):
        cells = [_cells(column[start : start + _ROWS_AT_ONCE]) for column in columns]
        lines += [_line(row) for row in zip(*cells, strict=True)]
    return "".join(lines).encode()


def _line(cells: Sequence[Any]) -> str:
    """A line as RFC 4180 wants it; Python's writer leaves carriage returns bare."""
    texts = ["" if cell is None else str(cell) for cell in cells]
    quoted = [f'"{text.replace(QUOTE, QUOTE * 2)}"' if _SPECIAL.search(text) else text for text in texts]
    return ",".join(quoted if quoted != [""] else ['""']) + "\n"


def _cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind == "c":
        return [str(value).strip("()") for value in column.tolist()]
    return [_cell(item) for item in json_items(column)]


def _cell(item: Any) -> Any:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, float):
        return _float(item)
    return dump_json(item).decode() if isinstance(item, list | dict) else item


def _float(value: float) -> str:
    """NaN and the infinities are spelt as in JSON."""
    return dump_json(value).decode().strip('"')
