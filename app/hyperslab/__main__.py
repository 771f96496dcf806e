"""The ``hyperslab`` command as it stands in every installation, also where nothing that it needs is installed."""

from __future__ import annotations

import io
import os
import sys


def main() -> int:
    """Run the command line; where a module is missing, say which extra brings it and return 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names can be in any script, the terminal's encoding need not
    try:
        from hyperslab.cli import run

        return _ended(run(sys.argv[1:]))
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module == "hyperslab":
            raise
        if module == "ml_dtypes":  # which values need, and no command
            print(f"hyperslab: {error}", file=sys.stderr)
            return 1
        is_client = sys.argv[1:2] and sys.argv[1] in ("get", "info", "open", "put", "stream", "tree")
        extra = "cli" if is_client and module in ("tqdm", "typer") else "server"
        print(f"hyperslab: this needs {module}, so install it: pip install 'hyperslab[{extra}]'", file=sys.stderr)
        return 1


def _ended(code: int) -> int:
    """The exit code, once all that was printed is out: what a full disk does not take is told here, and not by the
    interpreter on its way out."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not code:
            print(f"hyperslab: {error}", file=sys.stderr)
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
