"""The picture of `waiting.py`: what a two-hour job takes, and how late its end is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

INK = "#787d85"  # as far from white as from the black of dark pages
GRID = "#787d8540"
POLLED, HELD, PUSHED = "#d9662b", "#8a63d2", "#1a9a6c"
GROUPS = {"long poll": HELD, "server-sent events": HELD, "WebSocket": PUSHED, "webhook": PUSHED}
LEGEND = {"asked again and again": POLLED, "held open": HELD, "offset": PUSHED}
MARKS = {"2 s": "o", "30 s": "s", "5 min": "^", "2 h": "D"}
REQUESTS = {1: "1", 10: "10", 100: "100", 1000: "1,000"}
DELAYS = {0.1: "0.1 s", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min"}
STYLE = {
    "svg.hashsalt": "waiting",
    "svg.fonttype": "none",  # letters as text: a third of the size
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.edgecolor": INK,
}
Found = Mapping[str, Sequence[Any]]


def draw(found: Found, file: Path) -> None:
    """`found`: for each length of a job by its name, every way. The same figures give the same bytes."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.4, 4.8))
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(5, 6))
        _requests(left, found["2 h"])
        _delays(right, found)
        for axes in (left, right):
            _rows(axes, len(found["2 h"]))
        figure.subplots_adjust(left=0.205, right=0.985, top=0.9, bottom=0.14, wspace=0.06)
        figure.savefig(file, transparent=True, metadata={"Date": None, "Creator": None})


def _requests(axes: Any, figures: Sequence[Any]) -> None:
    for place, each in enumerate(figures):
        colour, requests, messages = _colour(each.way), each.wire.requests, each.wire.messages
        axes.barh(place, requests + messages, height=0.56, color=colour, alpha=0.35)
        axes.barh(place, requests, height=0.56, color=colour)
        label = f"{requests} + {messages} messages" if messages else f"{requests}"
        axes.text((requests + messages) * 1.13, place, label, va="center", ha="left")
    axes.set_yticks(range(len(figures)), [each.way for each in figures])
    _title(axes, "Requests for a job of two hours")
    _scale(axes, REQUESTS, 0.6, 9000)
    axes.set_ylim(len(figures) - 0.5, -0.5)
    patches = [Patch(color=colour, label=name) for name, colour in LEGEND.items()]
    _legend(axes, patches, "", handlelength=0.9, handleheight=0.9)


def _delays(axes: Any, found: Found) -> None:
    for nth, (name, figures) in enumerate(found.items()):
        for place, each in enumerate(figures):
            height, colour = place + (nth - 1.5) * 0.2, _colour(each.way)
            axes.plot([each.typical, max(each.delays)], [height] * 2, color=colour, alpha=0.6, linewidth=1.6)
            axes.plot(each.typical, height, MARKS[name], color=colour, markersize=4.6)
    _title(axes, "From its end until you know")
    _scale(axes, DELAYS, 0.045, 1100)
    marks = [
        Line2D([], [], linestyle="", marker=mark, color=INK, markersize=4.6, label=name)
        for name, mark in MARKS.items()
    ]
    _legend(axes, marks, "a job of", handletextpad=0)
    axes.text(
        1, -0.165, "mark: median, line: to the latest of eight", transform=axes.transAxes, ha="right", fontsize=9
    )


def _rows(axes: Any, count: int) -> None:
    for place in range(0, count, 2):
        axes.axhspan(place - 0.5, place + 0.5, color=INK, alpha=0.07, linewidth=0, zorder=0)


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=11, fontweight="bold", pad=10)


def _legend(axes: Any, handles: Sequence[Any], title: str, **options: Any) -> None:
    place = {"loc": "upper left", "bbox_to_anchor": (0, -0.085), "borderaxespad": 0, "borderpad": 0}
    look = {"frameon": False, "ncols": 5, "columnspacing": 1.1, "fontsize": 9}
    heading = [Line2D([], [], linestyle="", label=title)] if title else []
    axes.legend(handles=[*heading, *handles], **place, **look, **options)


def _scale(axes: Any, ticks: Mapping[float, str], least: float, most: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(least, most)
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_major_formatter(FixedFormatter(list(ticks.values())))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)


def _colour(way: str) -> str:
    return GROUPS.get(way, POLLED)
