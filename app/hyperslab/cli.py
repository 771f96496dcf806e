"""Command line. Errors are printed as one line on stderr, without a traceback."""

from __future__ import annotations

import difflib
import json
import logging
import re
import secrets
import shlex
import sys
import time
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer
from typer.exceptions import TyperException

from hyperslab import __version__
from hyperslab.errors import BadSettings, HyperslabError

if TYPE_CHECKING:
    from hyperslab.client.transport import Transport
    from hyperslab.conversion import Made
    from hyperslab.settings import Settings
    from hyperslab.storage.base import Store

Form = Literal["npy", "raw", "csv", "json", "tiff"]

app = typer.Typer(
    name="hyperslab",
    help="Zarr arrays as URLs that can be sliced, tiled, written and resized.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")]
Url = Annotated[str, typer.Argument(metavar="URL", help="A node of a running service: any of its URLs.")]
Place = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="A node of a running service, or a folder or bucket, for which no service has to run."
    ),
]
Select = Annotated[str, typer.Option("--select", metavar="TEXT", help="Selection in numpy's notation: 0:10,:,5.")]
FieldName = Annotated[str | None, typer.Option("--field", metavar="NAME", help="One field of a structured dtype.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TEXT", help="A bearer token for the service.  [default: the variable HYPERSLAB_TOKEN]"
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]

logging.getLogger("hyperslab.client").addHandler(logging.NullHandler())  # without warnings about retries


class Refused(TyperException):
    """Invalid arguments."""

    exit_code = 2


def run(arguments: Sequence[str]) -> int:
    """Run a command and return the exit code: 0 success, 1 failure, 2 invalid arguments."""
    try:
        return int(app(args=list(arguments), prog_name="hyperslab", standalone_mode=False) or 0)
    except TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except BadSettings as error:
        return _fail(str(error), 2)
    except (HyperslabError, OSError) as error:
        return _fail(str(error) or type(error).__name__, 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 130)


def _fail(sentence: str, code: int) -> int:
    print("hyperslab:", " ".join(sentence.split()), file=sys.stderr)
    return code


@app.callback()
def _main(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(f"hyperslab {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def serve(
    stores: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=]URL", help="Stores to serve; none: a demo store.")
    ] = None,
    *,
    config: Config = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(metavar="N", help="The port to listen on; 0: a free one.  [default: 8000]")
    ] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Worker processes.  [default: 1]")] = None,
    root_path: Annotated[
        str | None, typer.Option(metavar="PATH", help="The prefix that a proxy removes, such as /arrays.")
    ] = None,
    writable: Annotated[bool, typer.Option("--writable", help="Let clients write to these stores.")] = False,
    demo_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the demo store.")] = None,
    get: Annotated[
        str | None, typer.Option("--get", metavar="PATH", help="Write the response to one request to stdout, and stop.")
    ] = None,
) -> int:
    """Serve stores over HTTP."""
    options = {"host": host, "port": port, "workers": workers, "root_path": root_path, "demo_dir": demo_dir}
    overrides = {key: value for key, value in options.items() if value is not None}
    settings, demo = _effective(config, overrides, parse_stores(stores or [], writable=writable), writable=writable)
    prepare = _preparation(settings) if demo else None
    if get is not None:
        if prepare is not None:
            prepare()
        return _respond(settings, get)
    from hyperslab.server import serve as serve_http
    from hyperslab.welcome import welcome

    return serve_http(settings, lambda base: print(welcome(settings, base, demo=demo), flush=True), prepare)


