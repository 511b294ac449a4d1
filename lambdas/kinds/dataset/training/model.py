"""LightGBM: trained the same each time from the same rows, and kept as text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import lightgbm
import numpy as np

from kinds.dataset.engine import threads
from kinds.dataset.schema import Feature, Task
from kinds.dataset.training.features import names_of
from kinds.dataset.training.matrix import Matrix
from kinds.dataset.training.metrics import Floats
from kinds.dataset.watch import Watch

TREES, LEAVES, RATE, PATIENCE = 80, 31, 0.15, 10
SEED = 20_261_130
OBJECTIVES = {"binary": "binary", "multiclass": "multiclass", "regression": "regression"}
METRICS = {"binary": "binary_logloss", "multiclass": "multi_logloss", "regression": "l2"}


def fit(
    task: Task,
    classes: int,
    features: Sequence[Feature],
    learned: tuple[Matrix, Floats],
    judged: tuple[Matrix, Floats],
    watch: Watch,
) -> lightgbm.Booster:
    """Train on `learned` until `judged` is predicted no better. Raises JobClosed if the job has ended."""
    for _, labels in (learned, judged):
        _require_labels(labels, task, classes)
    categorical = [place for place, feature in enumerate(features) if feature.kind == "category"]
    rows = len(learned[1])
    data = lightgbm.Dataset(
        learned[0],
        learned[1],
        params=_parameters(task, classes, rows),
        feature_name=names_of(features),
        categorical_feature=categorical,
    )
    valid = data.create_valid(judged[0], judged[1])

    def look(_: Any) -> None:
        watch.check()

    return lightgbm.train(
        _parameters(task, classes, rows),
        data,
        num_boost_round=TREES,
        valid_sets=[valid],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False), look],
    )


def _parameters(task: Task, classes: int, rows: int) -> dict[str, Any]:
    """With these flags, trees depend neither on the number of threads nor on chance."""
    return {
        "objective": OBJECTIVES[task],
        "metric": METRICS[task],
        **({"num_class": classes} if task == "multiclass" else {}),
        "num_leaves": LEAVES,
        "learning_rate": RATE,
        "min_data_in_leaf": max(1, min(20, rows // 50)),
        "seed": SEED,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": threads(),
        "verbosity": -1,
    }


def _require_labels(labels: Floats, task: Task, classes: int) -> None:
    """LightGBM takes NaN, 0 and 2, or -1 and 1 without a word."""
    if not np.isfinite(labels).all():
        raise ValueError("a label is not finite")
    if task != "regression" and not np.isin(labels, np.arange(classes)).all():
        raise ValueError(f"a label is none of 0 to {classes - 1}")


def load(text: str) -> lightgbm.Booster:
    return lightgbm.Booster(model_str=text)


def predict(model: lightgbm.Booster, matrix: Matrix) -> Floats:
    """Binary: the probability of class 1. Multiclass: that of each class, a column each. Regression: the value."""
    found: Floats = np.asarray(model.predict(matrix, num_threads=threads()), dtype=np.float64)
    return found


def tree_hash(text: str) -> str:
    """SHA-256 of the trees. The rest of the text also names the number of threads."""
    trees = text[text.index("\nTree=0") : text.index("\nend of trees")] if "\nTree=0" in text else ""
    return hashlib.sha256(trees.encode()).hexdigest()


def importance(model: lightgbm.Booster, features: Sequence[Feature]) -> list[dict[str, Any]]:
    """Each feature's share of the gain of all splits, the largest first."""
    gains = model.feature_importance("gain")
    total = float(gains.sum()) or 1.0
    ranked = sorted(zip(gains, features, strict=True), key=lambda pair: -pair[0])
    return [{"feature": feature.label, "share": round(float(gain) / total, 4)} for gain, feature in ranked]
