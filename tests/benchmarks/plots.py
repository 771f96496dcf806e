"""Pictures of a run, as SVG: the same numbers give the same file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.benchmarks.report import ratio
from tests.benchmarks.results import Outcome, Run
from tests.benchmarks.suites import bounds, engine, http, objects, peers, rps, scaling, tiles, writes

_STYLE: Final = {
    "svg.hashsalt": "hyperslab",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
}
_OURS: Final = "#d1495b"
_OTHERS: Final = ("#30638e", "#8d96a3", "#edae49", "#66a182", "#7b5e7b", "#00798c", "#b5a642")

Painter = Callable[[Outcome], Figure]


def draw(run: Run, folder: Path) -> list[Path]:
    """One file for each suite of which there is a picture."""
    drawn = []
    style: Any = _STYLE  # its keys are a closed list of names to those who have the library's types
    with mpl.rc_context(style):
        for outcome in run.outcomes:
            painter = PAINTERS.get(outcome.suite)
            if painter is not None and outcome.measurements:
                path = folder / f"{outcome.suite}.svg"
                painter(outcome).savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")
                drawn.append(path)
    return drawn


def relative_times(title: str, *, ours: Sequence[str], base: str, others: Sequence[str]) -> Painter:
    """For each case a row of dots: the time of each program, in times of ``base``'s."""

    def paint(outcome: Outcome) -> Figure:
        cases = outcome.cases()
        figure = Figure(figsize=(8, 1.2 + 0.22 * len(cases)))
        axes: Axes = figure.subplots()
        colours = dict(zip(others, _OTHERS, strict=False)) | dict.fromkeys(ours, _OURS)
        for name in (*others, *ours):
            dots = [(ratio(outcome.value(c, name), outcome.value(c, base)), row) for row, c in enumerate(cases)]
            there = [(x, y) for x, y in dots if x is not None]
            if there:
                marker = {"s": 46, "zorder": 3} if name in ours else {"s": 22, "alpha": 0.85}
                hollow = "none" if name in ours[1:] else colours[name]
                axes.scatter(
                    *zip(*there, strict=True), label=name, edgecolors=colours[name], facecolors=hollow, **marker
                )
        axes.axvline(1, color="#30638e", linewidth=1)
        _as_ratios(axes, cases, f"time, {base} = 1 (left is faster)", title)
        return figure

    return paint


def _as_ratios(axes: Axes, cases: Sequence[str], label: str, title: str) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}×")
    axes.set_yticks(range(len(cases)), cases)
    axes.invert_yaxis()
    axes.grid(axis="both", color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(label)
    axes.set_title(title)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def bars(title: str, label: str, programs: Sequence[str], ours: Sequence[str], value: str = "wall") -> Painter:
    """For each case a group of bars, ours in red."""

    def paint(outcome: Outcome) -> Figure:
        cases, there = outcome.cases(), [name for name in programs if name in outcome.programs()]
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in there}
        ticks, row = [], 0.0
        for case in cases:
            found = {name: wide for name in there if (wide := outcome.value(case, name, value)) is not None}
            ticks.append(row + (len(found) - 1) / 2)
            for i, (name, wide) in enumerate(found.items()):
                rows[name].append((row + i, wide))
            row += len(found) + 1
        figure = Figure(figsize=(8, 0.9 + 0.16 * row))
        axes: Axes = figure.subplots()
        colours = _colours(there, ours)
        for name, placed in rows.items():
            axes.barh([y for y, _ in placed], [x for _, x in placed], height=0.9, label=name, color=colours[name])
        axes.set_yticks(ticks, cases)
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.set_title(title)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return figure

    return paint


def _colours(programs: Sequence[str], ours: Sequence[str]) -> Mapping[str, str]:
    others = [name for name in programs if name not in ours]
    shades = dict(zip(ours, (_OURS, "#e89aa5", "#f3c9cf"), strict=False))
    return dict(zip(others, _OTHERS, strict=False)) | shades


def growth(outcome: Outcome) -> Figure:
    """Time against the number of chunks, both logarithmic."""
    figure = Figure(figsize=(8, 3.2))
    axes: Axes = figure.subplots()
    steps = dict.fromkeys((m.program, m.case.rpartition(", ")[0]) for m in outcome.measurements)
    colours = iter(_OTHERS)
    for program, step in steps:
        walls = [outcome.value(f"{step}, {size} chunks", program, "wall_min") or float("nan") for size in scaling.SIZES]
        chunks = [side * side for side in scaling.SIZES.values()]
        axes.plot(chunks, [wall * 1e3 for wall in walls], "o-", label=f"{program}: {step}", color=next(colours, "k"))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("chunks of the array")
    axes.set_ylabel("ms")
    axes.set_title("One tile of arrays of any size")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


_ENGINE: Final = relative_times(
    "Reading files in process", ours=[engine.OURS], base=engine.TENSORSTORE, others=engine.PEERS
)
_HTTP: Final = relative_times(
    "Reading over loopback",
    ours=[http.OURS, http.CACHED],
    base=http.IN_PROCESS,
    others=[http.IN_PROCESS, *http.OVER_NGINX],
)
_BOUNDS: Final = relative_times(
    "What can be reached by hand",
    ours=[bounds.REMOTE, bounds.ENGINE],
    base=bounds.IN_PROCESS,
    others=[bounds.IN_PROCESS, bounds.HAND, bounds.SOCKET, bounds.OVER_NGINX],
)
_PEERS: Final = relative_times("Array servers", ours=[peers.OURS, peers.CACHED], base=peers.OURS, others=peers.PEERS)
_WRITERS: Final = (writes.REMOTE, writes.OURS, writes.ZARR, "zarr-python 2", writes.TENSORSTORE)
_OBJECTS: Final = (objects.ENGINE, objects.REMOTE, objects.TENSORSTORE, objects.THREADS, objects.ASYNC)
_TILES: Final = (tiles.TILES_CACHED, tiles.CHUNKS_CACHED, tiles.COLD, tiles.HTTP, tiles.TILED, tiles.LARGE_IMAGE)

PAINTERS: Final[dict[str, Painter]] = {
    "engine": _ENGINE,
    "http": _HTTP,
    "bounds": _BOUNDS,
    "peers": _PEERS,
    "rps": bars("Requests a second", "requests a second", (rps.OURS, rps.NGINX), [rps.OURS], "rate"),
    "writes": bars("Writing", "seconds", _WRITERS, [writes.REMOTE, writes.OURS]),
    "objects": bars("1,024 objects of 64 KiB, or fewer", "seconds", _OBJECTS, [objects.ENGINE, objects.REMOTE]),
    "tiles": bars("Tiles", "tiles a second", _TILES, _TILES[:3], "rate"),
    "scaling": growth,
}
