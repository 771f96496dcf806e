from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.service import Conformance, conformance_service


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conformance]:
    with conformance_service(tmp_path_factory.mktemp("conformance")) as found:
        yield found
