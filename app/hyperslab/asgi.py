"""The composition root: from settings to the application, for ``uvicorn --factory hyperslab.asgi:create_app``."""

from __future__ import annotations

from hyperslab.api.app import Application
from hyperslab.api.app import create_app as create_api
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.errors import BadDefinition
from hyperslab.settings import Settings, StoreSettings, load
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store


def create_app(settings: Settings | None = None) -> Application:
    """The application; without settings, those of the environment. Raises `BadSettings` and `BadDefinition`."""
    settings = settings or load()
    return create_api(build_service(settings), api_options(settings))


def build_service(settings: Settings) -> Service:
    """All stores mounted, nothing of them read yet."""
    mounts = [
        _mount(name, store, opened)
        for (name, store), opened in zip(settings.stores.items(), open_stores(settings), strict=True)
    ]
    return build(
        mounts,
        cache_bytes=settings.cache_bytes,
        bytes_in_flight=settings.bytes_in_flight,
        slab_bytes=settings.slab_bytes,
    )


def open_stores(settings: Settings) -> list[Store]:
    """Every store of the settings, in order; none is reached out to before its first use.

    Raises `BadDefinition`, which names the store.
    """
    return [_open(name, store) for name, store in settings.stores.items()]


def _open(name: str, settings: StoreSettings) -> Store:
    try:
        return open_store(_store_config(name, settings))
    except BadDefinition as error:
        raise BadDefinition(f"stores.{name}.{error.member}", error.reason) from error


def api_options(settings: Settings) -> ApiOptions:
    """What the HTTP layer is told."""
    return ApiOptions(
        cors_origins=tuple(settings.cors_origins),
        read_tokens=tuple(token.get_secret_value() for token in settings.read_tokens),
        write_tokens=tuple(token.get_secret_value() for token in settings.write_tokens),
        max_read_bytes=settings.max_response_bytes,
        max_json_bytes=settings.max_json_bytes,
        max_csv_bytes=settings.max_csv_bytes,
        max_upload_bytes=settings.max_upload_bytes,
        max_points=settings.max_points,
        tile_cache_bytes=settings.tile_cache_bytes,
        answer_cache_bytes=settings.answer_cache_bytes,
        max_tile_bytes=settings.max_tile_bytes,
        max_listed=settings.max_listed,
        immutable_seconds=settings.immutable_seconds,
        request_threads=settings.request_threads,
        queue_seconds=settings.queue_seconds,
        idle_seconds=settings.idle_seconds,
        metrics_folder=settings.metrics_folder,
    )


def _mount(name: str, settings: StoreSettings, store: Store) -> MountedStore:
    return MountedStore(
        name,
        store,
        writable=settings.writable,
        recheck=settings.recheck,
        fill_missing=settings.fill_missing,
        metadata_key=settings.metadata_key,
        assume_metadata=settings.assume_metadata,
        store_data_equal_to_fill_value=settings.store_data_equal_to_fill_value,
    )


def _store_config(name: str, settings: StoreSettings) -> StoreConfig:
    return StoreConfig(
        name=name,
        url=settings.url,
        writable=settings.writable,
        durability=settings.durability,
        timeout=settings.timeout,
        retries=settings.retries,
        width=settings.width,
        options=settings.revealed_options(),
    )
