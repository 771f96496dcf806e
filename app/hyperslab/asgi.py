"""The composition root: from settings to the application, for ``uvicorn --factory hyperslab.asgi:create_app``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperslab.api.app import Application
from hyperslab.api.app import create_app as create_api
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.engine.creation import completed_document
from hyperslab.errors import BadDefinition, BadPath
from hyperslab.settings import Settings, StoreSettings, load
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.keys import normalise_path


def create_app(settings: Settings | None = None) -> Application:
    """The application; without settings, those of the environment. Raises `BadSettings` and `BadDefinition`."""
    settings = settings or load()
    return create_api(build_service(settings), api_options(settings))


def build_service(settings: Settings) -> Service:
    """All stores mounted, nothing of them read yet."""
    return build(
        mount_stores(settings),
        cache_bytes=settings.cache_bytes,
        bytes_in_flight=settings.bytes_in_flight,
        slab_bytes=settings.slab_bytes,
    )


def mount_stores(settings: Settings) -> list[MountedStore]:
    """Every store of the settings, in order; none is reached out to before its first use.

    Raises `BadDefinition`, which names the store.
    """
    return [_mount(name, store) for name, store in settings.stores.items()]


def api_options(settings: Settings) -> ApiOptions:
    """What the HTTP layer is told."""
    return ApiOptions(
        cors_origins=tuple(settings.cors_origins),
        allowed_hosts=tuple(settings.allowed_hosts),
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
        documentation_url=None if settings.documentation_url is None else str(settings.documentation_url),
    )


def _mount(name: str, settings: StoreSettings) -> MountedStore:
    try:
        store = open_store(_store_config(name, settings))
        assumed = dict(_assumed(path, stated) for path, stated in settings.assume_metadata.items())
    except BadDefinition as error:
        raise BadDefinition(f"stores.{name}.{error.member}", error.reason) from error
    return MountedStore(
        name,
        store,
        writable=settings.writable,
        recheck=settings.recheck,
        fill_missing=settings.fill_missing,
        metadata_key=settings.metadata_key,
        assume_metadata=assumed,
        store_data_equal_to_fill_value=settings.store_data_equal_to_fill_value,
    )


def _assumed(path: str, stated: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A path and the whole document of the array there."""
    try:
        return normalise_path(path), completed_document(stated)
    except BadPath as error:
        raise BadDefinition(f"assume_metadata.{path}", str(error)) from error
    except BadDefinition as error:
        raise BadDefinition(f"assume_metadata.{path}.{error.member}", error.reason) from error


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
