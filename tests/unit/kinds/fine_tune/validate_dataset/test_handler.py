"""The first stage of a fine-tune (kinds.fine_tune.validate_dataset)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import CostLimitExceeded, JobClosed, SourceNotFound
from core.jobs import JobStore, cancel
from kinds.fine_tune.models import DatasetValidated, InvalidDataset
from kinds.fine_tune.validate_dataset.handler import handler
from tests.unit.kinds.fine_tune.conftest import EXECUTION, UPLOAD, submitted

LINES = [{"prompt": f"What is {number}?", "completion": "A number."} for number in range(3)]
DATASET = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)


def run(store: JobStore, blobs: Blobs, data: bytes = DATASET, **given: Any) -> tuple[str, dict[str, Any]]:
    """The job's id, and what the handler returns."""
    job_id = submitted(store, blobs, data, **given).job_id
    return job_id, handler({"job_id": job_id, "execution": EXECUTION}, None)


def validated(store: JobStore) -> dict[str, Any]:
    (job_id,) = {key["pk"].partition("#")[2] for key in _items() if key["sk"] == "META"}
    return dict(list(store.log.read(job_id))[-1].payload)


def _items() -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = dependencies.dynamodb.scan(TableName="jobs")["Items"]
    return items


def test_valid_dataset(store: JobStore, blobs: Blobs) -> None:
    """The examples are written in the model's format. The event says so, with the cost of all epochs."""
    job_id, answer = run(store, blobs)
    assert answer == {"result_key": f"work/{job_id}/fine_tune/result.json"}
    written = blobs.get(f"work/{job_id}/fine_tune/dataset.jsonl").splitlines()
    assert json.loads(written[0]) == {
        "schemaVersion": "bedrock-conversation-2024",
        "messages": [
            {"role": "user", "content": [{"text": "What is 0?"}]},
            {"role": "assistant", "content": [{"text": "A number."}]},
        ],
    }
    event = validated(store)
    assert DatasetValidated.model_validate(event)
    assert (event["stage"], event["examples"], event["error_count"]) == ("train", 3, 0)
    assert (event["format"], event["converted_to"]) == ("prompt/completion", "bedrock-conversation-2024")
    assert event["training_tokens"] > 2 * len(DATASET) // 4
    assert event["estimated_cost_usd"] == pytest.approx(event["training_tokens"] / 1_000_000)


def test_invalid_dataset(store: JobStore, blobs: Blobs) -> None:
    """The error names the first five errors; the event lists all. Nothing is written."""
    with pytest.raises(InvalidDataset) as caught:
        run(store, blobs, DATASET + b"{}\n" * 7)
    assert str(caught.value).startswith("The dataset has 7 errors. Line 4 has neither")
    assert str(caught.value).count("Line ") == 5
    event = validated(store)
    assert (event["stage"], event["error_count"], len(event["errors"])) == ("validate", 7, 7)
    assert list(blobs.keys("work/")) == []


def test_too_few_examples(store: JobStore, blobs: Blobs) -> None:
    """The smallest number of examples is a setting."""
    with pytest.raises(InvalidDataset, match="there are 1 examples, at least 2"):
        run(store, blobs, DATASET.splitlines()[0])


def test_cost_limit(store: JobStore, blobs: Blobs) -> None:
    """A training that may cost more than allowed fails before it is started, and the event has the cost."""
    with pytest.raises(CostLimitExceeded, match="max_cost_usd"):
        run(store, blobs, max_cost_usd=0.000001)
    assert validated(store)["estimated_cost_usd"] > 0.000001
    assert list(blobs.keys("work/")) == []


def test_changed_upload(store: JobStore, blobs: Blobs) -> None:
    """A file that was replaced after the submission fails the job."""
    job_id = submitted(store, blobs, DATASET).job_id
    blobs.put(UPLOAD, b"other")
    with pytest.raises(SourceNotFound):
        handler({"job_id": job_id, "execution": EXECUTION}, None)


def test_repeated(store: JobStore, blobs: Blobs) -> None:
    """A repetition gives the same answer and logs nothing."""
    job_id, answer = run(store, blobs)
    before = len(list(store.log.read(job_id)))
    assert handler({"job_id": job_id, "execution": EXECUTION}, None) == answer
    assert len(list(store.log.read(job_id))) == before


def test_canceled_meanwhile(store: JobStore, blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dataset of a job that was canceled while it was written is deleted."""
    job_id = submitted(store, blobs, DATASET).job_id
    put = dependencies.blobs.put

    def cancel_then_put(key: str, *args: Any, **options: Any) -> str:
        store.apply(job_id, cancel)
        return put(key, *args, **options)

    monkeypatch.setattr(dependencies.blobs, "put", cancel_then_put)
    with pytest.raises(JobClosed):
        handler({"job_id": job_id, "execution": EXECUTION}, None)
    assert list(blobs.keys("work/")) == []
