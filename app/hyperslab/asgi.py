"""Composition root: creates the application from settings (``uvicorn --factory hyperslab.asgi:create_app``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib.util import find_spec
from typing import Any, TypeVar

from hyperslab.api.app import Application
from hyperslab.api.app import create_app as create_api
from hyperslab.api.options import ApiOptions, Identity
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.engine.creation import completed_document
from hyperslab.errors import BadDefinition, BadPath, BadSettings
from hyperslab.settings import Settings, StoreSettings, load, own_key, principals, read_tokens_file
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.keys import normalise_path

T = TypeVar("T")


def create_app(settings: Settings | None = None, *, started: Callable[[], Mapping[str, Any]] = dict) -> Application:
    """The application; settings default to those of the environment. ``started`` is called on startup and returns
    members for the state of requests. Raises `BadSettings` and `BadDefinition`."""
    settings = settings or load()
    return create_api(build_service(settings), api_options(settings), started)


def build_service(settings: Settings) -> Service:
    """The service with all stores mounted; sends no requests to them."""
    return build(
        mount_stores(settings),
        cache_bytes=settings.cache_bytes,
        bytes_in_flight=settings.bytes_in_flight,
        slab_bytes=settings.slab_bytes,
    )


def mount_stores(settings: Settings) -> list[MountedStore]:
    """The stores of the settings, in order; sends no requests to them. Raises `BadDefinition`, with the store's name in
    ``member``."""
    mounts = []
    for name, entry in settings.stores.items():
        try:
            store = open_store(_from_settings(StoreConfig, entry, name=name, options=entry.revealed_options()))
        except BadDefinition as error:
            raise BadDefinition(f"stores.{name}.{error.member}", error.reason) from error
        assumed = {}
        for path, members in entry.assume_metadata.items():
            member = f"stores.{name}.assume_metadata.{path}"
            try:
                assumed[normalise_path(path)] = completed_document(members)
            except BadPath as error:
                raise BadDefinition(member, str(error)) from error
            except BadDefinition as error:
                raise BadDefinition(f"{member}.{error.member}", error.reason) from error
        mounts.append(_from_settings(MountedStore, entry, name=name, store=store, assume_metadata=assumed))
    return mounts


def api_options(settings: Settings) -> ApiOptions:
    """Options of the HTTP layer."""
    url = settings.documentation_url
    return _from_settings(
        ApiOptions,
        settings,
        read_tokens=tuple(token.get_secret_value() for token in settings.read_tokens),
        write_tokens=tuple(token.get_secret_value() for token in settings.write_tokens),
        tokens=principals(settings.tokens),
        read_tokens_file=read_tokens_file,
        anonymous=None if settings.anonymous is None else settings.anonymous.rule(),
        identity=identity_of(settings),
        link_keys={name: key.get_secret_value() for name, key in (settings.link_keys or own_key()).items()},
        documentation_url=None if url is None else str(url),
    )


def identity_of(settings: Settings) -> Identity | None:
    """The identity provider. Raises `BadSettings` without the library that checks its tokens."""
    idp = settings.identity
    if idp is None:
        return None
    if find_spec("jwt") is None:
        raise BadSettings("identity needs a library: install hyperslab[identity]")
    return Identity(idp.issuer, idp.audience, {name: group.rule() for name, group in idp.groups.items()}, idp.claim)


def _from_settings(cls: type[T], settings: Settings | StoreSettings, **others: Any) -> T:
    """An instance of a dataclass, with ``others`` and all other fields from the settings of the same names."""
    names = [field.name for field in fields(cls) if field.init and field.name not in others]  # type: ignore[arg-type]
    return cls(**others, **{name: getattr(settings, name) for name in names})
