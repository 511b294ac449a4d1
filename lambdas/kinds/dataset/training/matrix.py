"""The features of rows as a matrix of float32. Null, and a category that the model does not know, is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinds.dataset.cleaning.conversion import identifier, literal
from kinds.dataset.engine import Connection
from kinds.dataset.schema import Feature

Matrix = NDArray[np.float32]


def prepare(connection: Connection, features: Sequence[Feature]) -> list[str]:
    """The SQL of each feature. Makes a type for the codes of each category."""
    return [_sql(connection, place, feature) for place, feature in enumerate(features)]


def _sql(connection: Connection, place: int, feature: Feature) -> str:
    column = identifier(feature.columns[0])
    match feature.kind:
        case "category":
            return _code(connection, place, column, feature.categories)
        case "days":
            return f"epoch({column}) / 86400"
        case "weekday":
            return f"isodow({column})"
        case "month":
            return f"month({column})"
        case "hour":
            return f"hour({column})"
        case "difference":
            return f"(epoch({column}) - epoch({identifier(feature.columns[1])})) / 86400"
        case _:
            return column


def _code(connection: Connection, place: int, column: str, categories: Sequence[str]) -> str:
    name = f"category_{place}"
    connection.execute(f"DROP TYPE IF EXISTS {name}")
    connection.execute(f"CREATE TYPE {name} AS ENUM ({', '.join(map(literal, categories))})")
    return f"enum_code(TRY_CAST(lower(trim({column})) AS {name}))"


def select(expressions: Sequence[str]) -> str:
    """The part of a SELECT that `fill` reads."""
    return ", ".join(
        f"COALESCE(({each})::FLOAT, 'nan'::FLOAT) AS f{place}" for place, each in enumerate(expressions)
    )


def fill(found: dict[str, Any], count: int) -> Matrix:
    """The matrix of what was fetched with `select`. Takes the columns out of `found`, to save memory."""
    rows = len(next(iter(found.values()))) if found else 0
    matrix = np.empty((rows, count), dtype=np.float32)
    for place in range(count):
        matrix[:, place] = np.ma.filled(found.pop(f"f{place}"), np.nan)
    return matrix
