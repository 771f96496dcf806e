"""The ``hyperslab`` command as it stands in every installation, also where nothing that it needs is installed."""

from __future__ import annotations

import sys
from typing import Final

_EXTRAS: Final = {"typer": "cli", "tqdm": "cli"}
"""The extra that brings a module; all others come with ``server``."""


def main() -> int:
    """Run the command line; where a module is missing, say which extra brings it and return 1."""
    try:
        from hyperslab.cli import run

        return run(sys.argv[1:])
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module == "hyperslab":
            raise
        extra = _EXTRAS.get(module, "server")
        print(f"hyperslab: this needs {module}, so install it: pip install 'hyperslab[{extra}]'", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
