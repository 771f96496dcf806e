"""Children of a group as rows of a table, and the text that finds nodes by name and by attributes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple

from hyperslab.arrays import listing
from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.nodes import ArrayNode, ChildInfo, Children, GroupNode
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import BadParameter, HyperslabError, shown
from hyperslab.storage.keys import join

MAX_SORTED: Final = 20_000
"""Children that are put in another order than that of their names."""
COLUMNS: Final = ("kind", "shape", "chunks", "dtype", "nbytes", "units")
"""What a row says beside its name and attributes: `sort` takes these too."""

_BATCH: Final = 32
_LEAST: Final = 3


@dataclass(frozen=True, slots=True)
class Sought:
    """Text to find nodes by: part of a path, or of a name or a value among the attributes, in any case of letters; or
    ``name:value`` of an attribute. There a value shorter than three characters is a whole word: ``units:K``."""

    text: str

    def in_path(self, path: str) -> bool:
        return self.text.lower() in path.lower()

    def in_attributes(self, attributes: Mapping[str, Any]) -> tuple[str, str] | None:
        """Name and value of the first attribute that fits, nested ones as ``omero.channels.label``; None if none
        does."""
        text = self.text.lower()
        name, colon, value = (part.strip() for part in text.partition(":"))
        is_short = 0 < len(value) < _LEAST
        word = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
        for own, stored in _leaves(attributes, ""):
            lower, content = own.lower(), stored.lower()
            if text in lower or text in content:
                return own, stored
            is_named = bool(colon and name) and f".{lower}".endswith(f".{name}")
            if is_named and (word.search(content) if is_short else value in content):
                return own, stored
        return None


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """The values in attributes as text, each with the names that lead to it; items of lists share one."""
    left: list[tuple[str, Any]] = [(name, value)]
    while left:
        name, value = left.pop()
        if isinstance(value, Mapping):
            inner = [(f"{name}.{key}" if name else str(key), member) for key, member in value.items()]
            left += inner[::-1]
            if not inner and name:
                yield name, ""
        elif isinstance(value, list) and any(isinstance(item, list | Mapping) for item in value[:8]):
            left += [(name, item) for item in value[::-1]]
        else:
            yield name, value if isinstance(value, str) else dump_json(value).decode("utf-8", "replace")


def open_children(catalog: Catalog, group: GroupNode, children: Sequence[ChildInfo]) -> Iterator[Node | None]:
    """The children of a group, opened a few at a time, at once in a remote store; None for those that are broken."""
    mount = group.mount
    for start in range(0, len(children), _BATCH):
        part, opens = children[start : start + _BATCH], partial(catalog.open_child, group)
        yield from [*map(opens, part)] if mount is None else mount.each(opens, part)


@dataclass(frozen=True, slots=True)
class Row:
    """A child of a group. The members of an array are None for a group, all are for what cannot be opened, for the
    reason in ``problem``. ``attributes``: those that were asked for, shortened where they are long."""

    name: str
    kind: str
    shape: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None
    dtype: Any = None
    nbytes: int | None = None
    units: str | None = None
    attributes: Mapping[str, Any] | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Table(Children):
    """A page of `Row`; ``count``: of all rows, None if it is not known."""

    rows: tuple[Row, ...] = ()
    count: int | None = None


class Wanted(NamedTuple):
    """A page of a table: at most ``limit`` rows after ``cursor``, in an order, of children that ``text`` finds, with
    these attributes as ``columns``."""

    limit: int
    cursor: str | None = None
    sort: str | None = None
    text: str | None = None
    columns: Sequence[str] = ()


def read_table(catalog: Catalog, group: GroupNode, wanted: Wanted) -> Table:
    """The page of the table of a group, read within `listing.SEARCH_SECONDS`.

    In order of name, a page costs what it holds, and ``cursor`` is as for children. ``sort`` names a column or an
    attribute, ``-`` before it turns the order around, what has no value comes last; the cursor is then a number of
    rows. All children are read for it: where time runs out, or there are more than `MAX_SORTED`, ``problems`` says how
    many were. Raises `BadParameter`.
    """
    limit, cursor, sort, text, columns = wanted
    by_name = sort in (None, "name")
    if not by_name and cursor is not None and not re.fullmatch("[0-9]{1,9}", cursor, re.ASCII):
        raise BadParameter("cursor", cursor, "next_cursor of the page before, in the same order")
    own = (sort or "name").removeprefix("-")
    columns = [*columns, *([] if own in (*COLUMNS, "name", *columns) else [own])]
    sought = None if text is None else Sought(text)
    deadline, rows, problems = time.monotonic() + listing.SEARCH_SECONDS, list[Row](), list[str]()
    most, following = limit if by_name else MAX_SORTED, cursor if by_name else None
    while True:
        page = catalog.children(group, limit=most, cursor=following, deadline=deadline, attributes=True)
        problems += [problem for problem in page.problems if problem not in problems]
        following = page.next_cursor
        for at, (child, node) in enumerate(zip(page.nodes, open_children(catalog, group, page.nodes), strict=True)):
            row = _row(catalog, join(group.path, child.name), child, node, columns)
            if sought is None or sought.in_path(child.name) or (node and sought.in_attributes(node.attributes)):
                rows.append(row)
            is_last = at == len(page.nodes) - 1
            if not is_last and (len(rows) == most or time.monotonic() > deadline):
                following = child.name
                break
        if following is None or len(rows) >= most or time.monotonic() > deadline:
            break
    if by_name:
        return Table((), following, tuple(problems), rows=tuple(rows))
    if following is not None:
        problems.append(f"only the first {len(rows)} children are in this order: time ran out, or there are too many")
    rows = _sorted(rows, sort or "name")
    start = int(cursor or 0)
    more = str(start + limit) if start + limit < len(rows) else None
    return Table((), more, tuple(problems), rows=tuple(rows[start : start + limit]), count=len(rows))


def _row(catalog: Catalog, path: str, child: ChildInfo, node: Node | None, columns: Sequence[str]) -> Row:
    if node is None:
        try:
            node = catalog.open_node(path)
        except HyperslabError as error:
            return Row(child.name, child.kind, problem=str(error))
    attributes = {name: node.attributes[name] for name in columns if name in node.attributes}
    for name, value in attributes.items():
        if isinstance(value, str | list | dict):
            text = value if isinstance(value, str) else shown(value)
            attributes[name] = text if len(text) <= 200 else f"{text[:199]}…"
    if not isinstance(node, ArrayNode):
        return Row(child.name, node.kind, attributes=attributes)
    metadata, units = node.metadata, node.attributes.get("units")
    return Row(
        child.name,
        node.kind,
        metadata.shape,
        metadata.chunks,
        metadata.dtype.json,
        metadata.nbytes,
        units if isinstance(units, str) else None,
        attributes,
    )


def _sorted(rows: list[Row], sort: str) -> list[Row]:
    """Rows by a column: numbers before text, lists by how much they hold, then by the name of the row."""
    name, turned = sort.removeprefix("-"), sort.startswith("-")

    def value_of(row: Row) -> Any:
        return getattr(row, name) if name in (*COLUMNS, "name") else (row.attributes or {}).get(name)

    def rank(row: Row) -> tuple[int, float, str]:
        match value_of(row):
            case bool() | int() | float() as number:
                return 0, number, ""
            case tuple() as sizes:
                return 0, prod(sizes), repr(sizes)
            case other:
                return 1, 0, (other if isinstance(other, str) else repr(other)).lower()

    given = sorted((row for row in rows if value_of(row) is not None), key=rank, reverse=turned)
    return [*given, *(row for row in rows if value_of(row) is None)]