@app.command()
def check(config: Config = None) -> int:
    """Load the settings, check each store, and print the effective settings with secrets masked."""
    from hyperslab.arrays.catalog import Catalog
    from hyperslab.arrays.tree import survey
    from hyperslab.asgi import mount_stores
    from hyperslab.settings import load

    settings = load(config)
    catalog = Catalog(mount_stores(settings))
    for mount in catalog.mounts.values():
        _check(mount.store)
    json.dump(settings.masked(), sys.stdout, indent=2, ensure_ascii=False)
    print()
    surveys = {name: survey(catalog, mount, seconds=5.0) for name, mount in catalog.mounts.items()}
    named = [(name, line) for name, result in surveys.items() for line in result.lines()]
    lines = [f"store {name!r}: {line}" for name, line in named if line.startswith(("skipped", "problem"))]
    if not settings.link_keys:
        print("hyperslab: no link_keys are set: signed links end with the process", file=sys.stderr)
    broken = any(result.skipped for result in surveys.values())
    return _fail("; ".join(lines), 1 if broken else 0) if lines else 0


@app.command()
def link(
    url: Url,
    *,
    expires: Annotated[str, typer.Option(metavar="DURATION", help="When it ends: 30s, 15m, 12h, 7d.")] = "7d",
    allow: Annotated[
        str, typer.Option(metavar="ACTIONS", help="read, write, create, delete, with commas between.")
    ] = "read",
    token: Token = None,
) -> None:
    """Print a signed link to a node and all below it, which works without a token until it ends."""
    from hyperslab.client.transfer import signed_link

    print(signed_link(url, allow=[action.strip() for action in allow.split(",")], expires=expires, token=token))


tokens = typer.Typer(help="Tokens for a service: make one, or look at those of the settings.", rich_markup_mode=None)
app.add_typer(tokens, name="token")


@tokens.command("new")
def new_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will have it, as the log names them.")],
    *,
    allow: Annotated[
        str, typer.Option(metavar="ACTIONS", help="read, write, create, delete, with commas between.")
    ] = "read",
    path: Annotated[
        list[str] | None,
        typer.Option("--path", metavar="PATTERN", help="Where, such as 'lab/2026/**'; may be repeated.  [default: **]"),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="When it ends: 12h, 90d.  [default: never]")
    ] = None,
) -> None:
    """Print a new token, and the table for the settings, which has only its hash."""
    from hyperslab import access

    actions = list(dict.fromkeys(action.strip() for action in allow.split(",")))
    if unknown := [action for action in actions if action not in access.ACTIONS]:
        raise Refused(f"{unknown[0]!r} is no action: there are {', '.join(access.ACTIONS)}")
    try:
        for action in path or ():
            access.Pattern.parse(action)
        ends = "" if expires is None else access.timestamp(time.time() + access.seconds_in(expires))
    except ValueError as error:
        raise Refused(str(error)) from error
    if not name or not name.isprintable():
        raise Refused(f"{name!r} cannot name who has a token")
    token = f"hs_{secrets.token_urlsafe(32)}"
    quoted = name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
    table = [f"[tokens.{quoted}]", f'hash = "sha256:{access.digest(token.encode()).hex()}"']
    table += [f"allow = {json.dumps(actions)}", f"paths = {json.dumps(path or ['**'], ensure_ascii=False)}"]
    print("\n".join([token, "", *table, *([f"expires = {ends}"] if ends else [])]))


@tokens.command("check")
def check_token(
    token: Annotated[
        str | None, typer.Argument(metavar="TOKEN", help="A token, -: from stdin; none: all of the settings.")
    ] = None,
    config: Config = None,
) -> int:
    """Show whose a token is, what it allows, and when it ends; an unknown or ended one is an error."""
    from hyperslab import access
    from hyperslab.settings import load, principals, read_tokens_file

    settings = load(config)
    by_digest = principals(settings.tokens)
    if settings.tokens_file is not None:
        by_digest |= read_tokens_file(settings.tokens_file)
    if token is not None:
        text = sys.stdin.readline().strip() if token == "-" else token
        principal = by_digest.get(access.digest(text.encode()))
        if principal is None:
            return _fail("no such token", 1)
        by_digest = {b"": principal}
    status = 0
    for principal in by_digest.values():
        ended = time.time() >= principal.ends
        status = 1 if ended and token is not None else status
        print(f"{principal.name}: {principal.describe()}{' (ended)' if ended else ''}")
    return status


