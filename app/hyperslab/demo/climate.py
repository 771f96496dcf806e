"""Synthetic sea surface temperature over a year."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperslab.demo.noise import Field

DAYS, ROWS, COLUMNS = 365, 90, 180


def cube() -> dict[str, NDArray[Any]]:
    """``sst`` in degrees Celsius (time, lat, lon), NaN on land; ``land`` (lat, lon); centres of the cells (``time`` in
    days, ``lat``, ``lon``)."""
    rng = np.random.default_rng(3)
    latitude = (88 - 176 * np.arange(ROWS) / (ROWS - 1)).astype(np.float32)
    longitude = (np.arange(COLUMNS) * 360 / COLUMNS - 179).astype(np.float32)
    north, east = np.meshgrid(np.radians(latitude), np.radians(longitude), indexing="ij")
    # unit vectors, so that waves have no seam and no poles
    points = np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=-1)
    land = _waves(rng, points, wavelengths=(1.6, 0.8, 0.4, 0.2)) > 0.55
    days = np.arange(DAYS, dtype=np.int32)
    temperature = _temperature(rng, points, latitude, days)
    temperature[:, land] = np.nan
    return {"sst": temperature, "land": land, "time": days, "lat": latitude, "lon": longitude}


def _waves(
    rng: np.random.Generator, points: Field, wavelengths: tuple[float, ...], drift: Field | None = None
) -> Field:
    """Sum of random plane waves of unit variance, long ones stronger; ``drift`` is their phase by time."""
    shift = np.float32(0) if drift is None else drift[:, None, None]
    total = np.zeros(np.broadcast_shapes(np.shape(shift), points.shape[:-1]), np.float32)
    for wavelength in wavelengths:
        for _ in range(9):
            direction = rng.standard_normal(3).astype(np.float32)
            direction *= 2 * np.pi / wavelength / np.linalg.norm(direction)
            total += np.float32(wavelength) * np.sin(points @ direction + np.float32(rng.uniform(0, 6.3)) + shift)
    return np.asarray(total / total.std())


def _temperature(rng: np.random.Generator, points: Field, latitude: Field, days: NDArray[np.int32]) -> Field:
    north = np.radians(latitude)[None, :, None]
    season = np.cos(2 * np.pi * (days - 225) / DAYS).astype(np.float32)[:, None, None]
    climate = 30 * np.cos(north) ** 1.6 - 1.5 + 4.5 * np.sin(north) * np.cos(north) * 2 * season
    currents = 1.8 * _waves(rng, points, (0.9, 0.5))
    eddies = 0.7 * _waves(rng, points, (0.35, 0.22), drift=(days * 0.07).astype(np.float32))
    weather = 0.08 * rng.standard_normal(eddies.shape, dtype=np.float32)
    temperature = np.maximum(climate + currents + eddies + weather, -1.8)
    return np.asarray((temperature * 64).round() / 64, dtype=np.float32)  # rounded for compression
