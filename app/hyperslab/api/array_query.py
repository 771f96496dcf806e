"""Query for values of an array: a selection, and the form and dtype in which its values are sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.conditional import etag_of
from hyperslab.api.options import ApiOptions
from hyperslab.api.request import Request
from hyperslab.api.values_out import (
    check_form,
    choose_format,
    converted,
    encode_csv,
    encode_json,
    media_types,
    npy_header,
)
from hyperslab.arrays.limits import boxes_that_fit
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import require_field, resolve_field, select
from hyperslab.engine.cf import Decoder
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import Selection, split_selection
from hyperslab.engine.minmax import PARTS, reduced_dtype
from hyperslab.errors import BadParameter, NotRepresentable, TooLarge
from hyperslab.wire import SelectionItem, format_dtype

PARAMETERS: Final = ("field", "format", "dtype", "decode")
"""What the query may hold besides the selection."""
DECODINGS: Final = ("cf", "none")
MOST_BINS: Final = 1 << 16
_BINS: Final = 1024
_TEXT: Final[Mapping[str, Callable[[NDArray[Any]], bytes]]] = MappingProxyType({"json": encode_json, "csv": encode_csv})


@dataclass(frozen=True, slots=True)
class ArrayQuery:
    """A selection of an array and how it is to be sent; ``dtype`` None: as it is stored, or as ``decoder`` makes it.

    ``bins``: minimum, maximum and mean of so many parts of the last axis are wanted in place of its values.
    """

    array: ArrayNode
    selection: Selection
    field: Field | None
    form: str
    dtype: np.dtype[Any] | None
    decoder: Decoder | None = None
    bins: int | None = None

    @property
    def out_dtype(self) -> np.dtype[Any]:
        return self.dtype if self.dtype is not None else stored_dtype(self.array, self.field)

    @property
    def is_stored(self) -> bool:
        """Whether the answer holds values as the reader gives them, in the order that it does."""
        return self.decoder is None and self.bins is None

    def decode(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values as they were read, in the dtype of the answer."""
        return values if self.decoder is None else self.decoder(values).astype(self.out_dtype, copy=False)

    @property
    def encode(self) -> Callable[[NDArray[Any]], bytes] | None:
        """What makes a text of the values; None where they are sent in binary form."""
        return _TEXT.get(self.form)

    @property
    def prefix(self) -> bytes:
        """What precedes the values in binary form: an npy header, or nothing."""
        return npy_header(self.shape, self.out_dtype) if self.form == "npy" else b""

    @property
    def media_type(self) -> str:
        return media_types(self.out_dtype)[self.form]

    @property
    def shape(self) -> tuple[int, ...]:
        if self.bins is not None:
            return (*self.selection.shape[:-1], self.bins, PARTS)
        return self.selection.shape + (self.field.shape if self.field is not None else ())

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.out_dtype.itemsize

    def etag(self, tag: str) -> str:
        """A strong entity tag: that of the plan, in this form and dtype."""
        form = self.form if self.dtype is None else f"{self.form} {format_dtype(self.dtype)}"
        if not self.is_stored:
            form = f"{form} {self.decoder is not None and self.array.version} {self.bins}"
        return etag_of(f"{tag} {form}".encode())

    def boxes(self, limit: int) -> list[str]:
        """Selections of at most ``limit`` bytes that make up this one and follow the chunks."""
        inner = self.field.shape if self.field is not None else ()
        return boxes_that_fit(self.array, self.selection, self.out_dtype.itemsize * prod(inner), limit, self.field)

    def most_bytes(self, options: ApiOptions) -> int | None:
        """The cap on the values that go into one answer; objects and bins are held as a whole, in any form."""
        form = "json" if self.out_dtype.hasobject or self.bins is not None else self.form
        return {"json": options.max_json_bytes, "csv": options.max_csv_bytes}.get(form, options.max_read_bytes)

    def check(self, options: ApiOptions) -> None:
        """Refuse before anything is looked up: what has no such form, and what is over the cap."""
        check_form(self.form, self.shape, self.out_dtype)
        limit = self.most_bytes(options)
        if limit is not None and self.nbytes > limit:
            boxes = self.boxes(limit) if self.bins is None else []
            raise TooLarge(f"a selection as {self.form}", self.nbytes, limit, boxes=boxes)


def stored_dtype(array: ArrayNode, field: Field | None) -> np.dtype[Any]:
    """The dtype of the values before any conversion."""
    return field.numpy if field is not None else array.metadata.dtype.numpy


def array_query(
    request: Request, array: ArrayNode, items: Sequence[SelectionItem], *, negotiate: bool = True
) -> ArrayQuery:
    """Read ``field``, ``format`` and ``dtype``; the Accept header too if ``negotiate``. The ``items`` may go on into
    the subarray of the field."""
    query = request.query
    offered = media_types(array.metadata.dtype.numpy)
    form = choose_format(query.text("format"), request.header(b"accept") if negotiate else None, offered)
    field = resolve_field(array, query.text("field"))
    selection = select(array, field, items)
    if query.text("dtype") is not None:  # records as a whole have no other
        field = require_field(array, query.text("field"))
    selection, field = split_selection(selection, array.metadata.rank, field)
    decoder = decoder_of(array, query.choice("decode", DECODINGS))
    source = stored_dtype(array, field) if decoder is None else decoder.dtype
    bins = _bins(request, selection)
    if bins is not None:
        reduced = reduced_dtype(source)
        if reduced is None:
            raise NotRepresentable(str(source), "minimum and maximum", "these values have no order")
        source = reduced
    dtype = converted(query.text("dtype"), source)
    if decoder is None and bins is None:
        return ArrayQuery(array, selection, field, form, dtype)
    dtype = source if dtype is None else dtype
    return ArrayQuery(array, selection, field, form, dtype, decoder and decoder.to(dtype), bins)


def decoder_of(array: ArrayNode, decode: str | None) -> Decoder | None:
    """What ``decode=`` asks for; None where values are to be as they are stored."""
    decoder = array.decoder if decode == "cf" else None
    return decoder if decoder is not None and decoder.changes else None


def _bins(request: Request, selection: Selection) -> int | None:
    """``reduce=minmax`` and ``bins=``: how many parts of the last axis are wanted; never more than it is long."""
    query = request.query
    if query.choice("reduce", ("minmax",)) is None:
        if "bins" in query.values:
            raise BadParameter("bins", query.values["bins"], "reduce=minmax beside it")
        return None
    bins = query.integer("bins", _BINS, low=1, high=MOST_BINS)
    if not selection.shape:
        raise BadParameter("reduce", "minmax", "a selection of one axis or more, the last of which is reduced")
    return min(bins, selection.shape[-1])