@app.command()
def info(url: Place, token: Token = None) -> None:
    """Show an array, or a group as a tree."""
    from hyperslab.client.transfer import describe

    address, transport = _resolve(url)
    print(describe(address, token=token, transport=transport, place=None if transport is None else url))


@app.command()
def tree(
    url: Place,
    level: Annotated[int | None, typer.Option("--level", "-L", metavar="N", help="Maximum depth.")] = None,
    *,
    token: Token = None,
) -> None:
    """Draw the groups and arrays below a group."""
    from hyperslab.client import RemoteGroup

    address, transport = _resolve(url)
    with RemoteGroup(address, token=token, transport=transport) as group:
        print(group.tree(level))


@app.command("open")
def open_page(
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="A node of a running service, or a folder or bucket; none: the demo."),
    ] = None,
) -> int:
    """Open the viewer page in a browser; a folder or bucket is served until the command is stopped."""
    if url is not None and _is_http(url):
        from hyperslab.client.transfer import page_url

        _browse(page_url(url))
        return 0
    stores = parse_stores([url] if url else [], writable=False)
    settings, demo = _effective(None, {"port": 0}, stores, writable=False)
    from hyperslab.server import serve as serve_http
    from hyperslab.welcome import welcome

    def announce(base: str) -> None:
        print(welcome(settings, base, demo=demo), flush=True)
        _browse(f"{base}/view/{quote(next(iter(settings.stores)))}")

    return serve_http(settings, announce, _preparation(settings) if demo else None)


@app.command()
def get(
    url: Url,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file: .npy, .raw, .csv, .json, .tiff; -: stdout (npy)."
        ),
    ],
    select: Select = "",
    *,
    field: FieldName = None,
    form: Annotated[
        Form | None,
        typer.Option("--format", metavar="FORM", help="npy, raw, csv, json or tiff.  [default: by the suffix]"),
    ] = None,
    token: Token = None,
    quiet: Quiet = False,
) -> None:
    """Download a selection of an array into a file; run it again to resume. Pipes, devices and stdout are written
    directly. A URL of the viewer page selects the displayed plane."""
    from hyperslab.client.transfer import download

    download(url, output, select=select, field=field, form=form, token=token, progress=_progress(quiet))


@app.command()
def put(
    url: Url,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A .npy file, or a pipe with one; -: stdin.")],
    select: Select = "",
    *,
    field: FieldName = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the array first, with the shape and dtype of the file.")
    ] = False,
    token: Token = None,
    quiet: Quiet = False,
) -> None:
    """Write a .npy file into a selection of an array."""
    from hyperslab.client.transfer import upload

    upload(source, url, select=select, field=field, create=create, token=token, progress=_progress(quiet))


@app.command()
def stream(
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL of the stream, in a store of a service.")],
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A folder of .npy or TIFF files, one such file; -: raw frames.")
    ],
    *,
    settings: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="A JSON file with stream settings.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="The array, if there are several.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted stream.")] = False,
    token: Token = None,
    quiet: Quiet = False,
) -> None:
    """Send frames as a stream, which is stored as an image; by default of the first frame's shape and dtype, with a
    pyramid."""
    from hyperslab.client.transfer import send_frames

    options: Any = {"settings": settings, "key": key, "resume": resume, "token": token}
    state = send_frames(url, source, **options, progress=_progress(quiet))
    for array in state["arrays"].values():
        print(f"{array['path']}: {array['durable']} frames")


