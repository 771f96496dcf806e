"""Pictures of a run, as SVG: for each case a row of dots, one for each program. The same numbers give the same file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.benchmarks.suite import Outcome, Run
from tests.benchmarks.suites import reading, tiles

_STYLE: Final[Any] = {
    "svg.hashsalt": "hyperslab",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
}
_OURS: Final = "#d1495b"
_OTHERS: Final = ("#30638e", "#8d96a3", "#edae49", "#66a182", "#7b5e7b", "#00798c", "#b5a642", "#404040")


@dataclass(frozen=True, slots=True)
class Picture:
    """``value`` of each program, relative to the ``base`` program where there is one; ``ours`` in red."""

    title: str
    label: str
    ours: tuple[str, ...]
    base: str | None = None
    value: str = "wall"


_TIMES: Final = "time, {} = 1 (left is faster)"
PICTURES: Final = {
    "engine": Picture("Reading files in process", _TIMES, (reading.OURS,), reading.TENSORSTORE),
    "http": Picture("Reading over loopback", _TIMES, (reading.REMOTE, reading.REMOTE_CACHED), reading.IN_PROCESS),
    "peers": Picture("Array servers", _TIMES, (reading.OURS, reading.CACHED), reading.OURS),
    "rps": Picture("Requests a second", "requests a second", (reading.OURS,), value="rate"),
    "writes": Picture("Writing", "seconds", ("RemoteArray", "Hyperslab in process")),
    "streams": Picture("Frames of streams", "seconds", ("RemoteStream",)),
    "objects": Picture("Objects of 64 KiB", "seconds", ("Hyperslab", "RemoteArray")),
    "tiles": Picture("Tiles", "tiles a second", tiles.PROGRAMS[:3], value="rate"),
    "scaling": Picture("One tile of arrays of any size", "seconds", ("Hyperslab",), value="wall_min"),
}


def draw(run: Run, folder: Path) -> list[Path]:
    """One file for each suite of which there is a picture."""
    drawn = []
    with mpl.rc_context(_STYLE):
        for outcome in run.outcomes:
            if outcome.suite in PICTURES and outcome.measurements:
                drawn.append(folder / f"{outcome.suite}.svg")
                figure = paint(outcome, PICTURES[outcome.suite])
                figure.savefig(drawn[-1], format="svg", metadata={"Date": None}, bbox_inches="tight")
    return drawn


def paint(outcome: Outcome, picture: Picture) -> Figure:
    """The figure of one suite."""
    cases, colours = outcome.cases(), iter(_OTHERS)
    figure = Figure(figsize=(8, 1.2 + 0.22 * len(cases)))
    axes: Axes = figure.subplots()
    for name in outcome.programs():
        found: dict[str, Any] = {case: outcome.value(case, name, picture.value) for case in cases}
        if picture.base is not None:
            found = {**outcome.ratios(name, picture.base, picture.value)}
        rows = [row for row, case in enumerate(cases) if found.get(case)]
        if not rows:
            continue
        colour, size = (_OURS, 46) if name in picture.ours else (next(colours, "k"), 22)
        hollow = "none" if name in picture.ours[1:] else colour
        axes.scatter(
            [found[cases[row]] for row in rows], rows, s=size, label=name, edgecolors=colour, facecolors=hollow
        )
    if picture.base is not None:
        axes.axvline(1, color=_OTHERS[0], linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(cases)), cases)
    axes.invert_yaxis()
    axes.grid(axis="both", color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(picture.label.format(picture.base))
    axes.set_title(picture.title)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure
