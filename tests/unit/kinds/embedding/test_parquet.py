"""Vectors as Parquet (kinds.embedding.parquet)."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from kinds.embedding import parquet
from tests.support.parquet import read

Row = tuple[int, str | None, list[float]]
SAMPLE = "31c2318fbdab96f580a658f5bbb5d67be6fae01054e45f1f676935d85158f81b"
"""The digest of a file that pyarrow 26.0 and duckdb 2.0 read as these rows."""


def written(rows: list[Row], dimensions: int, group_bytes: int = parquet.ROW_GROUP_BYTES) -> bytes:
    with TemporaryDirectory() as folder, mock.patch.object(parquet, "ROW_GROUP_BYTES", group_bytes):
        path = Path(folder) / "x.parquet"
        with parquet.ParquetFile(path, dimensions=dimensions) as file:
            for line, line_id, vector in rows:
                file.add(line, line_id, struct.pack(f"<{dimensions}f", *vector))
        return path.read_bytes()


@given(st.data(), st.integers(1, 5), st.integers(1, 100))
def test_any_rows(data: st.DataObject, dimensions: int, group_bytes: int) -> None:
    """Every row is read as it was written, in order, however many row groups there are."""
    row = st.tuples(
        st.integers(1, 2**40),
        st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
        st.lists(st.floats(width=32, allow_nan=False), min_size=dimensions, max_size=dimensions),
    )
    rows = data.draw(st.lists(row, max_size=20))
    assert read(written(rows, dimensions, group_bytes)) == rows


def test_sample() -> None:
    """The bytes of a sample are those that other readers have read."""
    rows: list[Row] = [
        (1, None, [0.5, -0.25]),
        (2, "a", [1.0, 0.0]),
        (4, "ñ", [0.0, -1.0]),
        (5, None, [0.25, 0.5]),
    ]
    assert hashlib.sha256(written(rows, 2, group_bytes=24)).hexdigest() == SAMPLE


def test_failure(tmp_path: Path) -> None:
    """A file whose writer failed has no footer, so that nobody takes it for complete."""
    file = parquet.ParquetFile(tmp_path / "x", dimensions=2)
    file.add(1, None, bytes(8))
    file.__exit__(RuntimeError, RuntimeError(), None)
    assert (tmp_path / "x").read_bytes() == parquet.MAGIC
