"""Validation of JSON documents of requests by pydantic models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from hyperslab.errors import BadDefinition, HyperslabError, shown


class Document(BaseModel):
    """A JSON object with known members only, of exactly their types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _check_members(cls, value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, found {shown(value)}")  # noqa: TRY004 - pydantic passes that on
        unknown = sorted(value.keys() - cls.model_fields.keys())
        if unknown:
            raise Misfit(unknown[0], f"is unknown; known are {', '.join(cls.model_fields)}")
        return value


class Misfit(ValueError):
    """Flaw of the ``member`` of an object, a path below it."""

    def __init__(self, member: str, reason: str) -> None:
        super().__init__(reason)
        self.member = member


D = TypeVar("D", bound=Document)


def by(parse: Callable[[Any], object]) -> BeforeValidator:
    """A validator that calls a parser of JSON values, whose errors become those of the member."""

    def parsed(value: Any) -> object:
        try:
            return parse(value)
        except HyperslabError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(parsed)


def validated(kind: type[D], document: object, context: Mapping[str, Any] | None = None) -> D:
    """A document of a request as a model. Raises `BadDefinition` about the first member that does not fit, by a path
    such as ``arrays.0.dimensions.2.chunk``. ``context``: for validators of the model."""
    try:
        return kind.model_validate(document, context=dict(context or {}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause, way = first.get("ctx", {}).get("error"), [*map(str, first["loc"])]
        if cause is None and way and way[-1].isdecimal():  # one of a list of plain values
            del way[-1]
        way += [cause.member] if isinstance(cause, Misfit) else []
        reason = str(cause) if cause else f"{first['msg']}, found {shown(first['input'])}"
        reason = "is missing" if first["type"] == "missing" else reason
        raise BadDefinition(".".join(way) or "document", reason) from error
