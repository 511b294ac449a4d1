"""Training a model, and predicting with it (kinds.dataset.training, kinds.dataset.predicting)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import JobClosed
from kinds.dataset import predicting
from kinds.dataset.cleaning.clean import Files, clean
from kinds.dataset.cleaning.table import Column
from kinds.dataset.errors import (
    NoFeatures,
    RejectedDataset,
    SchemaMismatch,
    TargetSingleClass,
    TargetUnsuitable,
    TooFewRows,
)
from kinds.dataset.exporting import write_predictions
from kinds.dataset.schema import Schema
from kinds.dataset.training import metrics, model
from kinds.dataset.training.train import Limits, Step, Trained, train
from kinds.dataset.watch import Watch

LIMITS = Limits(rows=100_000, seconds=60)
Row = dict[str, Any]


def rows(count: int = 600, **changes: Callable[[Row], Any]) -> list[Row]:
    """Rows whose target `y` follows from `x` and `color`, with noise. `changes`: other columns."""
    found, chance = [], random.Random(7)
    for n in range(count):
        x, color = chance.uniform(0, 10), chance.choice(["red", "green", "blue"])
        chosen = chance.random() < (0.8 if x > 6 and color != "red" else 0.15)
        row: Row = {"id": f"k{n}", "x": f"{x:.7f}", "color": color, "y": "yes" if chosen else "no", "n": n}
        row |= {name: change(row) for name, change in changes.items()}
        found.append({name: value for name, value in row.items() if name != "n"})
    return found


def as_csv(found: list[Row]) -> bytes:
    lines = [",".join(found[0]), *(",".join(str(value) for value in row.values()) for row in found)]
    return ("\n".join(lines) + "\n").encode()


class Table:
    """A cleaned table in a folder."""

    def __init__(self, folder: Path, found: list[Row], **options: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.file = folder, folder / "table.parquet"
        files = Files(self.file, folder / "rejects.jsonl", folder / "unreadable.jsonl")
        self.cleaned = clean(lambda: [as_csv(found)], folder, files, watch=Watch(), **options)
        self.columns: list[Column] = list(self.cleaned.columns)

    def train(self, target: str = "y", **options: Any) -> Trained:
        given: dict[str, Any] = {"task": "auto", "excluded": {}, "limits": LIMITS, "watch": Watch()}
        return train(self.file, self.folder, self.columns, target, **given | options)

    def predict(
        self, trained: Trained, *, id_column: str | None = None, block: int = 1000
    ) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []

        def keep(_: int, path: Path) -> None:
            found.extend(duckdb.sql(f"SELECT * FROM '{path}'").fetchall())

        predicting.predict(
            self.file,
            self.folder,
            trained.text,
            trained.schema,
            id_column=id_column,
            watch=Watch(),
            on_block=keep,
            block_records=block,
        )
        return found


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp("table"), rows())


@pytest.fixture(scope="module")
def trained(table: Table) -> Trained:
    return table.train()


# ── training ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_learns(trained: Trained) -> None:
    """The model is better than one that looks at nothing, on rows that it has not seen."""
    facts = trained.facts
    assert (facts["task"], trained.schema.classes) == ("binary", ("false", "true"))
    assert facts["metrics"]["auc"] > 0.6 > facts["baseline"]["auc"] == 0.5
    assert facts["metrics"]["log_loss"] < facts["baseline"]["log_loss"]
    assert facts["dropped_columns"] == {"y": "target", "id": "identifier"}
    assert facts["rows_used"] + facts["rows_held_out"] == 600


def test_same_trees(table: Table, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows give the same trees, also with another number of threads."""
    monkeypatch.setattr(model, "threads", lambda: 1)
    again = table.train()
    assert again.facts["tree_hash"] == trained.facts["tree_hash"]
    assert "end of trees" in again.text


