"""obstore clients from a `StoreConfig`: options, environment variables and credentials."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from hyperslab.errors import BadDefinition, BadPath
from hyperslab.storage.config import StoreConfig, flag, missing_statuses, redacted, reject_unknown
from hyperslab.storage.keys import as_prefix, normalise_path

Kind = Literal["s3", "gs", "az", "memory"]
Client = S3Store | GCSStore | AzureStore | MemoryStore

_SCHEMES: Final[Mapping[str, Kind]] = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "memory": "memory",
}  # fmt: skip
_OWN: Final = frozenset({"anonymous", "conditional_put", "listable", "missing", "path_style"})
_CLIENT: Final = frozenset({"allow_http", "allow_invalid_certificates", "proxy_url", "root_certificate"})
_TRANSPORT: Final = _CLIENT - {"allow_http"}
"""Options that requests without obstore would have to follow."""
_OBSTORE_OPTIONS: Final[Mapping[str, Set[str]]] = {
    "s3": {
        "access_key_id", "secret_access_key", "session_token", "region", "endpoint", "skip_signature",
        "virtual_hosted_style_request", "request_payer", "unsigned_payload", "checksum_algorithm",
        "disable_bulk_delete", "s3_express", "imdsv1_fallback", "metadata_endpoint", "role_arn",
        "role_session_name", "web_identity_token_file", "sts_endpoint", "server_side_encryption", "sse_kms_key_id",
        "sse_bucket_key_enabled", "sse_customer_key_base64",
    },
    "gs": {
        "service_account", "service_account_key", "application_credentials", "base_url", "skip_signature",
    },
    "az": {
        "account_name", "account_key", "client_id", "client_secret", "tenant_id", "authority_host", "sas_key",
        "token", "endpoint", "use_emulator", "use_fabric_endpoint", "msi_endpoint", "object_id", "msi_resource_id",
        "federated_token_file", "use_azure_cli", "skip_signature",
    },
}  # fmt: skip
"""Options that are passed to obstore unchanged."""
_S3_ENDPOINT: Final = "AWS_ENDPOINT_URL_S3"
_ENVIRONMENT: Final[Mapping[Kind, Mapping[str, Sequence[str]]]] = {
    "s3": {
        "endpoint": (_S3_ENDPOINT, "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "allow_http": ("AWS_ALLOW_HTTP",),
    },
    "gs": {"base_url": ("STORAGE_EMULATOR_HOST",), "allow_http": ("GOOGLE_ALLOW_HTTP",)},
    "az": {
        "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
        "use_emulator": ("AZURE_STORAGE_USE_EMULATOR",),
        "allow_http": ("AZURE_ALLOW_HTTP",),
    },
}
"""Environment variables by option, for options that are evaluated here; obstore reads others (credentials, region, …)
itself."""
_MEMORY: Final = MemoryStore()
"""Shared by all ``memory://`` stores of this process."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Clients of a bucket. ``base`` is the prefix of all keys (``""`` or ending in ``/``).

    ``without_retries`` is for conditional puts. ``conditional_put`` is None if it has to be detected. ``missing``: HTTP
    statuses that mean an absent key. ``in_order``: listings are sorted and can start at any key. ``signs``: URLs can be
    signed, to be requested without obstore. ``place``: the bucket and its endpoint, for messages. ``listing_url`` makes
    a signed URL of a query to the bucket, on S3.
    """

    kind: Kind
    base: str
    retrying: Client
    without_retries: Client
    conditional_put: bool | None
    listable: bool
    missing: Set[int]
    in_order: bool
    signs: bool
    place: str
    listing_url: Callable[[str], str] | None = None


def connect(config: StoreConfig, width: int) -> Connection:
    """Create the clients, without sending requests; raises `errors.BadDefinition`."""
    kind = _SCHEMES[urlsplit(config.url).scheme.lower()]
    if kind == "memory":
        reject_unknown(config.options, (), "memory://")
        base = _base(config.url.replace("://", ":///", 1))
        return Connection(
            kind, base, _MEMORY, _MEMORY, False, True, {404}, in_order=True, signs=False, place=config.url
        )
    reject_unknown(config.options, _OWN | _CLIENT | _OBSTORE_OPTIONS[kind], f"{kind}://")
    options = _environment_options(kind) | dict(config.options)
    choices = {"auto": None, "true": True, "false": False}
    if options.get("conditional_put", "auto") not in choices:
        raise BadDefinition("options.conditional_put", "expected auto, true or false")
    config = replace(config, options=options)
    endpoint = urlsplit(options.get("endpoint") or options.get("base_url") or "")
    place = f"bucket {urlsplit(config.url).netloc!r}"
    in_order = kind == "s3" and not flag(options, "s3_express", False)
    return Connection(
        kind=kind,
        base=_base(config.url),
        retrying=_client(config, kind, width, config.retries),
        without_retries=_client(config, kind, width, 0),
        conditional_put=choices[options.get("conditional_put", "auto")],
        listable=flag(options, "listable", True),
        missing=missing_statuses(options),
        in_order=in_order,
        signs=kind == "s3" and not {"anonymous", "skip_signature", *_TRANSPORT} & options.keys(),
        place=f"{place} at {endpoint.scheme}://{endpoint.netloc.rpartition('@')[2]}" if endpoint.netloc else place,
        listing_url=partial(_listing_url, config) if in_order and not _TRANSPORT & options.keys() else None,
    )


def _listing_url(config: StoreConfig, query: str) -> str:
    """The URL of a query to a bucket on S3, signed unless the store is anonymous.

    obstore signs URLs of keys alone. A client whose endpoint is the bucket's with the query signs that too, with the
    credentials that obstore finds; the key ends up in a parameter that S3 ignores, as it begins with ``x-``. [Amazon S3
    user guide, "Log format"]
    """
    bucket, until = urlsplit(config.url).netloc.rpartition("@")[2], timedelta(minutes=5)
    anonymous = any(flag(config.options, name, False) for name in ("anonymous", "skip_signature"))
    dummy = {"access_key_id": "none", "secret_access_key": "none"} if anonymous else {}
    signing = {**config.options, "anonymous": "false", "skip_signature": "false"}
    options: Any = {**_store_options(signing, "s3", bucket), **dummy}
    client = S3Store(bucket, config=options, client_options=_client_options(config, 1))
    url = obstore.sign(client, "GET", "x", until).partition("?")[0].removesuffix("/x")
    endpoint = f"{url}/?{query}&x-hyperslab="
    options |= {"endpoint": endpoint, "virtual_hosted_style_request": "true"}
    if os.environ.get(_S3_ENDPOINT):
        options[_S3_ENDPOINT.lower()] = endpoint
    client = S3Store(bucket, config=options, client_options=_client_options(config, 1))
    return f"{url}/?{query}" if anonymous else obstore.sign(client, "GET", "x", until)


def _environment_options(kind: Kind) -> dict[str, str]:
    """Options from environment variables."""
    named = {option: map(os.environ.get, names) for option, names in _ENVIRONMENT[kind].items()}
    chosen = {option: value for option, values in named.items() if (value := next(filter(None, values), None))}
    if "base_url" in chosen:  # as in Google's libraries: may be a bare host, and emulators get no credentials
        host = chosen["base_url"]
        chosen |= {"base_url": host if "://" in host else f"http://{host}", "skip_signature": "true"}
    return chosen


def _base(url: str) -> str:
    _, _, path = url.partition("://")[2].partition("/")
    try:
        return as_prefix(normalise_path(path))
    except BadPath as error:
        raise BadDefinition("url", error.reason) from error


def _client(config: StoreConfig, kind: Kind, width: int, retries: int) -> Client:
    bucket = urlsplit(config.url).netloc.rpartition("@")[2]
    if not bucket:
        raise BadDefinition("url", f"{config.url!r} names no bucket")
    classes: Mapping[str, type[Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    try:
        client: Client = classes[kind](
            bucket,
            config=_store_options(config.options, kind, bucket),
            client_options=_client_options(config, width),
            retry_config={
                "max_retries": retries,
                "retry_timeout": timedelta(seconds=config.timeout * (retries + 1)),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=50),
                    "max_backoff": timedelta(seconds=min(config.timeout, 5)),
                    "base": 2,
                },
            },
        )
    except (BaseError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise BadDefinition("options", redacted(reason, config.options.values())) from error
    return client


def _store_options(options: Mapping[str, str], kind: Kind, bucket: str) -> Any:
    """obstore's configuration of a bucket, text by name."""
    config = {name: value for name, value in options.items() if name in _OBSTORE_OPTIONS[kind]}
    if flag(options, "anonymous", False):
        config["skip_signature"] = "true"
    if kind == "s3" and "path_style" in options:
        config["virtual_hosted_style_request"] = "false" if flag(options, "path_style", True) else "true"
    if kind == "s3" and config.get("endpoint") and config.get("virtual_hosted_style_request") == "true":
        parts = urlsplit(config["endpoint"])  # obstore expects the bucket in the host name
        if not parts.netloc.startswith(f"{bucket}."):
            config["endpoint"] = parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()
    if kind == "s3" and "endpoint" in config and os.environ.get(_S3_ENDPOINT):
        config[_S3_ENDPOINT.lower()] = config["endpoint"]  # in obstore the variable overrides ``endpoint``
    return config


def _client_options(config: StoreConfig, width: int) -> Any:
    plain = any(config.options.get(name, "").startswith("http://") for name in ("endpoint", "base_url"))
    options: dict[str, Any] = {name: value for name, value in config.options.items() if name in _CLIENT}
    options |= {
        "allow_http": flag(config.options, "allow_http", plain or flag(config.options, "use_emulator", False)),
        "connect_timeout": timedelta(seconds=min(config.timeout, 10)),
        "read_timeout": timedelta(seconds=config.timeout),
        "timeout": timedelta(seconds=10 * config.timeout),  # of a whole transfer; large values take long
        "pool_max_idle_per_host": str(width),
    }
    return options
