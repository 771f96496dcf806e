"""Entry point of the ``hyperslab`` command, which reports missing optional dependencies."""

from __future__ import annotations

import io
import os
import sys


def main() -> int:
    """Run the command line and return the exit code; for a missing module, 1 and a hint which extra to install."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the terminal's encoding may lack characters of names
    try:
        from hyperslab.cli import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module == "hyperslab":
            raise
        if module == "ml_dtypes":  # the error has its own hint
            print(f"hyperslab: {error}", file=sys.stderr)
            return 1
        command = sys.argv[1] if len(sys.argv) > 1 else ""
        is_client = command in ("get", "info", "open", "put", "stream", "tree")
        extra = "cli" if is_client and module in ("tqdm", "typer") else "server"
        extra = "convert" if command in ("convert", "pyramid", "rechunk") else extra
        print(f"hyperslab: this needs {module}, so install it: pip install 'hyperslab[{extra}]'", file=sys.stderr)
        return 1
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:  # such as a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not code:
            print(f"hyperslab: {error}", file=sys.stderr)
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