Dst = Annotated[str, typer.Argument(metavar="DST", help="A folder, a bucket, or the URL of a node of a service.")]
SIZES = typer.Option("--chunks", metavar="SIZES", help="Sizes of a chunk, of the last axes: 512,512; -1: all.")
Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="Memory, such as 2G.  [default: a quarter of the machine]"),
]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", metavar="URL", help="A scheduler of dask.distributed: tcp://host:8786.")
]
Shards = Annotated[
    str | None,
    typer.Option("--shards", metavar="SIZES", help="Sizes of a shard; auto, none.  [default: if many chunks]"),
]
Compressor = Annotated[
    str | None, typer.Option("--compressor", metavar="CODEC", help="A name, JSON as in a .zarray, or none.")
]
Method = Annotated[
    str | None,
    typer.Option("--method", metavar="NAME", help="Of levels: mean, min, max, mode, nearest, decimate."),
]
ZarrFormat = Annotated[int, typer.Option("--zarr-format", metavar="N", help="3, or 2 (OME-Zarr 0.4).")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace what is there.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "--plan", help="Only say what would be made.")]


@app.command()
def convert(
    src: Annotated[
        str, typer.Argument(metavar="SRC", help="TIFF, NetCDF, HDF5 or npy; a folder or glob of TIFFs; or Zarr.")
    ],
    dst: Dst,
    *,
    axes: Annotated[
        str | None, typer.Option("--axes", metavar="NAMES", help="Axes of an image, of t, c, z, y, x: zyx.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="TEXT", help="Names of files: scan_t{t}_c{c}.tif; *: anything.")
    ] = None,
    chunks: Annotated[str | None, SIZES] = None,
    shards: Shards = None,
    compressor: Compressor = None,
    zarr_format: ZarrFormat = 3,
    method: Method = None,
    memory: Memory = None,
    replace: Replace = False,
    scheduler: Scheduler = None,
    dry_run: DryRun = False,
    token: Token = None,
    quiet: Quiet = False,
) -> None:
    """Convert files to Zarr: images become OME-Zarr with a pyramid, datasets become groups for xarray. Run it again to
    resume."""
    options: dict[str, Any] = {
        **_storage_options(chunks, shards, compressor, memory, zarr_format),
        "method": method,
        "replace": replace,
        "scheduler": scheduler,
        "token": token,
        "dry_run": dry_run,
        "progress": _progress(quiet),
    }
    said: dict[str, Any] = {"axes": axes, "pattern": pattern}
    from hyperslab import conversion

    while True:
        try:
            made = conversion.convert(src, dst, **said, **options)
            break
        except conversion.Undetermined as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise Refused(str(error)) from error
            said[error.option] = typer.prompt(f"{error.reason}\n--{error.option}", default=error.example, err=True)
    _announce(made, dry_run=dry_run)


@app.command()
def rechunk(
    src: Place,
    dst: Dst,
    *,
    chunks: Annotated[str, SIZES],
    shards: Shards = None,
    compressor: Compressor = None,
    zarr_format: ZarrFormat = 3,
    memory: Memory = None,
    replace: Replace = False,
    scheduler: Scheduler = None,
    dry_run: DryRun = False,
    token: Token = None,
    quiet: Quiet = False,
) -> None:
    """Copy Zarr with other chunks. Run it again to resume."""
    options = _storage_options(chunks, shards, compressor, memory, zarr_format)
    options |= {"replace": replace, "scheduler": scheduler, "dry_run": dry_run, "token": token}
    from hyperslab import conversion

    _announce(conversion.rechunk(src, dst, **options, progress=_progress(quiet)), dry_run=dry_run)


@app.command()
def pyramid(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="An image or an array: a folder or bucket, or on a service.")
    ],
    *,
    method: Method = None,
    axes: Annotated[
        str | None, typer.Option("--axes", metavar="NAMES", help="Axes of an array that has no names, as zyx.")
    ] = None,
    memory: Memory = None,
    scheduler: Scheduler = None,
    dry_run: DryRun = False,
    token: Token = None,
    quiet: Quiet = False,
) -> None:
    """Add coarser levels to a stored image, or to an array, whose group becomes an image. Run it again to resume."""
    options = {**_storage_options(None, None, None, memory, 3), "axes": axes, "method": method, "scheduler": scheduler}
    del options["zarr_format"]
    from hyperslab import conversion

    try:
        made = conversion.pyramid(url, **options, dry_run=dry_run, token=token, progress=_progress(quiet))
    except conversion.Undetermined as error:
        raise Refused(str(error)) from error
    _announce(made, dry_run=dry_run or not made.nbytes)


