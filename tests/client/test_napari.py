"""napari's plugin: layers of images that are read plane by plane. In napari: `tests/viewer/test_other_viewers.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array
import numpy as np
import pytest
import zarr

from hyperslab.client.napari import get_reader, read_layers
from tests.api.support import Served, serving
from tests.tiles.support import write_attributes, write_image

PIXELS = np.random.default_rng(3).integers(0, 900, (2, 3, 40, 60), "u2")
MASK = (PIXELS[0] > 700).astype("u1")
CHANNELS = [
    {"label": "DAPI", "color": "0000FF", "active": True, "window": {"min": 0, "max": 900, "start": 5, "end": 700}},
    {"label": "GFP", "color": "00FF00", "active": False, "window": {"min": 0, "max": 900, "start": 0, "end": 800}},
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("layers")
    write_image(
        folder / "cells",
        [PIXELS, PIXELS[:, :, ::2, ::2]],
        "czyx",
        {"omero": {"channels": CHANNELS}},
    )
    write_image(folder / "cells" / "labels" / "nuclei", [MASK], "zyx", {"image-label": {}})
    write_attributes(folder / "cells" / "labels", {"labels": ["nuclei"]})
    zarr.create_array(folder / "plain", data=PIXELS[0].astype("f4"), dimension_names=["z", "y", "x"])
    zarr.create_array(folder / "photo", data=np.zeros((30, 20, 3), "u1"))
    with serving(folder) as found:
        yield found


@pytest.mark.parametrize("route", ["v1/metadata", "view", "v1/slice"])
def test_an_image_becomes_its_channels_and_its_labels(served: Served, route: str) -> None:
    (image, options, kind), (labels, more, other) = read_layers(f"{served.url}/{route}/data/cells")

    assert (kind, other) == ("image", "labels")
    assert [level.shape for level in image] == [(2, 3, 40, 60), (2, 3, 20, 30)]
    np.testing.assert_array_equal(image[0][1, 2, 5:20], PIXELS[1, 2, 5:20])
    np.testing.assert_array_equal(labels, MASK)
    assert (options["multiscale"], options["channel_axis"], options["name"]) == (True, 0, ["DAPI", "GFP"])
    assert (options["contrast_limits"], options["visible"]) == ([[5, 700], [0, 800]], [True, False])
    assert [each["colors"][-1] for each in options["colormap"]] == [[0, 0, 1, 1], [0, 1, 0, 1]]
    assert options["scale"] == more["scale"] == [1.0, 1.0, 1.0]
    assert more["name"] == "nuclei"


def test_nothing_is_read_before_it_is_shown(served: Served) -> None:
    layers: list[Any] = read_layers(f"{served.url}/v1/metadata/data/plain")
    ((array, options, _),) = layers

    def sent() -> float:
        lines = served.http.get("/metrics").text.splitlines()
        return sum(
            float(line.split()[-1])
            for line in lines
            if line.startswith("hyperslab_requests_total") and '"slice"' in line
        )

    assert isinstance(array, dask.array.Array)
    assert array.chunksize == (1, 40, 60)
    before = sent()
    np.testing.assert_array_equal(array[1].compute(scheduler="synchronous"), PIXELS[0, 1])
    assert sent() - before == 1
    assert options["contrast_limits"][0] < options["contrast_limits"][1]


def test_a_photograph_stays_one_layer(served: Served) -> None:
    layers: list[Any] = read_layers(f"{served.url}/v1/metadata/data/photo")
    ((array, options, kind),) = layers

    assert (array.shape, options["rgb"], options["scale"], kind) == ((30, 20, 3), True, [1.0, 1.0], "image")


def test_urls_of_pictures_are_taken_and_others_left_to_others() -> None:
    taken = ["http://h/v1/metadata/a/b", "https://h:8/x/v1/slice/a?select=0", "http://h/view/a", "http://h/v1/tile/a"]
    left = ["https://h/a.tif", "http://h/zarr/a/b", "/v1/metadata/a", ["http://h/view/a"], "http://h/view/"]

    assert [get_reader(url) for url in taken] == [read_layers] * 4
    assert [get_reader(url) for url in left] == [None] * 5
