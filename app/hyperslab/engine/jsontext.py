"""JSON of Zarr documents: lenient parser with limits of size and depth, strict serialiser."""

from __future__ import annotations

import codecs
import json
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import orjson

from hyperslab.wire import check_text_nesting
from hyperslab.wire.items import json_float

MAX_DOCUMENT_BYTES: Final = 16 << 20
"""Maximum size of a document."""
MAX_DEPTH: Final = 200
"""Maximum nesting, so that recursion over a document is safe."""
MAX_VALUES: Final = 8 << 20
"""Maximum number of values in a document, estimated by commas and brackets; they take some 64 bytes of memory each."""

_DIGITS: Final = bytes(ord("0") if chr(code) in "0123456789" else ord(" ") for code in range(256))
"""Table of `bytes.translate`; a regular expression for runs of digits takes nine times as long."""


def parse_json(data: bytes | memoryview, *, limit: int = MAX_DOCUMENT_BYTES) -> Any:
    """The value of a UTF-8 document of at most ``limit`` bytes; raises `ValueError`.

    Bare ``NaN``, ``Infinity`` and ``-Infinity`` of old writers and a byte order mark are accepted; the last of
    duplicate members counts. Integers of any size are exact.
    """
    if len(data) > limit:
        raise ValueError(f"{len(data)} bytes of JSON, the limit is {limit}")
    raw = bytes(data).removeprefix(codecs.BOM_UTF8)
    if sum(map(raw.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise ValueError(f"JSON of more than {MAX_VALUES} values")
    check_text_nesting(raw, MAX_DEPTH)
    return _parse(raw)


def _parse(raw: bytes) -> Any:
    if b"0" * 19 not in raw.translate(_DIGITS):  # orjson would round an integer beyond 64 bits
        with suppress(ValueError):  # may be a bare NaN
            return orjson.loads(raw)
    try:
        text = raw.decode("utf-8")
        value = json.loads(text)
        if re.search(r"\\u[dD][89a-fA-F]", text):  # raises for lone surrogates
            _dump(value)
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise ValueError(f"not Unicode text: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except ValueError:
        raise ValueError(f"an integer of more than {sys.get_int_max_str_digits():,} digits") from None
    return value


def parse_object(data: bytes | memoryview, *, limit: int = MAX_DOCUMENT_BYTES) -> dict[str, Any] | None:
    """The object of a document of at most ``limit`` bytes; None if it is invalid or not an object."""
    try:
        document = parse_json(data, limit=limit)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def dump_json(value: Any) -> bytes:
    """Compact strict JSON in UTF-8, with NaN and infinities as Zarr's strings. Raises `TypeError` for unsupported
    types."""
    try:
        return _dump(value)
    except ValueError:
        return _dump(json_floats(value))


def dump_in_pieces(value: Any, depth: int, dump: Callable[[Any], bytes] = dump_json) -> bytes:
    """As ``dump``, the members down to ``depth`` one by one, and long lists there in parts: each call holds Python's
    lock until its end, for a second at a document of 100,000 nodes."""
    if depth and isinstance(value, dict):
        members = [dump(name) + b":" + dump_in_pieces(member, depth - 1, dump) for name, member in value.items()]
        return b"{" + b",".join(members) + b"}"
    if depth and isinstance(value, list):
        if len(value) <= (step := 10_000) and {*map(type, value)} != {int}:
            return b"[" + b",".join([dump_in_pieces(item, depth - 1, dump) for item in value]) + b"]"
        parts = [value[start : start + step] for start in range(0, len(value), step)]
        try:  # five times as fast for integers, such as a million lengths of chunks
            texts = [orjson.dumps(part) if {*map(type, part)} == {int} else dump(part) for part in parts]
        except TypeError:  # an integer beyond 64 bits
            texts = [*map(dump, parts)]
        return b"[" + b",".join([text[1:-1] for text in texts]) + b"]"
    return dump(value)


def distinct(text: bytes) -> bytes:
    """The JSON followed by random white space, so that its digest, the version on most object stores, is unique: a
    delayed conditional request must not match a later equal document."""
    return text + f"{secrets.randbits(64):064b}".translate(str.maketrans("01", " \t")).encode()


def json_floats(value: Any) -> Any:
    """A document with `json_float` applied to all floats."""
    if isinstance(value, float):
        return json_float(value)
    if isinstance(value, dict):
        return {name: json_floats(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [json_floats(item) for item in value]
    return value


def dump_copy(value: Any) -> bytes:
    """As `dump_json`, with bare NaN and infinities, for copies of documents by other writers."""
    return _dump(value, allow_nan=True)


@dataclass(slots=True)
class KeptValue:
    """A large member of a document: its ``value``, and its ``text`` once that was made. Neither is made again while
    others of the document change."""

    value: Any
    text: bytes = b""

    def dump(self, document: Mapping[str, Any], name: str, depth: int = 0) -> bytes:
        """As `dump_copy` of a document which has the value as this member; ``depth`` as for `dump_in_pieces`."""
        self.text = self.text or dump_copy(self.value)
        hole = uuid4().hex
        before, _, after = dump_in_pieces({**document, name: hole}, depth, dump_copy).partition(f'"{hole}"'.encode())
        return b"".join((before, self.text, after))

    def parse(self, data: bytes, name: str) -> dict[str, Any] | None:
        """The object of a document which has the text as this member; else None."""
        before, text, after = data.partition(self.text) if self.text else (data, b"", b"")
        hole = uuid4().hex
        document = parse_object(before + f'"{hole}"'.encode() + after) if text else None
        return {**document, name: self.value} if document is not None and document.get(name) == hole else None


def _dump(value: Any, *, allow_nan: bool = False) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=allow_nan, separators=(",", ":")).encode("utf-8")
