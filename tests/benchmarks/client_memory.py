"""``python -m tests.benchmarks.client_memory URL SELECT``: what a read costs the client beside its result, in bytes.

Prints JSON. A process of its own, whose memory nothing else has touched.
"""

from __future__ import annotations

import json
import sys

from hyperslab import RemoteArray
from hyperslab.wire import parse_selection
from tests.benchmarks.processes import forget_peak, memory, peak_memory


def main() -> None:
    url, select = sys.argv[1:]
    array = RemoteArray(url)
    _ = array[(0,) * array.ndim]
    forget_peak()
    before = memory()
    values = array[parse_selection(select)]
    print(json.dumps({"result": values.nbytes, "growth": peak_memory() - before}))


if __name__ == "__main__":
    main()
