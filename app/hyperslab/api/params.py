"""Parameters of paths and queries, as pydantic models, and what is said of those that do not fit.

A flag is on as ``true``, ``1``, ``yes`` or without a value. Unknown parameters are refused: a misspelt ``select`` must
not return the whole array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, get_type_hints

from fastapi import Path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request

from hyperslab.api.middleware.edge import node_path
from hyperslab.errors import BadParameter
from hyperslab.wire.labels import Method


def _route_parameter(name: str, regex: str) -> None:
    """A kind of path parameter for templates, ``{path:name}``."""
    kind = type(name, (StringConvertor,), {"regex": regex})
    register_url_convertor(name, kind())


_route_parameter("node", "(?s:.*)")  # also a line feed, which is refused with a reason
_route_parameter("inner", "(?s:.+)")
_route_parameter("stream", r"(?s:.+?)(?<!/flush)(?<!/skip)(?<!/frames)")
_route_parameter("last", "[^/]+")
_route_parameter("zoom", "[0-9]{1,3}")
_route_parameter("cell", "[0-9]{1,18}")
_route_parameter("cells", "-?[0-9]{1,18}")
_route_parameter("picture", "png|jpe?g|webp")
_route_parameter("numbers", "png|jpe?g|webp|npy|raw")

PATH: Final = {"pattern": r"^[^\x00-\x08\x0a-\x1f\x7f]*$"}

NodePath = Annotated[
    str,
    Path(
        description="The node: the store's name, then the path in the store; slashes stay as they are.",
        examples=["demo/brain"],
        json_schema_extra=dict(PATH),
    ),
    BeforeValidator(node_path),
]
KeyPath = Annotated[
    str,
    Path(
        description="The store's name, then the key in the store; slashes stay as they are.",
        examples=["demo/brain/.zarray"],
        json_schema_extra=dict(PATH),
    ),
    BeforeValidator(node_path),
]
ChunkName = Annotated[
    str,
    Path(
        description="The indices of the chunk in the chunk grid, with dots between.",
        examples=["0.0.0"],
        json_schema_extra={"pattern": r"^[0-9]+(\.[0-9]+)*$"},
    ),
]

# --- values ----------------------------------------------------------------------------------------------------


def _flag(text: Any) -> Any:
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(str(text).lower(), text)


def _digits(text: Any) -> int:
    if isinstance(text, str) and not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 20):
        raise ValueError("an integer")
    return int(text)


_NUMBER: Final = r"\s*[+-]?[0-9]{1,1000}\s*"
_BOUNDS: Final = rf"({_NUMBER}|\s*):({_NUMBER}|\s*)(:({_NUMBER}|\s*))?"
_LIST: Final = rf"\s*\[({_NUMBER}(,{_NUMBER})*,?|\s*)\]\s*"
_ITEM: Final = rf"({_NUMBER}|{_BOUNDS}|\s*\.\.\.\s*|{_LIST})"
_SELECT: Final = {"pattern": rf"^({_ITEM}(,{_ITEM})*,?|\s*)$", "examples": ["10:20,...,::2", "0", "5,:10,[1,5,9]"]}

Flag = Annotated[bool, BeforeValidator(lambda text: text == "" or _flag(text))]
Explicit = Annotated[bool, BeforeValidator(_flag)]
"""A flag that needs its full form, as what it asks for destroys."""
Text = Annotated[str | None, AfterValidator(lambda text: text or None)]
DIGITS: Final = BeforeValidator(_digits)
"""Validator of integers, which come in no other form."""
Form = Literal["raw", "npy", "json", "csv"]
SliceForm = Literal["raw", "npy", "json", "csv", "tiff"]
StoredForm = Literal["raw", "npy", "json", "csv", "stored"]
Casting = Literal["safe", "same_kind", "unsafe"]

# --- queries ---------------------------------------------------------------------------------------------------


class Parameters(BaseModel):
    """The parameters of a query."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class WhichField(Parameters):
    field: Text = None
    """One field of a structured dtype; its subarray dimensions follow the array's."""


