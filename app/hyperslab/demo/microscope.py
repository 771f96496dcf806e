"""Synthetic fluorescence stack: nuclei, filaments and membranes of a layer of cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hyperslab.demo.noise import Field, blur, smooth_noise

DEPTH, HEIGHT, WIDTH = 16, 768, 1024
SPACING = 92.0
"""Minimum distance of nuclei, in pixels."""
CAMERA_OFFSET = 100.0


def stack() -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Intensities (channel, z, y, x) of nuclei, filaments and membranes, and labels (z, y, x) of the nuclei."""
    rng = np.random.default_rng(7)
    centres = _scatter(rng)
    nuclei, labels = _nuclei(rng, centres)
    nearest, second = _distances(rng, centres)
    channels = (nuclei, _filaments(rng, centres, nearest), _membranes(rng, nearest, second))
    return np.stack([_photograph(rng, channel) for channel in channels]), labels


def _scatter(rng: np.random.Generator) -> Field:
    """Centres (y, x) of nuclei, at least `SPACING` apart."""
    centres: list[NDArray[np.float64]] = []
    for candidate in rng.uniform((0, 0), (HEIGHT, WIDTH), size=(4000, 2)):
        if all(np.hypot(*(candidate - other)) > SPACING for other in centres):
            centres.append(candidate)
    return np.asarray(centres, dtype=np.float32)


def _nuclei(rng: np.random.Generator, centres: Field) -> tuple[Field, NDArray[np.uint16]]:
    light = np.zeros((DEPTH, HEIGHT, WIDTH), np.float32)
    labels = np.zeros((DEPTH, HEIGHT, WIDTH), np.uint16)
    texture = 0.9 + 0.24 * smooth_noise(rng, light.shape, (2, 6, 6)) + 0.14 * smooth_noise(rng, light.shape, (1, 3, 3))
    for number, (y, x) in enumerate(centres, start=1):
        edges = [slice(max(int(c) - 52, 0), min(int(c) + 52, size)) for c, size in ((y, HEIGHT), (x, WIDTH))]
        window = (slice(None), *edges)
        depth = _nucleus_depth(rng, window, (y, x))
        inside = 1 / (1 + np.exp(-14 * depth))
        light[window] = np.maximum(light[window], rng.uniform(800, 1700) * inside)
        labels[window][depth > 0] = number
    return light * np.maximum(texture, 0.2), labels


def _nucleus_depth(rng: np.random.Generator, window: tuple[slice, ...], centre: tuple[float, float]) -> Field:
    """1 at the centre of a wobbly, flattened ellipsoid, 0 at its surface, negative outside."""
    z, y, x = np.ogrid[window[0].start or 0 : DEPTH, window[1], window[2]]
    dy, dx = y - centre[0], x - centre[1]
    angle = np.arctan2(dy, dx)
    radius = rng.uniform(23, 33) * (1 + rng.uniform(0.1, 0.22) * np.cos(2 * (angle - rng.uniform(0, np.pi))))
    radius = radius * (1 + 0.05 * np.cos(3 * angle + rng.uniform(0, 6)))
    flat = (z - rng.uniform(5.5, 8.5)) / rng.uniform(3.8, 5.4)
    return np.asarray(1 - np.sqrt((dy**2 + dx**2) / radius**2 + flat**2), dtype=np.float32)


def _distances(rng: np.random.Generator, centres: Field) -> tuple[Field, Field]:
    """Distances (y, x) to the nearest and the second nearest centre, in warped coordinates."""
    ground = [9 * smooth_noise(rng, (HEIGHT, WIDTH), (38, 38)) + np.float32(0) for _ in range(2)]
    ys = np.arange(HEIGHT, dtype=np.float32)[:, None] + ground[0]
    xs = np.arange(WIDTH, dtype=np.float32)[None, :] + ground[1]
    nearest = np.full((HEIGHT, WIDTH), np.inf, np.float32)
    second = nearest.copy()
    for y, x in centres:
        distance = np.hypot(ys - y, xs - x)
        np.minimum(second, np.maximum(nearest, distance), out=second)
        np.minimum(nearest, distance, out=nearest)
    return nearest, second


def _membranes(rng: np.random.Generator, nearest: Field, second: Field) -> Field:
    """Cell borders: cells are domes, so their outlines shrink with height."""
    gap = second - nearest
    patches = np.clip(1 + 0.35 * smooth_noise(rng, gap.shape, (14, 14)), 0.25, None)
    planes = []
    for z in range(DEPTH):
        rim = np.exp(-(((gap - 1.5 * abs(z - 4)) / 3.4) ** 2)) * np.exp(-(((z - 5) / 6.5) ** 2))
        ruffle = np.exp(-(gap / 24)) * np.exp(-(((z - 6) / 5.0) ** 2))
        planes.append(patches * (1150 * rim + 190 * ruffle))
    return np.asarray(planes, dtype=np.float32)


def _filaments(rng: np.random.Generator, centres: Field, nearest: Field) -> Field:
    """Curved filaments from each nucleus outward, with scattered light."""
    light = np.zeros((DEPTH, HEIGHT, WIDTH), np.float32)
    heading = rng.uniform(0, 2 * np.pi, (len(centres), 110)).astype(np.float32)
    position = centres[:, None, :] + 17 * np.stack([np.sin(heading), np.cos(heading)], axis=-1)
    height = rng.normal(5.5, 2.2, heading.shape)
    bend, climb = rng.normal(0, 0.006, heading.shape), rng.normal(0, 0.025, heading.shape)
    length = rng.uniform(18, 72, heading.shape)
    for step in range(72):
        _splat(light, position, height, np.clip((length - step) / 12, 0, 1).astype(np.float32))
        bend += rng.normal(0, 0.004, heading.shape)
        heading += bend.astype(np.float32)
        position += np.stack([np.sin(heading), np.cos(heading)], axis=-1)
        height += climb
    haze = np.clip(1 - nearest / 95, 0, None) * 110
    return 1500 * blur(light, 0.9) + 420 * blur(light, 6.0) + haze


def _splat(light: Field, position: Field, height: NDArray[np.float64], brightness: Field) -> None:
    """Add points at (height, y, x), interpolated between two planes."""
    z, y, x = np.floor(height).astype(int), np.rint(position[..., 0]).astype(int), np.rint(position[..., 1]).astype(int)
    above = (height - z).astype(np.float32)
    for plane, weight in ((z, 1 - above), (z + 1, above)):
        inside = (plane >= 0) & (plane < DEPTH) & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
        np.add.at(light, (plane[inside], y[inside], x[inside]), (brightness * weight)[inside])


def _photograph(rng: np.random.Generator, light: Field) -> NDArray[np.uint16]:
    """Out-of-focus light of the neighbouring planes, shot noise, camera offset."""
    focused = light.copy()
    focused[1:] += 0.18 * light[:-1]
    focused[:-1] += 0.18 * light[1:]
    noise = rng.standard_normal(light.shape, dtype=np.float32) * np.sqrt(2 + 0.05 * np.maximum(focused, 0))
    return np.asarray(np.clip(focused + noise + CAMERA_OFFSET, 0, 4095), dtype=np.uint16)
