"""What acquire-zarr makes of frames, by the settings of our streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import acquire_zarr
import numpy as np

KINDS = {
    "time": acquire_zarr.DimensionType.TIME,
    "channel": acquire_zarr.DimensionType.CHANNEL,
    "space": acquire_zarr.DimensionType.SPACE,
}


def theirs(
    folder: Path,
    dimensions: Sequence[dict[str, Any]],
    dtype: str,
    frames: Iterable[np.ndarray[Any, Any]],
    **members: Any,
) -> None:
    """Store the frames by acquire-zarr, as the array ``a`` of a folder."""
    sizes = [
        acquire_zarr.Dimension(
            name=each["name"],
            kind=KINDS[each["type"]],
            array_size_px=each["size"] or 0,
            chunk_size_px=each["chunk"],
            shard_size_chunks=each.get("shard", 1),
        )
        for each in dimensions
    ]
    kind = getattr(acquire_zarr.DataType, np.dtype(dtype).name.upper())
    array = acquire_zarr.ArraySettings(output_key="a", dimensions=sizes, data_type=kind, **members)
    stream = acquire_zarr.ZarrStream(
        acquire_zarr.StreamSettings(arrays=[array], store_path=str(folder), overwrite=True)
    )
    for frame in frames:
        stream.append(frame, "a")
    stream.close()
