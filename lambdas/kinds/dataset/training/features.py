"""Which columns a model may look at, and what is made of them. Decided on a sample of the rows with a label.

- Not looked at: the target, the id, what the caller drops, constants, identifiers (nearly all values differ), free
  texts, integers that are no doubles, and copies of the target.
- A text with few different values is a category, told apart by its letters without case and outer spaces.
- Dates become days, weekday, month, hour, and the days between two of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from kinds.dataset.cleaning.conversion import hash_below, identifier
from kinds.dataset.cleaning.table import Column
from kinds.dataset.cleaning.types import EXACT
from kinds.dataset.engine import Connection
from kinds.dataset.errors import NoFeatures
from kinds.dataset.reading.dialect import RECORD_NUMBER
from kinds.dataset.schema import Feature
from kinds.dataset.training.metrics import auc
from kinds.dataset.training.target import Target

SAMPLE_ROWS = 100_000
MAX_CATEGORY_VALUES, CATEGORY_SHARE = 1000, 0.02
MAX_CODES = 254
UNIQUE_SHARE, MIN_UNIQUE = 0.98, 50
MAX_PAIRED_DATES = 4
GIVES_AWAY = 0.99
"""AUC of a single feature from which on the report warns."""


@dataclass(slots=True)
class Choice:
    """`dropped`: why a column is not looked at, by name. `warnings`: for the report."""

    features: list[Feature] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def choose(
    connection: Connection,
    table: str,
    columns: Sequence[Column],
    target: Target,
    *,
    excluded: Mapping[str, str],
) -> Choice:
    """`excluded`: columns that are not to be looked at, and why. Raises NoFeatures."""
    _make_sample(connection, table, target)
    choice, dates = Choice(dropped=dict(excluded)), []
    for column in columns:
        if column.name in excluded:
            continue
        facts = _facts(connection, column)
        reason = _reason_to_drop(column, facts) or _copies_target(connection, column, target, facts)
        if reason:
            choice.dropped[column.name] = reason
            continue
        choice.features += _features(connection, column, facts)
        if column.type.name in ("date", "timestamp"):
            dates.append((column.name, facts.nulls > 0))
        _warn_if_it_gives_away(connection, column, target, choice)
    for (one, nulls), (other, more) in combinations(dates[:MAX_PAIRED_DATES], 2):
        choice.features.append(Feature("difference", (other, one), had_nulls=nulls or more))
    if not choice.features:
        reasons = ", ".join(f"{name[:60]}: {reason}" for name, reason in list(choice.dropped.items())[:20])
        raise NoFeatures(f"No column is left to learn from ({reasons}). Add columns that tell about the target.")
    return choice


@dataclass(frozen=True, slots=True)
class _Facts:
    rows: int
    nulls: int
    distinct: int
    largest: float


def _make_sample(connection: Connection, table: str, target: Target) -> None:
    share = min(1.0, SAMPLE_ROWS / max(1, target.labeled))
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE sample AS SELECT *, {target.sql} AS __label FROM {table} "
        f"WHERE {target.sql} IS NOT NULL AND hash({RECORD_NUMBER}, 'sample') <= {hash_below(share)} "
        f"ORDER BY {RECORD_NUMBER}"
    )


def _facts(connection: Connection, column: Column) -> _Facts:
    name = identifier(column.name)
    largest = f"max(abs({name}::DOUBLE))" if column.type.is_numeric else "0"
    row = connection.execute(
        f"SELECT count(*), count(*) - count({name}), count(DISTINCT {name}), {largest} FROM sample"
    ).fetchone() or (0, 0, 0, 0)
    return _Facts(int(row[0]), int(row[1]), int(row[2]), float(row[3] or 0))


def _reason_to_drop(column: Column, facts: _Facts) -> str | None:
    known = facts.rows - facts.nulls
    if facts.distinct <= 1:
        return "constant" if known else "empty"
    unique = facts.distinct >= UNIQUE_SHARE * known and known >= MIN_UNIQUE
    if column.type.name in ("integer", "text") and unique:
        return "identifier"
    if column.type.name == "integer" and facts.largest > EXACT:
        return "beyond_53_bits"
    if column.type.name == "text" and facts.distinct > max(MAX_CATEGORY_VALUES, CATEGORY_SHARE * known):
        return "free_text"
    return None


def _copies_target(connection: Connection, column: Column, target: Target, facts: _Facts) -> str | None:
    """Whether each of its values stands for one value of the target, and the reverse."""
    name = identifier(column.name)
    if target.task == "regression":
        if not column.type.is_numeric:
            return None
        row = connection.execute(f"SELECT corr({name}::DOUBLE, __label) FROM sample").fetchone()
        return "copy_of_target" if row and row[0] is not None and abs(row[0]) > 1 - 1e-9 else None
    if facts.distinct != len(target.classes):
        return None
    row = connection.execute(f"SELECT count(*) FROM (SELECT DISTINCT {name}, __label FROM sample)").fetchone()
    return "copy_of_target" if row and int(row[0]) == len(target.classes) else None


def _features(connection: Connection, column: Column, facts: _Facts) -> list[Feature]:
    nulls, name = facts.nulls > 0, (column.name,)
    match column.type.name:
        case "integer" | "number":
            return [Feature("number", name, had_nulls=nulls)]
        case "boolean":
            return [Feature("boolean", name, had_nulls=nulls)]
        case "date":
            return [Feature(kind, name, had_nulls=nulls) for kind in ("days", "weekday", "month")]
        case "timestamp":
            return [Feature(kind, name, had_nulls=nulls) for kind in ("days", "weekday", "month", "hour")]
        case _:
            return [Feature("category", name, _categories(connection, column.name), nulls)]


def _categories(connection: Connection, name: str) -> tuple[str, ...]:
    """By falling frequency. Rarer ones than the first 254 are read as unknown."""
    key = f"lower(trim({identifier(name)}))"
    found = connection.execute(
        f"SELECT {key}, count(*) FROM sample WHERE {key} <> '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MAX_CODES}"
    ).fetchall()
    return tuple(str(value) for value, _ in found)


def _warn_if_it_gives_away(connection: Connection, column: Column, target: Target, choice: Choice) -> None:
    if target.task != "binary" or not (column.type.is_numeric or column.type.name == "boolean"):
        return
    name = identifier(column.name)
    found: dict[str, Any] = connection.execute(
        f"SELECT {name}::DOUBLE AS v, __label AS y FROM sample WHERE {name} IS NOT NULL"
    ).fetchnumpy()
    value = auc(np.asarray(found["y"]) == 1, np.asarray(found["v"], dtype=np.float64))
    if value is not None and max(value, 1 - value) > GIVES_AWAY:
        choice.warnings.append(
            f"The column {column.name!r} alone tells the target nearly always (AUC {max(value, 1 - value):.3f}). "
            "If it is known only afterwards, drop it."
        )


def names_of(features: Collection[Feature]) -> list[str]:
    """The names under which the model knows them."""
    return [f"f{place}" for place in range(len(features))]
