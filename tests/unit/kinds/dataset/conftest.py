"""Files to clean, and what came of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from kinds.dataset.cleaning.clean import Cleaned, Files, clean
from kinds.dataset.watch import Watch


@dataclass(frozen=True)
class Outcome:
    cleaned: Cleaned
    names: list[str]
    rows: list[tuple[Any, ...]]
    rejects: list[dict[str, Any]]
    unreadable: list[dict[str, Any]]

    @property
    def types(self) -> list[str]:
        return [column.type.name for column in self.cleaned.columns]

    @property
    def notes(self) -> list[str]:
        return [column.type.note for column in self.cleaned.columns]


def cleaned(data: bytes, *, block: int = 2**20, **options: Any) -> Outcome:
    """What comes of a file with these bytes, read in blocks of this size."""

    def source() -> Iterator[bytes]:
        return (data[start : start + block] for start in range(0, len(data), block))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = Files(folder / "table.parquet", folder / "rejects.jsonl", folder / "unreadable.jsonl")
        facts = clean(source, folder, files, watch=Watch(), **options)
        found = duckdb.sql(f"SELECT * FROM '{files.table}'")
        lines = [path.read_text().splitlines() for path in (files.rejects, files.unreadable)]
        rejects, unreadable = ([json.loads(line) for line in part] for part in lines)
        return Outcome(facts, found.columns, found.fetchall(), rejects, unreadable)
