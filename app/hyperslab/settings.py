"""Settings: a frozen model, loaded from the command line, the environment and a TOML file, in order of precedence.

The docstrings of fields are their descriptions in the documentation. Unknown keys are errors that suggest the nearest
known one. Only the composition roots (`asgi`, `cli`, `server`) use `Settings`; other modules get plain arguments.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
import secrets
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    HttpUrl,
    NonNegativeFloat,
    PlainSerializer,
    PositiveFloat,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from hyperslab.access import Action, Pattern, Principal, Rule, instant, rule
from hyperslab.errors import BadSettings
from hyperslab.storage.config import public_url
from hyperslab.wire import without_driver

PREFIX: Final = "HYPERSLAB_"
DELIMITER: Final = "__"
CONFIG: Final = PREFIX + "CONFIG"
"""The environment variable with the path of the TOML file."""

ENVIRONMENT: Final = "the environment"
"""The name of this source in messages."""

MiB: Final = 1 << 20
GiB: Final = 1 << 30

MODEL: Final = ConfigDict(
    frozen=True,
    extra="forbid",
    hide_input_in_errors=True,
    allow_inf_nan=False,
    use_attribute_docstrings=True,
)


def _each(pattern: str, message: str) -> AfterValidator:
    """A validator of lists of text that must match a pattern; ``message`` may contain the text."""

    def check(values: list[Any]) -> list[Any]:
        for value in values:
            if not re.fullmatch(pattern, value.get_secret_value() if isinstance(value, SecretStr) else value):
                raise ValueError(message.format(value))
        return values

    return AfterValidator(check)


Tokens = Annotated[list[SecretStr], _each("[!-~]+", "a token is one or more visible ASCII characters, without spaces")]
Hosts = Annotated[
    list[str],
    _each(r"\*|[A-Za-z0-9._-]+", "{!r} is no name such as 'arrays.example.org': without scheme, port and path"),
]
Origins = Annotated[  # as sent by browsers: ASCII, without a trailing slash (RFC 6454 §6.2)
    list[str],
    _each(
        r"\*|null|[a-z][a-z0-9+.-]*://[!-.0-~]+",
        "{!r} is no origin such as 'https://viewer.example': nothing follows the host",
    ),
]


def _as_word(recheck: Any) -> Any:
    """``always`` or ``never`` for TensorStore's values of ``recheck_cached_data``; each request opens a node anew."""
    words = {"true": "always", "open": "always", "false": "never"}
    text = str(recheck).lower()
    return words.get(text, text) if isinstance(recheck, bool | str) else recheck


Recheck = Annotated[Literal["always", "never"] | NonNegativeFloat, BeforeValidator(_as_word)]
Url = Annotated[str, Field(min_length=1), AfterValidator(without_driver), PlainSerializer(public_url, when_used="json")]


class _Model(BaseModel):
    """Settings in which true and false are no numbers, as pydantic would have it."""

    model_config = MODEL

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_not_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and any(
            kind in (int, float, ByteSize) for kind in (annotation, *get_args(annotation))
        ):
            raise ValueError(f"expected a number, found {str(value).lower()}")
        return value


