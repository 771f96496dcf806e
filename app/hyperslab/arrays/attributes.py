"""Attributes: where a definition has them, how a patch changes them, and the text that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperslab.engine.dtypes import named_dtype
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES, dump_copy, spell_floats
from hyperslab.errors import BadBody, BadDefinition, shown


def merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7396 §2: members of ``patch`` replace those of ``target``, null removes, objects are merged."""
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            inner = merged.get(name)
            merged[name] = merge_patch(inner if isinstance(inner, Mapping) else {}, value)
        elif (spelled := spell_floats(merged.get(name))) != value or spelled == merged.get(name):
            merged[name] = value
        # else: a bare NaN, sent back as the text that it was shown as, stays what it was
    return merged


def attributes_text(attributes: Mapping[str, Any]) -> bytes:
    """What to store as ``.zattrs``; raises `BadDefinition` where it is so large that nobody would read it back.

    Bare NaN and infinities are those that were stored before, by others: they stay what they are.
    """
    text = dump_copy(dict(attributes))
    if len(text) > MAX_DOCUMENT_BYTES:
        raise BadDefinition("attributes", f"{len(text)} bytes of JSON, the limit is {MAX_DOCUMENT_BYTES}")
    return text


def sent_attributes(attributes: Any) -> Mapping[str, Any]:
    """Attributes as they were sent; raises `BadDefinition` where they are no object, and `BadBody` for a bare NaN or
    infinity: what is sent is JSON."""
    if not isinstance(attributes, Mapping):
        raise BadDefinition("attributes", f"expected an object, found {shown(attributes)}")
    if spell_floats(attributes) != attributes:
        raise BadBody('JSON has no NaN and no infinities: in attributes, write them as text, such as "NaN"')
    return attributes


def attribute_difference(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first attribute that is not as ``wanted``: its name as a member of a node, what is wanted, what is found."""
    for name, value in wanted.items():
        found = spell_floats(stored.get(name))
        if name not in stored or found != value:
            return "dimension_names" if name == "_ARRAY_DIMENSIONS" else f"attributes.{name}", value, found
    return None


def split_definition(definition: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attributes, and the members that make the ``.zarray``; its dtype may be given by name."""
    stated = definition.get("attributes")
    attributes = {} if stated is None else sent_attributes(stated)
    others = ("attributes", "kind", "dimension_names")
    members = {name: value for name, value in definition.items() if name not in others}
    return dict(attributes), {name: named_dtype(v) if name == "dtype" else v for name, v in members.items()}


def with_dimension_names(attributes: dict[str, Any], names: Any, rank: int) -> dict[str, Any]:
    """Attributes with the dimension names where xarray looks for them."""
    if names is None:
        return attributes
    if not isinstance(names, list) or len(names) != rank or not all(isinstance(name, str) for name in names):
        raise BadDefinition("dimension_names", f"expected a list of {rank} strings")
    return {**attributes, "_ARRAY_DIMENSIONS": names}
