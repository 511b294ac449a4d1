"""Stage 2: trains the model. Each step of the learning curve is kept, so that another attempt goes on after it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kinds.dataset.cleaning.table import Column
from kinds.dataset.cleaning.types import ColumnType
from kinds.dataset.dependencies import dataset_dependencies
from kinds.dataset.models import DatasetFiles
from kinds.dataset.stage import Stage, handler_of
from kinds.dataset.training.train import Limits, Step, train

NAMES = DatasetFiles()
FACTS, CLEANED = "trained.json", "cleaned.json"
TOP_FEATURES = 20
MAX_TEXT = 300
"""Characters of a text in the event: names of columns may be as long as a record."""
TOLD = (
    *("task", "metrics", "baseline", "rows_used", "rows_held_out", "learning_curve", "tree_hash"),
    *("warnings", "seconds"),
)


def work(stage: Stage) -> Mapping[str, Any]:
    facts = stage.load(FACTS) if stage.has(FACTS) else _train(stage)
    told = {name: facts[name] for name in TOLD}
    told["warnings"] = [text[:MAX_TEXT] for text in facts["warnings"][:TOP_FEATURES]]
    top = [each | {"feature": each["feature"][:MAX_TEXT]} for each in facts["top_features"][:TOP_FEATURES]]
    stage.attempt.step("trained", **told, top_features=top)
    return {"task": facts["task"]}


def _train(stage: Stage) -> dict[str, Any]:
    began, settings = time.monotonic(), dataset_dependencies.settings
    seconds = min(settings.dataset_train_seconds, stage.attempt.seconds_left() / 2)
    found = train(
        stage.download(stage.result_key(NAMES.cleaned)),
        stage.folder,
        columns_of(stage),
        stage.input["target"],
        task=stage.input.get("task", "auto"),
        excluded=_excluded(stage),
        limits=Limits(rows=settings.dataset_train_rows, seconds=seconds),
        watch=stage.watch,
        done=_steps(stage),
        on_step=lambda step: stage.save(f"steps/{step.rows:012d}.json", asdict(step)),
    )
    facts = {**found.facts, "seconds": round(time.monotonic() - began, 1)}
    blobs = stage.attempt.blobs
    blobs.put(stage.result_key(NAMES.model), found.text.encode(), content_type="text/plain; charset=utf-8")
    stage.save(NAMES.model_schema, found.schema.as_json())
    blobs.copy(stage.work_key(NAMES.model_schema), stage.result_key(NAMES.model_schema))
    stage.save(FACTS, facts)
    return facts


def columns_of(stage: Stage) -> list[Column]:
    """The columns of the cleaned table, as the stage before typed them."""
    facts = stage.load(CLEANED)
    pairs = zip(facts["columns"], facts["types"], strict=True)
    return [Column(column["name"], ColumnType(**kind)) for column, kind in pairs]


def _excluded(stage: Stage) -> dict[str, str]:
    named = {stage.input["id_column"]: "id_column"} if stage.input.get("id_column") else {}
    return named | dict.fromkeys(stage.input.get("drop") or (), "dropped_by_request")


def _steps(stage: Stage) -> list[Step]:
    """What earlier attempts have trained."""
    keys = stage.attempt.blobs.keys(stage.work_key("steps/"))
    return [Step(**stage.load(f"steps/{key.rpartition('/')[2]}")) for key in keys]


handler = handler_of("train", work)
