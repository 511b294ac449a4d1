"""Stage 1: cleans the file, and hands the table to the next stages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from core.dependencies import dependencies
from core.errors import DocumentTooLarge
from kinds.dataset.cleaning.clean import Cleaned, Files, clean, require_columns
from kinds.dataset.cleaning.profile import null_shares
from kinds.dataset.dependencies import dataset_dependencies
from kinds.dataset.errors import ColumnMissing, TargetMissing
from kinds.dataset.models import DatasetFiles
from kinds.dataset.reading.dialect import Dialect
from kinds.dataset.stage import Stage, handler_of

NAMES = DatasetFiles()
FACTS = "cleaned.json"
MAX_LISTED_COLUMNS = 100
MAX_NAME = 100
"""Characters of a column's name in the event."""


def work(stage: Stage) -> Mapping[str, Any]:
    facts = stage.load(FACTS) if stage.has(FACTS) else _clean(stage)
    stage.attempt.step("cleaned", **_event(stage, facts))
    return {"rows": facts["rows_out"]}


def _clean(stage: Stage) -> dict[str, Any]:
    source, began = stage.input, time.monotonic()
    _require_size(source["bytes"])

    def blocks() -> Iterable[bytes]:
        return stage.attempt.blobs.stream(source["source_key"], etag=source["etag"])

    files = Files(*(stage.folder / name for name in (NAMES.cleaned, NAMES.rejects, NAMES.unreadable)))
    found = clean(
        blocks,
        stage.folder,
        files,
        watch=stage.watch,
        date_orders=source.get("date_columns"),
        check_header=lambda dialect: _check_header(dialect, source),
        max_rows=dataset_dependencies.settings.dataset_max_rows,
        size=source["bytes"],
    )
    facts = _facts(stage, found, files, seconds=time.monotonic() - began)
    for path in (files.table, files.rejects, files.unreadable):
        stage.upload(stage.result_key(path.name), path)
    facts["seconds"] = round(time.monotonic() - began, 1)
    stage.save(FACTS, facts)
    return facts


def _require_size(size: int) -> None:
    """The limit may have been lowered since the submission."""
    limit = dependencies.settings.max_upload_bytes
    if size > limit:
        raise DocumentTooLarge(f"The file has {size} bytes; the limit is {limit}. Split it.")


def _check_header(dialect: Dialect, source: Mapping[str, Any]) -> None:
    """Raises TargetMissing, ColumnMissing or AmbiguousColumn before the file is read."""
    try:
        require_columns(dialect, {"target": source["target"]})
    except ColumnMissing as error:
        raise TargetMissing(str(error)) from None
    if source.get("id_column"):
        require_columns(dialect, {"id_column": source["id_column"]})
    for field in ("drop", "date_columns"):
        for name in source.get(field) or ():
            require_columns(dialect, {field: name})


def _facts(stage: Stage, found: Cleaned, files: Files, *, seconds: float) -> dict[str, Any]:
    shares = null_shares(stage.folder, files.table, [column.name for column in found.columns], stage.watch)
    columns = [
        {
            "name": column.name,
            "type": column.type.name,
            "null_share": shares[column.name],
            "unreadable": found.unreadable.get(column.name, 0),
            "note": column.type.note,
        }
        for column in found.columns
    ]
    return {
        "rows_in": found.rows_in,
        "rows_out": found.rows_out,
        "rejected": dict(found.rejected),
        "duplicates": found.duplicates,
        "columns": columns,
        "types": [asdict(column.type) for column in found.columns],
        "encoding": found.encoding,
        "delimiter": found.dialect.delimiter,
        "renamed": found.dialect.renamed,
        "examples": found.examples,
        "seconds": seconds,
    }


def _event(stage: Stage, facts: Mapping[str, Any]) -> dict[str, Any]:
    listed = [each | {"name": each["name"][:MAX_NAME]} for each in facts["columns"][:MAX_LISTED_COLUMNS]]
    names = ("rows_in", "rows_out", "rejected", "duplicates", "encoding", "delimiter", "seconds")
    return {
        **{name: facts[name] for name in names},
        "column_count": len(facts["columns"]),
        "columns": listed,
        "cleaned_key": stage.result_key(NAMES.cleaned),
        "rejects_key": stage.result_key(NAMES.rejects),
    }


handler = handler_of("clean", work)
