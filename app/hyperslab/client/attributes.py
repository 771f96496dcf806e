"""The attributes of a node: a mapping that writes what is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from typing import Any

Patch = Mapping[str, Any]


class Attributes(MutableMapping[str, Any]):
    """Attributes of a node, a mapping of JSON values, as they were last read; each change is one request.

    A change is a merge patch (RFC 7396), so members that others set meanwhile are kept. Scalars and arrays of numpy
    become numbers and lists.

    Raises:
        ValueError: A value is None, or contains None in a mapping: a merge patch cannot store it.
        TypeError: A value has no form in JSON.
        ReadOnly: The store is not writable.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, Any]],
        write: Callable[[Patch], None],
        change: Callable[[Callable[[], Patch]], None],
    ) -> None:
        self._read = read
        self._write = write
        self._change = change

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        if name not in self._read():
            raise KeyError(name)
        self._write({name: None})

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(dict(self._read()))

    def update(self, *args: Any, **members: Any) -> None:
        """Set several members by one request; raises as all changes do."""
        patch = self._patch(dict(*args, **members))
        if patch:
            self._write(patch)

    def change(self, function: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        """Set what a function makes of all members as they are now, without losing what others set meanwhile.

        Args:
            function: Gets all members and returns those to set. It is called again if another writer came first.

        Raises:
            Unreachable: The answer was lost: it is not known whether the members were set.
        """
        self._change(lambda: self._patch(function(deepcopy(self.asdict()))))

    def clear(self) -> None:
        """Remove all members by one request; raises as all changes do."""
        if self._read():
            self._write(dict.fromkeys(self._read()))

    def _patch(self, wanted: Mapping[str, Any]) -> Patch:
        current = self._read()
        return {name: _replacement(current.get(name), value, name) for name, value in wanted.items()}

    def asdict(self) -> dict[str, Any]:
        """All members, as plain JSON values."""
        return dict(self._read())


def _replacement(current: Any, wanted: Any, where: str) -> Any:
    """The patch that turns ``current`` into ``wanted``: members that ``wanted`` lacks are taken away."""
    if wanted is None:
        raise ValueError(f"attribute {where}: a merge patch cannot store None; delete the member, or leave it out")
    if not isinstance(wanted, Mapping):
        return wanted
    known = current if isinstance(current, Mapping) else {}
    members = {name: _replacement(known.get(name), value, f"{where}.{name}") for name, value in wanted.items()}
    return {**dict.fromkeys(known.keys() - wanted.keys()), **members}
