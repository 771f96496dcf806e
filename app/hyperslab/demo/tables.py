"""Small arrays: a structured table, a signal, strings."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

EVENT: Final = np.dtype(
    [("time", "<f8"), ("id", "<u4"), ("energy", "<f4"), ("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("label", "S8")]
)
"""Without subarrays, as zarr-python 3.1 cannot open groups above arrays with any."""
EVENTS: Final = 50_000
SECONDS: Final = 1800
SAMPLES_PER_SECOND: Final = 250
STATIONS: Final = (
    "Reykjavík", "São Tomé", "Ålesund", "Kraków", "Ürümqi", "東京", "Αθήνα", "Québec",
    "Nairobi", "Hobart", "Łódź", "Zürich", "İzmir", "القاهرة", "서울", "Ushuaia",
)  # fmt: skip


def events() -> NDArray[np.void]:
    """Synthetic hits in a detector: time in s, serial number, energy in keV, position in mm, particle."""
    rng = np.random.default_rng(5)
    table = np.zeros(EVENTS, EVENT)
    kind = rng.choice(3, EVENTS, p=(0.7, 0.2, 0.1))
    table["time"] = np.cumsum(rng.exponential(0.004, EVENTS))
    table["id"] = np.arange(EVENTS)
    table["energy"] = rng.normal(np.array([511.0, 662.0, 1173.0])[kind], np.array([14.0, 17.0, 25.0])[kind])
    for axis, spread in (("x", 40), ("y", 40), ("z", 90)):
        table[axis] = rng.normal(0, spread, EVENTS)
    table["label"] = np.array([b"e+", b"gamma", b"muon"])[kind]
    return table


def signal() -> NDArray[np.float32]:
    """Synthetic ECG in mV: `SECONDS` at `SAMPLES_PER_SECOND`."""
    rng = np.random.default_rng(13)
    clock = np.arange(SECONDS * SAMPLES_PER_SECOND) / SAMPLES_PER_SECOND
    count = 2 * SECONDS  # more beats than fit
    beats = np.cumsum(0.86 + 0.05 * np.sin(np.arange(count) / 4) + rng.normal(0, 0.02, count))
    phase = np.interp(clock, beats, np.arange(count)) % 1
    waves = ((0.20, 0.12, 0.025), (0.375, -0.12, 0.008), (0.40, 1.1, 0.010), (0.425, -0.28, 0.010), (0.66, 0.28, 0.045))
    beat = sum(height * np.exp(-(((phase - centre) / width) ** 2)) for centre, height, width in waves)
    noise = 0.012 * rng.standard_normal(clock.size) + 0.05 * np.sin(clock * 1.6)
    return np.asarray(beat + noise, dtype=np.float32)


def stations() -> NDArray[Any]:
    """Names of places, as an object array of str."""
    return np.array(STATIONS, dtype=object)
