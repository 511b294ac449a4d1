"""Stage 3: predicts the rows of the cleaned table, or of another file. Blocks that are done are not done again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinds.dataset import predicting
from kinds.dataset.cleaning.clean import Cleaned, Files, clean
from kinds.dataset.cleaning.conversion import literal
from kinds.dataset.cleaning.types import ColumnType
from kinds.dataset.dependencies import dataset_dependencies
from kinds.dataset.errors import NoRows
from kinds.dataset.models import DatasetFiles
from kinds.dataset.schema import Schema
from kinds.dataset.stage import Stage, handler_of

NAMES = DatasetFiles()
FACTS, BLOCKS, CLEANED = "predicted.json", "blocks/", "cleaned.json"


def work(stage: Stage) -> Mapping[str, Any]:
    facts = stage.load(FACTS) if stage.has(FACTS) else _predict(stage)
    told = {name: facts[name] for name in ("rows", "unpredicted", "distribution", "seconds")}
    stage.attempt.step("predicted", **told)
    return {"rows": facts["rows"]}


def _predict(stage: Stage) -> dict[str, Any]:
    began, blobs = time.monotonic(), stage.attempt.blobs
    schema = Schema.from_json(stage.load(NAMES.model_schema))
    if "predict" in stage.input:
        table, rejects, unpredicted = _read_other(stage, schema)
        news = predicting.news(stage.folder, table, schema, stage.watch)
    else:
        table = stage.download(stage.result_key(NAMES.cleaned))
        rejects = stage.download(stage.result_key(NAMES.rejects))
        unpredicted, news = sum(stage.load(CLEANED)["rejected"].values()), {}
    listed = rejects.rename(stage.folder / NAMES.unpredicted)
    stage.upload(stage.result_key(NAMES.unpredicted), listed)
    done = {int(key.rpartition("-")[2].partition(".")[0]) for key in blobs.keys(stage.work_key(BLOCKS))}
    rows = predicting.predict(
        table,
        stage.folder,
        blobs.get(stage.result_key(NAMES.model)).decode(),
        schema,
        id_column=stage.input.get("id_column"),
        watch=stage.watch,
        on_block=lambda number, path: stage.upload(stage.work_key(f"{BLOCKS}{path.name}"), path),
        done=done,
    )
    facts = {
        "rows": rows,
        "unpredicted": unpredicted,
        "distribution": _distribution(stage, schema),
        "news": news,
        "seconds": round(time.monotonic() - began, 1),
    }
    stage.save(FACTS, facts)
    return facts


def _distribution(stage: Stage, schema: Schema) -> dict[str, Any]:
    blocks = [stage.download(key) for key in stage.attempt.blobs.keys(stage.work_key(BLOCKS))]
    listed = ", ".join(literal(str(block)) for block in blocks)
    return predicting.distribution(stage.folder, f"read_parquet([{listed}])", schema, stage.watch)


def _read_other(stage: Stage, schema: Schema) -> tuple[Path, Path, int]:
    """(table, rejects, how many) of the file to predict. Repeated records are rows as well."""
    source, id_column = stage.input["predict"], stage.input.get("id_column")
    files = Files(
        stage.folder / "table.parquet", stage.folder / "rejects.jsonl", stage.folder / "unreadable.jsonl"
    )
    kinds = dict[str, ColumnType]()
    if id_column:
        facts = stage.load(CLEANED)
        pairs = zip(facts["columns"], facts["types"], strict=True)
        kinds = {each["name"]: ColumnType(**kind) for each, kind in pairs if each["name"] == id_column}
    found: Cleaned = clean(
        lambda: stage.attempt.blobs.stream(source["source_key"], etag=source["etag"]),
        stage.folder,
        files,
        watch=stage.watch,
        types=predicting.types_of(schema, kinds),
        drop_duplicates=False,
        check_header=lambda dialect: predicting.require_header(dialect, schema, id_column),
        max_rows=dataset_dependencies.settings.dataset_max_rows,
    )
    learned = {name: count for name, count in found.unreadable.items() if name in schema.types}
    predicting.require_readable(schema, learned, found.rows_out)
    if not found.rows_out:
        raise NoRows("The file of predict_s3_key has no records.")
    return files.table, files.rejects, sum(found.rejected.values())


handler = handler_of("predict", work)
