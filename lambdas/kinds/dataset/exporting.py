"""Writes predictions as one Parquet and one CSV file, and a manifest with the checksums of all files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kinds.dataset.cleaning.conversion import identifier, literal
from kinds.dataset.engine import engine
from kinds.dataset.watch import Watch

READ_BYTES = 1024 * 1024
FORMULA = r"^[=+\-@\t\r]"
"""Cells that begin so are formulas for a spreadsheet: https://owasp.org/www-community/attacks/CSV_Injection"""


def write_predictions(blocks: Sequence[Path], folder: Path, parquet: Path, csv: Path, watch: Watch) -> int:
    """Write both files in the order of the blocks. Returns how many cells of the CSV got an apostrophe.

    Texts that a spreadsheet would run as a formula get one, unless they are numbers. The Parquet file is exact.
    """
    source = " UNION ALL ".join(f"SELECT * FROM read_parquet({literal(str(block))})" for block in blocks)
    with engine(folder, watch) as connection:
        connection.execute(f"CREATE TEMP VIEW predictions AS {source}")
        columns = connection.execute("DESCRIBE predictions").fetchall()
        connection.execute(f"COPY predictions TO {literal(str(parquet))} (FORMAT parquet, COMPRESSION zstd)")
        watch.check()
        texts = [str(name) for name, kind, *_ in columns if kind == "VARCHAR"]
        safe = [_safe(str(name)) if str(name) in texts else identifier(str(name)) for name, *_ in columns]
        connection.execute(f"COPY (SELECT {', '.join(safe)} FROM predictions) TO {literal(str(csv))} (HEADER)")
        if not texts:
            return 0
        changed = " + ".join(f"count(*) FILTER ({_is_formula(name)})" for name in texts)
        row = connection.execute(f"SELECT {changed} FROM predictions").fetchone()
        return int(row[0]) if row else 0


def _is_formula(name: str) -> str:
    column = identifier(name)
    return f"regexp_matches({column}, {literal(FORMULA)}) AND TRY_CAST({column} AS DOUBLE) IS NULL"


def _safe(name: str) -> str:
    column = identifier(name)
    return f"CASE WHEN {_is_formula(name)} THEN '''' || {column} ELSE {column} END AS {column}"


def described(path: Path, key: str) -> dict[str, Any]:
    """The file's key, size and checksum."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return {"name": path.name, "key": key, "bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def write_manifest(path: Path, job_id: str, files: Sequence[Mapping[str, Any]], notes: Mapping[str, Any]) -> None:
    path.write_text(
        json.dumps({"job_id": job_id, "files": list(files), **notes}, indent=2) + "\n", encoding="utf-8"
    )