@pytest.mark.parametrize(
    ("change", "task", "metric"),
    [
        (lambda row: f"{3 * float(row['x']) + row['n'] % 3:.2f}", "regression", "r2"),
        (lambda row: ["low", "middle", "high"][min(2, int(float(row["x"]) // 4))], "multiclass", "accuracy"),
        (lambda row: int(float(row["x"]) // 4), "multiclass", "accuracy"),
        (lambda row: -1 if float(row["x"]) > 5 else 1, "binary", "auc"),
        (lambda row: 2 if float(row["x"]) > 5 else 0, "binary", "auc"),
    ],
)
def test_tasks(tmp_path: Path, change: Callable[[Row], Any], task: str, metric: str) -> None:
    """The task follows from the values of the target; its labels are mapped, whatever they are."""
    found = Table(tmp_path, rows(y=change)).train()
    assert found.facts["task"] == task
    assert found.facts["metrics"][metric] > 0.9


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"y": lambda row: "same"}, TargetSingleClass),
        ({"y": lambda row: "yes" if row["n"] < 30 else ""}, TooFewRows),
        ({"y": lambda row: "rare" if row["n"] < 3 else "A" + row["y"]}, TargetUnsuitable),
        ({"y": lambda row: f"2024-01-{row['n'] % 28 + 1:02d}"}, TargetUnsuitable),
        ({"y": lambda row: f"w{row['n']}"}, TargetUnsuitable),
        ({"x": lambda row: 1, "color": lambda row: ""}, NoFeatures),
    ],
)
def test_unsuitable(tmp_path: Path, changes: dict[str, Any], error: type[RejectedDataset]) -> None:
    """A target or a table that nothing can be learned from is refused before training, with the reason."""
    with pytest.raises(error, match=r"'y'|column"):
        Table(tmp_path, rows(**changes)).train()


@pytest.mark.parametrize(("task", "message"), [("regression", "needs numbers"), ("multiclass", "two values")])
def test_unsuitable_task(table: Table, task: Any, message: str) -> None:
    """A task that does not fit the target is refused."""
    with pytest.raises(TargetUnsuitable, match=message):
        table.train(task=task)


def test_leaks(tmp_path: Path) -> None:
    """Identifiers, constants, free texts and copies of the target are no features, and the reasons are told."""
    found = Table(
        tmp_path,
        rows(
            copy=lambda row: {"yes": "A", "no": "B"}[row["y"]],
            number=lambda row: 10_000 + row["n"],
            large=lambda row: 2**60 + row["n"] % 7,
            same=lambda row: "v",
            when=lambda row: f"2024-{row['n'] % 12 + 1:02d}-05",
            almost=lambda row: (10 if row["y"] == "yes" else 0) + (row["n"] == 7) * 20,
        ),
    ).train()
    assert found.facts["dropped_columns"] == {
        "id": "identifier",
        "y": "target",
        "copy": "copy_of_target",
        "number": "identifier",
        "large": "beyond_53_bits",
        "same": "constant",
    }
    assert {feature.kind for feature in found.schema.features if feature.columns == ("when",)} == {
        "days",
        "weekday",
        "month",
    }
    assert any("almost" in text for text in found.facts["warnings"])


def test_labels_are_checked() -> None:
    """LightGBM would take these labels without a word."""
    for labels in ([np.nan, 1], [0, 2], [-1, 1]):
        pair = np.zeros((2, 1), dtype=np.float32), np.array(labels, dtype=np.float64)
        with pytest.raises(ValueError, match="a label"):
            model.fit("binary", 2, [], pair, pair, Watch())


def test_held_out_rows_do_not_leak(monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
    """No row that is held out is learned from, and no row that stops the training is measured."""
    seen: list[Any] = []
    fit = model.fit

    def spy(task: Any, classes: int, features: Any, learned: Any, judged: Any, watch: Watch) -> Any:
        seen.append(({tuple(row) for row in learned[0]}, {tuple(row) for row in judged[0]}))
        return fit(task, classes, features, learned, judged, watch)

    monkeypatch.setattr(model, "fit", spy)
    table.train()
    assert len(seen) == 3
    assert seen[0][0] < seen[1][0] < seen[2][0]  # nested samples
    assert all(not learned & judged and judged == seen[0][1] for learned, judged in seen)


def test_resumed(table: Table, trained: Trained) -> None:
    """Steps of an earlier attempt are not trained again, and the model is the same."""
    kept: list[Step] = []
    table.train(on_step=kept.append)
    more: list[Step] = []
    again = table.train(done=kept[:2], on_step=more.append)
    assert [step.rows for step in more] == [kept[2].rows]
    assert again.facts["tree_hash"] == trained.facts["tree_hash"]


def test_canceled(table: Table) -> None:
    """The training ends with the job."""

    class Closed(Watch):
        looks = 0

        def check(self) -> None:
            self.looks += 1
            if self.looks > 5:
                raise JobClosed("the job is canceled")

    with pytest.raises(JobClosed):
        table.train(watch=Closed())


# ── predicting ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("block", [47, 599, 600, 601])
def test_blocks(table: Table, trained: Trained, block: int) -> None:
    """Predictions are one for each row, in order, and do not depend on the size of the blocks."""
    found = table.predict(trained, id_column="id", block=block)
    assert [row[0] for row in found] == list(range(1, 601))
    assert [row[1] for row in found] == [f"k{n}" for n in range(600)]
    assert {row[2] for row in found} == {"true", "false"}
    assert found == table.predict(trained, id_column="id", block=1000)


def test_unseen(tmp_path: Path, trained: Trained) -> None:
    """Categories that the model does not know are predicted as unknown, and their share is told."""
    other = Table(
        tmp_path,
        [{"color": "Red " if n % 2 else "mauve", "x": "" if n % 4 == 0 else "5"} for n in range(100)],
        types=trained.schema.types,
        drop_duplicates=False,
    )
    assert len(other.predict(trained)) == 100
    news = predicting.news(tmp_path, other.file, trained.schema, Watch())
    assert news == {"color": {"unseen_categories": 0.5}, "x": {"new_nulls": 0.25}}


def test_exchanged_columns(tmp_path: Path, trained: Trained) -> None:
    """A file whose columns are missing or exchanged is refused, and the error names the column."""
    swapped = [{"x": row["color"], "color": row["x"]} for row in rows(100)]
    table = Table(tmp_path, swapped, types=trained.schema.types)
    with pytest.raises(SchemaMismatch, match="'x' are no number"):
        predicting.require_readable(trained.schema, table.cleaned.unreadable, 100)
    with pytest.raises(SchemaMismatch, match="no column 'id'"):
        predicting.require_header(table.cleaned.dialect, trained.schema, "id")


def test_schema_is_kept_as_json(trained: Trained) -> None:
    """A schema comes back from its JSON."""
    assert Schema.from_json(json.loads(json.dumps(trained.schema.as_json()))) == trained.schema


def test_exported_cells(tmp_path: Path) -> None:
    """Only texts that a spreadsheet would run get an apostrophe in the CSV; the Parquet file is exact."""
    ids = ["=1+1", "-5", "-cmd", "@x", "plain", "+1e3", "\tx"]
    values = ", ".join(f"({n}, '{text}', 'yes')" for n, text in enumerate(ids))
    block = tmp_path / "block.parquet"
    duckdb.sql(f"COPY (SELECT * FROM (VALUES {values}) t(record_number, id, prediction)) TO '{block}'")
    parquet, csv = tmp_path / "p.parquet", tmp_path / "p.csv"
    assert write_predictions([block], tmp_path, parquet, csv, Watch()) == 4
    assert [row[1] for row in duckdb.sql(f"SELECT * FROM '{parquet}'").fetchall()] == ids
    lines = [line.split(",")[1].strip('"') for line in csv.read_text().splitlines()[1:]]
    assert lines == ["'=1+1", "-5", "'-cmd", "'@x", "plain", "+1e3", "'\tx"]


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=2, max_size=30))
def test_auc(pairs: list[tuple[bool, int]]) -> None:
    """AUC is the share of pairs of both classes that are in order; ties count half."""
    positive, scores = np.array([p for p, _ in pairs]), np.array([s for _, s in pairs], dtype=float)
    high, low = scores[positive], scores[~positive]
    found = metrics.auc(positive, scores)
    if not len(high) or not len(low):
        assert found is None
    else:
        wins = (high[:, None] > low).sum() + (high[:, None] == low).sum() / 2
        assert found == pytest.approx(wins / (len(high) * len(low)))