class StoreSettings(_Model):
    """Settings of a store."""

    url: Url
    """Location: a folder, `s3://…`, `gs://…`, `az://…` or any URL that fsspec opens; `|zarr2:path` or `|zarr3:path`
    may follow, as in TensorStore."""
    writable: bool = False
    """Whether clients may write."""
    recheck: Recheck = "always"
    """When cached chunks and metadata are revalidated with the store: at each request, never, or at most once in
    this many seconds. TensorStore's `true` and `"open"` are `"always"`, its `false` is `"never"`."""
    fill_missing: bool = True
    """Whether a chunk that was never written reads as the fill value. If false, it is an error, and chunks that
    contain only the fill value are stored."""
    metadata_key: str = Field(default=".zarray", min_length=1)
    """Key of the array metadata (some old stores use `zarray`)."""
    assume_metadata: dict[str, dict[str, Any]] = {}
    """`.zarray` documents for arrays that have none, by path in the store (the empty path is its root). Omitted
    members have the defaults of a new array; `"null"` stands for null. Attributes are read from the store."""
    store_data_equal_to_fill_value: bool = False
    """Whether chunks that contain only the fill value are stored."""
    dimension_separator: Literal[".", "/"] | None = None
    """Separator in the chunk keys of Zarr v2 arrays whose document states none. By default it is the one of the keys
    that are found, else `.`, as the format says."""
    durability: Literal["fsync", "rename"] = "fsync"
    """What a write to a folder waits for: with `fsync` it survives a power cut, with `rename` only a killed process."""
    timeout: PositiveFloat = 30.0
    """Seconds to wait for one response of a remote store."""
    retries: int = Field(default=4, ge=0)
    """Number of retries of a failed request to a remote store."""
    width: int | None = Field(default=None, gt=0)
    """Maximum concurrent requests to the store. Default: 320 for an object store, 16 for a web server, 8 for fsspec;
    for a folder, the number of processors."""
    options: dict[str, SecretStr] = {}
    """Options of the library that opens the store, such as `endpoint`, `region`, `access_key_id`,
    `secret_access_key`; see below."""

    @model_validator(mode="before")
    @classmethod
    def _url_alone(cls, value: Any) -> Any:
        """A URL alone; and the option `missing`, which may stand beside `fill_missing`."""
        if isinstance(value, Mapping) and "missing" in value:
            others = {name: member for name, member in value.items() if name != "missing"}
            return {**others, "options": {**others.get("options", {}), "missing": value["missing"]}}
        return {"url": value} if isinstance(value, str) else value

    @field_validator("options", mode="before")
    @classmethod
    def _options_are_text(cls, value: Any) -> Any:
        """Booleans, numbers and lists as text, which the stores parse."""
        if not isinstance(value, Mapping):
            return value
        return {key: json.dumps(item) if isinstance(item, int | float | list) else item for key, item in value.items()}

    def revealed_options(self) -> dict[str, str]:
        """The options, with secrets."""
        return {key: value.get_secret_value() for key, value in self.options.items()}

    @field_serializer("options", when_used="json")
    def _shown_options(self, options: dict[str, SecretStr]) -> dict[str, str]:
        """The options; all are masked except some that are not secret."""
        shown = {"account_name", "allow_http", "anonymous", "bucket", "container_name", "endpoint", "listable"}
        shown |= {"missing", "path_style", "project", "region", "skip_signature", "virtual_hosted_style_request"}
        return {name: o.get_secret_value() if name.lower() in shown else str(o) for name, o in options.items()}


def _as_pattern(text: str) -> str:
    Pattern.parse(text)
    return text


def _as_hash(value: SecretStr) -> SecretStr:
    if not re.fullmatch("sha256:[0-9a-f]{64}", value.get_secret_value()):
        raise ValueError("expected sha256: and 64 hexadecimal digits, as `hyperslab token new` prints them")
    return value


class RuleSettings(_Model):
    """What may be done where."""

    allow: list[Action] = ["read"]
    """Actions: `read`, `write` (values, attributes, sizes), `create` (new nodes and streams), `delete` (also
    `mode=replace`, and streams that are discarded)."""
    paths: list[Annotated[str, AfterValidator(_as_pattern)]] = ["**"]
    """Paths of nodes, each with all below it: `store/group`. The segment `*` is any one, `**` any number. `/metrics`
    are the counters, which `**` covers, too."""

    def rule(self) -> Rule:
        """The rule."""
        return rule(self.allow, self.paths)


class TokenSettings(RuleSettings):
    """A token; `hyperslab token new` makes one."""

    hash: Annotated[SecretStr, AfterValidator(_as_hash)]
    """`sha256:` and the SHA-256 of the token, in hexadecimal."""
    expires: datetime | date | None = None
    """When it ends: a date (its beginning) or a time, in UTC unless it says otherwise."""

    def principal(self, name: str) -> Principal:
        """The principal of the token."""
        return Principal(name, (self.rule(),), instant(self.expires))

    def digest(self) -> bytes:
        """What is known of the token."""
        return bytes.fromhex(self.hash.get_secret_value().partition(":")[2])


def _as_issuer(text: str) -> str:
    """The text as it is: tokens name it letter by letter."""
    if not re.fullmatch("https?://[!-~]+", text):
        raise ValueError(f"{text!r} is no address such as 'https://login.example.org'")
    return text


class IdentitySettings(_Model):
    """An identity provider."""

    issuer: Annotated[str, AfterValidator(_as_issuer)]
    """Its address, which its tokens name; it describes itself at `/.well-known/openid-configuration` below."""
    audience: str = Field(min_length=1)
    """Name of this service at the provider, which tokens for it name."""
    groups: dict[str, RuleSettings] = {}
    """Rules by the name of a group."""
    claim: str = Field(default="groups", min_length=1)
    """The claim of a token that lists the groups."""


