"""Stage 4: writes the predictions as files, and the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinds.dataset.exporting import described, write_manifest, write_predictions
from kinds.dataset.models import DatasetFiles
from kinds.dataset.stage import Stage, handler_of

NAMES = DatasetFiles()
FACTS, BLOCKS = "exported.json", "blocks/"
WRITTEN_BEFORE = (
    NAMES.cleaned,
    NAMES.rejects,
    NAMES.unreadable,
    NAMES.unpredicted,
    NAMES.model,
    NAMES.model_schema,
)
FORMULAS = (
    "Texts in predictions.csv that a spreadsheet would run as a formula have an apostrophe before them. "
    "predictions.parquet is exact."
)


def work(stage: Stage) -> Mapping[str, Any]:
    if not stage.has(FACTS):
        _export(stage)
    return {"exported": True}


def _export(stage: Stage) -> None:
    job, blobs = stage.attempt.job, stage.attempt.blobs
    blocks = [stage.download(key) for key in blobs.keys(stage.work_key(BLOCKS))]
    parquet, csv = stage.folder / NAMES.predictions, stage.folder / NAMES.predictions_csv
    changed = write_predictions(blocks, stage.folder, parquet, csv, stage.watch)
    files = []
    for path in (parquet, csv):
        stage.watch.check()
        stage.upload(stage.result_key(path.name), path)
        files.append(described(path, stage.result_key(path.name)))
    for name in WRITTEN_BEFORE:
        stage.watch.check()
        path = stage.download(stage.result_key(name))
        files.append(described(path, stage.result_key(name)))
        path.unlink()
    manifest = stage.folder / NAMES.manifest
    notes = {"cells_with_apostrophe": changed, "note": FORMULAS, "input": job.input}
    write_manifest(manifest, job.job_id, files, notes)
    stage.upload(stage.result_key(NAMES.manifest), manifest)
    stage.save(FACTS, {"files": [*files, described(manifest, stage.result_key(NAMES.manifest))]})


handler = handler_of("export", work)
