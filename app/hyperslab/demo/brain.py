"""Synthetic MRI of a head: cortex, white matter, ventricles and skull."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hyperslab.demo.noise import Field, smooth_noise

SHAPE = (64, 512, 512)
CSF, GREY, WHITE, BONE, SCALP = 260.0, 900.0, 1350.0, 120.0, 1700.0
"""Intensities of tissues."""


def volume() -> NDArray[np.uint16]:
    """Intensities (z, y, x); air is zero, so that chunks at the corners need not be stored."""
    rng = np.random.default_rng(11)
    folds = smooth_noise(rng, SHAPE, (6, 11, 11))
    waves = smooth_noise(rng, SHAPE, (16, 40, 40))
    shading = 1 + 0.05 * smooth_noise(rng, SHAPE, (30, 160, 160))
    planes = []
    for z in range(SHAPE[0]):
        radius, side = _coordinates(z)
        tissue = _tissues(radius + 0.012 * waves[z], side, folds[z], waves[z]) * shading[z]
        grain = rng.standard_normal(tissue.shape, dtype=np.float32) * 22
        planes.append(np.where(tissue > 0, np.clip(tissue + grain, 1, 4095), 0).astype(np.uint16))
    return np.asarray(planes)


def _coordinates(z: int) -> tuple[Field, Field]:
    """Distance from the centre (1 at the brain's surface), and position from left (-1) to right (1), per pixel."""
    depth, height, width = SHAPE
    up = (z - depth * 0.46) / (depth * 0.52)
    back = (np.arange(height, dtype=np.float32)[:, None] - height / 2) / (height * 0.415)
    side = (np.arange(width, dtype=np.float32)[None, :] - width / 2) / (width * 0.34)
    narrower = side * (1 + 0.10 * back)
    return np.sqrt(up**2 + back**2 + narrower**2), np.broadcast_to(side, (height, width))


def _tissues(radius: Field, side: Field, folds: Field, waves: Field) -> Field:
    ridge = np.abs(folds)
    rind = 0.87 - 0.26 * np.exp(-((ridge / 0.42) ** 2))
    white = _step(rind - radius, 0.014)
    width = 0.05 + 0.55 * np.clip(radius - 0.72, 0, None)
    furrow = np.exp(-((ridge / width) ** 2)) * _step(radius - 0.70, 0.03)
    fissure = np.exp(-((side / 0.016) ** 2)) * _step(radius - 0.36, 0.03)
    brain = GREY + (WHITE - GREY) * white
    horn = ((np.abs(side) - 0.13 - 0.10 * radius) / 0.075) ** 2 + (radius / 0.42) ** 2
    ventricles = _step(0.95 + 0.10 * waves - horn, 0.12)  # lateral
    brain = brain + (CSF - brain) * np.maximum(np.maximum(furrow, fissure), ventricles)
    tissue = CSF + (brain - CSF) * _step(0.985 - radius, 0.008)
    tissue = tissue + (BONE - tissue) * _step(radius - 1.02, 0.006)
    tissue = tissue + (SCALP - tissue) * _step(radius - 1.085, 0.008)
    return np.where(radius < 1.135, tissue, np.float32(0))


def _step(x: Field, softness: float) -> Field:
    return np.asarray(1 / (1 + np.exp(-np.clip(x / softness, -30, 30))))
