"""Smooth random fields and image filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.floating[Any]]


def smooth_noise(rng: np.random.Generator, shape: Sequence[int], scale: Sequence[float]) -> Field:
    """Random field of unit variance with a correlation length of ``scale`` (items along each axis)."""
    spacing = [max(s, 1.0) for s in scale]
    field = rng.standard_normal([int(n / s) + 4 for n, s in zip(shape, spacing, strict=True)], dtype=np.float32)
    for axis, (size, step) in enumerate(zip(shape, spacing, strict=True)):
        field = np.moveaxis(np.tensordot(_spread(size, field.shape[axis], step), field, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(field / field.std())


def blur(volume: Field, sigma: float) -> Field:
    """Gaussian blur along the last two axes, zero-padded."""
    radius = int(3 * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    for axis in (-2, -1):
        volume = _filter(volume, weights, axis)
    return volume


def halve(volume: NDArray[Any]) -> NDArray[Any]:
    """Means of 2 x 2 items along the last two (even) axes, in the dtype of ``volume``."""
    *head, height, width = volume.shape
    quads = volume.reshape(*head, height // 2, 2, width // 2, 2)
    return np.asarray(quads.mean(axis=(-3, -1), dtype=np.float32).round().astype(volume.dtype))


def _spread(size: int, knots: int, step: float) -> Field:
    """Matrix ``(size, knots)`` that interpolates values ``step`` items apart with a Gaussian kernel."""
    distance = (np.arange(size)[:, None] / step) - (np.arange(knots)[None, :] - 1.0)
    weights = np.exp(-0.5 * (distance / 0.6) ** 2)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)


def _filter(volume: Field, weights: Field, axis: int) -> Field:
    result = volume * weights[len(weights) // 2]
    moved, source = np.moveaxis(result, axis, -1), np.moveaxis(volume, axis, -1)
    for distance, weight in enumerate(weights[len(weights) // 2 + 1 :], start=1):
        moved[..., distance:] += weight * source[..., :-distance]
        moved[..., :-distance] += weight * source[..., distance:]
    return np.asarray(result)
