"""How good predictions are. Labels are class numbers or values; all results are finite, or null if undefined."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinds.dataset.schema import Task

Floats = NDArray[np.float64]
TINY = 1e-15
CURVE_POINTS, CALIBRATION_BINS, MAX_POINTS = 200, 10, 2000


def evaluate(task: Task, labels: Floats, predicted: Floats) -> dict[str, float | None]:
    """Binary: `predicted` is the probability of class 1. Multiclass: one column for each class."""
    if task == "regression":
        return _regression(labels, predicted)
    if task == "binary":
        both = np.stack((1 - predicted, predicted), axis=1)
        return {"auc": auc(labels == 1, predicted), **_classes(labels, both)}
    each = [auc(labels == k, predicted[:, k]) for k in range(predicted.shape[1])]
    known = [value for value in each if value is not None]
    return {"auc": float(np.mean(known)) if known else None, **_classes(labels, predicted)}


def score(task: Task, labels: Floats, predicted: Floats) -> float:
    """One number, the more the better: AUC, minus log loss, or R²."""
    found = evaluate(task, labels, predicted)
    value = {"binary": found.get("auc"), "multiclass": found.get("log_loss"), "regression": found.get("r2")}[task]
    if value is None:
        return 0.0
    return -value if task == "multiclass" else value


def baseline(task: Task, learned: Floats, labels: Floats, classes: int) -> Floats:
    """What predicts best without looking at any feature: the shares of the classes, or the mean."""
    if task == "regression":
        return np.full(len(labels), learned.mean())
    shares = np.bincount(learned.astype(np.int64), minlength=classes) / len(learned)
    return np.full(len(labels), shares[1]) if task == "binary" else np.tile(shares, (len(labels), 1))


def auc(positive: NDArray[np.bool_], scores: Floats) -> float | None:
    """The share of pairs that are in order, by the ranks; ties count half. Null with one class only."""
    many, total = int(positive.sum()), len(positive)
    if many in (0, total):
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return float((ranks[inverse][positive].sum() - many * (many + 1) / 2) / (many * (total - many)))


def _classes(labels: Floats, predicted: Floats) -> dict[str, float | None]:
    chosen = predicted[np.arange(len(labels)), labels.astype(np.int64)]
    return {
        "log_loss": float(-np.log(np.clip(chosen, TINY, 1)).mean()),
        "accuracy": float((predicted.argmax(axis=1) == labels).mean()),
    }


def _regression(labels: Floats, predicted: Floats) -> dict[str, float | None]:
    errors, spread = labels - predicted, labels - labels.mean()
    total = float((spread**2).sum())
    return {
        "rmse": float(np.sqrt((errors**2).mean())),
        "mae": float(np.abs(errors).mean()),
        "r2": 1 - float((errors**2).sum()) / total if total else None,
    }


def roc(labels: Floats, predicted: Floats) -> list[list[float]]:
    """[false positive rate, true positive rate] at falling thresholds."""
    order = np.argsort(-predicted, kind="stable")
    positive = labels[order] == 1
    last = np.append(np.flatnonzero(np.diff(predicted[order])), len(order) - 1)
    hits, misses = np.cumsum(positive)[last], np.cumsum(~positive)[last]
    points = np.stack((misses / max(1, misses[-1]), hits / max(1, hits[-1])), axis=1)
    chosen = points[np.linspace(0, len(points) - 1, min(CURVE_POINTS, len(points))).astype(int)]
    return [[0.0, 0.0], *chosen.round(5).tolist()]


def calibration(labels: Floats, predicted: Floats) -> list[dict[str, float]]:
    """For tenths of the predictions: the mean predicted probability and the observed share."""
    parts = np.array_split(np.argsort(predicted, kind="stable"), CALIBRATION_BINS)
    return [
        {
            "predicted": float(predicted[part].mean()),
            "observed": float((labels[part] == 1).mean()),
            "rows": len(part),
        }
        for part in parts
        if len(part)
    ]


def confusion(labels: Floats, predicted: Floats, classes: int) -> list[list[int]]:
    """Rows by the actual class, columns by the predicted one."""
    counted = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counted, (labels.astype(np.int64), predicted.argmax(axis=1)), 1)
    return [[int(value) for value in row] for row in counted]


def details(task: Task, labels: Floats, predicted: Floats, classes: int) -> dict[str, Any]:
    """What the report draws."""
    if task == "binary":
        return {"roc": roc(labels, predicted), "calibration": calibration(labels, predicted)}
    if task == "multiclass":
        return {"confusion": confusion(labels, predicted, classes)}
    some = np.linspace(0, len(labels) - 1, min(MAX_POINTS, len(labels))).astype(int)
    return {"residuals": np.stack((predicted[some], labels[some]), axis=1).tolist()}