class ValuesQuery(WhichField):
    """The form of values."""

    format: Form | None = None
    """The form of the answer; wins over Accept."""
    dtype: Text = None
    """Another dtype than the stored one, such as `<f4`; `safe` is one that a JavaScript typed array holds."""
    decode: Literal["cf", "none"] = "none"
    """`cf`: as the array's CF attributes say: unpacked, missing values as NaN, times as dates."""


class LabelQuery(Parameters):
    sel: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
        Field(json_schema_extra={"items": {"type": "string", "pattern": "^[^:]+:.+$"}}),
    ] = ()
    """`name:label` by the coordinate that is stored beside the array under the name of the dimension, as xarray's
    `sel`: a label, `lat:[45,50]`, or `time:2001-01..2001-03` with both ends; a part of a date is all of it. Once for
    each dimension."""
    method: Method | None = None
    """What `sel` takes where no value is the label: the nearest, or the one before or after."""


class SelectionQuery(LabelQuery):
    select: Annotated[str, Field(json_schema_extra=dict(_SELECT))] = ""
    """What to read or write, as numpy writes it: integers, `a:b:c` with negative bounds and steps, `...`, and lists
    `[1,5,9]` for orthogonal selection. Axes left out at the end are whole, and so is everything by default; those that
    `sel` selects are."""


class ComputedQuery(SelectionQuery, ValuesQuery):
    format: SliceForm | None = None  # type: ignore[assignment]
    """The form of the answer; wins over Accept. `tiff`: an OME-TIFF file."""


class SliceQuery(ComputedQuery):
    reduce: Literal["minmax"] | None = None
    """Minimum, maximum and mean of parts of the last axis in place of its values: it becomes two, `(bins, 3)`."""
    bins: Annotated[int | None, Field(ge=1, le=1 << 16), DIGITS] = None
    """How many parts, by default 1024; no more than the axis is long."""


class PlanQuery(ComputedQuery):
    box_bytes: Annotated[int | None, Field(ge=1, le=1 << 62), DIGITS] = None
    """The most bytes of each box of the split."""


class ChunkQuery(ValuesQuery):
    format: StoredForm | None = None  # type: ignore[assignment]
    """The form of the answer; wins over Accept. `stored`: the bytes as they are."""


class CastQuery(WhichField):
    casting: Casting = "safe"
    """Which conversions of an npy body are allowed, in numpy's words."""


class WriteQuery(SelectionQuery, CastQuery):
    pass


class WriteChunkQuery(CastQuery):
    format: StoredForm | None = None
    """`stored` for an encoded chunk; the form of values is their media type."""


class NoQuery(Parameters):
    """No parameters."""


class AppendQuery(Parameters):
    axis: Annotated[int, Field(ge=-64, le=63), DIGITS] = 0
    """The axis to append along."""
    at: Annotated[int | None, Field(ge=0, le=1 << 62), DIGITS] = None
    """Where the array is believed to end; 409 where it does not."""
    casting: Casting = "safe"
    """Which conversions of an npy body are allowed, in numpy's words."""


class PointsQuery(CastQuery, LabelQuery):
    format: Form | None = None
    """The form of the answer; wins over Accept."""
    decode: Literal["cf", "none"] = "none"
    """`cf`: as the array's CF attributes say: unpacked, missing values as NaN, times as dates."""
    values: Flag = False
    """Write the values that come along."""


class MetadataQuery(WhichField):
    limit: Annotated[int | None, Field(ge=0), DIGITS] = None
    """The most children of a group to list."""
    cursor: Text = None
    """`next_cursor` of the page before."""
    decode: Literal["cf", "none"] = "none"
    """`cf`: also what CF decoding does, as the member `decoded`."""
    search: Text = None
    """Nodes at any depth below a group, as `matches` in place of `children`: those whose path from there, or a name or
    a value among whose attributes, has this text in it, in any case of letters; `units:K` is the value of one
    attribute. `limit` and `cursor` are about them."""
    table: Flag = False
    """Children with `shape`, `chunks`, `dtype`, `nbytes`, `units`, and `attributes`, 500 on a page."""
    sort: Text = None
    """Of a table: `name`, `kind`, `shape`, `chunks`, `dtype`, `nbytes`, `units` or one of the columns; `-nbytes` from
    the largest on."""
    filter: Text = None
    """Of a table: only children with this text in their name or their attributes, as in a search."""
    columns: Text = None
    """Of a table: the names of attributes, with commas between; `long_name,title` by default."""


