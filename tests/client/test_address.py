from __future__ import annotations

import pytest

from hyperslab.client.address import Address
from hyperslab.errors import BadParameter


@pytest.mark.parametrize(
    ("url", "base", "path"),
    [
        ("http://h:1/v1/metadata/demo/brain", "http://h:1", "demo/brain"),
        ("http://h:1/v1/metadata/demo/brain/", "http://h:1", "demo/brain"),
        ("https://h/behind/a/proxy/v1/slice/demo/brain?select=0", "https://h/behind/a/proxy", "demo/brain"),
        ("http://h/zarr/demo/brain", "http://h", "demo/brain"),
        ("http://h/zarr/demo/brain/.zarray", "http://h", "demo/brain"),
        ("http://h/zarr/demo/.zmetadata", "http://h", "demo"),
        ("http://h/view/demo/brain#z=3", "http://h", "demo/brain"),
        ("http://h/v1/chunk/demo/brain/0.1.2", "http://h", "demo/brain"),
        ("http://h/v1/tile/demo/brain/info.json", "http://h", "demo/brain"),
        ("http://h/v1/tile/demo/brain/3/0/1.png", "http://h", "demo/brain"),
        ("http://h/v1/plan/demo/brain", "http://h", "demo/brain"),
        ("http://h/v1/metadata/demo/a%20b/%C3%BC", "http://h", "demo/a b/ü"),
        ("http://h/v1/metadata/demo/v1/slice/x", "http://h", "demo/v1/slice/x"),
        ("http://h/v1/metadata", "http://h", ""),
        ("http://h/v1/metadata/", "http://h", ""),
        ("http://h/zarr/", "http://h", ""),
        ("http://h", "http://h", ""),
        ("http://h/", "http://h", ""),
        ("http://h/zarr/demo/|zarr2:", "http://h", "demo"),
        ("http://h/zarr/demo/|zarr2:brain/0", "http://h", "demo/brain/0"),
        ("http://h/zarr/|zarr2:/demo/a%20b/", "http://h", "demo/a b"),
        ("http://h/zarr3/demo/|zarr3:brain", "http://h", "demo/brain"),
        ("http://h/zarr2/demo/brain/.zarray", "http://h", "demo/brain"),
        ("http://h/zarr/demo/brain/zarr.json", "http://h", "demo/brain"),
    ],
)
def test_any_url_of_a_node_is_its_address(url: str, base: str, path: str) -> None:
    assert Address.parse(url) == Address(base, path)


@pytest.mark.parametrize(
    "url",
    ["demo/brain", "s3://bucket/demo", "http://h/demo/brain", "http:///v1/metadata/x", "", "http://[::1/v1/metadata/x"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(BadParameter, match="url="):
        Address.parse(url)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(BadParameter) as caught:
        Address.parse("http://me:s3cret@h/v1/metadata/x")

    assert "s3cret" not in str(caught.value)
