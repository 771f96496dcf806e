"""Settings of streams for tests."""

from __future__ import annotations

from typing import Any


def dimension(name: str, size: int | None, chunk: int = 4, **others: Any) -> dict[str, Any]:
    """A dimension; its type follows from its name."""
    return {
        "name": name,
        "type": {"t": "time", "c": "channel"}.get(name, "space"),
        "size": size,
        "chunk": chunk,
        **others,
    }


def image(key: str, **members: Any) -> dict[str, Any]:
    """An array of dimensions t, c, y, x with a pyramid."""
    sizes = [dimension("t", None, 2), dimension("c", 2, 1), dimension("y", 10, scale=0.5), dimension("x", 9)]
    return {"key": key, "dtype": "<u2", "dimensions": sizes, "fill_value": 7, "pyramid": {"method": "mean"}, **members}


def plate(key: str) -> dict[str, Any]:
    """A plate of four wells, of which one has two fields."""
    array = {"dtype": "<f4", "dimensions": [dimension("y", 10), dimension("x", 9)], "pyramid": {"method": "max"}}
    fields = [{"key": name, "acquisition": 3, "array": array} for name in ("0", "1")]
    wells = [{"row": "A", "column": "1", "fields": fields}, {"row": "B", "column": "2", "fields": fields[:1]}]
    acquisitions = [{"id": 3, "name": "first", "starttime": 0, "endtime": 1}]
    return {
        "key": key,
        "name": "P",
        "rows": ["A", "B"],
        "columns": ["1", "2"],
        "wells": wells,
        "acquisitions": acquisitions,
    }
