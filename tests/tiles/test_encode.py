"""Whatever form a picture has in memory, its bytes show the same pixels; PNGs as Pillow reads them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from hyperslab.tiles.colour import GREY, gradient_lut, tint
from hyperslab.tiles.encode import encode_picture
from hyperslab.tiles.render import (
    PaletteImage,
    Planes,
    Raster,
    fade,
    flatten,
    greyscale,
    mirror,
    pad,
    rotate,
    to_planes,
)
from tests.tiles.support import Array, pixels, same_picture


def rgba(raster: Raster) -> Array:
    """What a raster shows, ``(height, width, 4)``."""
    planes = to_planes(raster)
    alpha = np.full(planes.shape, 255, np.uint8) if planes.alpha is None else planes.alpha
    return np.concatenate([planes.rgb, alpha[None]]).transpose(1, 2, 0)


@st.composite
def rasters(draw: st.DrawFn) -> Raster:
    shape = draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    hidden = draw(st.none() | arrays(np.bool_, shape))
    kind = draw(st.sampled_from(["grey", "negative", "tint", "few", "see-through", "planes", "alpha"]))
    if kind in ("planes", "alpha"):
        alpha = draw(arrays(np.uint8, shape)) if kind == "alpha" else None
        return Planes(draw(arrays(np.uint8, (3, *shape))), alpha)
    palettes = {"grey": GREY, "negative": GREY[::-1], "tint": tint((255, 9, 0))}
    palettes["see-through"] = gradient_lut([(0, 0, 0, 0), (255, 255, 255, 255)])
    palette = palettes.get(kind, np.arange(12, dtype=np.uint8).reshape(3, 4))
    return PaletteImage(draw(arrays(np.uint8, shape, elements=st.integers(0, len(palette) - 1))), palette, hidden)


@given(rasters(), st.data())
def test_pixels_are_as_they_should_be_after_whatever_is_done(raster: Raster, data: st.DataObject) -> None:
    before = rgba(raster)
    same_picture(pixels(encode_picture(raster, "png", quality=1)), before)

    (height, width), below, right = raster.shape, data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
    same_picture(rgba(pad(raster, height + below, width + right)), np.pad(before, ((0, below), (0, right), (0, 0))))
    quarters = data.draw(st.integers(0, 3))
    same_picture(pixels(encode_picture(rotate(raster, quarters), "png", quality=1)), np.rot90(before, -quarters))
    same_picture(rgba(mirror(raster)), before[:, ::-1])

    colour, share = data.draw(st.tuples(*[st.integers(0, 255)] * 3)), before[..., 3:] / 255
    opaque, expected = rgba(flatten(raster, colour)), before[..., :3] * share + np.array(colour) * (1 - share)
    assert (opaque[..., 3] == 255).all()
    np.testing.assert_allclose(opaque[..., :3], expected, atol=0.51)

    opacity = data.draw(st.floats(0, 1))
    np.testing.assert_allclose(rgba(fade(raster, opacity))[..., 3], before[..., 3] * opacity, atol=0.51)

    grey = rgba(greyscale(raster))
    assert (grey[..., :3] == grey[..., :1]).all()
    np.testing.assert_array_equal(grey[..., 3], before[..., 3])
    np.testing.assert_allclose(grey[..., 0], before[..., :3] @ [0.299, 0.587, 0.114], atol=0.51)


@pytest.mark.parametrize("palette", [GREY, tint((10, 200, 30))])
def test_hidden_pixels_beside_all_256_values_are_shown_right(palette: Array) -> None:
    index = np.arange(1024, dtype=np.int64).reshape(32, 32).astype(np.uint8)
    hidden = np.zeros((32, 32), bool)
    hidden[0, :5] = True

    raster = PaletteImage(index, palette, hidden)

    same_picture(pixels(encode_picture(raster, "png", quality=1)), rgba(raster))


@pytest.mark.parametrize(("fmt", "kind"), [("jpg", "JPEG"), ("webp", "WEBP"), ("png", "PNG")])
def test_formats_are_what_they_say(fmt: str, kind: str) -> None:
    raster = PaletteImage(np.zeros((4, 5), np.uint8), GREY, np.ones((4, 5), bool))

    image = Image.open(io.BytesIO(encode_picture(raster, fmt, quality=80)))

    assert (image.format, image.size) == (kind, (5, 4))


def test_the_fallback_decodes_to_the_same_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = Planes(np.random.default_rng(0).integers(0, 256, (3, 64, 64), dtype=np.uint8))
    fast = encode_picture(picture, "png", quality=1)

    monkeypatch.setattr("hyperslab.tiles.encode.ENCODER", "zlib")
    slow = encode_picture(picture, "png", quality=1)

    np.testing.assert_array_equal(pixels(slow), pixels(fast))
