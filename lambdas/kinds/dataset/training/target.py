"""What is to be predicted: the task, the classes, and the label of each row as a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kinds.dataset.cleaning.conversion import identifier, literal
from kinds.dataset.cleaning.table import scalar
from kinds.dataset.cleaning.types import BOOLEANS, ColumnType
from kinds.dataset.engine import Connection
from kinds.dataset.errors import TargetSingleClass, TargetUnsuitable, TooFewRows
from kinds.dataset.schema import Task

MIN_ROWS = 50
MIN_ROWS_OF_CLASS = 5
MAX_CLASSES, MAX_INTEGER_CLASSES = 100, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`sql`: the label of a row as a number, or null. `counts`: rows of each class. `unlabeled`: rows without."""

    task: Task
    classes: tuple[str, ...]
    counts: Mapping[str, int]
    sql: str
    labeled: int
    unlabeled: int


def understand(
    connection: Connection,
    table: str,
    name: str,
    kind: ColumnType,
    task: Task | Literal["auto"],
) -> Target:
    """`table`: as SQL. Raises TooFewRows, TargetSingleClass, and TargetUnsuitable."""
    column = identifier(name)
    rows, labeled = _counts(connection, table, column)
    if labeled < MIN_ROWS:
        raise TooFewRows(f"{labeled} records have a value of {name!r}; training needs {MIN_ROWS}. Add records.")
    distinct = scalar(connection, f"SELECT count(*) FROM (SELECT DISTINCT {column} FROM {table} "
                                  f"WHERE {column} IS NOT NULL LIMIT {MAX_CLASSES + 1})")  # fmt: skip
    if distinct == 1:
        raise TargetSingleClass(f"All records have the same value of {name!r}, so there is nothing to learn.")
    chosen = _choose(name, kind, distinct) if task == "auto" else task
    _require_fitting(name, kind, distinct, chosen)
    if chosen == "regression":
        return Target(
            task=chosen,
            classes=(),
            counts={},
            sql=f"{column}::DOUBLE",
            labeled=labeled,
            unlabeled=rows - labeled,
        )
    counts = _class_counts(connection, table, column, kind)
    _require_frequent(name, counts)
    cases = " ".join(f"WHEN {literal(label)} THEN {code}" for code, label in enumerate(counts))
    return Target(
        task=chosen,
        classes=tuple(counts),
        counts=counts,
        sql=f"(CASE {column}::VARCHAR {cases} END)::DOUBLE",
        labeled=labeled,
        unlabeled=rows - labeled,
    )


def _counts(connection: Connection, table: str, column: str) -> tuple[int, int]:
    row = connection.execute(f"SELECT count(*), count({column}) FROM {table}").fetchone() or (0, 0)
    return int(row[0]), int(row[1])


def _choose(name: str, kind: ColumnType, distinct: int) -> Task:
    if distinct == 2:
        return "binary"
    if kind.is_numeric:
        return "multiclass" if kind.name == "integer" and distinct <= MAX_INTEGER_CLASSES else "regression"
    return "multiclass"


def _require_fitting(name: str, kind: ColumnType, distinct: int, task: Task) -> None:
    if kind.name in ("date", "timestamp"):
        raise TargetUnsuitable(f"{name!r} is a {kind.name}, which cannot be predicted. Choose another target.")
    if task == "regression" and not kind.is_numeric:
        raise TargetUnsuitable(f"{name!r} is {kind.name}; a regression needs numbers. Leave `task` out.")
    if task == "binary" and distinct != 2:
        raise TargetUnsuitable(f"{name!r} has more than two values. Use the task multiclass or regression.")
    if task == "multiclass" and distinct > MAX_CLASSES:
        raise TargetUnsuitable(f"{name!r} has more than {MAX_CLASSES} values, too many to be classes.")
    if task == "multiclass" and distinct == 2:
        raise TargetUnsuitable(f"{name!r} has two values. Use the task binary, or leave `task` out.")


def _class_counts(connection: Connection, table: str, column: str, kind: ColumnType) -> dict[str, int]:
    """By class, in the order of their numbers. Of two, the positive one is last: yes, true, or the greater."""
    order = column if kind.is_numeric else f"lower({column}::VARCHAR), {column}::VARCHAR"
    found = connection.execute(
        f"SELECT {column}::VARCHAR, count(*) FROM {table} WHERE {column} IS NOT NULL "
        f"GROUP BY {column} ORDER BY {order}"
    ).fetchall()
    counts = {str(label): int(count) for label, count in found}
    truth = [BOOLEANS.get(label.strip().lower()) for label in counts]
    return dict(reversed(counts.items())) if truth == [True, False] else counts


def _require_frequent(name: str, counts: Mapping[str, int]) -> None:
    for label, count in counts.items():
        if count < MIN_ROWS_OF_CLASS:
            raise TargetUnsuitable(
                f"Only {count} records have {label[:100]!r} in {name!r}; each value needs {MIN_ROWS_OF_CLASS}. "
                "Add such records, or remove these."
            )
