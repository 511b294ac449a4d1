"""Trains a model of a cleaned table on as many rows as help.

Rows are told apart by a hash of their number: at most 200,000 are held out, half to stop the training and to
judge how many rows help, and half for the metrics. Steps use nested samples of the others, each several times as
large as the one before, and end when a step gains less than 0.0005, or at a ceiling of rows or seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import lightgbm
import numpy as np
from numpy.typing import NDArray

from kinds.dataset.cleaning.conversion import hash_below, literal
from kinds.dataset.cleaning.table import Column
from kinds.dataset.engine import Connection, engine
from kinds.dataset.reading.dialect import RECORD_NUMBER
from kinds.dataset.schema import Schema, Task, columns_of
from kinds.dataset.training import matrix, metrics, model
from kinds.dataset.training.features import Choice, choose
from kinds.dataset.training.metrics import Floats
from kinds.dataset.training.target import Target, understand
from kinds.dataset.watch import Watch

HELD_OUT_SHARE, MAX_HELD_OUT = 0.2, 200_000
STEPS = (200_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)
SMALL = 200_000
"""Of fewer rows all are used: a step costs little."""
MIN_GAIN = 0.0005
"""Smaller gains are at the noise of the held-out rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the learning curve. `score`: AUC, minus log loss, or R², of rows held out."""

    rows: int
    score: float
    seconds: float
    trees: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """`text`: the model. `facts`: what the event and the report tell."""

    text: str
    schema: Schema
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows with labels in the order of the table. `place`: from 0 to 1 within the class, by the hash."""

    features: matrix.Matrix
    labels: Floats
    place: Floats
    held_out: NDArray[np.bool_]
    judging: NDArray[np.bool_]


def train(
    table: Path,
    folder: Path,
    columns: Sequence[Column],
    target: str,
    *,
    task: Task | Literal["auto"],
    excluded: dict[str, str],
    limits: Limits,
    watch: Watch,
    done: Sequence[Step] = (),
    on_step: Callable[[Step], None] = lambda step: None,
) -> Trained:
    """`excluded`: columns that are no features, and why. `done`: steps of an earlier attempt. `on_step` keeps one.

    Raises RejectedDataset and JobClosed.
    """
    source = f"read_parquet({literal(str(table))})"
    kinds = {column.name: column.type for column in columns}
    with engine(folder, watch) as connection:
        goal = understand(connection, source, target, kinds[target], task)
        choice = choose(connection, source, columns, goal, excluded={target: "target"} | excluded)
        rows = _read(connection, source, goal, choice, limits.rows)
    steps = _curve(rows, goal, choice, limits, watch, list(done), on_step)
    best = steps[-1]  # of the most rows: that a smaller sample scores better is chance
    booster = model.load(best.text)
    schema = Schema(
        task=goal.task,
        target=target,
        classes=goal.classes,
        features=tuple(choice.features),
        types={name: kinds[name] for name in columns_of(choice.features)},
    )
    return Trained(text=best.text, schema=schema, facts=_facts(rows, goal, choice, steps, best, booster))


def _facts(
    rows: _Rows, goal: Target, choice: Choice, steps: Sequence[Step], best: Step, booster: lightgbm.Booster
) -> dict[str, Any]:
    testing = rows.held_out & ~rows.judging
    labels, count = rows.labels[testing], len(goal.classes)
    predicted = model.predict(booster, rows.features[testing])
    plain = metrics.baseline(goal.task, rows.labels[~rows.held_out], labels, count)
    return {
        "task": goal.task,
        "classes": dict(goal.counts),
        "metrics": metrics.evaluate(goal.task, labels, predicted),
        "baseline": metrics.evaluate(goal.task, labels, plain),
        "top_features": model.importance(booster, choice.features),
        "rows_used": best.rows,
        "rows_held_out": int(rows.held_out.sum()),
        "rows_tested": len(labels),
        "rows_unlabeled": goal.unlabeled,
        "learning_curve": [
            {name: value for name, value in asdict(step).items() if name != "text"} for step in steps
        ],
        "trees": best.trees,
        "tree_hash": model.tree_hash(best.text),
        "dropped_columns": choice.dropped,
        "warnings": [*choice.warnings, *_warnings(goal)],
        "details": metrics.details(goal.task, labels, predicted, count),
    }


