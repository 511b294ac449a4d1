"""What is known of the columns of a cleaned table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kinds.dataset.cleaning.conversion import identifier, literal
from kinds.dataset.engine import engine
from kinds.dataset.watch import Watch


def null_shares(folder: Path, table: Path, names: Sequence[str], watch: Watch) -> dict[str, float]:
    """By column, from 0 to 1."""
    counted = ", ".join(f"1 - count({identifier(name)}) / count(*)" for name in names)
    with engine(folder, watch) as connection:
        row = connection.execute(f"SELECT {counted} FROM read_parquet({literal(str(table))})").fetchone() or ()
    return {name: round(float(share), 6) for name, share in zip(names, row, strict=True)}
