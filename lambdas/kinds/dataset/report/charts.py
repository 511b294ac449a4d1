"""The charts of the report as SVG, by matplotlib. Texts are escaped by it; the same facts give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

matplotlib.rcParams["svg.hashsalt"] = "recado"  # ids inside the picture
matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["text.parse_math"] = False  # a column may be called "$a$"
COLOR, MUTED = "#2b6cb0", "#a0aec0"
MOST_BARS, LABEL_CHARACTERS = 15, 40


def svg(draw: Callable[[Axes], None], *, height: float = 3.2) -> str:
    """The picture of one plot, without an XML header."""
    figure = Figure(figsize=(6, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    draw(axes)
    target = io.BytesIO()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    text = target.getvalue().decode()
    return text[text.index("<svg") :]


def roc(points: Sequence[Sequence[float]], auc: float | None) -> str:
    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, linestyle="--", label="guessing")
        label = "model" if auc is None else f"model (AUC {auc:.4f})"
        axes.plot([x for x, _ in points], [y for _, y in points], color=COLOR, label=label)
        axes.set(xlabel="false positive rate", ylabel="true positive rate")
        axes.legend(frameon=False)

    return svg(draw)


def calibration(bins: Sequence[Mapping[str, float]]) -> str:
    def draw(axes: Axes) -> None:
        predicted, observed = [b["predicted"] for b in bins], [b["observed"] for b in bins]
        most = max([*predicted, *observed, 0.01]) * 1.05
        axes.plot([0, most], [0, most], color=MUTED, linestyle="--", label="perfect")
        axes.plot(predicted, observed, color=COLOR, marker="o", label="model")
        axes.set(xlabel="predicted probability", ylabel="observed share")
        axes.legend(frameon=False)

    return svg(draw)


def residuals(points: Sequence[Sequence[float]]) -> str:
    def draw(axes: Axes) -> None:
        axes.axhline(0, color=MUTED, linestyle="--")
        axes.scatter([x for x, _ in points], [y - x for x, y in points], s=6, alpha=0.4, color=COLOR, linewidths=0)
        axes.set(xlabel="predicted", ylabel="actual − predicted")

    return svg(draw)


def learning_curve(steps: Sequence[Mapping[str, Any]], name: str) -> str:
    def draw(axes: Axes) -> None:
        axes.plot([step["rows"] for step in steps], [step["score"] for step in steps], color=COLOR, marker="o")
        axes.set(xlabel="rows learned from", ylabel=name)
        axes.ticklabel_format(axis="x", style="plain")

    return svg(draw)


def bars(values: Sequence[tuple[str, float]], label: str) -> str:
    """Horizontal bars, the first on top."""
    shown = list(values[:MOST_BARS])

    def draw(axes: Axes) -> None:
        places = range(len(shown))
        axes.barh(places, [value for _, value in shown], color=COLOR)
        axes.set_yticks(places, [name[:LABEL_CHARACTERS] for name, _ in shown])
        axes.invert_yaxis()
        axes.set(xlabel=label)

    return svg(draw, height=max(1.5, 0.5 + 0.28 * len(shown)))


def histogram(counts: Sequence[int]) -> str:
    """Of probabilities, in bins of the same width from 0 to 1."""

    def draw(axes: Axes) -> None:
        width = 1 / len(counts)
        axes.bar(
            [place * width for place in range(len(counts))], counts, width=width * 0.9, align="edge", color=COLOR
        )
        axes.set(xlabel="probability", ylabel="rows")

    return svg(draw)


def confusion(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    def draw(axes: Axes) -> None:
        axes.imshow([[value / max(1, sum(row)) for value in row] for row in counts], cmap="Blues", vmin=0, vmax=1)
        names = [name[:20] for name in classes]
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="predicted", ylabel="actual")

    return svg(draw, height=min(9, 2 + 0.3 * len(classes)))
