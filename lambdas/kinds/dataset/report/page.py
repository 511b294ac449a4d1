"""The report of a dataset job: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from kinds.dataset.report import charts

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a202c; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid #e2e8f0 }
table { border-collapse: collapse; width: 100%; font-size: 14px }
td, th { padding: .25rem .6rem; text-align: left }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums } tr:nth-child(even) { background: #f7fafc }
code { background: #edf2f7; padding: 0 .2rem; white-space: pre-wrap; overflow-wrap: anywhere }
svg { max-width: 100%; height: auto }
.warning { background: #fffaf0; border-left: 4px solid #dd6b20; padding: .4rem .8rem }
figure { margin: 1rem 0 } figcaption { color: #4a5568; font-size: 14px }
"""
SCORES = {"binary": "AUC", "multiclass": "−log loss", "regression": "R²"}
MOST_COLUMNS = 200
NOTES = {
    "leading_zeros": "kept as text: numbers with leading zeros would lose them",
    "beyond_64_bits": "kept as text: some integers have more than 64 bits",
    "too_many_digits": "kept as text: some numbers have more digits than a double",
    "ambiguous_decimal_sign": "kept as text: no value shows whether the comma or the point is the decimal sign",
    "ambiguous_date_order": "kept as text: no value shows whether the day or the month comes first",
    "percent_sign_removed": "the per cent sign was removed; values were not divided by 100",
}


def page(facts: Mapping[str, Any]) -> str:
    """`facts`: `target`, and what the stages wrote: `cleaned`, `trained`, `predicted`. All texts are escaped."""
    cleaned, trained, predicted = facts["cleaned"], facts["trained"], facts["predicted"]
    title = f"Dataset: {escape(facts['target'])}"
    parts = [
        f"<h1>{title}</h1>",
        _summary(cleaned, trained, predicted),
        *(f'<p class="warning">{escape(text)}</p>' for text in trained["warnings"]),
        "<h2>Data</h2>",
        _columns(cleaned),
        "<h2>Rejected records</h2>",
        _rejects(cleaned),
        "<h2>Model</h2>",
        *_model(trained),
        "<h2>Predictions</h2>",
        *_predictions(predicted),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _summary(cleaned: Mapping[str, Any], trained: Mapping[str, Any], predicted: Mapping[str, Any]) -> str:
    rejected = sum(cleaned["rejected"].values())
    return (
        f"<p>Of {_number(cleaned['rows_in'])} records, {_number(rejected)} were rejected and "
        f"{_number(cleaned['duplicates'])} were repeated. A {trained['task']} model learned from "
        f"{_number(trained['rows_used'])} of {_number(cleaned['rows_out'])} rows, and predicted "
        f"{_number(predicted['rows'])}.</p>"
    )


def _columns(cleaned: Mapping[str, Any]) -> str:
    rows = (
        [
            escape(each["name"]),
            each["type"],
            f"{each['null_share']:.1%}",
            _number(each["unreadable"]),
            escape(NOTES.get(each["note"], each["note"])),
        ]
        for each in cleaned["columns"][:MOST_COLUMNS]
    )
    more = len(cleaned["columns"]) - MOST_COLUMNS
    said = f"<p>{_number(more)} more columns are in the manifest's table.</p>" if more > 0 else ""
    renamed = "".join(
        f"<p>Column {escape(old)} is called <code>{escape(new)}</code>.</p>"
        for old, new in cleaned["renamed"].items()
    )
    heads = ["column", "type", "null", "unreadable", "note"]
    return _table(heads, rows, numeric={2, 3}) + said + renamed


def _rejects(cleaned: Mapping[str, Any]) -> str:
    if not cleaned["rejected"]:
        return "<p>None.</p>"
    counts = _table(["reason", "records"], ([escape(r), _number(n)] for r, n in cleaned["rejected"].items()), {1})
    examples = (
        [
            _number(each["record"]),
            _number(each["line"]),
            escape(each["reason"]),
            f"<code>{escape(each['text'])}</code>",
        ]
        for some in cleaned["examples"].values()
        for each in some
    )
    return counts + "<h3>Examples</h3>" + _table(["record", "line", "reason", "text"], examples, {0, 1})


def _model(trained: Mapping[str, Any]) -> Iterable[str]:
    task, details = trained["task"], trained["details"]
    yield _table(
        ["metric", "model", "without features"],
        (
            [name, _metric(value), _metric(trained["baseline"].get(name))]
            for name, value in trained["metrics"].items()
        ),
        {1, 2},
    )
    yield f"<p>Measured on {_number(trained['rows_tested'])} rows that the model has not seen.</p>"
    if "roc" in details:
        yield _figure(charts.roc(details["roc"], trained["metrics"]["auc"]), "ROC curve of the rows held out")
        yield _figure(charts.calibration(details["calibration"]), "Calibration: tenths of the rows held out")
    if "confusion" in details:
        yield _figure(
            charts.confusion(details["confusion"], list(trained["classes"])), "Classes, by share of a row"
        )
    if "residuals" in details:
        yield _figure(charts.residuals(details["residuals"]), "Residuals of rows held out")
    yield _figure(charts.learning_curve(trained["learning_curve"], SCORES[task]), "Learning curve")
    importance = [(each["feature"], each["share"]) for each in trained["top_features"]]
    yield _figure(charts.bars(importance, "share of the gain"), "What the model looks at")
    if trained["dropped_columns"]:
        dropped = ([escape(name), escape(reason)] for name, reason in trained["dropped_columns"].items())
        yield "<h3>Columns that the model does not look at</h3>" + _table(["column", "reason"], dropped)


def _predictions(predicted: Mapping[str, Any]) -> Iterable[str]:
    spread = predicted["distribution"]
    if "classes" in spread:
        counts = [(str(name), float(count)) for name, count in spread["classes"].items()]
        yield _figure(charts.bars(counts, "rows"), "Predicted classes")
        yield _figure(charts.histogram(spread["probability_bins"]), "Probabilities")
    else:
        rows = ([f"{float(mark):.0%}", _metric(value)] for mark, value in spread["quantiles"].items())
        yield _table(["quantile", "prediction"], rows, {1})
    for name, found in predicted.get("news", {}).items():
        said = ", ".join(f"{what.replace('_', ' ')}: {share:.1%}" for what, share in found.items())
        yield f'<p class="warning">Column {escape(name)}: {escape(said)}. The model has not learned from such.</p>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> str:
    right = set(numeric)

    def cells(tag: str, values: Sequence[str]) -> str:
        marked = (' class="n"' if place in right else "" for place in range(len(values)))
        return "".join(f"<{tag}{mark}>{value}</{tag}>" for mark, value in zip(marked, values, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>"


def _figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def _number(value: int) -> str:
    return f"{value:,}"


def _metric(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}" if abs(value) >= 1 else f"{value:.4f}"
