"""JSON of Zarr documents: lenient parsing, strict formatting, bounded in size and depth."""

from __future__ import annotations

import codecs
import json
import math
import re
import secrets
from contextlib import suppress
from typing import Any, Final

import numpy as np
import orjson

MAX_DOCUMENT_BYTES: Final = 16 << 20
"""The largest ``.zarray``, ``.zgroup`` or ``.zattrs`` that is read."""
MAX_DEPTH: Final = 200
"""The deepest nesting of lists and objects; beyond, recursion over a document would not be safe."""

MAX_VALUES: Final = 8 << 20
"""The most values that a document consists of, of which a byte can spell one: in memory each takes 64 bytes or so."""

SPELLED: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How Zarr spells floats that strict JSON cannot hold."""


def parse_json(data: bytes | memoryview, *, limit: int = MAX_DOCUMENT_BYTES) -> Any:
    """The value of a UTF-8 document of at most ``limit`` bytes.

    Bare ``NaN``, ``Infinity`` and ``-Infinity``, which old writers produce, and a byte order mark are accepted; of a
    duplicated member the last one wins. Integers are exact at any size. Raises `ValueError`.
    """
    if len(data) > limit:
        raise ValueError(f"{len(data)} bytes of JSON, the limit is {limit}")
    raw = bytes(data).removeprefix(codecs.BOM_UTF8)
    _check_depth(raw)
    if not re.search(rb"[0-9]{19}", raw):  # orjson would round an integer beyond 64 bits
        with suppress(ValueError):  # perhaps only a bare NaN
            return orjson.loads(raw)
    try:
        text = raw.decode("utf-8")
        value = json.loads(text)
        if re.search(r"\\u[dD][89a-fA-F]", text):  # half a surrogate pair cannot be encoded
            _dump(value)
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise ValueError(f"not Unicode text: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    return value


def check_values(data: bytes | memoryview) -> None:
    """Raise `ValueError` for a document of more than `MAX_VALUES`; commas in its texts count, too."""
    raw = bytes(data)
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
        raise ValueError(f"JSON of more than {MAX_VALUES} values")


def parse_object(data: bytes | memoryview) -> dict[str, Any] | None:
    """As `parse_json`, but None if the document is broken or no object."""
    try:
        document = parse_json(data)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def dump_json(value: Any) -> bytes:
    """Compact strict JSON in UTF-8, members in the order given; NaN and infinities become the strings of Zarr.

    Raises `TypeError` for what JSON cannot hold.
    """
    try:
        return _dump(value)
    except ValueError:
        return _dump(spell_floats(value))


def distinct(text: bytes) -> bytes:
    """The same JSON with blanks behind it that no other text has. On most object stores the version is a digest of the
    bytes, and a request that comes late must not meet the version again that it was made for."""
    return text + f"{secrets.randbits(64):064b}".translate(str.maketrans("01", " \t")).encode()


def spell_float(number: float) -> float | str:
    """A number as strict JSON can hold it: NaN and the infinities are the strings of Zarr."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")


def spell_floats(value: Any) -> Any:
    """A document whose floats are all as `spell_float` has them."""
    if isinstance(value, float):
        return spell_float(value)
    if isinstance(value, dict):
        return {name: spell_floats(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [spell_floats(item) for item in value]
    return value


def dump_copy(value: Any) -> bytes:
    """As `dump_json`, for copies of what others have stored: NaN and infinities stay bare, as its readers know them."""
    return _dump(value, allow_nan=True)


def _dump(value: Any, *, allow_nan: bool = False) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=allow_nan, separators=(",", ":")).encode("utf-8")


def _check_depth(raw: bytes) -> None:
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    text = np.frombuffer(raw.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)  # each quote begins or ends a string
    quotes = depth = 0
    for start in range(0, len(text), 1 << 20):
        piece = text[start : start + (1 << 20)]
        brackets = piece & 0xDF  # which makes square ones of braces
        steps = (brackets == ord("[")).astype(np.int8) - (brackets == ord("]"))
        counts = quotes + np.cumsum(piece == ord('"'), dtype=np.int64)
        depths = depth + np.cumsum(steps * (counts % 2 == 0), dtype=np.int64)
        if depths.max() > MAX_DEPTH:
            raise ValueError(f"JSON nested more than {MAX_DEPTH} levels deep")
        quotes, depth = int(counts[-1]), int(depths[-1])
