"""Startup message of `hyperslab serve`: URLs, stores and example commands."""

from __future__ import annotations

from urllib.parse import quote

from hyperslab import __version__
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.tree import Survey, survey
from hyperslab.asgi import mount_stores
from hyperslab.settings import Settings
from hyperslab.storage.config import public_url


def welcome(settings: Settings, base: str, *, demo: bool) -> str:
    """The message; ``base`` is the URL of the service."""
    surveys = _surveys(settings)
    width = max(map(len, settings.stores))
    lines = [f"Hyperslab {__version__} serves"]
    for name, store in settings.stores.items():
        lines += [f"  {name:{width}}  {public_url(store.url)}{'  (writable)' if store.writable else ''}"]
        lines += [f"  {'':{width}}  {line}" for line in surveys[name].lines()] if name in surveys else []
    token = " (with a token in HYPERSLAB_TOKEN)" if settings.asks_for_tokens else ""
    authorization = ' -H "Authorization: Bearer $HYPERSLAB_TOKEN"' if token else ""
    lines += ["", f"Look     {base}/", f"Read on  {base}/docs", f"Try{token}"]
    examples = [
        f"{base}/v1/metadata/demo",
        f"'{base}/v1/slice/demo/brain?select=32,::64,::64&format=json'",
        f"-o plane.npy '{base}/v1/slice/demo/brain?select=32&format=npy'",
        f"-o tile.png {base}/v1/tile/demo/microscope/0/0/0.png",
    ]
    examples = examples if demo else _store_lines(settings, surveys, base)
    lines += [f"  curl{authorization} {line}" for line in examples]
    below = f"Links are for a proxy that serves this below {settings.root_path}"
    return "\n".join([*lines, *([below] if settings.root_path else []), "", "Stop with Ctrl-C."])


def _surveys(settings: Settings) -> dict[str, Survey]:
    """Surveys by name of the stores in folders, within a second; others would need network requests."""
    mounts = mount_stores(settings)
    catalog = Catalog(mounts)
    here = [mount for mount in mounts if not mount.is_remote]
    try:
        return {mount.name: survey(catalog, mount, seconds=1.0 / len(here)) for mount in here}
    finally:
        for mount in mounts:
            mount.store.close()


def _store_lines(settings: Settings, surveys: dict[str, Survey], base: str) -> list[str]:
    """Example requests: metadata of a store, and the first eight items along the last axis of an array."""
    examples = [survey.example for survey in surveys.values() if survey.example is not None]
    open_stores = [name for name in settings.stores if name not in surveys or not surveys[name].skipped]
    names = [node.path.partition("/")[0] for node in examples] + open_stores
    lines = [f"{base}/v1/metadata/{quote(name)}" for name in names[:1]] or [f"{base}/v1"]
    for node in examples[:1]:
        rank = len(node.metadata.shape)
        few = f"select={'0,' * (rank - 1)}:8&" if rank else ""
        lines.append(f"'{base}/v1/slice/{quote(node.path)}?{few}format=json'")
    return lines