class CreateQuery(Parameters):
    mode: Literal["create", "open", "replace"] = "create"
    """What to do where something is there: fail, open it if it fits, or replace it."""
    foreign: Explicit = False
    """With `mode=replace`: also keys that are not of Zarr, which stay otherwise."""


class ChangeQuery(Parameters):
    expand_only: Flag = False
    """Refuse where an axis would shrink."""
    shrink_only: Flag = False
    """Refuse where an axis would grow."""


class DeleteQuery(Parameters):
    recursive: Explicit = False
    """Also a node with others, or with other keys, below it."""
    foreign: Explicit = False
    """With `recursive=true`: also keys that are not of Zarr, which stay otherwise."""


class ChangesQuery(Parameters):
    since: Text = None
    """The `id` of the last event that was seen; `Last-Event-ID` means the same."""


class StreamQuery(Parameters):
    key: str | None = None
    """Which array of a stream; may be left out where there is one."""


class FramesQuery(StreamQuery):
    start: Annotated[int, Field(ge=0, le=1 << 62, alias="from"), DIGITS] = 0
    """The first frame."""


class OpenStreamQuery(Parameters):
    if_exists: Literal["error", "resume", "replace"] = "error"
    """What to do where a stream is, or nodes are in the way."""
    dry_run: Flag = False
    """Store nothing; the answer says what would be made."""


class EndStreamQuery(Parameters):
    finish: Annotated[Explicit, Field(examples=[True])] = False
    """Store everything and take no more."""
    discard: Explicit = False
    """Remove what the stream has made."""
    pad: Explicit = False
    """Fill up a last frame that is not whole."""
    drop: Explicit = False
    """Leave out a last frame that is not whole."""


class ReadyQuery(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    stores: Flag = False
    """Whether a store that does not answer is a `503` too: for alerts. A probe that decides where requests go leaves
    it out, or one bucket that is away takes every replica with it."""


# --- errors ----------------------------------------------------------------------------------------------------


def refusal(request: Request, errors: Sequence[Any]) -> BadParameter:
    """The error for parameters of a request that do not fit: of those found by FastAPI, the first one about an
    unknown name, else the first one."""
    error = min(errors, key=lambda each: each["type"] != "extra_forbidden")
    name = str(error["loc"][1])
    sent = [value[:200] for value in request.query_params.getlist(name)]
    value = sent[0] if len(sent) == 1 else sent or error["input"]
    model = get_type_hints(request.scope["endpoint"]).get("query")
    fields = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
    field_names = {field.alias or name: field for name, field in fields.items()}
    if error["type"] == "extra_forbidden":
        return BadParameter(
            name, value, f"one of the parameters {', '.join(sorted(field_names))}" if field_names else "no parameters"
        )
    cause = error.get("ctx", {}).get("error")
    return BadParameter(name, value, _expected(field_names.get(name), error, cause))


def _expected(field: FieldInfo | None, error: Any, cause: Exception | None) -> str:
    """The values that would be right."""
    if error["type"] == "literal_error":
        return f"one of {error['ctx']['expected']}".replace("'", "").replace(" or ", ", ")
    if str(error["type"]).startswith("bool"):
        return "true or false"
    bounds = field.metadata if field is not None else ()
    low = next((bound.ge for bound in bounds if hasattr(bound, "ge")), None)
    high = next((bound.le for bound in bounds if hasattr(bound, "le")), None)
    if low is not None:
        return f"an integer from {low}" + ("" if high is None else f" to {high}")
    return str(cause or error["msg"])