def memory_bytes() -> int:
    """The memory available to this process: the machine's, or the limit of its control group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
            total = min(total, int(text))
    return total


def _share_of_memory(divisor: int) -> Callable[[dict[str, Any]], ByteSize]:
    """The default of a limit per worker: memory divided by ``divisor`` and the number of workers, at most 1 GiB."""
    return lambda known: ByteSize(min(memory_bytes() // divisor // known.get("workers", 1), GiB))


class Settings(_Model):
    """Settings of the service. Sizes are bytes, or text such as ``"256 MiB"``."""

    stores: dict[str, StoreSettings] = {}
    """Stores by name; a URL alone is a store with default settings."""
    demo_dir: Path = Field(
        default_factory=lambda: Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hyperslab",
        json_schema_extra={"default": "`hyperslab` in the user's cache folder"},
    )
    """Folder of the demo store, which is served if no other store is configured."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 selects a free one."""
    workers: int = Field(default=1, ge=1)
    """Number of worker processes, each with its own caches. One uses little more than one processor for small requests,
    which for many clients at once is the limit: then as many as there are processors."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest severity that is logged."""
    access_log: bool = False
    """Whether each request is logged."""
    trusted_proxies: list[str] = []
    """Addresses and networks (`10.0.0.0/8`) of reverse proxies whose `X-Forwarded-Proto` and `X-Forwarded-For` are
    trusted; `*` trusts all."""
    root_path: str = ""
    """Path prefix that a proxy removes before it forwards requests, such as `/arrays`; links and the viewer page
    contain it."""
    shutdown_seconds: PositiveFloat = 10.0
    """Seconds that running requests get to finish after SIGTERM. The process ends two seconds later at most."""
    documentation_url: HttpUrl | None = None
    """Address of a site built from the documentation (`mkdocs build -f deploy/mkdocs.yml`), to which `/docs` and
    `/openapi.json` link."""
    metrics_folder: Path | None = Field(
        default=None, json_schema_extra={"default": "`hyperslab serve` makes one where there are several workers"}
    )
    """Local folder through which workers share their metrics, so that `/metrics` reports the sum."""
    cors_origins: Origins = ["*"]
    """Web origins whose pages may read responses (CORS); `*` allows all. Only pages of named origins may also send
    changes."""
    allowed_hosts: Hosts = []
    """Host names by which clients reach the service, such as that of a proxy. A change without a token must use one
    of them, an address, `localhost` or a name without dots; `*` allows all. If none is set, this applies only to
    connections over the loopback interface."""
    read_tokens: Tokens = []
    """Bearer tokens; every request must carry one. If none is set, everybody may read."""
    write_tokens: Tokens = []
    """Bearer tokens; every write must carry one (they may read too). If none is set, everybody may write to writable
    stores."""
    tokens: dict[str, TokenSettings] = {}
    """Tokens by the name of who has them, as the log names them: see [access](../operate/access.md)."""
    tokens_file: Path | None = None
    """A TOML file with more `[tokens.NAME]` tables, which is read again when it changes."""
    anonymous: RuleSettings | None = None
    """What is allowed without a token where there are `tokens`: nothing by default."""
    identity: IdentitySettings | None = None
    """An identity provider (OpenID Connect) whose tokens are accepted, with rules for groups; needs the extra
    `hyperslab[identity]`."""
    link_keys: dict[str, SecretStr] = {}
    """Keys by which links are signed, by their ids; the last one signs, all are accepted. Without one, each process
    makes its own, and links end with it."""

    cache_bytes: ByteSize = Field(
        default_factory=_share_of_memory(8),
        json_schema_extra={"default": "an eighth of the memory among all workers, at most 1 GiB"},
    )
    """Memory for decoded chunks, per worker; 0 disables the cache."""
    tile_cache_bytes: ByteSize = ByteSize(64 * MiB)
    """Memory for rendered tiles, per worker; 0 disables the cache."""
    answer_cache_bytes: ByteSize = ByteSize(32 * MiB)
    """Memory for small complete responses, per worker, which are revalidated each time; 0 disables the cache."""
    bytes_in_flight: ByteSize = Field(
        default_factory=_share_of_memory(4),
        gt=0,
        json_schema_extra={"default": "a quarter of the memory among all workers, at most 1 GiB"},
    )
    """Memory that running responses and uploads may hold together, per worker. Open streams may reserve half as much,
    which is not taken from these."""
    slab_bytes: ByteSize = Field(default=ByteSize(8 * MiB), gt=0)
    """Size of the parts in which a large slice is read and sent."""
    request_threads: int = Field(default=32, gt=0)
    """Maximum concurrent store requests per worker, separately for reads and writes. Each remote store has as many
    of its own. Of reads of folders, which hardly wait, two for each processor, or four, run at a time, beside those
    that take longer than 50 ms."""
    queue_seconds: PositiveFloat = 10.0
    """Seconds that a request waits for memory, or a write for earlier writes, before the response is `503` with
    `Retry-After`."""
    idle_seconds: PositiveFloat = 300.0
    """Seconds without progress after which a connection is closed: while its client sends a body, or takes the next
    `slab_bytes` of a response. A whole body may take this long plus a second for each 16 KiB; the head of a request
    a minute, or this long if that is shorter."""
    immutable_seconds: int = Field(default=86_400, ge=0)
    """Seconds for which browsers and proxies may cache responses from read-only stores whose `recheck` is `never`."""
    max_response_bytes: ByteSize | None = Field(default=None, gt=0)
    """Maximum size of a raw or npy response; unlimited by default."""
    max_upload_bytes: ByteSize = Field(default=ByteSize(256 * MiB), gt=0)
    """Maximum size of a request body."""
    max_json_bytes: ByteSize = Field(default=ByteSize(16 * MiB), gt=0)
    """Maximum array data in one JSON response."""
    max_csv_bytes: ByteSize = Field(default=ByteSize(64 * MiB), gt=0)
    """Maximum array data in one CSV response."""
    max_tiff_bytes: ByteSize = Field(default=ByteSize(256 * MiB), gt=0)
    """Maximum array data in one TIFF file."""
    max_tile_bytes: ByteSize = Field(default=ByteSize(256 * MiB), gt=0)
    """Maximum array data that is read for one tile; 16 times as much may be decoded for it."""
    max_points: int = Field(default=1_000_000, gt=0)
    """Maximum number of points in one request."""
    max_listed: int = Field(default=1000, gt=0)
    """Maximum number of children in one page of a group listing."""

    @field_validator("stores")
    @classmethod
    def _names_are_one_segment(cls, stores: dict[str, StoreSettings]) -> dict[str, StoreSettings]:
        for name in stores:
            if not name or name in (".", "..") or any(c in name for c in "/\\?#%") or not name.isprintable():
                raise ValueError(f"{name!r} cannot name a store: it has to be one segment of a URL's path")
        return stores

    @field_validator("tokens_file")
    @classmethod
    def _file_has_tokens(cls, path: Path | None) -> Path | None:
        if path is not None:
            read_tokens_file(path)
        return path

    @field_validator("link_keys")
    @classmethod
    def _keys_have_ids(cls, keys: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, key in keys.items():
            if not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
                raise ValueError(f"{name!r} is no id of a key: letters, digits, - and _")
            if not key.get_secret_value():
                raise ValueError(f"the key {name!r} is empty")
        return keys

    @field_validator("workers")
    @classmethod
    def _workers_share_writable_stores(cls, workers: int, info: ValidationInfo) -> int:
        for name, store in info.data.get("stores", {}).items():
            schemes = [part.partition("://")[0].lower() for part in store.url.split("::")]  # of a chained URL, several
            if workers > 1 and store.writable and "memory" in schemes:
                raise ValueError(f"the writable store {name!r} is in memory, of which each worker would have its own")
        return workers

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_addresses(cls, proxies: list[str]) -> list[str]:
        """Connections are compared by address, so that names would never match."""
        if "*" in proxies:
            return ["*"]
        for proxy in proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise ValueError(f"{error}: name proxies by address or network, such as '10.0.0.0/8'") from error
        return proxies

    @field_validator("root_path")
    @classmethod
    def _root_path_is_a_prefix(cls, path: str) -> str:
        path = path.rstrip("/")
        unreserved = r"(/[A-Za-z0-9._~-]+)*"  # never percent-encoded (RFC 3986 §2.3)
        if not re.fullmatch(unreserved, path) or any(segment.strip(".") == "" for segment in path.split("/")[1:]):
            raise ValueError(f"{path!r} is no prefix such as '/arrays' or '/lab/arrays', of letters, digits and -._~")
        return path

    @property
    def asks_for_tokens(self) -> bool:
        """Whether some reads need a token."""
        return any((self.read_tokens, self.tokens, self.tokens_file, self.anonymous, self.identity))

    def masked(self) -> dict[str, Any]:
        """JSON-ready values with secrets masked."""
        return self.model_dump(mode="json")


TABLES: Final[Mapping[str, type[BaseModel]]] = {
    "stores": StoreSettings,
    "tokens": TokenSettings,
    "anonymous": RuleSettings,
    "identity": IdentitySettings,
}
"""The models of tables, by the names of settings."""


def own_key() -> dict[str, SecretStr]:
    """A key for links that end with this process."""
    return {f"own-{secrets.token_hex(4)}": SecretStr(secrets.token_hex(32))}


class TokensFile(_Model):
    """The settings that a file of tokens has."""

    tokens: dict[str, TokenSettings] = {}


def read_tokens_file(path: Path) -> dict[bytes, Principal]:
    """The tokens of a file, by their digests. Raises `ValueError`."""
    try:
        document = TokensFile(**_read_toml(path))
    except BadSettings as error:
        raise ValueError(str(error)) from error
    except ValidationError as error:
        raise ValueError("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())) from error
    return principals(document.tokens)


def principals(tokens: Mapping[str, TokenSettings]) -> dict[bytes, Principal]:
    """Principals of tokens, by digest."""
    return {entry.digest(): entry.principal(name) for name, entry in tokens.items()}


def load(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """The effective settings; ``overrides`` come from the command line, nested as in TOML. Raises `BadSettings`."""
    named = os.environ.get(CONFIG)
    path = config or (Path(named) if named else None)
    sources: list[tuple[Mapping[str, Any], str]] = [
        (overrides or {}, ""),
        (_read_environment(), ENVIRONMENT),
        *([(_read_toml(path), str(path))] if path else []),
    ]
    try:
        return Settings(**reduce(_merge, (values for values, _ in reversed(sources))))
    except ValidationError as error:
        own = [e for e in error.errors() if e["type"] != "default_factory_not_called"]  # a consequence of others
        raise BadSettings("; ".join(_sentence(e, sources) for e in own)) from error


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merged recursively; values of ``above`` take precedence."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        table = {"url": old} if isinstance(old, str) else old  # a store given by its URL
        merged[key] = _merge(table, value) if isinstance(table, Mapping) and isinstance(value, Mapping) else value
    return merged


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read the configuration file {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{str(path)!r} is not TOML: {error}") from error


def _read_environment() -> dict[str, Any]:
    """Settings of the environment, nested as in TOML. Lists and tables are JSON; a store may also be a URL alone."""
    values: dict[str, Any] = {}
    for variable, text in sorted(os.environ.items()):  # a store's URL before its other variables
        if not variable.upper().startswith(PREFIX) or variable.upper() in (CONFIG, PREFIX + "TOKEN"):
            continue  # the latter is the client's
        keys = variable[len(PREFIX) :].lower().split(DELIMITER)
        field = (Settings if len(keys) == 1 else TABLES.get(keys[0], Settings)).model_fields.get(keys[-1])
        is_table = text.startswith("{") and keys[0] in TABLES and len(keys) < 3
        value: Any = text
        if is_table or (field is not None and get_origin(field.annotation) in (list, dict)):
            try:
                value = json.loads(text)
            except ValueError as error:
                form = """is not JSON, as in '["text"]' or '{"name": "value"}'"""
                raise BadSettings(f"the environment variable {variable} {form}") from error
        values = _merge(values, reduce(lambda inner, key: {key: inner}, reversed(keys), value))
    return values


def _sentence(error: Any, sources: Sequence[tuple[Mapping[str, Any], str]]) -> str:
    """Sentence on what is wrong with a value, and where it comes from; for an unknown key, the most similar one."""
    location = [str(part) for part in error["loc"]]
    source = _origin(error["loc"], sources)
    origin = f" (in {source})" if source else ""
    if error["type"] != "extra_forbidden":
        return f"{'.'.join(location)}: {error['msg'].removeprefix('Value error, ')}{origin}"
    fields = (Settings if len(location) == 1 else TABLES.get(location[0], Settings)).model_fields
    nearest = [*location[:-1], *difflib.get_close_matches(location[-1], fields, n=1, cutoff=0)]
    if source == ENVIRONMENT:
        name, meant = (PREFIX + DELIMITER.join(keys).upper() for keys in (location, nearest))
        return f"{source} variable {name} is no setting: did you mean {meant}?"
    return f"there is no setting {'.'.join(location)}: did you mean {'.'.join(nearest)}?{origin}"


def _origin(location: tuple[int | str, ...], sources: Sequence[tuple[Mapping[str, Any], str]]) -> str:
    """Name of the source of a value, or for a missing one, of its table: the first with the value, or the last with
    the table."""
    for depth in range(len(location), 0, -1):
        names = [name for values, name in sources if _holds(values, location[:depth])]
        if names:
            return names[0 if depth == len(location) else -1]
    return ""


def _holds(values: Any, location: Sequence[int | str]) -> bool:
    if not location or not isinstance(values, Mapping):  # a list or value of this source
        return True
    return location[0] in values and _holds(values[location[0]], location[1:])
