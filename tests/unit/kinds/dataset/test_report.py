"""The report of a dataset (kinds.dataset.report)."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from kinds.dataset.report.page import page

HOSTILE = '<script>alert("x")</script>$\\alpha$&'


def facts(task: str, details: dict[str, Any], distribution: dict[str, Any], name: str = "price") -> dict[str, Any]:
    column = {"name": name, "type": "number", "null_share": 0.25, "unreadable": 3, "note": "percent_sign_removed"}
    metric = {"binary": "auc", "multiclass": "log_loss", "regression": "rmse"}[task]
    return {
        "target": name,
        "cleaned": {
            "rows_in": 100,
            "rows_out": 97,
            "duplicates": 1,
            "rejected": {"bad_quotes": 2},
            "columns": [column],
            "renamed": {f"2: {name}": "other"},
            "examples": {"bad_quotes": [{"record": 1, "line": 2, "reason": "bad_quotes", "text": name}]},
        },
        "trained": {
            "task": task,
            "classes": {name: 50, "no": 47},
            "metrics": {metric: 0.75, "other": None},
            "baseline": {metric: 0.5},
            "top_features": [{"feature": name, "share": 1.0}],
            "rows_used": 80,
            "rows_tested": 10,
            "learning_curve": [{"rows": 40, "score": 0.7}, {"rows": 80, "score": 0.75}],
            "dropped_columns": {name: "identifier"},
            "warnings": [f"Column {name}"],
            "details": details,
        },
        "predicted": {"rows": 97, "distribution": distribution, "news": {name: {"new_nulls": 0.5}}},
    }


CLASSES = {"classes": {HOSTILE: 50, "no": 47}, "probability_bins": [1] * 20}
BINARY = {
    "roc": [[0, 0], [0.2, 0.6], [1, 1]],
    "calibration": [
        {"predicted": 0.2, "observed": 0.25, "rows": 5},
        {"predicted": 0.8, "observed": 0.7, "rows": 5},
    ],
}
CASES = [
    ("binary", BINARY, CLASSES, 6),
    ("multiclass", {"confusion": [[5, 1], [0, 4]]}, CLASSES, 5),
    ("regression", {"residuals": [[1, 2], [2, 1]]}, {"quantiles": {"0": 1, "0.5": 2.5, "1": 9}}, 3),
]


@pytest.mark.parametrize(("task", "details", "distribution", "charts"), CASES)
def test_nothing_of_the_data_is_markup(task: str, details: Any, distribution: Any, charts: int) -> None:
    """Texts of the data are escaped, in charts as well, and the page loads nothing."""
    html = page(facts(task, details, distribution, HOSTILE))
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#|data:image/png)""", html)
    pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(pictures) == charts
    for picture in pictures:
        ElementTree.fromstring(picture)


def test_same_bytes() -> None:
    """The same facts give the same page."""
    given = facts("binary", BINARY, CLASSES)
    assert page(given) == page(given)


def test_numbers() -> None:
    """The page tells what was rejected, how good the model is, and beside what."""
    html = page(facts("binary", BINARY, CLASSES))
    for text in ("0.7500", "0.5000", "bad_quotes", "25.0%", "the per cent sign was removed", "nulls: 50.0%"):
        assert text in html
