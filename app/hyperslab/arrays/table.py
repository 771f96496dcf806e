"""Children of a group as rows of a table, and the text that finds nodes by name and by attributes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

from hyperslab.arrays import listing
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import ArrayNode, ChildInfo, Children, GroupNode, without_unread
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import BadParameter, HyperslabError, shown
from hyperslab.storage.keys import join

MAX_SORTED: Final = 20_000
"""Children that are put in another order than that of their names."""
COLUMNS: Final = ("kind", "shape", "chunks", "dtype", "nbytes", "units")
"""Columns of a row beside its name and attributes: `sort` takes these too."""

T = TypeVar("T")
R = TypeVar("R")

_BATCH: Final = 32
_LEAST: Final = 3


class TextMatch(NamedTuple):
    """Where a text is: in a path, or in the ``attribute`` of this name and value."""

    attribute: tuple[str, str] | None = None


class Sought:
    """Text to find nodes by: part of a path, or of a name or a value among the attributes, in any case of letters; or
    ``name:value`` of an attribute. There a value shorter than three characters is a whole word: ``units:K``."""

    def __init__(self, text: str) -> None:
        self._text = text.lower()
        name, colon, self._value = (part.strip() for part in self._text.partition(":"))
        self._name = f".{name}" if colon and name else None
        self._word = re.compile(rf"(?<!\w){re.escape(self._value)}(?!\w)") if 0 < len(self._value) < _LEAST else None

    def look(self, catalog: Catalog, group: GroupNode, child: ChildInfo, path: str) -> TextMatch | None:
        """Where the text is in a child of a group: in its ``path``, or else in its attributes, which are read."""
        if self._text in path.lower():
            return TextMatch()
        attribute = self.in_attributes(catalog.child_attributes(group, child))
        return None if attribute is None else TextMatch(attribute)

    def look_all(
        self, catalog: Catalog, group: GroupNode, children: Sequence[ChildInfo], folder: str
    ) -> Iterator[TextMatch | None]:
        """`look` into each child of a group, by its path below ``folder``."""
        return in_batches(group, lambda child: self.look(catalog, group, child, join(folder, child.name)), children)

    def in_attributes(self, attributes: Mapping[str, Any]) -> tuple[str, str] | None:
        """Name and value of the first attribute that fits, nested ones as ``omero.channels.label``; None if none
        does."""
        for own, stored in _leaves(attributes, ""):
            lower, content = own.lower(), stored.lower()
            if self._text in lower or self._text in content:
                return own, stored
            is_named = self._name is not None and f".{lower}".endswith(self._name)
            if is_named and (self._value in content if self._word is None else self._word.search(content)):
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


def in_batches(group: GroupNode, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """The results of ``work`` on children of a group, a few at a time, at once in a remote store."""
    for start in range(0, len(items), _BATCH):
        part = items[start : start + _BATCH]
        yield from map(work, part) if group.mount is None else group.mount.each(work, part)


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


class TableQuery(NamedTuple):
    """A page of a table: at most ``limit`` rows after ``cursor``, in an order, of children that ``text`` finds, with
    these attributes as ``columns``."""

    limit: int
    cursor: str | None = None
    sort: str | None = None
    text: str | None = None
    columns: Sequence[str] = ()


def read_table(catalog: Catalog, group: GroupNode, wanted: TableQuery) -> Table:
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

    def read(child: ChildInfo) -> Row | None:
        is_match = sought is None or sought.look(catalog, group, child, child.name)
        return _row(catalog, group, child, columns) if is_match else None

    while True:
        page = catalog.children(group, limit=most, cursor=following, deadline=deadline, attributes=True)
        problems += [problem for problem in page.problems if problem not in problems]
        following = page.next_cursor
        for index, (child, row) in enumerate(zip(page.nodes, in_batches(group, read, page.nodes), strict=True)):
            if row is not None:
                rows.append(row)
            is_last = index == len(page.nodes) - 1
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


def _row(catalog: Catalog, group: GroupNode, child: ChildInfo, columns: Sequence[str]) -> Row:
    node = catalog.open_child(group, child)
    if node is None:
        try:
            node = catalog.open_node(join(group.path, child.name))
        except HyperslabError as error:
            return Row(child.name, child.kind, problem=str(error))
    given, problems = without_unread(node)
    problem = problems[0] if problems else None
    attributes = {name: given[name] for name in columns if name in given}
    for name, value in attributes.items():
        if isinstance(value, str | list | dict):
            text = value if isinstance(value, str) else shown(value)
            attributes[name] = text if len(text) <= 200 else f"{text[:199]}…"
    if not isinstance(node, ArrayNode):
        return Row(child.name, node.kind, attributes=attributes, problem=problem)
    metadata, units = node.metadata, given.get("units")
    return Row(
        child.name,
        node.kind,
        metadata.shape,
        metadata.chunks,
        metadata.dtype.json,
        metadata.nbytes,
        units if isinstance(units, str) else None,
        attributes,
        problem,
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