def _warnings(goal: Target) -> list[str]:
    rare = [label for label, count in goal.counts.items() if count < 0.01 * goal.labeled]
    if not rare:
        return []
    return [f"Fewer than 1 % of the records have {rare[0]!r}. Accuracy says little; look at AUC and log loss."]


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(connection: Connection, source: str, goal: Target, choice: Choice, ceiling: int) -> _Rows:
    """All rows if they are few, else the held-out ones and a sample of the others."""
    held_out = min(HELD_OUT_SHARE, MAX_HELD_OUT / goal.labeled)
    kept = min(1.0, ceiling / (goal.labeled * (1 - held_out)))
    u = f"hash({RECORD_NUMBER})"
    low, high = hash_below(kept * (1 - held_out)), hash_below(1 - held_out)
    sampled = "" if kept == 1 else f" AND ({u} <= {low} OR {u} > {high})"
    expressions = matrix.prepare(connection, choice.features)
    found = connection.execute(
        f"SELECT {goal.sql} AS y, {u} AS u, {matrix.select(expressions)} FROM {source} "
        f"WHERE {goal.sql} IS NOT NULL{sampled}"
    ).fetchnumpy()
    labels, hashes = np.asarray(found.pop("y"), dtype=np.float64), np.asarray(found.pop("u"), dtype=np.uint64)
    features = matrix.fill(found, len(choice.features))
    share = held_out if kept == 1 else held_out / (held_out + kept * (1 - held_out))
    groups = np.zeros(len(labels), dtype=np.int64) if goal.task == "regression" else labels.astype(np.int64)
    held, judging, place = _split(groups, hashes, share)
    return _Rows(features, labels, place, held, judging)


def _split(
    groups: NDArray[np.int64], hashes: NDArray[np.uint64], share: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Floats]:
    """(held out, those of them that judge, place from 0 to 1 of the others), each class in the same shares."""
    held, judging = np.zeros(len(groups), dtype=np.bool_), np.zeros(len(groups), dtype=np.bool_)
    place = np.zeros(len(groups))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        members = members[np.argsort(hashes[members], kind="stable")]
        first = len(members) - max(2, round(share * len(members)))
        held[members[first:]] = True
        judging[members[first::2]] = True
        place[members[:first]] = np.arange(first) / max(1, first)
    return held, judging, place


# ── learning curve ───────────────────────────────────────────────────────────────────────────────────────────


def _curve(
    rows: _Rows,
    goal: Target,
    choice: Choice,
    limits: Limits,
    watch: Watch,
    done: list[Step],
    on_step: Callable[[Step], None],
) -> list[Step]:
    available = int((~rows.held_out).sum())
    sizes, began = _sizes(min(available, limits.rows)), time.monotonic()
    for place, size in enumerate(sizes):
        if place < len(done):
            continue
        if done and not _goes_on(done, size, available, time.monotonic() - began, limits):
            break
        step = _step(rows, goal, choice, size / available, watch)
        on_step(step)
        done.append(step)
        watch.advance(sum(sizes[: place + 1]) / sum(sizes))
    return done


def _sizes(most: int) -> list[int]:
    """Of the steps, the last one of all rows that may be used."""
    if most <= SMALL:
        return [size for size in (most // 4, most // 2) if size >= 25] + [most]
    return [size for size in STEPS if size < most] + [most]


def _goes_on(done: Sequence[Step], size: int, available: int, seconds: float, limits: Limits) -> bool:
    """Whether the last step gained enough, and the next ends in time: it takes as much longer as it is larger."""
    last = done[-1]
    if seconds + last.seconds * size / max(1, last.rows) > limits.seconds:
        return False
    return available <= SMALL or len(done) < 2 or last.score - done[-2].score >= MIN_GAIN


def _step(rows: _Rows, goal: Target, choice: Choice, share: float, watch: Watch) -> Step:
    chosen, judging = ~rows.held_out & (rows.place < share), rows.judging
    began = time.monotonic()
    booster = model.fit(
        goal.task,
        len(goal.classes),
        choice.features,
        (rows.features[chosen], rows.labels[chosen]),
        (rows.features[judging], rows.labels[judging]),
        watch,
    )
    predicted = model.predict(booster, rows.features[judging])
    return Step(
        rows=int(chosen.sum()),
        score=metrics.score(goal.task, rows.labels[judging], predicted),
        seconds=round(time.monotonic() - began, 2),
        trees=booster.best_iteration or booster.current_iteration(),
        text=booster.model_to_string(num_iteration=booster.best_iteration or -1),
    )
