"""Stage 5: writes the report, and returns the job's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinds.dataset.models import Dataset, DatasetFiles
from kinds.dataset.report.page import page
from kinds.dataset.stage import Stage, handler_of

NAMES = DatasetFiles()


def work(stage: Stage) -> Mapping[str, Any]:
    cleaned, trained, predicted, exported = (
        stage.load(f"{name}.json") for name in ("cleaned", "trained", "predicted", "exported")
    )
    facts = {"target": stage.input["target"], "cleaned": cleaned, "trained": trained, "predicted": predicted}
    report = stage.folder / NAMES.report
    report.write_text(page(facts), encoding="utf-8")
    stage.upload(stage.result_key(NAMES.report), report)
    return Dataset(
        task=trained["task"],
        metrics=trained["metrics"],
        rows=cleaned["rows_out"],
        rows_predicted=predicted["rows"],
        exported=exported["files"],
        files=NAMES,
    ).model_dump(mode="json")


handler = handler_of("report", work)
