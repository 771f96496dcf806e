"""What our PNG writer writes, Pillow reads back pixel for pixel."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from hyperslab.tiles import png

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def read(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


@pytest.mark.parametrize("samples", MODES)
@given(data=st.data())
def test_samples_come_back_as_they_were(samples: int, data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40)), samples)
    picture = data.draw(arrays(np.uint8, shape))

    image = read(png.write_samples(picture))

    assert image.mode == MODES[samples]
    np.testing.assert_array_equal(np.asarray(image).reshape(shape), picture)


@given(arrays(np.uint8, (9, 13)), st.integers(1, 256))
def test_indexed_pictures_come_back_as_they_were(index: np.ndarray, colours: int) -> None:
    palette = np.random.default_rng(colours).integers(0, 256, (colours, 4), dtype=np.uint8)
    index = (index.astype(int) % colours).astype(np.uint8)

    image = read(png.write_indexed(index, palette))

    assert image.mode == "P"
    np.testing.assert_array_equal(np.asarray(image.convert("RGBA")), palette[index])


def test_an_opaque_palette_needs_no_transparency_chunk() -> None:
    palette = np.full((4, 4), 255, np.uint8)

    assert b"tRNS" not in png.write_indexed(np.zeros((2, 2), np.uint8), palette)


def test_one_grey_value_can_be_transparent() -> None:
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3)

    alpha = np.asarray(read(png.write_samples(grey[..., None], transparent_grey=4)).convert("RGBA"))[..., 3]

    np.testing.assert_array_equal(alpha, np.where(grey == 4, 0, 255))


def test_the_fallback_decodes_to_the_same_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    fast = read(png.write_samples(picture))

    monkeypatch.setattr(png, "ENCODER", "zlib")

    np.testing.assert_array_equal(np.asarray(read(png.write_samples(picture))), np.asarray(fast))


def test_every_chunk_has_its_checksum() -> None:
    data = png.write_indexed(np.zeros((3, 5), np.uint8), np.zeros((2, 4), np.uint8))
    position, kinds = 8, []
    while position < len(data):
        (length,) = struct.unpack_from(">I", data, position)
        body = data[position + 4 : position + 8 + length]
        assert struct.unpack_from(">I", data, position + 8 + length) == (zlib.crc32(body),)
        kinds.append(body[:4])
        position += 12 + length

    assert kinds == [b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"]


def test_views_of_any_layout_are_written() -> None:
    picture = np.random.default_rng(1).integers(0, 256, (3, 8, 6), dtype=np.uint8)
    turned = np.rot90(picture, axes=(1, 2)).transpose(1, 2, 0)[::-1]

    np.testing.assert_array_equal(np.asarray(read(png.write_samples(turned))), turned)