def _announce(made: Made, *, dry_run: bool) -> None:
    """Say what a conversion made, and how to see it."""
    print("\n".join(made.lines))
    if dry_run:
        return
    if _is_http(made.url):
        from hyperslab.client.transfer import page_url

        print(f"made {made.url}: see {page_url(made.url)}")
    elif Path(made.url).is_file():
        print(f"made {made.url}")
    else:
        print(f"made {made.url}: serve it with  hyperslab serve {shlex.quote(made.url)}")


def _storage_options(
    chunks: str | None, shards: str | None, compressor: str | None, memory: str | None, zarr_format: int
) -> dict[str, Any]:
    """Options of a conversion from their texts; raises `Refused`."""
    if zarr_format not in (2, 3):
        raise Refused(f"--zarr-format is 2 or 3, found {zarr_format}")
    options: dict[str, Any] = {"shards": shards == "auto"} if shards in ("auto", "none") else {}
    options["zarr_format"] = zarr_format
    for name, text in {"chunks": chunks, "shards": None if "shards" in options else shards}.items():
        if text is None:
            continue
        if not re.fullmatch(r"(-1|[1-9][0-9]*)(,(-1|[1-9][0-9]*))*", text):
            raise Refused(f"--{name} is sizes, such as 1,512,512, with -1 for a whole axis; found {text!r}")
        options[name] = tuple(map(int, text.split(",")))
    if memory is not None:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)(i?B)?", memory, re.IGNORECASE)
        if match is None:
            raise Refused(f"--memory is a size, such as 512M or 2G; found {memory!r}")
        options["memory"] = int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))
    if compressor is not None:
        try:
            codec = json.loads(compressor) if compressor.startswith("{") else {"none": None}.get(compressor, compressor)
        except ValueError as error:
            raise Refused(f"--compressor is a name or JSON: {error}") from error
        options["compressor"] = codec
    return options


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _resolve(url: str) -> tuple[str, Transport | None]:
    """URL and transport of a node; a folder or bucket is opened in this process."""
    if _is_http(url):
        return url, None
    from hyperslab.api.inprocess import InProcess
    from hyperslab.asgi import create_app
    from hyperslab.settings import Settings, StoreSettings

    name = re.sub(r"[/\\?#%]", "_", default_name(url))
    settings = Settings(stores={name: StoreSettings(url=url)})
    _check_folders(settings)
    return f"http://localhost/v1/metadata/{quote(name)}", InProcess(create_app(settings))


def _browse(url: str) -> None:
    """Print the URL of a page, and open it unless the browser is missing or text-based."""
    print(url, flush=True)
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    if Path(getattr(browser, "name", "")).name not in ("elinks", "links", "lynx", "w3m", "www-browser"):
        browser.open(url)


def _check_folders(settings: Settings) -> None:
    """Check stores in folders, as a missing folder is probably a typing error; buckets are checked by ``/readyz``."""
    from hyperslab.asgi import mount_stores

    for mount in mount_stores(settings):
        if mount.store.url.startswith(("/", "file:")):
            _check(mount.store)


def _check(store: Store) -> None:
    """Check a store; raises `StoreError`, and `FileNotFoundError` with a hint."""
    from hyperslab.storage.config import local_path

    folder = Path(local_path(store.url) if store.url.startswith(("/", "file:")) else "/")
    if not folder.exists():
        siblings = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
        near = difflib.get_close_matches(folder.name, siblings, 1)
        hint = f"; did you mean {folder.parent / near[0]}?" if near else ""
        sought = f"looked for a folder of Zarr arrays at {folder}"
        raise FileNotFoundError(f"store {store.name!r}: {sought}, and nothing is there{hint}")
    store.check()


