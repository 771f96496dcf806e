"""``a.oindex``, ``a.vindex`` and ``a.blocks``: other readings of what stands in the brackets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hyperslab.client.indexing import Selection


@dataclass(frozen=True, slots=True)
class Indexer:
    """``select`` reads a key; ``read`` and ``write`` are the array's own."""

    select: Callable[[Any], Selection]
    read: Callable[[Selection], Any]
    write: Callable[[Selection, Any], None]

    def __getitem__(self, key: Any) -> Any:
        """The values; raises as `RemoteArray.get`."""
        return self.read(self.select(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write values, which are broadcast; raises as `RemoteArray.set`."""
        self.write(self.select(key), value)
