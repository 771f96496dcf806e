from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    with zarr2(tmp_path_factory.mktemp("zarr2")) as second:
        yield {ZARR2: second, ZARR3: Zarr3(), TENSORSTORE: TensorStore()}
