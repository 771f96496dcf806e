from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress

import pytest

from tests.conformance.service import Conformance, conformance_service
from tests.interop.libraries import Library, TensorStore, Zarr3, zarr2
from tests.interop.tables import TENSORSTORE, ZARR2, ZARR3, LibraryName


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conformance]:
    with conformance_service(tmp_path_factory.mktemp("interop")) as found:
        yield found


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[LibraryName, Library]]:
    """Those that are installed: zarr-python 2 may be missing."""
    installed: dict[LibraryName, Library] = {ZARR3: Zarr3(), TENSORSTORE: TensorStore()}
    with ExitStack() as stack:
        with suppress(pytest.skip.Exception):
            installed[ZARR2] = stack.enter_context(zarr2(tmp_path_factory.mktemp("zarr2")))
        yield installed
