"""Predicts each row of a table, block by block, in the order of the records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kinds.dataset.cleaning.conversion import identifier, literal
from kinds.dataset.cleaning.table import scalar
from kinds.dataset.cleaning.types import ColumnType
from kinds.dataset.engine import Connection, engine
from kinds.dataset.errors import SchemaMismatch
from kinds.dataset.reading.dialect import RECORD_NUMBER, Dialect
from kinds.dataset.schema import Schema
from kinds.dataset.training import matrix, model
from kinds.dataset.training.metrics import Floats
from kinds.dataset.watch import Watch

BLOCK_RECORDS = 500_000
BINS = 20
MAX_LABEL = 100
"""Characters of a class in the event."""
MAX_UNREADABLE = 0.5
PREDICTION, PROBABILITY = "prediction", "probability"


def predict(
    table: Path,
    folder: Path,
    model_text: str,
    schema: Schema,
    *,
    id_column: str | None,
    watch: Watch,
    on_block: Callable[[int, Path], None],
    done: Collection[int] = (),
    block_records: int = BLOCK_RECORDS,
) -> int:
    """Write a Parquet file for each block of records, and return how many rows the table has.

    `on_block(number, file)` keeps the file. Blocks of an earlier attempt are `done`.
    """
    booster = model.load(model_text)
    with engine(folder, watch) as connection:
        source = f"read_parquet({literal(str(table))})"
        rows = scalar(connection, f"SELECT count(*) FROM {source}")
        last = scalar(connection, f"SELECT COALESCE(max({RECORD_NUMBER}), 0) FROM {source}")
        features = matrix.select(matrix.prepare(connection, schema.features))
        keys = ", ".join([RECORD_NUMBER, *([f"{identifier(id_column)} AS id"] if id_column else [])])
        for number, first in enumerate(range(1, last + 1, block_records)):
            if number not in done:
                found = connection.execute(
                    f"SELECT {keys}, {features} FROM {source} "
                    f"WHERE {RECORD_NUMBER} BETWEEN {first} AND {first + block_records - 1}"
                ).fetchnumpy()
                target = folder / f"block-{number:05d}.parquet"
                _write_block(connection, found, booster, schema, id_column, target)
                on_block(number, target)
                target.unlink()
            watch.advance((first + block_records - 1) / last)
    return rows


def _write_block(
    connection: Connection,
    found: dict[str, Any],
    booster: Any,
    schema: Schema,
    id_column: str | None,
    target: Path,
) -> None:
    keys = {name: found.pop(name) for name in (RECORD_NUMBER, "id") if name in found}
    predicted = _predicted(booster, schema, matrix.fill(found, len(schema.features)))
    connection.register("block", keys | predicted)
    label = PREDICTION
    if schema.task != "regression":
        label = f"([{', '.join(map(literal, schema.classes))}])[code + 1] AS {PREDICTION}, {PROBABILITY}"
    named = f"id AS {identifier(id_column)}, " if id_column else ""
    connection.execute(
        f"COPY (SELECT {RECORD_NUMBER}, {named}{label} FROM block) TO {literal(str(target))} "
        "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
    )
    connection.unregister("block")


def _predicted(booster: Any, schema: Schema, rows: matrix.Matrix) -> dict[str, Any]:
    """Binary: the class, and the probability of the positive one. Multiclass: the likeliest, and its own."""
    if not len(rows):
        return {PREDICTION: np.empty(0), "code": np.empty(0, dtype=np.int64), PROBABILITY: np.empty(0)}
    scores: Floats = model.predict(booster, rows)
    if schema.task == "regression":
        return {PREDICTION: scores}
    if schema.task == "binary":
        return {"code": (scores > 0.5).astype(np.int64), PROBABILITY: scores}
    return {"code": scores.argmax(axis=1), PROBABILITY: scores.max(axis=1)}


def distribution(folder: Path, predictions: str, schema: Schema, watch: Watch) -> dict[str, Any]:
    """Counts of each predicted class and of probabilities in twentieths, or quantiles of the values."""
    with engine(folder, watch) as connection:
        if schema.task == "regression":
            marks = [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]
            row = connection.execute(f"SELECT quantile_cont({PREDICTION}, {marks}) FROM {predictions}").fetchone()
            values = row[0] if row and row[0] else []
            return {"quantiles": {str(mark): value for mark, value in zip(marks, values, strict=False)}}
        classes = connection.execute(f"SELECT {PREDICTION}, count(*) FROM {predictions} GROUP BY 1").fetchall()
        bins = connection.execute(
            f"SELECT least(floor({PROBABILITY} * {BINS}), {BINS - 1})::INT, count(*) FROM {predictions} GROUP BY 1"
        ).fetchall()
        counted = dict(bins)
        return {
            "classes": {str(label)[:MAX_LABEL]: int(count) for label, count in sorted(classes)},
            "probability_bins": [int(counted.get(place, 0)) for place in range(BINS)],
        }


# ── rows of another file ─────────────────────────────────────────────────────────────────────────────────────


def require_header(dialect: Dialect, schema: Schema, id_column: str | None) -> None:
    """Raises SchemaMismatch for a column that the model needs and the file has not, or has twice."""
    given = [name.lower() for name in dialect.given]
    for name in [*schema.types, *([id_column] if id_column else [])]:
        if name not in dialect.names:
            raise SchemaMismatch(
                f"The file of predict_s3_key has no column {name!r}, which the model needs. Add it."
            )
        if given.count(name.lower()) > 1:
            raise SchemaMismatch(f"predict_s3_key: the file has several columns {name!r}. Keep one.")


def require_readable(schema: Schema, unreadable: Mapping[str, int], rows: int) -> None:
    """Raises SchemaMismatch for a column whose values are mostly of another type than those learned from."""
    for name, count in unreadable.items():
        if count > MAX_UNREADABLE * rows:
            kind = schema.types[name].name
            raise SchemaMismatch(
                f"{count} of {rows} values of the column {name!r} are no {kind}, as in the data that the "
                "model learned from. Check whether columns are exchanged."
            )


def types_of(schema: Schema, id_type: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """How columns of another file are read: as those that the model learned from."""
    return {**id_type, **schema.types}


def news(folder: Path, table: Path, schema: Schema, watch: Watch) -> dict[str, Any]:
    """By column: the share of values that are no category that the model knows, and of nulls that it never saw."""
    source, found = f"read_parquet({literal(str(table))})", dict[str, Any]()
    with engine(folder, watch) as connection:
        codes = matrix.prepare(connection, schema.features)
        for code, feature in zip(codes, schema.features, strict=True):
            if feature.kind not in ("category", "number", "boolean"):
                continue
            name = identifier(feature.columns[0])
            row = connection.execute(
                f"SELECT avg(({name} IS NOT NULL AND ({code}) IS NULL)::INT), avg(({name} IS NULL)::INT) "
                f"FROM {source}"
            ).fetchone() or (0, 0)
            unseen, nulls = float(row[0] or 0), float(row[1] or 0)
            if unseen:
                found.setdefault(feature.columns[0], {})["unseen_categories"] = round(unseen, 4)
            if nulls and not feature.had_nulls:
                found.setdefault(feature.columns[0], {})["new_nulls"] = round(nulls, 4)
    return found
