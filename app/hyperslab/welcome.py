"""What `hyperslab serve` says when it is ready: where it is, and what to try."""

from __future__ import annotations

from collections.abc import Iterator

from hyperslab import __version__
from hyperslab.settings import Settings
from hyperslab.storage.config import public_url


def welcome(settings: Settings, base: str, *, demo: bool) -> str:
    """Lines for people; ``base`` is the service's URL."""
    lines = [
        f"Hyperslab {__version__} serves",
        *_stores(settings),
        "",
        f"Look     {base}/",
        f"Read on  {base}/docs",
        "Try",
    ]
    lines += _demo_commands(base) if demo else _store_commands(settings, base)
    lines += [f"Links are for a proxy that serves this below {settings.root_path}"] if settings.root_path else []
    return "\n".join([*lines, "", "Stop with Ctrl-C."])


def _stores(settings: Settings) -> Iterator[str]:
    width = max(map(len, settings.stores))
    for name, store in settings.stores.items():
        yield f"  {name:{width}}  {public_url(store.url)}{'  (writable)' if store.writable else ''}"


def _demo_commands(base: str) -> list[str]:
    return [
        f"  curl {base}/v1/metadata/demo",
        f"  curl '{base}/v1/slice/demo/brain?select=32,::64,::64&format=json'",
        f"  curl -o plane.npy '{base}/v1/slice/demo/brain?select=32&format=npy'",
        f"  curl -o tile.png {base}/v1/tile/demo/microscope/0/0/0.png",
    ]


def _store_commands(settings: Settings, base: str) -> list[str]:
    name = next(iter(settings.stores))
    return [
        f"  curl {base}/v1/metadata/{name}",
        f"  curl {base}/zarr/{name}/.zattrs",
    ]