def _respond(settings: Settings, path: str) -> int:
    """Print the headers of a response to stderr and its body to stdout."""
    from hyperslab.api.inprocess import CutShort, ResponseHead, answer
    from hyperslab.asgi import create_app

    statuses: list[int] = []

    def show(head: ResponseHead) -> None:
        statuses.append(head.status)
        print(head.status, *(f"{name}: {value}" for name, value in head.headers), sep="\n", file=sys.stderr)

    try:
        answer(create_app(settings), f"/{path.removeprefix('/')}", show, _write_out)
    except CutShort:
        print("the body could not be read to its end: the output is incomplete", file=sys.stderr)
        return 1
    finally:
        sys.stdout.flush()
    return 0 if statuses and statuses[0] < 400 else 1


def _write_out(body: bytes | memoryview) -> None:
    """Write a body to stdout; an unbuffered stdout may write it in parts."""
    rest = memoryview(body).cast("B")
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]


def _progress(quiet: bool) -> bool:
    """Whether to show a progress bar: not if stderr is a file."""
    return not quiet and sys.stderr.isatty()


def parse_stores(texts: Sequence[str], *, writable: bool) -> dict[str, dict[str, Any]]:
    """Settings of the stores in ``[NAME=]URL`` arguments; raises `Refused` for a name that is used twice."""
    from hyperslab.wire import without_driver

    stores: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = re.fullmatch(r"(?P<name>[^/:=]+)=(?P<url>.+)", text)
        name, url = (match["name"], match["url"]) if match else (default_name(text), text)
        if name in stores:
            raise Refused(f"two stores are named {name!r}: give one another name, as in NAME={url}")
        stores[name] = {"url": without_driver(url), **({"writable": True} if writable else {})}
    return stores


def default_name(url: str) -> str:
    """The last segment of a URL's path without ``.zarr``, for a chained URL (``zip://folder::file.zip``) of the first
    part with one; raises `Refused` if there is none."""
    from hyperslab.wire import without_driver

    first, *others = without_driver(url).split("::")
    parts = [f"{first}://" if others and "://" not in first else first, *others]  # "zip::…" is "zip://::…"
    name = next(filter(None, map(_last_segment, parts)), None)
    if name is None:
        raise Refused(f"{url!r} has no last segment to be named after: give it a name, as in NAME={url}")
    return name


def _last_segment(url: str) -> str:
    path = url.partition("://")[2] if "://" in url else str(Path(url).absolute())
    return path.partition("?")[0].rstrip("/").rpartition("/")[2].removesuffix(".zarr")


def _effective(
    config: Path | None, overrides: dict[str, Any], stores: dict[str, dict[str, Any]], *, writable: bool
) -> tuple[Settings, bool]:
    """The effective settings, whose folders exist, and whether they serve the demo store, as no other is configured,
    and which is still to be made."""
    from hyperslab.settings import load

    settings = load(config, {**overrides, "stores": stores})
    if settings.stores:
        if writable and not stores:
            raise Refused("--writable goes with the URLs of stores: in the configuration, say stores.NAME.writable")
        _check_folders(settings)
        return settings, False
    from hyperslab.demo import demo_folder

    demo = {"url": str(demo_folder(settings.demo_dir)), "writable": writable}
    return load(config, {**overrides, "stores": {"demo": demo}}), True


def _preparation(settings: Settings) -> Callable[[], None] | None:
    """A function that makes the demo store; None if it was made before."""
    from hyperslab.demo import demo_folder, make_demo

    def make() -> None:
        print(f"Making the demo store in {settings.demo_dir} (once, some seconds) …", file=sys.stderr)
        make_demo(settings.demo_dir)

    return None if demo_folder(settings.demo_dir).is_dir() else make
